"""A decision becomes fact: one transaction with admissions, charges, evictions, reasons, effects and events.

Either all of a cycle is there or nothing. A workload that is no longer as the decision saw it stops the whole
commit, so that nothing is admitted on a false picture.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from queuer.domain.errors import Conflict
from queuer.domain.quantity import NOTHING, Resources
from queuer.domain.reasons import Explanation
from queuer.domain.workload import State
from queuer.store import reasons
from queuer.store.codec import execute_rows, rows_json
from queuer.store.events import Event, append
from queuer.store.leader import check_epoch
from queuer.store.ledger import LedgerRow, charge
from queuer.store.outbox import Effect, Entry, put
from queuer.store.tables import EntryKind

_RECORD = text("""
    INSERT INTO cycle (id, epoch, started_at, finished_at, trigger, status, admitted, evicted, waiting, stats,
        capacity)
    SELECT r.id, :epoch, to_timestamp(r.started_at), to_timestamp(r.finished_at), r.trigger, r.status, :admitted,
        :evicted, r.waiting, r.stats, r.capacity
    FROM jsonb_to_record(CAST(:row AS jsonb)) AS r(id bigint, started_at double precision,
        finished_at double precision, trigger text, status text, waiting int, stats jsonb, capacity jsonb)
""")
_ADMIT = text("""
    WITH r AS (
        SELECT * FROM jsonb_to_recordset(CAST(:rows AS jsonb)) AS r(id uuid, uid text, attempt int,
            assignments jsonb, domains jsonb, before text, hit boolean)
    ), old AS (
        SELECT r.*, w.token FROM r CROSS JOIN LATERAL
            (SELECT state, attempt, deleted_at, token FROM workload WHERE uid = r.uid FOR UPDATE) AS w
        WHERE w.state = r.before AND w.attempt = r.attempt AND w.deleted_at IS NULL
    ), admitted AS (
        UPDATE workload w SET state = 'Admitted', admission_id = old.id, admitted_at = to_timestamp(:at),
            token = NULL, explanation = NULL, reason_since = NULL, rest = NULL, barred = NULL
        FROM old WHERE w.uid = old.uid
        RETURNING w.queue, old.*
    ), written AS (
        INSERT INTO admission (id, uid, attempt, epoch, cycle, assignments, domains, at, hit)
        SELECT id, uid, attempt, :epoch, :cycle, assignments, domains, to_timestamp(:at), hit FROM admitted
    ), told AS (
        INSERT INTO reason_transition (uid, at, from_token, token, text, params, cycle)
        SELECT uid, to_timestamp(:at), token, NULL, '', '{}', :cycle FROM admitted WHERE token IS NOT NULL
    )
    SELECT uid, queue FROM admitted
""")
_EVICT = text("""
    WITH r AS (
        SELECT * FROM jsonb_to_recordset(CAST(:rows AS jsonb)) AS r(uid text, cause text)
    ), old AS (
        SELECT r.*, w.state FROM r CROSS JOIN LATERAL
            (SELECT state FROM workload WHERE uid = r.uid FOR UPDATE) AS w
        WHERE w.state IN ('Admitted', 'Placing', 'Running')
    ), evicted AS (
        UPDATE workload w SET state = 'Evicting' FROM old WHERE w.uid = old.uid
        RETURNING w.uid, w.queue, w.attempt, w.admission_id, old.state AS before, old.cause
    ), told AS (
        UPDATE admission a SET end_cause = evicted.cause FROM evicted WHERE a.id = evicted.admission_id
    )
    SELECT uid, queue, attempt, admission_id, before FROM evicted
""")
_BONDS = text("""
    WITH r AS (
        SELECT * FROM jsonb_to_recordset(CAST(:rows AS jsonb))
            AS r(uid text, assignments jsonb, victims jsonb, deadline double precision)
    ), ended AS (
        DELETE FROM bond WHERE uid NOT IN (SELECT uid FROM r)
    )
    INSERT INTO bond (uid, assignments, victims, deadline)
    SELECT uid, assignments, ARRAY(SELECT jsonb_array_elements_text(victims)), to_timestamp(deadline) FROM r
    ON CONFLICT (uid) DO UPDATE SET assignments = excluded.assignments, victims = excluded.victims,
        deadline = excluded.deadline
""")
_RESERVATIONS = text("""
    WITH r AS (
        SELECT * FROM jsonb_to_recordset(CAST(:rows AS jsonb))
            AS r(uid text, assignments jsonb, start double precision, expires double precision)
    ), ended AS (
        DELETE FROM reservation WHERE uid NOT IN (SELECT uid FROM r)
    )
    INSERT INTO reservation (uid, assignments, start, expires)
    SELECT uid, assignments, to_timestamp(start), to_timestamp(expires) FROM r
    ON CONFLICT (uid) DO UPDATE SET assignments = excluded.assignments, start = excluded.start,
        expires = excluded.expires
""")
Placement = Mapping[str, Any]
"""One `queuer.domain.assignments.Assignment` as JSON: `{podSet, flavor, nodes: {host: pods}, selector, hosts}`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleRecord:
    """One run of the decision. `status`: a word of SolveStatus; `capacity`: {flavor: {resource: allocatable}}."""

    id: int
    started_at: float
    finished_at: float
    trigger: str
    status: str
    waiting: int
    stats: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    capacity: Mapping[str, Resources] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True, kw_only=True)
class Charge:
    """What one pod set of an admission holds: `amounts` of all its pods together, base units."""

    pod_set: str
    flavor: str
    count: int
    amounts: Resources = field(default_factory=lambda: NOTHING)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewAdmission:
    """A gang to start. `id`: a fresh UUID, also in the job's annotation; `attempt`, `before`: as the workload's row
    says. Only what was started beside the queue can have been Held. `hit`: whether it starts inside the range that it
    was last told, None = it was told none.
    """

    id: str
    uid: str
    attempt: int
    assignments: tuple[Placement, ...]
    charges: tuple[Charge, ...]
    patch: Mapping[str, Any]
    domains: tuple[str, ...] = ()
    before: State = State.QUEUED
    hit: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NewEviction:
    """A gang to take back. `cause`: a `Cause`, or the rule of the plan; `beneficiary`: the uid it is for;
    `note`: for whom or why, as a sentence for its owner.
    """

    uid: str
    cause: str
    patch: Mapping[str, Any]
    beneficiary: str | None = None
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredBond:
    """`queuer.domain.assignments.Bond` with its assignments as JSON."""

    uid: str
    assignments: tuple[Placement, ...]
    victims: tuple[str, ...]
    deadline: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredReservation:
    """`queuer.domain.assignments.Reservation` with its assignments as JSON."""

    uid: str
    assignments: tuple[Placement, ...]
    start: float
    expires: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """What the applier has to send now: evictions first, then admissions, in the order given."""

    entries: tuple[Entry, ...]


async def commit(
    connection: AsyncConnection,
    *,
    epoch: int,
    record: CycleRecord,
    admissions: Sequence[NewAdmission] = (),
    evictions: Sequence[NewEviction] = (),
    bonds: Sequence[StoredBond] = (),
    reservations: Sequence[StoredReservation] = (),
    explanations: Mapping[str, Explanation] = MappingProxyType({}),
) -> Committed:
    """Write a whole cycle. `bonds`, `reservations`: all that hold from now; `explanations`: those that changed.

    Raises LeadershipLost, and Conflict naming each workload that is not as the decision saw it: not waiting at that
    attempt (admission), not admitted (eviction). The caller's transaction must then be rolled back.
    """
    await check_epoch(connection, epoch)
    counts = {"admitted": len(admissions), "evicted": len(evictions), "epoch": epoch}
    await connection.execute(_RECORD, {"row": rows_json([record])[1:-1], **counts})
    evicted = await evict(connection, epoch, evictions, at=record.finished_at, cycle=record.id)
    admitted, events = await _admit(connection, epoch, admissions, record=record)
    await connection.execute(_BONDS, {"rows": rows_json(bonds)})
    await connection.execute(_RESERVATIONS, {"rows": rows_json(reservations)})
    await reasons.record(connection, explanations, at=record.finished_at, cycle=record.id)
    append(connection, events)
    return Committed(entries=evicted + admitted)


async def evict(
    connection: AsyncConnection,
    epoch: int,
    evictions: Sequence[NewEviction],
    *,
    at: float,
    cycle: int | None = None,
) -> tuple[Entry, ...]:
    """Evict, also outside a cycle (landing deadline, node lost). Raises Conflict where a workload is not admitted."""
    if not evictions:
        return ()
    await check_epoch(connection, epoch)
    rows = [{"uid": eviction.uid, "cause": eviction.cause} for eviction in evictions]
    found = {row.uid: row for row in await execute_rows(connection, _EVICT, rows)}
    _demand_all((eviction.uid for eviction in evictions), found, what="evicted: it is not admitted")
    effects = [
        Effect(kind=EntryKind.EVICT, uid=e.uid, admission_id=str(found[e.uid].admission_id), patch=e.patch)
        for e in evictions
    ]
    entries = await put(connection, epoch, effects, at=at, cycle=cycle)
    append(
        connection,
        [
            Event(
                at=at,
                type="workload.state",
                uid=e.uid,
                queue=found[e.uid].queue,
                data={
                    "from": found[e.uid].before,
                    "to": "Evicting",
                    "attempt": found[e.uid].attempt,
                    "cause": e.cause,
                    "beneficiary": e.beneficiary,
                    "note": e.note,
                    "cycle": cycle,
                },
            )
            for e in evictions
        ],
    )
    return entries


async def _admit(
    connection: AsyncConnection, epoch: int, admissions: Sequence[NewAdmission], *, record: CycleRecord
) -> tuple[tuple[Entry, ...], list[Event]]:
    if not admissions:
        return (), []
    at = record.finished_at
    keys = ("id", "uid", "attempt", "assignments", "domains", "before", "hit")
    rows = [{key: getattr(admission, key) for key in keys} for admission in admissions]
    admitted = await execute_rows(connection, _ADMIT, rows, epoch=epoch, cycle=record.id, at=at)
    queues = {row.uid: row.queue for row in admitted}
    _demand_all((a.uid for a in admissions), queues, what="admitted: it does not wait at that attempt")
    await charge(
        connection,
        [
            LedgerRow(
                uid=a.uid,
                attempt=a.attempt,
                queue=queues[a.uid],
                pod_set=c.pod_set,
                flavor=c.flavor,
                count=c.count,
                amounts=c.amounts,
                opened=at,
            )
            for a in admissions
            for c in a.charges
        ],
    )
    effects = [Effect(kind=EntryKind.ADMIT, uid=a.uid, admission_id=a.id, patch=a.patch) for a in admissions]
    entries = await put(connection, epoch, effects, at=at, cycle=record.id)
    return entries, [
        Event(
            at=at,
            type="workload.state",
            uid=a.uid,
            queue=queues[a.uid],
            data={
                "from": a.before,
                "to": "Admitted",
                "attempt": a.attempt,
                "cycle": record.id,
                "domains": a.domains,
            },
        )
        for a in admissions
    ]


def _demand_all(uids: Iterable[str], found: Mapping[str, Any], *, what: str) -> None:
    missing = [uid for uid in uids if uid not in found]
    if missing:
        raise Conflict("; ".join(f"{uid} cannot be {what}" for uid in missing[:5]), uids=missing)
