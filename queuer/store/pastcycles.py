"""Committed decisions as the cycles page and `queuer cycles` show them, newest first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Row, text
from sqlalchemy.ext.asyncio import AsyncConnection

_COLUMNS = "id, started_at, finished_at, trigger, status, admitted, evicted, waiting, stats"
_PAGE = text(f"""
    SELECT {_COLUMNS} FROM cycle WHERE (CAST(:before AS bigint) IS NULL OR id < :before)
        AND started_at >= coalesce(CAST(:since AS timestamptz), '-infinity')
        AND started_at < coalesce(CAST(:until AS timestamptz), 'infinity')
    ORDER BY id DESC LIMIT :count
""")
_ONE = text(f"SELECT {_COLUMNS} FROM cycle WHERE id = :id")


@dataclass(frozen=True, slots=True, kw_only=True)
class PastCycle:
    """A decision. Times in seconds; `stats`: `queuer.solver.records.CycleStats` as JSON values."""

    id: int
    started_at: float
    finished_at: float
    trigger: str
    status: str
    admitted: int
    evicted: int
    waiting: int
    stats: Mapping[str, Any]


async def page(
    connection: AsyncConnection,
    *,
    before: int | None,
    since: datetime | None = None,
    until: datetime | None = None,
    count: int,
) -> list[PastCycle]:
    """Up to `count` decisions, those before the one of number `before`; `since`, `until`: started from and before."""
    values = {"before": before, "since": since, "until": until, "count": count}
    return [_cycle(row) for row in await connection.execute(_PAGE, values)]


async def one(connection: AsyncConnection, id: int) -> PastCycle | None:
    """The decision of this number, while it is kept."""
    row = (await connection.execute(_ONE, {"id": id})).one_or_none()
    return None if row is None else _cycle(row)


def _cycle(row: Row[Any]) -> PastCycle:
    return PastCycle(
        id=row.id,
        started_at=row.started_at.timestamp(),
        finished_at=row.finished_at.timestamp(),
        trigger=row.trigger,
        status=row.status,
        admitted=row.admitted,
        evicted=row.evicted,
        waiting=row.waiting,
        stats=row.stats,
    )
