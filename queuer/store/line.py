"""The waiting workloads of a queue: uids and amounts, to be put in the order of a decision."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from queuer.store.waiting import OUT_OF_TURN
from queuer.store.workloads import StoredWorkload, stored_of

_WAITING = text(f"""
    SELECT uid, namespace FROM workload
    WHERE state IN ('Queued', 'Held') AND deleted_at IS NULL
        AND (queue = :queue OR starts_with(queue, :queue || '.'))
    ORDER BY state = 'Held', {OUT_OF_TURN}, first DESC, priority DESC, submitted, uid COLLATE "C"
""")
_AMOUNTS = text("""
    SELECT alike.run, each.key AS resource,
        sum(alike.jobs * (pod_set->>'count')::numeric * each.value::numeric) AS amount
    FROM (
        SELECT asked.run, w.pod_sets, count(*) AS jobs
        FROM unnest(CAST(:uids AS text[]), CAST(:runs AS int[])) AS asked(uid, run) JOIN workload w USING (uid)
        GROUP BY asked.run, w.pod_sets
    ) AS alike
    CROSS JOIN LATERAL jsonb_array_elements(alike.pod_sets) AS pod_set
    CROSS JOIN LATERAL jsonb_each_text(pod_set->'requests') AS each
    GROUP BY alike.run, each.key
""")
_THESE = text("SELECT * FROM workload WHERE uid = ANY(:uids)")


@dataclass(frozen=True, slots=True, kw_only=True)
class InLine:
    """A waiting workload."""

    uid: str
    namespace: str


async def waiting(connection: AsyncConnection, queue: str) -> list[InLine]:
    """All that wait in a queue and below: a leaf's own order, then what can never start, then what is on hold."""
    rows = await connection.execute(_WAITING, {"queue": queue})
    return [InLine(uid=row.uid, namespace=row.namespace) for row in rows]


async def amounts(
    connection: AsyncConnection, runs: Mapping[int, Sequence[str]]
) -> dict[int, dict[str, int]]:
    """The sum of requests of each run of workloads (uids), base units by resource."""
    pairs = [(uid, run) for run, uids in runs.items() for uid in uids]
    values = {"uids": [uid for uid, _ in pairs], "runs": [run for _, run in pairs]}
    found: dict[int, dict[str, int]] = {run: {} for run in runs}
    for row in await connection.execute(_AMOUNTS, values) if pairs else ():
        found[row.run][row.resource] = int(row.amount)
    return found


async def these(connection: AsyncConnection, uids: Sequence[str]) -> dict[str, StoredWorkload]:
    """Workloads by uid."""
    rows = await connection.execute(_THESE, {"uids": list(uids)})
    return {row.uid: stored_of(row) for row in rows}
