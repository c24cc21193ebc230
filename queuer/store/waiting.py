"""Waiting jobs: in a row for all that are alike, with marks (unstartable, waiting for room alone), and in line.

The marks are those of a reason; `codec.explanation_json` stores them with it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from queuer.domain.reasons import Token, Verdict
from queuer.store.codec import record_of
from queuer.store.workloads import StoredWorkload, stored_of

UNSTARTABLE = "(explanation -> 'unstartable' = 'true') IS TRUE"
"""Of a row of `workload` whether the job can never start as it is."""
BESIDE = "(explanation #> '{primary,params,runs}' = 'true') IS TRUE"
"""Of such a row whether the job runs all the same, and no queue counts it."""
OUT_OF_TURN = (
    f"({UNSTARTABLE} OR {BESIDE} OR (explanation #> '{{primary,params}}' ? 'unmanagedSince') IS TRUE)"
)
"""The job has no turn as it is, so it is ahead of nobody; `Reason.out_of_turn` says the same."""
_TOKEN = "coalesce(token, CASE state WHEN 'Held' THEN 'OnHold' ELSE 'PendingEvaluation' END)"
_BY_TOKEN = " ".join(f"WHEN '{token}' THEN '{token.verdict}'" for token in Token)
VERDICT = f"""coalesce(explanation ->> 'verdict',
    CASE WHEN {UNSTARTABLE} THEN 'CHANGE' ELSE CASE {_TOKEN} {_BY_TOKEN} END END)"""
"""Of a waiting row of `workload` the verdict of its reason; versions before wrote none."""
ROWS = f"""
    SELECT uid, queue, pod_sets, submitted, reason_since,
        coalesce(not_asked, 'over_max_pending') = 'over_max_pending' AS in_line,
        {_TOKEN} AS token, {UNSTARTABLE} AS unstartable, {VERDICT} AS verdict,
        (state = 'Queued' AND explanation -> 'lacksRoom' = 'true'
            AND explanation ->> 'limitedBy' IS DISTINCT FROM queue) IS TRUE AS admissible
    FROM workload WHERE state IN ('Queued', 'Held') AND deleted_at IS NULL
"""
"""A query: each waiting workload with both marks."""
_GROUPS = text(f"""
    SELECT queue, token, verdict, unstartable, admissible, in_line, pod_sets, count(*) AS jobs,
        min(submitted) AS oldest, min(reason_since) AS since
    FROM ({ROWS}) AS waiting GROUP BY queue, token, verdict, unstartable, admissible, in_line, pod_sets
""")
_LINE = text(f"""
    SELECT count(*) FROM workload
    WHERE queue = :queue AND namespace = :namespace AND state = 'Queued' AND deleted_at IS NULL
        AND coalesce(not_asked, 'over_max_pending') = 'over_max_pending' AND NOT {UNSTARTABLE}
""")


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Waiting jobs of one queue and reason that ask for the same. `amounts`: of all together, base units; `oldest`:
    submit time; `since`: since when the first of them has this reason. A job is held, unstartable, or demand; one that
    runs beside the queues is none of them.
    """

    queue: str
    token: Token
    unstartable: bool
    admissible: bool
    in_line: bool
    jobs: int
    amounts: Mapping[str, int]
    oldest: float
    since: float | None
    verdict: Verdict

    @property
    def demand(self) -> bool:
        """Whether it is pending: in line, neither held nor unstartable."""
        return self.in_line and not self.unstartable and not self.held

    @property
    def held(self) -> bool:
        """Whether the job, its queue or its namespace is kept from starting on purpose."""
        return self.verdict is Verdict.HELD


async def groups(connection: AsyncConnection) -> list[Group]:
    """All that waits."""
    found = []
    for row in await connection.execute(_GROUPS):
        amounts: dict[str, int] = {}
        for pod_set in row.pod_sets:
            for resource, amount in pod_set["requests"].items():
                amounts[resource] = amounts.get(resource, 0) + amount * pod_set["count"] * row.jobs
        found.append(record_of(Group, row, amounts=amounts))
    return found


async def in_line(connection: AsyncConnection, *, queue: str, namespace: str) -> int:
    """How many jobs of a namespace are ahead of a new one in the line of a queue (`maxPending`)."""
    values = {"queue": queue, "namespace": namespace}
    return int((await connection.execute(_LINE, values)).scalar_one())


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
