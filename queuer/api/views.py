"""From records of the store to the shapes of REST: quantities as text, times with a zone, one clock."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from sqlalchemy.ext.asyncio import AsyncConnection

from queuer.api import models
from queuer.api.cursor import make_cursor
from queuer.api.history import timeline
from queuer.domain.document import export_access, export_policy
from queuer.domain.errors import NotFound
from queuer.domain.quantity import format_quantity, format_resources
from queuer.domain.queue import QueueState, QueueTree
from queuer.domain.reasons import Explanation, Reason, Token
from queuer.domain.workload import State
from queuer.store import lookup, reads
from queuer.store.config import Kind
from queuer.store.usage import Amounts, QueueView, TreeView, tree_view
from queuer.store.workloads import StoredWorkload

_UNSEEN = {
    State.QUEUED: Explanation(
        primary=Reason(
            token=Token.PENDING_EVALUATION, text="no cycle has looked at it since it came or was edited"
        )
    ),
    State.HELD: Explanation(primary=Reason(token=Token.ON_HOLD, text="it is on hold")),
}


def instant(seconds: float) -> datetime:
    """A time as REST says it."""
    return datetime.fromtimestamp(seconds, tz=UTC)


def _instant(seconds: float | None) -> datetime | None:
    return None if seconds is None else instant(seconds)


async def queues(connection: AsyncConnection) -> models.QueueList:
    """All queues with their amounts, parents before children."""
    view = await tree_view(connection)
    cycle = await lookup.newest_cycle(connection)
    capacity = _capacity(cycle)
    return models.QueueList(
        items=[_queue(view, found, capacity) for found in view.queues.values()],
        revision=view.config.revision,
        cycle=_cycle(cycle),
        as_of=instant(await lookup.now(connection)),
    )


def _cycle(cycle: lookup.NewestCycle | None) -> models.Cycle | None:
    if cycle is None:
        return None
    return models.Cycle(id=cycle.id, finished=instant(cycle.finished_at), status=cycle.status)


async def queue(connection: AsyncConnection, path: str) -> models.Queue:
    """One queue. Raises NotFound with the nearest paths."""
    view = await tree_view(connection)
    if path not in view.queues:
        raise no_queue(view.config.tree, path)
    return _queue(view, view.queues[path], _capacity(await lookup.newest_cycle(connection)))


def no_queue(tree: QueueTree, path: str) -> NotFound:
    """There is no such queue; names the nearest."""
    close = tree.nearest(path)
    hint = f"did you mean {' or '.join(close)}?" if close else "`queuer queue ls` lists them"
    return NotFound(f"there is no queue {path}", hint=hint)


def _capacity(cycle: lookup.NewestCycle | None) -> Mapping[tuple[str | None, str], int]:
    found: dict[tuple[str | None, str], int] = {}
    for flavor, amounts in (cycle.capacity if cycle else {}).items():
        for resource, amount in amounts.items():
            found[flavor, resource] = amount
            found[None, resource] = found.get((None, resource), 0) + amount
    return found


def _queue(view: TreeView, found: QueueView, capacity: Mapping[tuple[str | None, str], int]) -> models.Queue:
    queue, tree = found.queue, view.config.tree
    amounts = found.amounts if queue.parent else tuple(_bounded(a, capacity) for a in found.amounts)
    waits = tree.is_leaf(queue.path) and tree.effective_state(queue.path) is QueueState.OPEN
    return models.Queue(
        path=queue.path,
        parent=queue.parent,
        leaf=tree.is_leaf(queue.path),
        weight=queue.weight,
        state=queue.state,
        effective_state=tree.effective_state(queue.path),
        managed_by=view.config.writers.get((Kind.QUEUE, queue.path)),
        revision=queue.revision,
        namespaces=list(tree.namespaces(queue.path)),
        policy=export_policy(tree.policy(queue.path)),
        access=export_access(tree.access(queue.path)),
        quota=[
            models.QuotaRow(
                resource=row.resource,
                flavor=row.flavor,
                guaranteed=_quantity(row.guaranteed, row.resource),
                limit=_quantity(row.limit, row.resource),
                lend=_quantity(row.lend, row.resource),
            )
            for row in queue.quota
        ],
        accounts=[_account(account, waits=waits) for account in amounts],
        pending_workloads=found.waiting,
        admitted_workloads=found.admitted,
        oldest_pending=_instant(found.oldest),
    )


def _bounded(amounts: Amounts, capacity: Mapping[tuple[str | None, str], int]) -> Amounts:
    """root's limit is the live capacity, or a smaller one written on it."""
    live = capacity.get((amounts.flavor, amounts.resource))
    if live is None:
        return amounts
    return replace(amounts, limit=live if amounts.limit is None else min(live, amounts.limit))


def _quantity(amount: int | None, resource: str) -> str | None:
    return None if amount is None else format_quantity(amount, resource=resource)


def _account(amounts: Amounts, *, waits: bool) -> models.Account:
    def text(amount: int) -> str:
        return format_quantity(amount, resource=amounts.resource)

    return models.Account(
        resource=amounts.resource,
        flavor=amounts.flavor,
        guaranteed=text(amounts.guaranteed),
        limit=_quantity(amounts.limit, amounts.resource),
        used=text(amounts.used),
        borrowed=text(amounts.borrowed),
        lent=text(amounts.lent),
        pending=text(amounts.pending),
        starved=waits and amounts.pending > 0 and amounts.used < amounts.guaranteed,
    )


async def workloads(
    connection: AsyncConnection,
    *,
    states: Sequence[State] = (),
    queue: str | None = None,
    namespace: str | None = None,
    name: str | None = None,
    token: Token | None = None,
    deleted: bool = False,
    limit: int,
    after: tuple[float, str] | None = None,
) -> models.WorkloadList:
    """A page of workloads, the newest submitted first."""
    found = await reads.workloads(
        connection,
        states=states,
        queue=queue,
        namespace=namespace,
        name=name,
        token=token,
        deleted=deleted,
        after=after,
        count=limit + 1,
    )
    page = found[:limit]
    places = await lookup.domains(connection, [w.admission_id for w in page if w.admission_id])
    last = page[-1].workload if len(found) > limit else None
    return models.WorkloadList(
        items=[_workload(stored, places.get(stored.admission_id or "", ())) for stored in page],
        next=None if last is None else make_cursor(last.submitted, last.uid),
        as_of=instant(await lookup.now(connection)),
    )


async def workload(connection: AsyncConnection, uid: str) -> models.WorkloadDetail:
    """One workload. Raises NotFound."""
    return await _detail(connection, await reads.workload(connection, uid))


async def workload_by_reference(
    connection: AsyncConnection, *, namespace: str, kind: str, name: str
) -> models.WorkloadDetail:
    """The newest workload of that name. Raises NotFound."""
    stored = await reads.by_reference(connection, namespace=namespace, kind=kind, name=name)
    return await _detail(connection, stored)


async def _detail(connection: AsyncConnection, stored: StoredWorkload) -> models.WorkloadDetail:
    workload, now = stored.workload, await lookup.now(connection)
    past = await reads.admissions(connection, workload.uid)
    present = next((a for a in past if a.id == stored.admission_id), None)
    cycle = await lookup.newest_cycle(connection)
    row = _workload(stored, present.domains if present else ())
    moments = await reads.timeline(connection, workload.uid)
    detail = {**await _ahead(connection, stored), **_evicted(moments)}
    return models.WorkloadDetail(
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
        admission=None if present is None else _admission(present),
        explanation=_explanation(stored, cycle, now=now, detail=detail),
        timeline=timeline(moments),
        as_of=instant(now),
    )


def _evicted(moments: Iterable[reads.Moment]) -> dict[str, Any]:
    """When it last went back to its queue, by which right or for which failure, and for whose sake (a uid)."""
    found = [m for m in moments if m.what == "workload.state" and m.data.get("to") == State.EVICTING]
    if not found:
        return {}
    last = found[-1]
    keys = ("cause", "beneficiary", "note")
    return {"evicted": {"at": last.at, **{key: last.data[key] for key in keys if last.data.get(key)}}}


async def _ahead(connection: AsyncConnection, stored: StoredWorkload) -> dict[str, Any]:
    """Its place in the line of its queue, counted now: it moves with every arrival, so no cycle writes it down."""
    if stored.state is not State.QUEUED or stored.deleted_at is not None:
        return {}
    before, waiting = await reads.line(connection, stored.workload.uid)
    return {"ahead": {"gangs": before, "of": waiting}}


def _workload(stored: StoredWorkload, domains: Sequence[str]) -> models.Workload:
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
        admitted=_instant(stored.admitted_at),
        landed=_instant(stored.landed_at),
        finished=_instant(stored.finished_at),
        deleted=_instant(stored.deleted_at),
        reason=None if explained is None else _reason(explained.primary),
        domains=list(domains),
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
        primary=None if explained is None else _reason_detail(explained.primary, since=stored.reason_since),
        others=[_reason_detail(other) for other in (explained.others if explained else ())],
        would_admit=[dict(change) for change in (explained.would_admit if explained else ())],
        detail={**(explained.detail if explained else {}), **detail},
    )


def explained(found: models.WorkloadDetail, told: Explanation | None) -> models.WorkloadDetail:
    """The workload with what a stored cycle tells of it, as far as that is what is recorded, too: an edit or another
    cycle may have come since.
    """
    recorded = found.explanation
    if told is None or recorded.primary is None or told.primary.token is not recorded.primary.token:
        return found
    since = recorded.primary.since
    primary = _reason_detail(told.primary).model_copy(update={"since": since})
    more = {
        "verdict": told.verdict,
        "primary": primary,
        "others": [_reason_detail(other) for other in told.others],
        "would_admit": [dict(change) for change in told.would_admit],
        "detail": {**told.detail, **recorded.detail},
    }
    reason = _reason(told.primary)
    return found.model_copy(update={"reason": reason, "explanation": recorded.model_copy(update=more)})


def _reason_detail(reason: Reason, *, since: float | None = None) -> models.ReasonDetail:
    return models.ReasonDetail(
        **_reason(reason).model_dump(), params=dict(reason.shown), since=_instant(since)
    )


def _admission(past: reads.PastAdmission) -> models.Admission:
    return models.Admission(
        id=past.id,
        cycle=past.cycle,
        domains=list(past.domains),
        placements=[_placement(assignment) for assignment in past.assignments],
    )


def _placement(assignment: Mapping[str, Any]) -> models.Placement:
    nodes: dict[str, int] = assignment["nodes"]
    return models.Placement(
        pod_set=assignment["podSet"],
        flavor=assignment["flavor"],
        count=sum(nodes.values()),
        nodes=nodes,
        selector=assignment["selector"],
    )
