"""News for a live view: the jobs that have moved since its last look, and how far the tables have come."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from queuer.domain.reasons import Token
from queuer.domain.workload import State
from queuer.store.codec import record_of
from queuer.store.events import CHANNEL, REASONS

_LISTEN = text(f"LISTEN {CHANNEL}")
_MARK = text("""
    SELECT coalesce((SELECT max(id) FROM event), 0) AS event,
           coalesce((SELECT max(id) FROM cycle), 0) AS cycle,
           coalesce((SELECT cycle FROM stored_cycle WHERE id = 1), 0) AS stored
""")
_MOVED = text("""
    SELECT uid, namespace, state, token, deleted_at IS NOT NULL AS gone FROM (
        SELECT uid FROM event WHERE id > :event AND uid IS NOT NULL
        UNION SELECT r.uid FROM event e CROSS JOIN LATERAL (
            SELECT uid FROM reason_transition
            WHERE id BETWEEN (e.data->>'from')::bigint AND (e.data->>'to')::bigint
        ) AS r WHERE e.id > :event AND e.type = :changed
    ) AS moved JOIN workload USING (uid) ORDER BY uid LIMIT :count
""")
_LAG = text("""
    SELECT coalesce(max(extract(epoch FROM now() - at))::float8, 0) FROM (
        SELECT at FROM event WHERE id > :event ORDER BY id LIMIT 1) AS first
""")


@dataclass(frozen=True, slots=True, kw_only=True)
class TableMark:
    """How far the tables have come: the newest event, cycle, and cycle that is stored to be explained; 0 = none."""

    event: int
    cycle: int
    stored: int = 0

    def back(self, steps: int) -> TableMark:
        """So many events before."""
        return TableMark(event=max(0, self.event - steps), cycle=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """A job as it is now. `token`: why it waits; `gone`: its object was deleted."""

    uid: str
    namespace: str
    state: State
    token: Token | None
    gone: bool


async def mark(connection: AsyncConnection) -> TableMark:
    """How far it is now."""
    return record_of(TableMark, (await connection.execute(_MARK)).one())


async def moved(connection: AsyncConnection, since: TableMark, *, count: int) -> list[Moved]:
    """Up to `count` jobs that took a step or got another reason."""
    found = await connection.execute(_MOVED, {"event": since.event, "changed": REASONS, "count": count})
    return [record_of(Moved, row) for row in found]


async def lag(connection: AsyncConnection, since: TableMark) -> float:
    """The age in seconds of the first event after a mark, 0 = there is none."""
    return max(0.0, float((await connection.execute(_LAG, {"event": since.event})).scalar_one()))


@asynccontextmanager
async def doorbell(engine: AsyncEngine) -> AsyncIterator[Callable[[float], Awaitable[None]]]:
    """A wait until events or a cycle were written, for so many seconds at most. It holds a connection of its own."""
    async with engine.connect() as connection:
        connection = await connection.execution_options(isolation_level="AUTOCOMMIT")
        await connection.execute(_LISTEN)
        driver: Any = (await connection.get_raw_connection()).driver_connection

        async def rung(seconds: float) -> None:
            async for _ in driver.notifies(timeout=seconds, stop_after=1):
                pass

        try:
            yield rung
        finally:
            await connection.invalidate()  # nobody else of the pool is to listen
