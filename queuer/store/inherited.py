"""The decisions that a new leader takes over: admissions, bonds, reservations, and who was evicted for whom."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from sqlalchemy import TextClause, text
from sqlalchemy.ext.asyncio import AsyncConnection

from queuer.domain.assignments import Bond, Placement, Reservation
from queuer.store.codec import assignments_of, instant, record_of

T = TypeVar("T", Bond, Reservation)
_LAST = text("""
    SELECT greatest((SELECT max(id) FROM cycle), (SELECT max(cycle) FROM admission),
        (SELECT max(cycle) FROM stored_cycle), (SELECT max(cycle) FROM heartbeat), 0)
""")
_ADMISSIONS = text("""
    SELECT a.id, a.uid, a.epoch, a.cycle, a.assignments, a.at
    FROM (
        SELECT uid FROM admission WHERE ended_at IS NULL UNION SELECT uid FROM ledger WHERE closed IS NULL
    ) AS live JOIN workload w USING (uid) JOIN admission a ON a.id = w.admission_id
    ORDER BY a.at, a.uid
""")
_HELD_BONDS = text("SELECT uid, assignments, victims, deadline FROM bond ORDER BY uid")
_DISPLACERS = text("""
    SELECT w.uid, last.beneficiary FROM unnest(CAST(:uids AS text[])) AS w(uid) CROSS JOIN LATERAL (
        SELECT at, data->>'beneficiary' AS beneficiary FROM event
        WHERE uid = w.uid AND type = 'workload.state' AND data->>'to' = 'Evicting' ORDER BY id DESC LIMIT 1
    ) AS last
    WHERE last.beneficiary IS NOT NULL AND NOT EXISTS (
        SELECT FROM command
        WHERE uid = w.uid AND verb = 'prioritise' AND outcome = 'done' AND done_at >= last.at
    )
""")
_EVICTIONS = text("""
    SELECT id, uid, at FROM event
    WHERE at > :since AND type = 'workload.state' AND data->>'to' = 'Evicting'
        AND data->>'cause' IS DISTINCT FROM 'suspended'
    UNION
    SELECT e.id, e.uid, e.at FROM workload w JOIN event e USING (uid)
    WHERE w.state = 'Evicting' AND e.type = 'workload.state' AND e.data->>'to' = 'Evicting'
        AND e.data->>'cause' IS DISTINCT FROM 'suspended'
    ORDER BY id
""")
_HELD_RESERVATIONS = text("SELECT uid, assignments, start, expires FROM reservation ORDER BY uid")


async def last_cycle(connection: AsyncConnection) -> int:
    """The newest cycle's number, 0 before the first: the leader numbers on from here. The record of a cycle may be too
    old to be kept, or was never written because nothing changed.
    """
    return int((await connection.execute(_LAST)).scalar_one())


async def load_admissions(connection: AsyncConnection) -> dict[str, Placement]:
    """The present admission of every workload that has one and still holds something, by uid, oldest first.

    An admission whose assignments cannot be read has none of them.
    """
    return {
        row.uid: record_of(Placement, row, assignments=assignments_of(row.assignments) or ())
        for row in await connection.execute(_ADMISSIONS)
    }


async def load_bonds(connection: AsyncConnection) -> tuple[Bond, ...]:
    """All bonds that hold; one that cannot be read has no assignments."""
    return await _held(connection, _HELD_BONDS, Bond)


async def load_displacers(connection: AsyncConnection, uids: Sequence[str]) -> dict[str, str]:
    """For whose sake each of these workloads was last evicted: uid by uid. It is forgotten with the event of it, and
    once the workload has another priority.
    """
    return {row.uid: row.beneficiary for row in await connection.execute(_DISPLACERS, {"uids": uids})}


async def load_evictions(connection: AsyncConnection, *, since: float) -> dict[str, tuple[float, ...]]:
    """When each workload was evicted since then, in seconds; of one that still leaves, whenever it was. A suspension by
    hand is no eviction.
    """
    found: dict[str, tuple[float, ...]] = {}
    for row in await connection.execute(_EVICTIONS, {"since": instant(since)}):
        found[row.uid] = (*found.get(row.uid, ()), row.at.timestamp())
    return found


async def load_reservations(connection: AsyncConnection) -> tuple[Reservation, ...]:
    """All reservations that hold; one that cannot be read has no assignments."""
    return await _held(connection, _HELD_RESERVATIONS, Reservation)


async def _held(connection: AsyncConnection, statement: TextClause, kind: type[T]) -> tuple[T, ...]:
    return tuple(
        record_of(kind, row, assignments=assignments_of(row.assignments) or ())
        for row in await connection.execute(statement)
    )
