"""From records of the store to answers about workloads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy.ext.asyncio import AsyncConnection

from queuer.api.controller import Controller, stale
from queuer.api.models import instant
from queuer.api.workloads import models
from queuer.api.workloads.detail import Detail
from queuer.api.workloads.timeline import Held, held_of, spans, spans_of, timeline
from queuer.domain.assignments import EvictionRule
from queuer.domain.quantity import format_resources
from queuer.domain.queue import common_ancestor
from queuer.domain.reasons import Explanation, Token, simple
from queuer.domain.workload import State, Workload
from queuer.store import commands, lookup, reads
from queuer.store.codec import explanation_json
from queuer.store.origins import closings
from queuer.store.workloads import StoredWorkload

_UNSEEN = {
    State.QUEUED: simple(Token.PENDING_EVALUATION, "no cycle has looked at it since it came, or was changed"),
    State.HELD: simple(Token.ON_HOLD, "it is on hold"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """One workload as the tables have it. `past`: the reasons for which it has waited. `never`: why it could not start
    again once it has left.
    """

    detail: models.WorkloadDetail
    past: Sequence[Held]
    never: str = ""


async def rows(connection: AsyncConnection, page: Sequence[StoredWorkload]) -> list[models.Workload]:
    """Rows of a list, with where they are and what they hold."""
    admitted = [w for w in page if w.admission_id]
    places = await lookup.domains(connection, [w.admission_id for w in admitted if w.admission_id])
    holds = await lookup.held(connection, [w.workload.uid for w in admitted])
    failures = await lookup.failures(connection, [w.workload.uid for w in page if w.state.ended])
    return [
        _workload(
            stored,
            places.get(stored.admission_id or "", ()),
            holds.get(stored.workload.uid),
            failures.get(stored.workload.uid),
        )
        for stored in page
    ]


async def past(connection: AsyncConnection, uid: str) -> tuple[str, models.Timeline]:
    """A workload's namespace, and its past in spans. Raises NotFound."""
    workload = (await reads.workload(connection, uid)).workload
    moments = await reads.timeline(connection, uid)
    now = await lookup.now(connection)
    return workload.namespace, spans(uid, moments, submitted=workload.submitted, now=now)


async def recorded(connection: AsyncConnection, stored: StoredWorkload, leader: Controller) -> Recorded:
    """One workload in full."""
    stored = await _who_closed(connection, stored)
    workload, now = stored.workload, await lookup.now(connection)
    past = await reads.admissions(connection, workload.uid)
    present = next((a for a in past if a.id == stored.admission_id), None)
    kept = await lookup.newest_cycle(connection)
    held = (await lookup.held(connection, [workload.uid])).get(workload.uid)
    moments = await reads.timeline(connection, workload.uid)
    failed = failure(stored.state, moments)
    detail = {
        **await _estimate(connection, stored),
        **await _ahead(connection, stored),
        **await _evicted(connection, workload, moments),
        **failed,
    }
    states = spans_of(moments, submitted=workload.submitted)
    cause = failed["failure"]["text"] if failed and stored.state.ended else None
    row = _workload(stored, present.domains if present else (), held, cause)
    found = models.WorkloadDetail.from_record(
        workload,
        **dict(row),
        max_runtime_seconds=workload.max_runtime,
        state_since=instant(states[-1].begin),
        admission=None if present is None else _admission(present, held),
        eviction=(await commands.ordered(connection, [workload.uid])).get(workload.uid),
        explanation=_explanation(stored, kept, leader, now=now, detail=detail),
        timeline=timeline(moments),
        as_of=now,
    )
    return Recorded(
        detail=_unless_stale(found, leader),
        past=held_of(moments, states),
    )


def _unless_stale(found: models.WorkloadDetail, by: Controller) -> models.WorkloadDetail:
    """Where nobody decides that is why it waits; what the last cycle has recorded holds beside it."""
    reason, told = stale(by), found.explanation
    if reason is None or told.primary is None or not found.state.waiting:
        return found
    primary = models.ReasonDetail.from_record(reason).model_copy(update={"since": by.at})
    others = [told.primary, *told.others]
    more = {"verdict": reason.verdict, "primary": primary, "others": others, "would_admit": []}
    explanation = told.model_copy(update=more)
    return found.model_copy(update={"reason": models.Reason.from_record(reason), "explanation": explanation})


async def _who_closed(connection: AsyncConnection, stored: StoredWorkload) -> StoredWorkload:
    """The same, told since when, by whom and why its queue is held or drains."""
    told = stored.explained
    if told is None or told.primary.token is not Token.SUSPENDED:
        return stored
    rows = told.primary.params.get("closed", ())  # of the version before they are paths, beside what it said
    closed = [{"queue": row} if isinstance(row, str) else dict(row) for row in rows]
    found = await closings(connection, [row["queue"] for row in closed])
    for row in closed:
        if (closing := found.get(row["queue"])) is not None:
            since = instant(closing.at).isoformat(timespec="seconds")
            row |= {"since": since, "by": closing.actor, "reason": closing.reason}
    reason = replace(told.primary, params={**told.primary.params, "closed": closed})
    return replace(stored, explanation=explanation_json(replace(told, primary=reason)))


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


def failure(state: State, moments: Sequence[reads.Moment]) -> dict[str, Any]:
    """The end of a job that has failed, or lost work as it ended, or the loss of pods since a job runs with all."""
    wanted = "workload.state" if state.ended else "workload.lost" if state is State.RUNNING else None
    for moment in reversed(moments):
        if moment.what == "workload.whole" or moment.data.get("to") == State.RUNNING:
            break
        if moment.what == wanted and moment.data.get("note") and moment.data.get("to") in (None, state):
            return {"failure": {"at": moment.at, "text": moment.data["note"]}}
    return {}


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
    if stored.state is not State.QUEUED or told is None or told.primary.out_of_turn:
        return {}
    before, waiting = await reads.line(connection, stored.workload.uid)
    return {"ahead": {"gangs": before, "of": waiting}}


def row_of(stored: StoredWorkload) -> models.Workload:
    """The row of a workload that waits."""
    return _workload(stored, (), None)


def _workload(
    stored: StoredWorkload, domains: Sequence[str], held: lookup.Held | None, failure: str | None = None
) -> models.Workload:
    explained = _explained(stored)
    return models.Workload.from_record(
        stored.workload,
        state=stored.state,
        attempt=stored.attempt,
        admitted=stored.admitted_at,
        landed=stored.landed_at,
        finished=stored.finished_at,
        deleted=stored.deleted_at,
        reason=explained.primary if explained else None,
        failure=failure,
        domains=domains,
        holds=held.amounts if held else {},
        override=stored.override,
    )


def _explained(stored: StoredWorkload) -> Explanation | None:
    """A reason is for what waits: what has ended or is gone waits for nothing, and all that waits has one."""
    if stored.state.ended or stored.deleted_at is not None:
        return None
    return stored.explained or _UNSEEN.get(stored.state)


def _explanation(
    stored: StoredWorkload,
    kept: lookup.NewestCycle | None,
    leader: Controller,
    *,
    now: float,
    detail: Mapping[str, Any],
) -> models.Explanation:
    explained, cycle, passed = _explained(stored), leader.cycle, leader.cycle_age_seconds
    if passed is None and kept is not None:  # whoever leads has not decided yet
        cycle, passed = kept.id, max(0.0, now - kept.finished_at)
    return models.Explanation(
        uid=stored.workload.uid,
        state=stored.state,
        as_of=None if passed is None else instant(now - passed),
        cycle=cycle,
        age_seconds=passed,
        kept=kept.id if kept else None,
        verdict=explained.verdict if explained else None,
        primary=models.ReasonDetail.from_record(explained.primary, since=stored.reason_since)
        if explained
        else None,
        others=[models.ReasonDetail.from_record(other) for other in (explained.others if explained else ())],
        would_admit=[],
        detail=Detail.model_validate({**(explained.detail if explained else {}), **detail}),
    )


def _admission(past: reads.PastAdmission, held: lookup.Held | None) -> models.Admission:
    hosts, counts = past.hosts or {}, held.counts if held else {}
    placements = [
        {
            "pod_set": (name := assignment["podSet"]),
            "flavor": assignment["flavor"],
            "count": sum(assignment["nodes"].values()),
            "nodes": assignment["nodes"],
            "hosts": hosts.get(name, {}),
            "held": counts.get(name),
            "selector": assignment["selector"],
        }
        for assignment in past.assignments
    ]
    return models.Admission.from_record(past, placements=placements)
