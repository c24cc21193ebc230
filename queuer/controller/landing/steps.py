"""Next steps of one workload, from its job and its pods: its life after the decision, as pure functions.

The legal steps are those of `queuer.domain.workload.TRANSITIONS`; a `Move` says what makes one of them, or changes
what a gang holds.

Level-triggered: the answer depends on the present state alone, so it does not matter which events were
missed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from queuer.controller.landing.tally import Tally, larger
from queuer.controller.memory.live import JobView, Live, Short, silent_at, take_down_at
from queuer.controller.settings import Settings
from queuer.domain.assignments import Placement
from queuer.domain.quantity import Resources
from queuer.domain.reasons.job_sentences import left_jobs, left_pods
from queuer.domain.reasons.run_sentences import (
    complete_by_eviction,
    given_up,
    job_failed,
    not_running,
    pods_lost,
    pods_refused,
)
from queuer.domain.workload import Cause, State

PATIENCE = 4
"""Landing deadlines that a gang gets while kube-scheduler has not refused any of its pods: then Kubernetes is
behind with creating or binding them, and evicting the gang would only add to its work."""
CORRECT = 10.0
"""Seconds from when a charge is seen to be wrong until it is corrected."""
_MISSING_CLAIM = re.compile(r'persistentvolumeclaim "([^"]+)" not found')


class Move(StrEnum):
    """The next step of a workload."""

    PATCHED = "patched"  # the job carries our admission: Placing
    LANDED = "landed"  # every pod is bound, or was
    RUNNING = "running"  # every pod runs
    RETURNS = "returns"  # it can run fewer pods than it is charged for, or more again
    RETURNED = "returned"  # the charge follows
    DIFFERS = "differs"  # its pods request something else than was charged
    SHRUNK = "shrunk"  # it misses pods that it had, or others than before
    WHOLE = "whole"  # it has them again
    EVICT = "evict"  # roll back or give up: suspend it
    LEFT = "left"  # somebody else suspended it: wait for its pods
    TAKE_DOWN = "take-down"  # it was evicted, and its controller leaves its pods or Jobs alone
    FINISHED = "finished"  # the job ended; pods may be left
    VANISHED = "vanished"  # the job was deleted
    REQUEUE = "requeue"  # evicted, quiet, pods gone: back to its queue
    RELEASE = "release"  # ended and pods gone: its capacity is free


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One move. `refused`: planned nodes on which no pod landed. `note`: a sentence for people. `requests`:
    what the pods of a pod set really request, where it differs from the charge. `short`: what it misses. `held`: pods
    by pod set that it is charged for from now on. `hosts`: where its pods run, by pod set and node."""

    move: Move
    outcome: State | None = None
    cause: Cause | None = None
    refused: tuple[str, ...] = ()
    note: str = ""
    requests: Mapping[str, Resources] = field(default_factory=dict)
    short: Short | None = None
    held: Mapping[str, int] | None = None
    hosts: Mapping[str, Mapping[str, int]] | None = None


def wanted(placement: Placement, seen: Tally, job: JobView | None) -> dict[str, int]:
    """Pods of each set that are still to run at once, those that do included: no more than were admitted.

    A pod that succeeded is not replaced, unless the job owes more completions than it runs pods at a time. The job's
    own size counts once it carries the admission: before, it is left from an earlier one. Nobody makes pods of a job
    that is being deleted or has ended.
    """
    counts = placement.counts
    if job is not None and (job.deleting or job.outcome is not None):
        return dict.fromkeys(counts, 0)
    if job is not None and job.sizes and job.admission == placement.id:
        counts = {role: min(count, job.sizes.get(role, 0)) for role, count in counts.items()}
    if job is not None and job.left is not None:
        return {role: min(count, job.left) for role, count in counts.items()}
    return {role: max(0, count - seen.succeeded.get(role, 0)) for role, count in counts.items()}


def missing(placement: Placement, seen: Tally, job: JobView | None) -> dict[str, int]:
    """Pods of each set that are still to be bound."""
    asked = wanted(placement, seen, job)
    return {role: max(0, count - seen.bound.get(role, 0)) for role, count in asked.items()}


def is_full(live: Live, seen: Tally) -> bool:
    """Whether each place has a pod on a node: a pod that had failed is replaced. What the job still owes says nothing
    of that, as some owe less once a pod has failed.
    """
    counts = {} if live.placement is None else live.placement.counts
    return all(seen.bound.get(role, 0) >= count for role, count in counts.items())


def _overdue(placement: Placement, seen: Tally, job: JobView) -> dict[str, int]:
    """Pods that are missing. Those that are made once all others are ready are waited for without a limit."""
    asked = missing(placement, seen, job)
    return {role: count for role, count in asked.items() if role not in job.late or seen.there.get(role)}


def held(placement: Placement, seen: Tally, job: JobView | None) -> dict[str, int]:
    """Pods of each set that are to be charged: what can still run, or run again, and what is not gone yet."""
    if job is not None and job.repeats and job.outcome is None and not job.deleting:
        return dict(placement.counts)
    asked = {} if job is None else wanted(placement, seen, job)
    return {
        role: min(count, max(asked.get(role, 0), seen.there.get(role, 0)))
        for role, count in placement.counts.items()
    }


def next_step(live: Live, job: JobView | None, seen: Tally, *, now: float, limits: Settings) -> Step | None:
    """The next move, None while nothing follows. `job=None` says that the job object is gone."""
    if live.state.waiting:
        return _waiting(job)
    if live.state.ended:
        return Step(move=Move.RELEASE) if seen.live == 0 else _returned(live, job, seen, now=now)
    if job is None:
        return Step(move=Move.VANISHED, note="the job was deleted")
    if job.outcome is not None:
        return Step(move=Move.FINISHED, outcome=job.outcome, note=_end(live, job, seen))
    if job.deleting and seen.live == 0:
        # Whatever finalizers keep the object: it never says that it is quiet, and it gets no pod any more.
        return Step(move=Move.VANISHED, note="the job is being deleted, and its pods are gone")
    if live.state is State.EVICTING:
        return _leaving(live, job, seen, now=now, limits=limits)
    if job.deleting:
        return _returned(live, job, seen, now=now)
    return _placed(live, job, seen, now=now, limits=limits)


def _end(live: Live, job: JobView, seen: Tally) -> str:
    """Why it failed, or succeeded with work that an eviction has ended."""
    if job.outcome is State.FAILED:
        return job_failed(seen.failed, job.failure)
    done, of = sum(seen.succeeded.values()), sum(live.placement.counts.values()) if live.placement else 0
    cut = live.state is State.EVICTING and not job.restarts and done < of
    return complete_by_eviction(done, of) if cut else ""


def _leaving(live: Live, job: JobView, seen: Tally, *, now: float, limits: Settings) -> Step | None:
    """It is back in its queue once its pods are gone and its controller says so, or has said nothing for too long."""
    if (live.placement is not None and live.placement.unconfirmed) or not job.suspended:
        return None
    if not seen.live:
        return _without_pods(live, job, now=now, limits=limits)
    if not seen.staying or now < take_down_at(live, after=limits.left_pods):
        return None
    note = left_pods(seen.staying, of=live.workload.kind, seconds=now - (live.left or now))
    return Step(move=Move.TAKE_DOWN, note=note)


def _without_pods(live: Live, job: JobView, *, now: float, limits: Settings) -> Step | None:
    """The Job controller backs off for minutes after failures and then makes pods anew: Jobs are suspended first."""
    if job.quiet:
        return Step(move=Move.REQUEUE)
    if now < silent_at(live, after=limits.left_pods):
        return None
    if job.makes_jobs and live.taken_down is None:
        note = left_jobs(of=live.workload.kind, seconds=now - (live.left or now))
        return Step(move=Move.TAKE_DOWN, note=note)
    return Step(move=Move.REQUEUE)


def _waiting(job: JobView | None) -> Step | None:
    if job is None or job.deleting:
        return Step(move=Move.VANISHED, note="the job was deleted while it waited")
    if job.outcome is not None:
        return Step(move=Move.FINISHED, outcome=job.outcome)
    return None


def _placed(live: Live, job: JobView, seen: Tally, *, now: float, limits: Settings) -> Step | None:
    placement = live.placement
    if placement is not None and live.landed is not None and job.suspended and job.gated:
        # Some may have been let in already: what is evicted is deleted.
        return Step(move=Move.EVICT, cause=Cause.SUSPENDED, note="all its pods were made anew")
    if placement is None or job.admission != placement.id:
        return None  # the object is older than our PATCH, or the PATCH is still to come
    if job.suspended:
        note = "the job was suspended by hand" if any(job.sizes.values()) else "its pods were deleted"
        return Step(move=Move.LEFT, cause=Cause.SUSPENDED, note=note)
    if placement.patched is None:
        return Step(move=Move.PATCHED)
    if job.declared and not any(job.declared.values()) and job.left != 0:
        return Step(move=Move.EVICT, cause=Cause.SUSPENDED, note="its owner scaled it to no pod")
    short = max(sum(_overdue(placement, seen, job).values()), seen.unbound)
    if live.landed is not None and (real := _differing(live, seen, short=short)):
        note = f"its pods request something else than the job said: {real}"
        return Step(move=Move.DIFFERS, requests=real, note=note)
    if live.landed is not None and (step := _returned(live, job, seen, now=now)):
        return step
    if short:
        return _short(live, job, seen, short=short, now=now, limits=limits)
    if live.landed is None:
        return Step(move=Move.LANDED)
    if live.short is not None:
        return Step(move=Move.WHOLE)
    return _starting(live, job, seen, now=now, limits=limits) if live.state is State.PLACING else None


def _starting(live: Live, job: JobView, seen: Tally, *, now: float, limits: Settings) -> Step | None:
    """It runs once all its pods do. Where there is a deadline for that, it is given up by then."""
    of = sum(seen.bound.values())
    if not (idle := of - sum(seen.running.values())):
        return Step(move=Move.RUNNING, hosts=seen.hosts)
    due = _start_due(live, limits)
    if due is None or now < due or not job.comes_back:
        return None
    return Step(
        move=Move.EVICT, cause=Cause.LANDING_TIMEOUT, note=not_running(idle, of, limits.start_deadline)
    )


def _start_due(live: Live, limits: Settings) -> float | None:
    """Until when all its pods have to run."""
    if not limits.start_deadline or live.landed is None or live.state is not State.PLACING:
        return None
    return live.landed + limits.start_deadline


def _returned(live: Live, job: JobView | None, seen: Tally, *, now: float) -> Step | None:
    """The charge follows what the job can still run, after `CORRECT`, so that pods that end one by one are one write.

    The rest of a gang that has nothing to run any more is returned with its end.
    """
    placement = live.placement
    if placement is None or (placement.due is not None and now < placement.due):
        return None
    charged = held(placement, seen, job)
    if placement.due is not None:
        return Step(move=Move.RETURNED, held=charged if any(charged.values()) else placement.held)
    return Step(move=Move.RETURNS) if charged != placement.held and any(charged.values()) else None


def _short(live: Live, job: JobView, seen: Tally, *, short: int, now: float, limits: Settings) -> Step | None:
    """It misses so many pods: given up once none has come for too long."""
    assert live.placement is not None
    after, size = _missed(live, job, seen, short=short, now=now), sum(live.placement.counts.values())
    if live.landed is None and job.left is not None and not after.due:
        return Step(move=Move.LANDED, short=after)  # its pods end so soon that it is never seen whole
    if live.landed is None and seen.refused:
        note = pods_refused(short, size, seen.refused)
        return Step(move=Move.EVICT, cause=Cause.LANDING_TIMEOUT, note=note)
    if after != live.short:
        told = live.short is not None and live.short.lost
        note = pods_lost(short, size, seen.failed) if after.lost and not told else ""
        return Step(move=Move.SHRUNK, short=after, note=note)
    if now < after.since + _patience(live, after, seen.problem, limits):
        return None
    if live.landed is None and not job.comes_back:
        return None  # an eviction would delete it for good
    landed = live.landed is not None
    cause = Cause.LOST_PODS if landed else Cause.LANDING_TIMEOUT
    note = given_up(
        live.workload, short, size, landed=landed, unbound=seen.unbound, made=seen.live,
        seconds=now - after.since, why=seen.problem or (seen.failed if landed else ""),
    )  # fmt: skip
    return Step(move=Move.EVICT, cause=cause, refused=_refused(live, seen), note=note)


def _missed(live: Live, job: JobView, seen: Tally, *, short: int, now: float) -> Short:
    """The pods that it misses at this look. One that came in place of another is gated at first, where pods are."""
    made, before = seen.unbound > 0 or job.gated > 0, live.short
    # A pod that ended well is none: the job's status may not count it yet, or another is to come.
    loses = live.state is State.RUNNING and (bool(seen.failed) or short > sum(seen.succeeded.values()))
    if before is None:
        patched = live.placement.patched if live.placement is not None else None
        since = now if live.landed is not None or patched is None else patched
        since = _not_before_gone(since, seen, now=now)
        return Short(since=since, made=made, gated=job.gated, due=short, seen=seen.placed, lost=loses)
    came = len(seen.placed - before.seen)
    got_on = came or (made and not before.made)
    return Short(
        since=_not_before_gone(now if got_on else before.since, seen, now=now),
        made=made,
        gated=job.gated,
        due=max(0, before.due - came),
        seen=seen.placed,
        lost=before.lost or loses,
    )


def _not_before_gone(since: float, seen: Tally, *, now: float) -> float:
    """A pod that leaves may be replaced only once it is gone: it has the grace that it was given."""
    return min(since, now) if seen.leaving is None else max(since, seen.leaving)


def _patience(live: Live, short: Short, problem: str, limits: Settings) -> float:
    """Seconds that may pass from `short.since` until it is given up."""
    if live.landed is not None and not short.made:
        return limits.lost_pods
    return limits.landing_deadline if problem else PATIENCE * limits.landing_deadline


def missing_claim(said: str) -> str | None:
    """The PersistentVolumeClaim that kube-scheduler does not find, by its words: its owner has to make it."""
    found = _MISSING_CLAIM.search(said)
    return found and found[1]


def _refused(live: Live, seen: Tally) -> tuple[str, ...]:
    """Planned nodes that no pod came to; none where no pod asks for one, or a volume is missing: no fault of theirs."""
    if live.landed is not None or live.placement is None or not seen.unbound or missing_claim(seen.problem):
        return ()
    return tuple(sorted(live.placement.hosts - seen.nodes))


def _differing(live: Live, seen: Tally, *, short: int) -> dict[str, Resources]:
    """Real requests by pod set where they differ from the charge; while pods are missing, only higher ones."""
    charged = {p.name: p.requests for p in live.workload.pod_sets if p.name in seen.requests}
    real = {
        name: larger(requests, seen.requests[name]) if short else seen.requests[name]
        for name, requests in charged.items()
    }
    return {name: requests for name, requests in real.items() if requests != charged[name]}


def deadlines(live: Live, *, limits: Settings) -> tuple[float, ...]:
    """When this workload must be looked at again even if nothing is heard of it."""
    placement = live.placement
    if placement is None:
        return ()
    due = set() if placement.due is None else {placement.due}
    if live.state is State.EVICTING:
        due |= {at(live, after=limits.left_pods) for at in (silent_at, take_down_at)}
    if live.short is not None and live.state in (State.PLACING, State.RUNNING):
        due |= {live.short.since + _patience(live, live.short, said, limits) for said in ("", "some")}
    if (start := _start_due(live, limits)) is not None:
        due.add(start)
    return tuple(sorted(due))
