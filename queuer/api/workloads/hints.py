"""What the reader of a job can do next: one sentence a token, with a command that works as it stands.

What Kubernetes does not let change on a job that exists (its containers, counts, names) is deleted and created again.
Labels and annotations of the job itself are read again when they change.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from queuer.domain.keys import Where, annotation_names
from queuer.domain.queue import ROOT
from queuer.domain.tokens import Token
from queuer.domain.workload import State

_OURS = annotation_names(Where.OWNER)


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """Of whom a hint is made. `params`: of its primary reason; `admits`: changes that would let it start.

    `commanded`: held by a command, not by the job itself.
    """

    uid: str
    kind: str
    namespace: str
    name: str
    queue: str
    params: Mapping[str, Any] = field(default_factory=dict)
    admits: Sequence[str] = ()
    commanded: bool = False

    @property
    def kubectl(self) -> str:
        """The object as kubectl takes it after a verb."""
        return f"{self.kind.lower()} {self.name} -n {self.namespace}"


def hint(job: Job, state: State, *, token: Token | None) -> str:
    """The next step. An ended or running job is looked at; one that waits is told by its token."""
    if token is not None:
        return _behind_hopeless(job) if job.params.get("never") else HINTS[token](job)
    if state in (State.ADMITTED, State.PLACING, State.RUNNING, State.EVICTING):
        return f"kubectl get pods -n {job.namespace} -l queuer.dev/workload={job.uid} -o wide"
    return f"kubectl describe {job.kubectl}"


def _misconfigured(job: Job) -> str:
    """Labels and annotations can be mended in place, fields of the pods can not."""
    steps = [_mended(job, params) for params in (job.params, *job.params.get("also", ()))]
    again = _again(job, "what the reason names mended")
    if again in steps:
        return again
    return (" && " if all(step.startswith("kubectl") for step in steps) else "; ").join(dict.fromkeys(steps))


def _mended(job: Job, params: Mapping[str, Any]) -> str:
    """One fault mended."""
    near = next(iter(params.get("nearest") or ()), None)
    if "fields" in params:
        return _malformed(job, [str(name) for name in params["fields"]])
    if "maxRuntime" in params:
        return f"kubectl annotate {job.kubectl} --overwrite queuer.dev/max-runtime={params['maxRuntime']}"
    if "highest" in params:
        return f"kubectl label {job.kubectl} --overwrite queuer.dev/priority-class={near or 'CLASS'}"
    if "level" in params:
        key = f"queuer.dev/{str(params.get('field', 'topology-required')).partition(' ')[0]}"
        level = near or next(iter(params.get("levels") or ()), None)
        return f"kubectl annotate {job.kubectl} " + (f"--overwrite {key}={level}" if level else f"{key}-")
    if near is not None:
        return f"kubectl label {job.kubectl} --overwrite queuer.dev/queue={near}"
    if "draining" in params:
        return f"wait until {params['draining']} is open again; who administers it can say when"
    if "user" in params:
        return f"ask who administers {params['queue']} to let {params['user'] or 'its user'} use it"
    if "queue" in params:
        whose = params["queue"] if "namespace" in params else ROOT  # one that is not there nobody administers
        return f"ask who administers {whose} to let namespace {job.namespace} use a queue"
    return _again(job, "what the reason names mended")


def _malformed(job: Job, fields: Sequence[str]) -> str:
    verbs, steps = {"annotation": "annotate", "label": "label"}, []
    for kind, names in groupby(sorted(set(fields)), key=lambda name: name.partition(" ")[0]):
        if kind not in verbs:
            return _again(job, "what the reason names mended")
        # What is no annotation of ours can only be taken off.
        keys = [name.partition(" ")[2] for name in names]
        words = [f"{key}=VALUE" if kind == "label" or key.startswith(_OURS) else f"{key}-" for key in keys]
        steps.append(f"kubectl {verbs[kind]} {job.kubectl} --overwrite {' '.join(words)}")
    return " && ".join(steps)


def _again(job: Job, how: str) -> str:
    return f"kubectl delete {job.kubectl}, then create it again with {how}"


def _smaller(job: Job) -> str:
    """Larger than what there could ever be."""
    if "asked" in job.params or "preemptible=true" in job.admits:
        return f"kubectl annotate {job.kubectl} --overwrite queuer.dev/preemptible=true"
    most = job.params.get("left") or job.params.get("limit")
    what = f"at most {most} {job.params['resource']}" if most and "resource" in job.params else "less"
    whose = "" if job.params.get("live") else f"; or ask who administers {job.params.get('queue', job.queue)}"
    return _again(job, what) + whose


def _flavor(job: Job) -> str:
    return _again(job, f"selectors and tolerations of a flavor that {job.queue} allows")


def _quota(job: Job) -> str:
    queue = job.params.get("queue", job.queue)
    if "perUser" in job.params:
        return f"wait; what {job.params['user']} runs has to end first: queuer jobs -q {queue}"
    return (
        _tried(job)
        or f"wait; queuer queue show {queue} says what is used; who administers it may raise the limit"
    )


def _place(job: Job) -> str:
    if job.params.get("idle") and not job.admits:
        return _again(job, "fewer or smaller pods, or a wider topology level")
    return _tried(job) or f"wait; queuer why {job.name} -n {job.namespace} names who holds the room"


def _tried(job: Job) -> str:
    """A change after which it would start, as far as one was found; see `queuer.solver.explain.advice`."""
    change = next(iter(job.admits), "")
    annotate = f"kubectl annotate {job.kubectl}"
    if change.startswith("topology="):
        key, level = "queuer.dev/topology-required", change.partition("=")[2]
        return f"{annotate} {key}-" if level == "any" else f"{annotate} --overwrite {key}={level}"
    if change == "preemptible=true":
        return f"{annotate} --overwrite queuer.dev/preemptible=true"
    if ".count<=" in change:
        # Who waits for others does not give up the job for it.
        return _again(job, change) if job.params.get("idle") else f"wait; with {change} it would start now"
    if " limit " in change:
        return f"ask who administers these queues for {change}"
    return f"wait until {change}" if change else ""


def _behind(job: Job) -> str:
    if "maxPending" in job.params:
        return "wait; fewer waiting jobs of this namespace in this queue bring it nearer"
    if "name" in job.params:
        return f"wait; queuer why {job.params['name']} -n {job.params['namespace']} says what that waits for"
    return f"wait; queuer queue show {job.params.get('ownerQueue', job.queue)}"


def _behind_hopeless(job: Job) -> str:
    """Nothing is wrong with this job, but with the one before it."""
    if "name" in job.params:
        return f"queuer why {job.params['name']} -n {job.params['namespace']}"
    return f"ask who administers {job.params.get('ownerQueue', job.queue)} about the job before it"


def _waits(job: Job) -> str:
    return f"wait; the next cycle tells more: queuer why {job.name} -n {job.namespace}"


def _suspended(job: Job) -> str:
    """The queue is held or drains: what the job says about itself changes nothing."""
    closed = job.params.get("closed") or [job.params.get("queue", job.queue)]
    return f"{' && '.join(f'queuer queue resume {queue}' for queue in closed)}   (by who administers it)"


def _on_hold(job: Job) -> str:
    if job.commanded:
        return f"queuer release {job.kind.lower()}/{job.name} -n {job.namespace}"
    return f"kubectl annotate {job.kubectl} queuer.dev/hold-"


def _describe(job: Job) -> str:
    return f"kubectl describe {job.kubectl}; show it to who operates the cluster"


def _nodes(job: Job) -> str:
    return "kubectl get nodes; show it to who operates the cluster"


def _stale(job: Job) -> str:
    down = "API server does not answer" if job.params.get("state") == "away" else "controller is down"
    return f"nothing starts: show it to who operates the cluster, whose {down}"


HINTS: Mapping[Token, Callable[[Job], str]] = {
    Token.MISCONFIGURED: _misconfigured,
    Token.NO_MATCHING_FLAVOR: _flavor,
    Token.EXCEEDS_MAX_QUOTA: _smaller,
    Token.WAITING_FOR_QUOTA: _quota,
    Token.BORROWING_LIMIT_REACHED: _quota,
    Token.BEHIND_IN_QUEUE: _behind,
    Token.TOPOLOGY_PLACEMENT_FAILED: _place,
    Token.WAITING_FOR_PREEMPTED_WORKLOADS: _waits,
    Token.PENDING_EVALUATION: _waits,
    Token.SOLVER_DEFERRED: _waits,
    Token.SUSPENDED: _suspended,
    Token.ON_HOLD: _on_hold,
    Token.ADMITTED_NOT_PLACED: _describe,
    Token.NODES_UNAVAILABLE: _nodes,
    Token.CONTROLLER_STALE: _stale,
    Token.QUARANTINED: _describe,
}
