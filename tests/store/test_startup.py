"""A new leader reads what lives: however long the history is, the server looks at none of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import TextClause, text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from queuer.store import inherited, ledger, outbox, workloads
from queuer.store.codec import instant
from queuer.store.engine import begin
from tests.store.support import NOW, admission, commit_cycle, cycle, intake_of, workload

HISTORY = 20_000
"""Jobs that ended, each with admission, closed charge, applied effect and events; as many edits of one that waits."""
_FILL = (
    """
    INSERT INTO workload (uid, kind, namespace, name, queue, user_name, priority, preemptible, submitted, hold,
        pod_sets, state, admission_id, admitted_at, landed_at, finished_at)
    SELECT 'old' || n, 'Job', 'ns', 'old' || n, 'root.a', '', 0, true, to_timestamp(:now), false, '[]',
        'Succeeded', gen_random_uuid(), to_timestamp(:now), to_timestamp(:now), to_timestamp(:now + n)
    FROM generate_series(1, :count) AS n
    """,
    """
    INSERT INTO admission (id, uid, attempt, epoch, cycle, assignments, domains, at, ended_at, end_cause)
    SELECT admission_id, uid, 1, 1, 1, '[]', '[]', admitted_at, finished_at, 'succeeded' FROM workload
    """,
    """
    INSERT INTO ledger (uid, attempt, queue, pod_set, flavor, count, amounts, opened, closed)
    SELECT uid, 1, 'root.a', 'main', 'default', 1, '{"cpu": 1}', admitted_at, finished_at FROM workload
    """,
    """
    INSERT INTO outbox (kind, uid, admission_id, epoch, patch, done_at, outcome)
    SELECT 'admit', uid, admission_id, 1, '{}', finished_at, 'applied' FROM workload
    """,
    """
    INSERT INTO event (at, type, uid, queue, data)
    SELECT finished_at, 'workload.state', uid, queue, '{"to": "Succeeded"}' FROM workload
    """,
    """
    INSERT INTO event (at, type, uid, queue, data)
    SELECT to_timestamp(:now + n), 'workload.edited', 'b', 'root.a', '{"state": "Queued"}'
    FROM generate_series(1, :count) AS n
    """,
    "INSERT INTO cycle (id, epoch, started_at, finished_at, trigger, status, admitted, evicted, waiting)"
    " SELECT n, 1, now(), now(), 'change', 'GREEDY', 0, 0, 0 FROM generate_series(1, :count) AS n",
)
READS: dict[str, tuple[TextClause, dict[str, Any], int]] = {
    "workloads": (workloads._LOAD, {}, 50),
    "admissions": (inherited._ADMISSIONS, {}, 50),
    "displacers": (inherited._DISPLACERS, {"uids": ["a", "b", "c"]}, 50),
    "evictions": (inherited._EVICTIONS, {"since": instant(NOW - 3600.0)}, 50),
    "held": (ledger._HELD, {}, 50),
    "undone": (outbox._UNDONE, {}, 50),
    "last cycle": (inherited._LAST, {}, 50),
    "runs": (workloads._RUNS, {"count": 100}, 500),
}


@pytest.fixture
async def connection(engine: AsyncEngine, epoch: int) -> Any:
    """A transaction that sees a long history, one job that runs and two that wait."""
    async with begin(engine) as connection:
        for statement in _FILL:
            await connection.execute(text(statement), {"now": NOW, "count": HISTORY})
        made = [workload(uid) for uid in ("a", "b", "c")]
        await workloads.intake(connection, epoch, [intake_of(w) for w in made], at=NOW)
        record = cycle(HISTORY + 1)
        await commit_cycle(connection, epoch=epoch, record=record, admissions=[admission(made[0])])
    async with begin(engine) as connection:
        yield connection


async def test_a_start_reads_what_lives(connection: AsyncConnection) -> None:
    """By indexes, with the statistics that autovacuum keeps; also where a job that waits was edited for days (H4)."""
    assert len(await workloads.load_live(connection)) == 3
    assert len(await inherited.load_admissions(connection)) == 1
    await connection.execute(text("ANALYZE"))
    read = {name: await _rows_read(connection, name) for name in READS}
    assert {name: rows for name, rows in read.items() if rows > READS[name][2]} == {}


async def _rows_read(connection: AsyncConnection, name: str) -> int:
    """Rows that the server looks at to answer."""
    statement, values, _ = READS[name]
    explained = text(f"EXPLAIN (ANALYZE, FORMAT JSON) {statement.text}")
    found = (await connection.execute(explained, values)).scalar_one()
    plan = found if isinstance(found, list) else json.loads(found)
    return sum(
        node["Actual Loops"] * (node["Actual Rows"] + node.get("Rows Removed by Filter", 0))
        for node in _nodes(plan[0]["Plan"])
        if "Scan" in node["Node Type"]
    )


def _nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for below in plan.get("Plans", ()):
        yield from _nodes(below)
