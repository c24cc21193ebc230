"""From records of the store to answers about workloads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy.ext.asyncio import AsyncConnection

from queuer.api.live.controller import Controller, controller, stale
from queuer.api.words import instant, instant_or_none
from queuer.api.workloads import models
from queuer.api.workloads.detail import Detail, WouldAdmit
from queuer.api.workloads.hints import Job, hint
from queuer.api.workloads.timeline import spans, timeline
from queuer.domain.assignments import EvictionRule
from queuer.domain.estimates import FORETOLD
from queuer.domain.override import Override
from queuer.domain.quantity import format_resources
from queuer.domain.queue import common_ancestor
from queuer.domain.reasons import Explanation, Reason, Token, Verdict
from queuer.domain.waiting import impossible
from queuer.domain.workload import State, Workload
from queuer.store import commands, lookup, reads
from queuer.store.workloads import StoredWorkload

_TIMES = frozenset({"deadline", "retryAt", "until"})
"""Parameters of reasons that are times."""
_UNSEEN = {
    State.QUEUED: Explanation(
        primary=Reason(
            token=Token.PENDING_EVALUATION, text="no cycle has looked at it since it came, or was changed"
        )
    ),
    State.HELD: Explanation(primary=Reason(token=Token.ON_HOLD, text="it is on hold")),
}


async def rows(connection: AsyncConnection, page: Sequence[StoredWorkload]) -> list[models.Workload]:
    """Rows of a list, with where they are and what they hold."""
    admitted = [w for w in page if w.admission_id]
    places = await lookup.domains(connection, [w.admission_id for w in admitted if w.admission_id])
    holds = await lookup.held(connection, [w.workload.uid for w in admitted])
    return [
        _workload(stored, places.get(stored.admission_id or "", ()), holds.get(stored.workload.uid))
        for stored in page
    ]


async def workload(connection: AsyncConnection, uid: str, *, stale_after: float) -> models.WorkloadDetail:
    """One workload. Raises NotFound."""
    return await _detail(connection, await reads.workload(connection, uid), stale_after=stale_after)


async def past(connection: AsyncConnection, uid: str) -> tuple[str, models.Timeline]:
    """A workload's namespace, and its past in spans. Raises NotFound."""
    workload = (await reads.workload(connection, uid)).workload
    moments = await reads.timeline(connection, uid)
    now = await lookup.now(connection)
    return workload.namespace, spans(uid, moments, submitted=workload.submitted, now=now)


async def workload_by_reference(
    connection: AsyncConnection, *, namespace: str, kind: str, name: str, stale_after: float
) -> models.WorkloadDetail:
    """The newest workload of that name. Raises NotFound."""
    stored = await reads.by_reference(connection, namespace=namespace, kind=kind, name=name)
    return await _detail(connection, stored, stale_after=stale_after)


async def _detail(
    connection: AsyncConnection, stored: StoredWorkload, *, stale_after: float
) -> models.WorkloadDetail:
    workload, now = stored.workload, await lookup.now(connection)
    past = await reads.admissions(connection, workload.uid)
    present = next((a for a in past if a.id == stored.admission_id), None)
    cycle = await lookup.newest_cycle(connection)
    held = (await lookup.held(connection, [workload.uid])).get(workload.uid)
    row = _workload(stored, present.domains if present else (), held)
    moments = await reads.timeline(connection, workload.uid)
    detail = {
        **await _estimate(connection, stored),
        **await _ahead(connection, stored),
        **await _evicted(connection, workload, moments),
    }
    found = models.WorkloadDetail(
        **row.model_dump(),
        preemptible=workload.preemptible,
        required=workload.required,
        preferred=workload.preferred,
        max_runtime_seconds=workload.max_runtime,
        hold=workload.hold,
        pod_sets=[
            models.PodSet(
                name=p.name, count=p.count, min_count=p.min_count, requests=format_resources(p.requests)
            )
            for p in workload.pod_sets
        ],
        admission=None if present is None else _admission(present, held),
        eviction=_ordered(await commands.ordered(connection, workload.uid)),
        explanation=_explanation(stored, cycle, now=now, detail=detail),
        timeline=timeline(moments),
        as_of=instant(now),
    )
    return _unless_stale(found, await controller(connection, stale_after=stale_after))


def _unless_stale(found: models.WorkloadDetail, by: Controller) -> models.WorkloadDetail:
    """Where nobody decides that is why it waits; what the last cycle has recorded holds beside it."""
    reason, told = stale(by), found.explanation
    if reason is None or told.primary is None or not found.state.waiting:
        return found
    primary = reason_detail(reason).model_copy(update={"since": by.at})
    others = [told.primary, *told.others]
    more = {"verdict": reason.verdict, "primary": primary, "others": others, "would_admit": []}
    explanation = told.model_copy(update=more)
    return found.model_copy(update={"reason": _reason(reason), "explanation": explanation})


def _ordered(found: tuple[float, str] | None) -> models.OrderedEviction | None:
    return None if found is None else models.OrderedEviction(at=instant(found[0]), reason=found[1])


async def _evicted(
    connection: AsyncConnection, workload: Workload, moments: Iterable[reads.Moment]
) -> dict[str, Any]:
    """When it last went back to its queue, by which right or for which failure, and for whose sake."""
    found = [m for m in moments if m.what == "workload.state" and m.data.get("to") == State.EVICTING]
    if not found:
        return {}
    last = found[-1]
    told: dict[str, Any] = {"at": last.at}
    told |= {key: last.data[key] for key in ("cause", "note") if last.data.get(key)}
    uid = last.data.get("beneficiary")
    other = None if uid is None else await reads.find(connection, uid)
    if other is not None:
        whose = other.workload
        told["for"] = {
            "uid": uid,
            "namespace": whose.namespace,
            "name": whose.name,
            "queue": whose.queue,
            "amounts": format_resources(whose.demand),
        }
        if told.get("cause") == EvictionRule.RECLAIM:
            told["reclaimAt"] = common_ancestor(workload.queue, whose.queue)
    return {"evicted": told}


async def _estimate(connection: AsyncConnection, stored: StoredWorkload) -> dict[str, Any]:
    """The range that it was told, with how many of those of the last 7 days held."""
    explained = _explained(stored)
    estimate = explained.detail.get("estimate") if explained else None
    if estimate is None:
        return {}
    told, hits = await lookup.hits(connection)
    return {"estimate": {**estimate, "n": told, "hitRate": round(hits / told, 4) if told else None}}


async def _ahead(connection: AsyncConnection, stored: StoredWorkload) -> dict[str, Any]:
    """Its place in the line of its queue, if it can ever start. It moves with every arrival, so it is counted now."""
    told = _explained(stored)
    if stored.state is not State.QUEUED or told is None or impossible(told.primary):
        return {}
    before, waiting = await reads.line(connection, stored.workload.uid)
    return {"ahead": {"gangs": before, "of": waiting}}


def row_of(stored: StoredWorkload) -> models.Workload:
    """The row of a workload that waits."""
    return _workload(stored, (), None)


def _workload(stored: StoredWorkload, domains: Sequence[str], held: lookup.Held | None) -> models.Workload:
    workload, explained = stored.workload, _explained(stored)
    return models.Workload(
        uid=workload.uid,
        kind=workload.kind,
        namespace=workload.namespace,
        name=workload.name,
        queue=workload.queue,
        user=workload.user,
        priority=workload.priority,
        state=stored.state,
        attempt=stored.attempt,
        demand=format_resources(workload.demand),
        submitted=instant(workload.submitted),
        admitted=instant_or_none(stored.admitted_at),
        landed=instant_or_none(stored.landed_at),
        finished=instant_or_none(stored.finished_at),
        deleted=instant_or_none(stored.deleted_at),
        reason=None if explained is None else _reason(explained.primary),
        domains=list(domains),
        holds={} if held is None else format_resources(held.amounts),
        override=_override(stored.override),
    )


def _override(found: Override | None) -> models.Override | None:
    if found is None:
        return None
    return models.Override(
        hold=found.hold, priority=found.priority, by=found.by, at=instant(found.at), reason=found.reason
    )


def _explained(stored: StoredWorkload) -> Explanation | None:
    """A reason is for what waits: what has ended or is gone waits for nothing, and all that waits has one."""
    if stored.state.ended or stored.deleted_at is not None:
        return None
    return stored.explained or _UNSEEN.get(stored.state)


def _reason(reason: Reason) -> models.Reason:
    return models.Reason(token=reason.token, verdict=reason.verdict, text=reason.text)


def _explanation(
    stored: StoredWorkload, cycle: lookup.NewestCycle | None, *, now: float, detail: Mapping[str, Any]
) -> models.Explanation:
    explained = _explained(stored)
    return models.Explanation(
        uid=stored.workload.uid,
        state=stored.state,
        as_of=None if cycle is None else instant(cycle.finished_at),
        cycle=None if cycle is None else cycle.id,
        age_seconds=None if cycle is None else max(0.0, now - cycle.finished_at),
        verdict=None if explained is None else explained.verdict,
        primary=None if explained is None else reason_detail(explained.primary, since=stored.reason_since),
        others=[reason_detail(other) for other in (explained.others if explained else ())],
        would_admit=changes(explained),
        detail=Detail.model_validate({**(explained.detail if explained else {}), **detail}),
    )


def explained(found: models.WorkloadDetail, told: Explanation | None) -> models.WorkloadDetail:
    """The workload with what a stored cycle tells of it, as far as that is what is recorded, too: an edit or another
    cycle may have come since.
    """
    recorded = found.explanation
    if told is None or recorded.primary is None or told.primary.token is not recorded.primary.token:
        return found
    since = recorded.primary.since
    primary = reason_detail(told.primary).model_copy(update={"since": since})
    more = {
        "verdict": told.verdict,
        "primary": primary,
        "others": [reason_detail(other) for other in told.others],
        "would_admit": changes(told),
        "detail": Detail.model_validate({**told.detail, **recorded.detail.model_dump(exclude_unset=True)}),
    }
    reason = _reason(told.primary)
    return found.model_copy(update={"reason": reason, "explanation": recorded.model_copy(update=more)})


def advised(found: models.WorkloadDetail) -> models.WorkloadDetail:
    """The workload with what its reader can do next."""
    told = found.explanation
    job = Job(
        uid=found.uid,
        kind=found.kind,
        namespace=found.namespace,
        name=found.name,
        queue=found.queue,
        params=told.primary.params if told.primary else {},
        admits=[each.change for each in told.would_admit],
        commanded=found.override is not None and bool(found.override.hold),
    )
    step = hint(job, found.state, token=told.primary.token if told.primary else None)
    detail = told.detail.model_copy(update={"no_estimate": _no_estimate(told)})
    return found.model_copy(update={"explanation": told.model_copy(update={"next": step, "detail": detail})})


def _no_estimate(told: models.Explanation) -> str:
    """Why a job that waits for others is told no time."""
    detail = told.detail
    if told.verdict is not Verdict.WAIT or detail.estimate is not None:
        return ""
    if any(holder.workload and holder.ends is None and not holder.leaving for holder in detail.holders):
        return "no estimate: who holds what it lacks declares no end"
    if detail.ahead is not None and detail.ahead.gangs >= FORETOLD:
        return f"no estimate: it is worked out for the first {FORETOLD} of a queue"
    return "no estimate: it is not known when room is given back" if detail.holders else ""


def changes(told: Explanation | None) -> list[WouldAdmit]:
    """What would let it start."""
    return [WouldAdmit.model_validate(row) for row in (told.would_admit if told else ())]


def reason_detail(reason: Reason, *, since: float | None = None) -> models.ReasonDetail:
    """A reason with its figures."""
    times = {key: instant(reason.params[key]) for key in _TIMES & reason.params.keys()}
    return models.ReasonDetail(
        **_reason(reason).model_dump(), params={**reason.shown, **times}, since=instant_or_none(since)
    )


def _admission(past: reads.PastAdmission, held: lookup.Held | None) -> models.Admission:
    hosts, counts = past.hosts or {}, held.counts if held else {}
    return models.Admission(
        id=past.id,
        cycle=past.cycle,
        domains=list(past.domains),
        placements=[
            _placement(a, hosts=hosts.get(a["podSet"], {}), held=counts.get(a["podSet"]))
            for a in past.assignments
        ],
    )


def _placement(
    assignment: Mapping[str, Any], *, hosts: Mapping[str, int], held: int | None
) -> models.Placement:
    nodes: dict[str, int] = assignment["nodes"]
    return models.Placement(
        pod_set=assignment["podSet"],
        flavor=assignment["flavor"],
        count=sum(nodes.values()),
        nodes=nodes,
        hosts=dict(hosts),
        held=held,
        selector=assignment["selector"],
    )
