"""How long workloads waited from submission to their first start: percentiles of those that started in a time."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from queuer.store.codec import instant

MOST = 10_000
"""The newest starts that are looked at."""
_WAITS = text("""
    SELECT count(*) AS started, percentile_cont(ARRAY[0.5, 0.9, 0.95]) WITHIN GROUP (ORDER BY wait) AS waits FROM (
        SELECT extract(epoch FROM a.at - w.submitted)::float8 AS wait
        FROM admission a CROSS JOIN LATERAL (SELECT queue, submitted FROM workload WHERE uid = a.uid) AS w
        WHERE a.at >= :since AND a.at < :until AND a.attempt = 1
            AND (w.queue = :queue OR starts_with(w.queue, :queue || '.'))
        ORDER BY a.at DESC LIMIT :most
    ) AS newest
""")


@dataclass(frozen=True, slots=True, kw_only=True)
class Waits:
    """`started`: workloads that are counted, `MOST` at most; seconds, None where there are none."""

    started: int
    p50: float | None
    p90: float | None
    p95: float | None


async def waits(connection: AsyncConnection, queue: str, *, since: float, until: float) -> Waits:
    """Of first starts in a queue and all below it from `since` to before `until`."""
    values = {"queue": queue, "since": instant(since), "until": instant(until), "most": MOST}
    row = (await connection.execute(_WAITS, values)).one()
    p50, p90, p95 = row.waits or (None, None, None)
    return Waits(started=row.started, p50=p50, p90=p90, p95=p95)
