"""How many workloads are in which state, and what is stuck, in a few rows however many there are."""

from __future__ import annotations

from dataclasses import dataclass, field

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from queuer.domain.quantity import Resources
from queuer.domain.workload import State
from queuer.store.codec import instant, seconds
from queuer.store.waiting import BESIDE, ROWS, UNSTARTABLE

_STATES = text("""
    SELECT state, count(*) AS jobs FROM workload
    WHERE state NOT IN ('Succeeded', 'Failed') AND deleted_at IS NULL GROUP BY state
""")
_LONG = text(f"""
    SELECT count(*) AS jobs, min(submitted) AS oldest FROM ({ROWS}) AS waiting WHERE admissible AND submitted < :before
""")
_BESIDE = text(f"""
    SELECT count(*) FROM workload WHERE state IN ('Queued', 'Held') AND deleted_at IS NULL AND {BESIDE}
""")
_NEVER = text(f"""
    SELECT namespace, count(*) AS jobs FROM workload
    WHERE state IN ('Queued', 'Held') AND deleted_at IS NULL AND {UNSTARTABLE} GROUP BY namespace
""")
_PLACING = text("""
    WITH late AS (
        SELECT uid, admitted_at FROM workload
        WHERE state IN ('Admitted', 'Placing') AND deleted_at IS NULL AND admitted_at < :before
    ), held AS (
        SELECT part.key, sum(part.value::bigint) AS amount
        FROM late JOIN ledger USING (uid) CROSS JOIN LATERAL jsonb_each_text(amounts) AS part
        WHERE closed IS NULL GROUP BY part.key
    )
    SELECT count(*) AS jobs, min(admitted_at) AS oldest,
        (SELECT coalesce(jsonb_object_agg(key, amount), '{}') FROM held) AS amounts
    FROM late
""")
_NOT_TAKEN = text("""
    SELECT count(DISTINCT uid) AS jobs, min(at) AS oldest FROM outbox
    WHERE done_at IS NULL AND kind = 'evict' AND at < :before
""")
_MOVES = text("""
    SELECT floor(extract(epoch FROM started_at) / :step) * :step AS at, sum(admitted) AS admitted,
        sum(evicted) AS evicted
    FROM cycle WHERE started_at >= :since AND (admitted > 0 OR evicted > 0) GROUP BY 1
""")


@dataclass(frozen=True, slots=True, kw_only=True)
class Stuck:
    """How many jobs, since when the first of them, and what they hold in base units, where it is asked."""

    jobs: int
    oldest: float | None
    amounts: Resources = field(default_factory=dict)


async def states(connection: AsyncConnection) -> dict[State, int]:
    """Workloads that have not ended, by state."""
    return {State(row.state): row.jobs for row in await connection.execute(_STATES)}


async def beside(connection: AsyncConnection) -> int:
    """Jobs that run and that no queue counts."""
    return int((await connection.execute(_BESIDE)).scalar_one())


async def unstartable(connection: AsyncConnection) -> dict[str, int]:
    """By namespace how many jobs can never start as they are, those in no queue too."""
    return {row.namespace: int(row.jobs) for row in await connection.execute(_NEVER)}


async def moves(connection: AsyncConnection, *, since: float, step: int) -> dict[float, tuple[int, int]]:
    """How many were admitted and evicted, by the start of each step of so many seconds in which somebody was."""
    rows = await connection.execute(_MOVES, {"since": instant(since), "step": step})
    return {float(row.at): (int(row.admitted), int(row.evicted)) for row in rows}


async def waiting_since(connection: AsyncConnection, before: float) -> Stuck:
    """Jobs that lack room alone and were submitted before that."""
    row = (await connection.execute(_LONG, {"before": instant(before)})).one()
    return Stuck(jobs=row.jobs, oldest=seconds(row.oldest))


async def evicted_since(connection: AsyncConnection, before: float) -> Stuck:
    """Jobs whose eviction was written before that, and which the API server has not taken."""
    row = (await connection.execute(_NOT_TAKEN, {"before": instant(before)})).one()
    return Stuck(jobs=row.jobs, oldest=seconds(row.oldest))


async def placing_since(connection: AsyncConnection, before: float) -> Stuck:
    """Jobs that were admitted before that, and not all of whose pods run."""
    row = (await connection.execute(_PLACING, {"before": instant(before)})).one()
    return Stuck(jobs=row.jobs, oldest=seconds(row.oldest), amounts=row.amounts)
