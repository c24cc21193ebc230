"""Sentences about the end of a run: why a job is evicted, and for which right; why it failed, or lost pods."""

from __future__ import annotations

from collections.abc import Mapping

from queuer.domain.assignments import EvictionRule, LostWork
from queuer.domain.quantity import Resources, age, devices, in_whole_units, short
from queuer.domain.queue import child_towards, common_ancestor
from queuer.domain.reasons.amounts import be, plural
from queuer.domain.workload import Cause, Workload

PROVED = "the least lost work that makes room (proved on the nodes looked at)"
FOUND = "the best found in the time there was"
"""How victims were chosen."""
MESSAGE = 300
"""Characters of a container's last words, or of a condition, that are told: the end says what was wrong."""
LATE_START = 600.0
"""Seconds from an admission after which somebody has to look why not all pods run."""
LOOK = "look why not all its pods run: most often an image, a Secret, a ConfigMap or a volume is missing"


def evicted_for(cause: str, victim: Workload, other: Workload, lost: LostWork | None = None) -> str:
    """For which job, what that asks, by which right, and the work that is lost beside that of the next best set.

    A job of another namespace is named by its queue and amount alone.
    """
    own = other.namespace == victim.namespace
    who = f"{other.namespace}/{other.name} in {other.queue}" if own else f"a job of {other.queue}"
    text = f"evicted for {who}, which asks {devices(other.demand)} and "
    if cause == Cause.MAX_RUNTIME:
        return f"{text}has a reservation there; it ran longer than its max-runtime"
    if cause == EvictionRule.RECLAIM:
        at = common_ancestor(victim.queue, other.queue)
        text += f"takes back what {child_towards(at, other.queue)} is guaranteed (reclaim at {at})"
    else:
        text += f"goes first by its priority, {other.priority} over {victim.priority} (preempt)"
    if lost is None:
        return text
    all_ = f", all evictions for that job {_work(lost, lost.all)}" if lost.all > lost.amount else ""
    return f"{text}; it loses {_work(lost, lost.amount)} of work{all_}: {_how_chosen(lost)}"


def all_lost(lost: LostWork) -> str:
    """The work that all evictions for a job lose, and how they were chosen."""
    return f"Evictions for it lose {_work(lost, lost.all)} of work: {_how_chosen(lost)}."


def _how_chosen(lost: LostWork) -> str:
    """How the set was found, and the loss of the next best that was looked at."""
    how = PROVED if lost.proved else FOUND
    how += f", for {lost.jobs} jobs together" if lost.jobs > 1 else ""
    return (
        how
        if lost.next is None
        else f"{how}; the next best set looked at would lose {_work(lost, lost.next)}"
    )


def _work(lost: LostWork, amount: int) -> str:
    return f"{in_whole_units(amount, resource=lost.resource):,.0f} {short(lost.resource)}-seconds"


def pod_failed(name: str, node: str | None, *, exit_code: int | None, reason: str, message: str) -> str:
    """`pod train-0 on n1 ended with exit code 137, OOMKilled: last words`."""
    text = f"pod {name}{f' on {node}' if node else ''} "
    text += "failed" if exit_code is None else f"ended with exit code {exit_code}"
    if reason and reason != "Error":
        text += f", {reason}"
    said = " ".join(message.split())[-MESSAGE:]
    return f"{text}: {said}" if said else text


def node_gone(name: str, node: str) -> str:
    """The pod went with its node."""
    return f"node {node} is gone, and pod {name} with it"


def job_failed(pod: str, condition: str) -> str:
    """`pod`: about the first pod that failed; `condition`: of the job object. Either may be empty."""
    said = "; ".join(filter(None, (pod, condition)))
    return f"failed: {said}" if said else ""


def complete_by_eviction(done: int, of: int) -> str:
    """Suspended after its first success, a Job without completions is Complete."""
    when = f"evicted when {done} of {plural(of, 'pod')} had succeeded"
    return f"{when}, and Complete by that: the others were stopped for good"


def pods_lost(short: int, of: int, why: str) -> str:
    """A running gang misses pods."""
    text = f"{short} of {plural(of, 'pod')} {be(short)} gone"
    return f"{text}: {why}" if why else text


def pods_refused(short: int, of: int, said: str) -> str:
    """The API server makes no pod of a gang that lands, in its words."""
    return f"{_of_all(short, of)} refused: {said}"


def not_running(idle: int, of: int, seconds: float) -> str:
    """A gang whose pods are all on nodes is given up, as some of them do not run."""
    return f"{_of_all(idle, of)} on a node and did not run within {seconds:.0f} s"


def late_start(seconds: float, holds: Mapping[str, str]) -> str:
    """A gang has pods that do not run long after it was admitted."""
    return (
        f"not all its pods run {age(seconds)} after it was admitted, and it holds {devices(holds)} meanwhile"
    )


def late_starts(jobs: int, holds: Resources) -> str:
    """The same of so many gangs."""
    were, their, they = ("was", "its", "it holds") if jobs == 1 else ("were", "their", "they hold")
    text = f"{plural(jobs, 'job')} {were} admitted, and not all {their} pods run"
    return f"{text}; {they} {devices(holds)}" if holds else text


def given_up(
    job: Workload, short: int, of: int, *, landed: bool, unbound: int, made: int, seconds: float, why: str
) -> str:
    """A gang misses pods for too long. `made`: pods that are there; `unbound`: those of them on no node."""
    within = f"within {seconds:.0f} s"
    if landed:
        was, their = ("was", "its") if short == 1 else ("were", "their")
        said = f"{plural(short, 'pod')} {was} lost and none took {their} place {within}"
    elif unbound:
        said = f"{_of_all(short, of)} not bound {within}"
    else:
        which = f"{_of_all(short, of)} not" if made else "no pod was"
        describe = f"kubectl describe {job.kind.lower()} {job.name} -n {job.namespace}"
        said = f"{which} created {within}; `{describe}` says why"
    return f"{said}: {why}" if why else said


def _of_all(count: int, of: int) -> str:
    return f"{count} of {plural(of, 'pod')} {'was' if count == 1 else 'were'}"
