"""Each queue's use, borrowing and demand over time: a row a queue and minute, from these one an hour.

A minute's row is the tree as it was then (`queuer.store.usage`); an hour's row holds the averages of its minutes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import IntEnum
from typing import Any

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from queuer.store.codec import instant, record_of, rows_json
from queuer.store.leader import check_epoch
from queuer.store.usage import Amounts, QueueView, tree_view


class Period(IntEnum):
    """How much time a row stands for, in seconds."""

    MINUTE = 60
    HOUR = 3600


_SUMMED = ("used", "guaranteed", "borrowed", "lent", "pending")
_PUT = text("""
    INSERT INTO usage_rollup (queue, seconds, at, waiting, admitted, amounts)
    SELECT r.queue, 60, :at, r.waiting, r.admitted, r.amounts
    FROM jsonb_to_recordset(CAST(:rows AS jsonb)) AS r(queue text, waiting int, admitted int, amounts jsonb)
    ON CONFLICT DO NOTHING
""")
# The newest hour that is over, of which there are minutes and no row yet. An account that a minute lacks was 0 there.
_PUT_HOUR = text(f"""
    WITH hour AS (
        SELECT at FROM (
            SELECT date_trunc('hour', max(at)) AS at FROM usage_rollup
            WHERE seconds = 60 AND at < date_trunc('hour', CAST(:at AS timestamptz))
        ) AS newest
        WHERE NOT EXISTS (SELECT FROM usage_rollup done WHERE done.seconds = 3600 AND done.at = newest.at)
    ), minute AS MATERIALIZED (
        SELECT m.* FROM hour CROSS JOIN LATERAL (SELECT queue, waiting, admitted, amounts FROM usage_rollup
            WHERE seconds = 60 AND at >= hour.at AND at < hour.at + interval '1 hour') AS m
    ), whole AS (
        SELECT queue, count(*) AS minutes, round(avg(waiting)) AS waiting, round(avg(admitted)) AS admitted
        FROM minute GROUP BY queue
    ), account AS (
        SELECT queue, flavor, resource, round(avg("limit")) AS "limit",
            {", ".join(f"sum({word}) AS {word}" for word in _SUMMED)}
        FROM minute CROSS JOIN LATERAL jsonb_to_recordset(amounts) AS a(flavor text, resource text, "limit" numeric,
            {", ".join(f"{word} numeric" for word in _SUMMED)})
        GROUP BY queue, flavor, resource
    ), told AS (
        SELECT queue, jsonb_agg(jsonb_build_object('flavor', flavor, 'resource', resource, 'limit', "limit",
            {", ".join(f"'{word}', round({word} / minutes)" for word in _SUMMED)})
            ORDER BY resource, flavor NULLS FIRST) AS amounts
        FROM account JOIN whole USING (queue) GROUP BY queue
    )
    INSERT INTO usage_rollup (queue, seconds, at, waiting, admitted, amounts)
    SELECT queue, 3600, hour.at, waiting, admitted, coalesce(amounts, '[]')
    FROM hour CROSS JOIN whole LEFT JOIN told USING (queue)
""")
_RANGE = text("""
    SELECT at, waiting, admitted, amounts FROM usage_rollup
    WHERE queue = :queue AND seconds = :seconds AND at >= :since AND at < :until ORDER BY at
""")
# Root has a row in every minute that was written down: it says which is the last.
_TREE = text("""
    SELECT queue, at, waiting, admitted, amounts FROM usage_rollup
    WHERE seconds = :seconds AND at = (SELECT max(at) FROM usage_rollup
        WHERE queue = 'root' AND seconds = :seconds AND at > :since AND at <= :until)
    ORDER BY queue
""")


@dataclass(frozen=True, slots=True, kw_only=True)
class UsagePoint:
    """A queue with all below it. `at`: seconds, the minute, or the start of the hour; counts are of workloads.

    `amounts`: those accounts of which there is anything to tell.
    """

    at: float
    waiting: int
    admitted: int
    amounts: tuple[Amounts, ...]


async def record(connection: AsyncConnection, epoch: int, *, at: float) -> None:
    """Write down the minute of `at`, unless it is. Raises LeadershipLost."""
    await check_epoch(connection, epoch)
    view = await tree_view(connection)
    minute = instant(at // Period.MINUTE * Period.MINUTE)
    rows = rows_json(_row(path, found) for path, found in view.queues.items())
    await connection.execute(_PUT, {"rows": rows, "at": minute})


async def sum_up(connection: AsyncConnection, epoch: int, *, at: float) -> None:
    """Write down the newest hour before that of `at` that has minutes, unless it is. Raises LeadershipLost."""
    await check_epoch(connection, epoch)
    await connection.execute(_PUT_HOUR, {"at": instant(at)})


async def history(
    connection: AsyncConnection, queue: str, *, period: Period, since: float, until: float
) -> list[UsagePoint]:
    """The rows of a queue from `since` to before `until`, oldest first. Minutes in which nobody led are missing."""
    values = {"queue": queue, "seconds": period, "since": instant(since), "until": instant(until)}
    return [record_of(UsagePoint, row) for row in await connection.execute(_RANGE, values)]


async def tree(
    connection: AsyncConnection, *, period: Period, since: float, until: float
) -> dict[str, UsagePoint]:
    """All queues by path at one time: the last in (since, until] that was written down; empty where none was."""
    values = {"seconds": period, "since": instant(since), "until": instant(until)}
    return {row.queue: record_of(UsagePoint, row) for row in await connection.execute(_TREE, values)}


def _row(path: str, found: QueueView) -> dict[str, Any]:
    accounts = (asdict(account) for account in found.amounts)
    return {
        "queue": path,
        "waiting": found.waiting,
        "admitted": found.admitted,
        "amounts": [account for account in accounts if _tells(account)],
    }


def _tells(account: Mapping[str, Any]) -> bool:
    return account["limit"] is not None or any(account[word] for word in _SUMMED)


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
