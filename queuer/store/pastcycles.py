"""Committed decisions as the cycles page and `queuer cycles` show them, newest first."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from queuer.store.codec import record_of

_COLUMNS = (
    "id, started_at AS started, finished_at AS finished, trigger, status, admitted, evicted, waiting, stats"
)
_PAGE = text(f"""
    SELECT {_COLUMNS} FROM cycle WHERE (CAST(:before AS bigint) IS NULL OR id < :before)
        AND started_at >= coalesce(CAST(:since AS timestamptz), '-infinity')
        AND started_at < coalesce(CAST(:until AS timestamptz), 'infinity')
    ORDER BY id DESC LIMIT :count
""")
_ONE = text(f"SELECT {_COLUMNS} FROM cycle WHERE id = :id")
_BESIDE = text("""
    SELECT (SELECT max(id) FROM cycle WHERE id < :id) AS before, (SELECT min(id) FROM cycle WHERE id > :id) AS after
""")


# The events of a decision are of the moment in which it was finished, but for rounding.
_DECISIONS = text("""
    SELECT e.uid, e.queue, e.data, w.kind, w.namespace, w.name, w.pod_sets
    FROM cycle c JOIN event e ON e.type = 'workload.state'
        AND e.at BETWEEN c.finished_at - interval '1 ms' AND c.finished_at + interval '1 ms'
        AND e.data->>'to' IN ('Admitted', 'Evicting') AND e.data->>'cycle' = CAST(c.id AS text)
    JOIN workload w USING (uid)
    WHERE c.id = :id AND (CAST(:namespaces AS text[]) IS NULL OR w.namespace = ANY(:namespaces))
    ORDER BY e.id LIMIT :count
""")


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """A job that a cycle admitted or evicted. `data`: of its event; `pod_sets`: JSON values."""

    uid: str
    queue: str
    kind: str
    namespace: str
    name: str
    data: Mapping[str, Any]
    pod_sets: Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class PastCycle:
    """A decision. Times in seconds; `stats`: `queuer.solver.records.CycleStats` as JSON values."""

    id: int
    started: float
    finished: float
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
    return [record_of(PastCycle, row) for row in await connection.execute(_PAGE, values)]


async def one(connection: AsyncConnection, id: int) -> PastCycle | None:
    """The decision of this number, while it is kept."""
    row = (await connection.execute(_ONE, {"id": id})).one_or_none()
    return None if row is None else record_of(PastCycle, row)


async def beside(connection: AsyncConnection, id: int) -> tuple[int | None, int | None]:
    """The numbers of the decisions that are kept before and after this one."""
    row = (await connection.execute(_BESIDE, {"id": id})).one()
    return row.before, row.after


async def decisions(
    connection: AsyncConnection, id: int, *, namespaces: Collection[str] | None, count: int
) -> list[Decision]:
    """Up to `count` of those admitted and evicted, in the order of the decision. `namespaces`: of these alone."""
    asked = None if namespaces is None else sorted(namespaces)
    rows = await connection.execute(_DECISIONS, {"id": id, "namespaces": asked, "count": count})
    return [record_of(Decision, row) for row in rows]
