"""Cycles: a record of each decision, and what it holds for workloads that wait.

`queuer.controller.ledger.commit` writes them in one transaction with the steps, charges, reasons and effects of the
decision. All of a cycle is there or nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from queuer.domain.assignments import Bond, Reservation
from queuer.domain.quantity import Resources
from queuer.store.codec import assignment_json, rows_json
from queuer.store.leader import check_epoch

_RECORD = text("""
    INSERT INTO cycle (id, epoch, started_at, finished_at, trigger, status, admitted, evicted, waiting, stats,
        capacity)
    SELECT r.id, :epoch, to_timestamp(r.started_at), to_timestamp(r.finished_at), r.trigger, r.status, :admitted,
        :evicted, r.waiting, r.stats, r.capacity
    FROM jsonb_to_record(CAST(:row AS jsonb)) AS r(id bigint, started_at double precision,
        finished_at double precision, trigger text, status text, waiting int, stats jsonb, capacity jsonb)
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


async def record(
    connection: AsyncConnection, epoch: int, cycle: CycleRecord, *, admitted: int, evicted: int
) -> None:
    """Write that a cycle was. `admitted`, `evicted`: how many workloads it moves. Raises LeadershipLost."""
    await check_epoch(connection, epoch)
    counts = {"admitted": admitted, "evicted": evicted, "epoch": epoch}
    await connection.execute(_RECORD, {"row": rows_json([cycle])[1:-1], **counts})


async def write_held(
    connection: AsyncConnection, epoch: int, bonds: Sequence[Bond], reservations: Sequence[Reservation]
) -> None:
    """Replace all that is held for workloads that wait. Raises LeadershipLost."""
    await check_epoch(connection, epoch)
    await connection.execute(_BONDS, {"rows": rows_json(map(_held, bonds))})
    await connection.execute(_RESERVATIONS, {"rows": rows_json(map(_held, reservations))})


def _held(held: Bond | Reservation) -> dict[str, Any]:
    row = {name: getattr(held, name) for name in held.__slots__}
    return row | {"assignments": [assignment_json(a) for a in held.assignments]}
