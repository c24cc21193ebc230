"""How many workloads are in which state, and what is stuck, in a few rows however many there are."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from queuer.domain.workload import State
from queuer.store.codec import instant, seconds
from queuer.store.waiting import ROWS

_STATES = text("""
    SELECT state, count(*) AS jobs FROM workload
    WHERE state NOT IN ('Succeeded', 'Failed') AND deleted_at IS NULL GROUP BY state
""")
_LONG = text(f"""
    SELECT count(*) AS jobs, min(submitted) AS oldest FROM ({ROWS}) AS waiting WHERE admissible AND submitted < :before
""")
_PLACING = text("""
    SELECT count(*) AS jobs, min(admitted_at) AS oldest FROM workload
    WHERE state IN ('Admitted', 'Placing') AND deleted_at IS NULL AND admitted_at < :before
""")


@dataclass(frozen=True, slots=True, kw_only=True)
class Stuck:
    """How many jobs, and since when the first of them."""

    jobs: int
    oldest: float | None


async def states(connection: AsyncConnection) -> dict[State, int]:
    """Workloads that have not ended, by state."""
    return {State(row.state): row.jobs for row in await connection.execute(_STATES)}


async def waiting_since(connection: AsyncConnection, before: float) -> Stuck:
    """Jobs that lack room alone and were submitted before that."""
    row = (await connection.execute(_LONG, {"before": instant(before)})).one()
    return Stuck(jobs=row.jobs, oldest=seconds(row.oldest))


async def placing_since(connection: AsyncConnection, before: float) -> Stuck:
    """Jobs that were admitted before that and have not landed."""
    row = (await connection.execute(_PLACING, {"before": instant(before)})).one()
    return Stuck(jobs=row.jobs, oldest=seconds(row.oldest))
