"""A controller's reads at start, its deletions, and a job by name do not grow with a database's history."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from queuer.store import inherited, ledger, listing, outbox, retention, workloads
from queuer.store.engine import begin
from queuer.store.listing import Wanted
from tests.store.support import NOW, admission, come, commit_cycle, cycle, workload

PAST, LIVE = 5_000, 3
_FILL = (
    """INSERT INTO workload (uid, kind, namespace, name, queue, user_name, priority, preemptible, submitted, hold,
        pod_sets, state, admission_id, admitted_at, finished_at, deleted_at)
    SELECT 'p' || n, 'Job', 'a', 'p' || n, 'root.a', '', 0, true, to_timestamp(:now), false, '[]',
        'Succeeded', md5('p' || n)::uuid, to_timestamp(:now), to_timestamp(:now), to_timestamp(:now)
    FROM generate_series(1, :past) AS n""",
    """INSERT INTO workload (uid, kind, namespace, name, queue, user_name, priority, preemptible, submitted, hold,
        pod_sets, state, deleted_at)
    SELECT 'd' || n, 'Job', 'a', 'd' || n, 'root.a', '', 0, true, to_timestamp(:now), false, '[]',
        'Queued', to_timestamp(:now) + interval '1 s' FROM generate_series(1, :past) AS n""",
    """INSERT INTO admission (id, uid, attempt, epoch, cycle, assignments, domains, at, ended_at, end_cause)
    SELECT admission_id, uid, 1, 1, 1, '[]', '[]', submitted, finished_at, 'succeeded' FROM workload
    WHERE state = 'Succeeded'""",
    """INSERT INTO ledger (uid, attempt, queue, pod_set, flavor, count, amounts, opened, closed)
    SELECT uid, 1, 'root.a', 'main', 'f', 1, '{}', submitted, finished_at FROM workload WHERE state = 'Succeeded'""",
    """INSERT INTO outbox (kind, uid, admission_id, epoch, patch, at, done_at, outcome)
    SELECT 'admit', uid, admission_id, 1, '{}', submitted, submitted, 'applied' FROM workload
    WHERE state = 'Succeeded'""",
    """INSERT INTO reason_transition (uid, at, text, params) SELECT uid, submitted, '', '{}' FROM workload""",
    """INSERT INTO event (at, type, uid) SELECT submitted, 'workload.state', uid FROM workload""",
    """INSERT INTO event (at, type, uid, queue, data)
    SELECT to_timestamp(:now + n), 'workload.edited', 'w2', 'root.a', '{"state": "Queued"}'
    FROM generate_series(1, :past) AS n""",
    """INSERT INTO cycle (id, epoch, started_at, finished_at, trigger, status, admitted, evicted, waiting)
    SELECT n + 10, 1, to_timestamp(:now), to_timestamp(:now), '', 'GREEDY', 0, 0, 0
    FROM generate_series(1, :past) AS n""",
    """INSERT INTO audit (at, actor, source, action, reason)
    SELECT to_timestamp(:now), '', '', 'repair', '' FROM generate_series(1, :past)""",
    "ANALYZE",
)
_READ = text("SELECT sum(seq_tup_read + idx_tup_fetch)::int FROM pg_stat_xact_user_tables")
_BLOCKS = text("""
    SELECT pg_stat_get_xact_blocks_fetched('workload'::regclass)
        + sum(pg_stat_get_xact_blocks_fetched(indexrelid)) FROM pg_index WHERE indrelid = 'workload'::regclass
""")

Act = Callable[[AsyncConnection], Awaitable[object]]
_LIVING = [f"w{n}" for n in range(LIVE)]
ACTS: dict[str, Act] = {
    "workloads": workloads.load_live,
    "runs": partial(workloads.load_runs, count=10),
    "admissions": inherited.load_admissions,
    "last cycle": inherited.last_cycle,
    "displacers": lambda c: inherited.load_displacers(c, _LIVING),
    "evictions": lambda c: inherited.load_evictions(c, since=NOW + 60),
    "held": ledger.load_held,
    "outbox": outbox.undone,
}
for _rule in retention.RULES:
    ACTS[f"prune {_rule.table} after {_rule.days} days"] = partial(
        retention.prune, epoch=1, rule=_rule, now=NOW + 60
    )


@pytest.fixture
async def old(engine: AsyncEngine, epoch: int) -> AsyncEngine:
    """A database with a few workloads that live, one edited for days (H4), and thousands that have ended."""
    made = [workload(uid) for uid in _LIVING]
    async with begin(engine) as connection:
        await come(connection, epoch, *made)
        await commit_cycle(connection, epoch=epoch, record=cycle(1), admissions=[admission(made[0])])
        for statement in _FILL:
            values = {"now": NOW, "past": PAST}
            wanted = {name: values[name] for name in values if f":{name}" in statement}
            await connection.execute(text(statement), wanted)
    return engine


async def test_only_what_lives_is_read(old: AsyncEngine) -> None:
    """Neither a start nor a look for outdated rows that finds none touches the rows of the past."""
    read = {}
    for name, act in ACTS.items():
        async with begin(old) as connection:
            before = (await connection.execute(_READ)).scalar_one()
            await act(connection)
            read[name] = (await connection.execute(_READ)).scalar_one() - before
    assert {name: rows for name, rows in read.items() if rows > 100} == {}


async def test_a_job_is_found_by_its_name(old: AsyncEngine) -> None:
    """Neither the table nor a whole index is read through for it, however many jobs its namespace has had."""
    async with begin(old) as connection:
        before = (await connection.execute(_BLOCKS)).scalar_one()
        assert await listing.workloads(connection, Wanted(namespace="a", name="w0", deleted=True)) == []
        assert (await connection.execute(_BLOCKS)).scalar_one() - before < 20
