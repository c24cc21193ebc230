"""What waits, by reason, and what is stuck, in a few rows however many jobs there are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from queuer.domain.reasons import Reason, Token, Verdict
from queuer.domain.workload import State
from queuer.store.codec import instant, seconds
from queuer.store.waiting import ROWS

_STATES = text("""
    SELECT state, count(*) AS jobs FROM workload
    WHERE state NOT IN ('Succeeded', 'Failed') AND deleted_at IS NULL GROUP BY state
""")
# One row a reason and resource; `resource` is null in the row that counts jobs.
_REASONS = text(f"""
    WITH waiting AS ({ROWS}), told AS (
        SELECT coalesce(token, CASE state WHEN 'Held' THEN 'OnHold' ELSE 'PendingEvaluation' END) AS token, impossible,
            admissible, submitted, pod_sets FROM waiting
    ), asked AS (
        SELECT token, impossible, each.key AS resource,
            sum((pod_set->>'count')::numeric * each.value::numeric) AS amount
        FROM told CROSS JOIN LATERAL jsonb_array_elements(pod_sets) AS pod_set
        CROSS JOIN LATERAL jsonb_each_text(pod_set->'requests') AS each
        GROUP BY token, impossible, each.key
    )
    SELECT token, impossible, NULL AS resource, NULL AS amount, count(*) AS jobs, min(submitted) AS oldest
    FROM told GROUP BY token, impossible
    UNION ALL SELECT token, impossible, resource, amount, NULL, NULL FROM asked
""")
_LONG = text(f"""
    WITH waiting AS ({ROWS})
    SELECT count(*) AS jobs, min(submitted) AS oldest FROM waiting WHERE admissible AND submitted < :before
""")
_PLACING = text("""
    SELECT count(*) AS jobs, min(admitted_at) AS oldest FROM workload
    WHERE state IN ('Admitted', 'Placing') AND deleted_at IS NULL AND admitted_at < :before
""")


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Jobs that wait for one reason. `amounts`: what they ask for together, base units; `oldest`: submit time."""

    token: Token
    verdict: Verdict
    jobs: int
    amounts: Mapping[str, int]
    oldest: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Stuck:
    """How many jobs, and since when the first of them."""

    jobs: int
    oldest: float | None


async def states(connection: AsyncConnection) -> dict[State, int]:
    """Workloads that have not ended, by state."""
    return {State(row.state): row.jobs for row in await connection.execute(_STATES)}


async def reasons(connection: AsyncConnection) -> list[Group]:
    """Most jobs first."""
    amounts: dict[tuple[str, bool], dict[str, int]] = {}
    counted = []
    for row in await connection.execute(_REASONS):
        if row.resource is None:
            counted.append(row)
        else:
            amounts.setdefault((row.token, row.impossible), {})[row.resource] = int(row.amount)
    return [
        Group(
            token=Token(row.token),
            verdict=Reason(Token(row.token), {"idle": row.impossible}).verdict,
            jobs=row.jobs,
            amounts=amounts.get((row.token, row.impossible), {}),
            oldest=row.oldest.timestamp(),
        )
        for row in sorted(counted, key=lambda row: (-row.jobs, row.token, row.impossible))
    ]


async def waiting_since(connection: AsyncConnection, before: float) -> Stuck:
    """Jobs that lack room alone and were submitted before that."""
    row = (await connection.execute(_LONG, {"before": instant(before)})).one()
    return Stuck(jobs=row.jobs, oldest=seconds(row.oldest))


async def placing_since(connection: AsyncConnection, before: float) -> Stuck:
    """Jobs that were admitted before that and have not landed."""
    row = (await connection.execute(_PLACING, {"before": instant(before)})).one()
    return Stuck(jobs=row.jobs, oldest=seconds(row.oldest))
