"""The answer about one job: its record, the word of the newest stored cycle, and the next step of its reader."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import accumulate
from math import ceil
from typing import Any

from queuer.api.identity.rights import Asker
from queuer.api.workloads import models
from queuer.api.workloads.detail import Detail, WouldAdmit
from queuer.api.workloads.paragraphs import paragraphs, starts_late
from queuer.api.workloads.views import Recorded
from queuer.domain.estimates import FORETOLD
from queuer.domain.quantity import parse_resources
from queuer.domain.reasons import (
    ROWS,
    AdvisedJob,
    Explanation,
    JobChange,
    NextStep,
    Reader,
    Reason,
    Token,
    Verdict,
    hide,
    look_at,
    namespaces_in,
    save_work,
)
from queuer.domain.reasons.run_sentences import LOOK
from queuer.domain.workload import State
from queuer.kube.kinds import BY_NAME, POD

_EVICTED = frozenset({State.QUEUED, State.HELD, State.ADMITTED, State.PLACING, State.EVICTING})
"""States in which it is news that a job was evicted."""
_ON_NODES = frozenset({State.ADMITTED, State.PLACING, State.RUNNING, State.EVICTING})


async def explained(
    found: Recorded, told: Explanation | None, asker: Asker, *, silent: str = ""
) -> models.WorkloadDetail:
    """The workload with what the newest stored cycle tells of it, in words, as this caller may have it.

    Tables name no job of another namespace anyhow, but a cycle knows all of them.
    """
    recorded = found.detail.explanation.detail.model_dump(exclude_unset=True)
    named = {*namespaces_in(recorded), *namespaces_in(told)}
    readable = (await asker.readable(named)).__contains__ if named else named.__contains__
    reader = await _reader(found.detail, asker)
    return answered(found, hide(told, readable), hide(recorded, readable), reader=reader, silent=silent)


def with_orders(told: Explanation, due: Mapping[str, float]) -> Explanation:
    """The same, which knows that these holders are to be evicted by order: by uid when, in seconds."""

    def known(holder: Mapping[str, Any]) -> Mapping[str, Any]:
        at = due.get(holder.get("workload", ""))
        promised = None if "runs" in holder else holder.get("ends")
        if at is None or (promised is not None and promised < at):
            return holder
        return {**holder, "ends": at, "runs": None, "ordered": True}

    changes = tuple(replace(change, job=known(change.job)) for change in told.would_admit)
    return replace(
        told, would_admit=changes, detail={**told.detail, "holders": [*map(known, holders_of(told))]}
    )


def holders_of(told: Explanation) -> Sequence[Mapping[str, Any]]:
    """The holders of the room that the job lacks, as the cycle has them."""
    found: Sequence[Mapping[str, Any]] = told.detail.get("holders", ())
    return found


def answered(
    found: Recorded,
    told: Explanation | None,
    recorded: Mapping[str, Any],
    *,
    reader: Reader,
    silent: str = "",
) -> models.WorkloadDetail:
    """The one answer that command line, page and REST show: every figure once, none that contradicts another.

    `told`: by the newest stored cycle. An edit or another cycle may have come since; then it tells nothing. `recorded`:
    figures from the tables. `reader`: the rights of who asks. `silent`: why no answer came about the cycle.
    """
    job, explanation = found.detail, found.detail.explanation
    primary, detail = explanation.primary, recorded
    if primary is None or told is None or told.primary.token is not primary.token:
        told = None
    more: dict[str, Any] = {}
    others: Sequence[Reason] = ()
    if primary is not None and primary.token is Token.SUSPENDED:
        told = None  # the tables know who closed the queue
    if primary is not None and told is not None:
        job = job.model_copy(update={"reason": models.Reason.from_record(told.primary)})
        primary = models.ReasonDetail.from_record(told.primary).model_copy(update={"since": primary.since})
        more = {"verdict": told.verdict, "primary": primary}
        others = [_aged(other, now=job.as_of.timestamp()) for other in told.others]
        more["others"] = [models.ReasonDetail.from_record(other) for other in others]
        more["would_admit"] = [WouldAdmit.from_record(change) for change in told.would_admit]
        detail = {**told.detail, **recorded}
    figures = in_force(
        Detail.model_validate(detail), job.state, more.get("verdict", explanation.verdict), now=job.as_of
    )
    figures = figures.model_copy(
        update={
            "no_estimate": f"not known just now: {silent}"
            if silent
            else _no_estimate(primary, figures, others)
        }
    )
    step = _next_step(job, primary, told.would_admit if told else (), reader, never=found.never)
    more |= {"detail": figures, "do": step.do, "next": step.command}
    explanation = explanation.model_copy(update=more)
    job = job.model_copy(update={"explanation": explanation})
    return job.model_copy(
        update={"explanation": explanation.model_copy(update={"paragraphs": paragraphs(job, found.past)})}
    )


def _aged(reason: Reason, *, now: float) -> Reason:
    """The reason with its length of time as seen from now, not from the cycle."""
    params = reason.params
    if "wait" not in params or "until" not in params:
        return reason
    return Reason(reason.token, {**params, "wait": max(0, ceil(params["until"] - now))}, reason.said)


def in_force(detail: Detail, state: State, verdict: Verdict | None, *, now: datetime) -> Detail:
    """The figures without those that time, or the reason, has overtaken.

    Only a job that waits for others has a time to start at. Where nodes are kept for it from then on, it is estimated
    to start no later. A learned end that has passed is none. An eviction is news until the job runs again.
    """
    waits, kept, found = verdict is Verdict.WAIT, detail.reservation, detail.estimate
    if kept is not None and (not waits or kept.expires <= now):
        kept = None
    if kept is not None and kept.start is not None and kept.start <= now:
        kept = kept.model_copy(update={"start": None})
    if found is not None and (not waits or (found.latest is not None and found.latest <= now)):
        found = None
    if found is not None:
        begins = None if kept is None else kept.start
        likely = None if found.likely is not None and found.likely <= now else found.likely
        if begins is not None:
            likely = begins if likely is None else min(likely, begins)
            found = found.model_copy(update={"earliest": min(found.earliest, begins), "latest": begins})
        found = found.model_copy(update={"likely": likely})
    over = {"ends": None, "runs": None}
    holders = [
        h.model_copy(update=over) if h.runs is not None and h.ends is not None and h.ends <= now else h
        for h in detail.holders
    ]
    evicted = detail.evicted if state in _EVICTED else None
    return detail.model_copy(
        update={"reservation": kept, "estimate": found, "holders": holders, "evicted": evicted}
    )


async def _reader(job: models.WorkloadDetail, asker: Asker) -> Reader:
    """The rights to the job and to the queues on its path."""
    path = accumulate(job.queue.split("."), "{}.{}".format)
    updates = bool(await asker.updatable([job.namespace]))
    return Reader(updates=updates, administers=await asker.administered(path))


def _next_step(
    job: models.WorkloadDetail,
    primary: models.ReasonDetail | None,
    would_admit: Sequence[JobChange],
    reader: Reader,
    *,
    never: str,
) -> NextStep:
    """The token of a job that waits says the step; any other job is looked at. `never`: see `Recorded`."""
    advised = AdvisedJob(
        uid=job.uid,
        kind=job.kind,
        namespace=job.namespace,
        name=job.name,
        queue=job.queue,
        params=primary.params if primary else {},
        changes=would_admit,
        pods={
            each.name: (
                each.count if each.min_count is None else each.min_count,
                parse_resources(each.requests),
            )
            for each in job.pod_sets
        },
        commanded=job.override is not None and job.override.hold is not None and job.override.hold.value,
        deleted=job.deleted is not None,
        group=job.kind == POD.name and sum(pods.count for pods in job.pod_sets) > 1,
        shrinks=BY_NAME[job.kind].shrinks,
        reader=reader,
    )
    if job.eviction is not None and job.state in _ON_NODES:
        return save_work(job.eviction.at, never=never)
    if primary is None:
        step = look_at(advised, runs=job.state in _ON_NODES)
        return step if starts_late(job) is None else replace(step, do=LOOK)
    return ROWS[primary.token].next(advised)


def _no_estimate(primary: models.ReasonDetail | None, detail: Detail, others: Sequence[Reason]) -> str:
    """Why a job that waits for others is told no time, neither by an estimate nor by a reservation."""
    reserved = detail.reservation is not None and detail.reservation.start is not None
    if primary is None or primary.verdict is not Verdict.WAIT or detail.estimate is not None or reserved:
        return ""
    if detail.ahead is not None and detail.ahead.gangs >= FORETOLD:
        return f"no estimate: it is worked out for the first {FORETOLD} of a queue"
    jobs = [h for h in detail.holders if h.workload and not (h.leaving or h.held or h.reservation)]
    found = min((h for h in jobs if h.ordered or h.ends is None), key=lambda h: not h.ordered, default=None)
    if found is not None:
        who = f"{found.namespace}/{found.name}" if found.name else f"a job of {found.queue}"
        if found.ordered:
            return f"no estimate: {who} is to be evicted by order, and estimates expect ends alone"
        if wait := next((other.params["wait"] for other in others if "until" in other.params), 0):
            return (
                f"no estimate: work that it may evict is protected by minRuntime, the first for {wait} s more"
            )
        return f"no estimate: {who} declares no end, and too few like it have run"
    queue = next((h.queue for h in detail.holders if h.queue and not (h.workload or h.reservation)), None)
    why = f"; jobs of {queue} hold the room, and may declare no end" if queue else ""
    return f"no estimate: none can be worked out just now{why}" if detail.holders else ""
