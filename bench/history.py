"""Seconds of what a controller reads at start and deletes now and then, on a database that holds millions of rows.

Everything runs with the controller's own session settings: what takes longer than its statement timeout is `null`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

from sqlalchemy import create_engine, text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from bench.arguments import whole
from queuer.domain.workload import State
from queuer.local import postgres
from queuer.store import inherited, ledger, listing, migrate, outbox, retention, workloads
from queuer.store.engine import DatabaseUnavailable, begin, make_engine
from queuer.store.listing import Wanted
from queuer.store.usage import tree_view

PER_JOB = 5
"""Events of one job of the past."""
ROWS = 12
"""Rows of one job of the past in all tables together, about."""
DAYS = 200
"""How far the past goes back: farther than most retention rules reach."""
WAITING, RUNNING = 20_000, 500
WEEK = 7 * 86_400.0

_FILL = (
    """INSERT INTO workload (uid, kind, namespace, name, queue, user_name, priority, preemptible, submitted, hold,
        pod_sets, state, admission_id, admitted_at, landed_at, finished_at, deleted_at)
    SELECT 'p' || n, 'Job', 'team', 'p' || n, 'root.q' || n % 20, '', 0, true, at, false, :pod_sets,
        CASE WHEN n % 10 = 0 THEN 'Queued' ELSE 'Succeeded' END,
        CASE WHEN n % 10 <> 0 THEN md5('p' || n)::uuid END,
        CASE WHEN n % 10 <> 0 THEN at END, CASE WHEN n % 10 <> 0 THEN at END,
        CASE WHEN n % 10 <> 0 THEN at + interval '10 min' END, at + interval '1 h'
    FROM (SELECT n, now() - interval '1 h' - :days * interval '1 day' * (1 - n / :jobs ::float8) AS at
        FROM generate_series(1, :jobs) AS n) AS past""",
    """INSERT INTO workload (uid, kind, namespace, name, queue, user_name, priority, preemptible, submitted, hold,
        pod_sets, state, admission_id, admitted_at, landed_at)
    SELECT 'l' || n, 'Job', 'team', 'l' || n, 'root.q' || n % 20, '', 0, true, now(), false, :pod_sets,
        CASE WHEN n > :running THEN 'Queued' ELSE 'Running' END,
        CASE WHEN n <= :running THEN md5('l' || n)::uuid END,
        CASE WHEN n <= :running THEN now() END, CASE WHEN n <= :running THEN now() END
    FROM generate_series(1, :running + :waiting) AS n""",
    """INSERT INTO admission (id, uid, attempt, epoch, cycle, assignments, domains, at, landed_at, ended_at, end_cause)
    SELECT admission_id, uid, 1, 1, 1, '[]', '[]', admitted_at, landed_at, finished_at, lower(state)
    FROM workload WHERE admission_id IS NOT NULL""",
    """INSERT INTO ledger (uid, attempt, queue, pod_set, flavor, count, amounts, opened, closed)
    SELECT uid, 1, queue, 'main', 'f', 1, '{"cpu": 4000, "pods": 1, "nvidia.com/gpu": 1}', admitted_at, finished_at
    FROM workload WHERE admission_id IS NOT NULL""",
    """INSERT INTO outbox (kind, uid, admission_id, epoch, cycle, patch, at, done_at, outcome)
    SELECT 'admit', uid, admission_id, 1, 1, '{}', admitted_at, admitted_at, 'applied'
    FROM workload WHERE admission_id IS NOT NULL""",
    """INSERT INTO reason_transition (uid, at, from_token, token, text, params, cycle)
    SELECT uid, submitted, NULL, CASE n WHEN 1 THEN 'WaitingForQuota' END, '', '{}', 1
    FROM workload, generate_series(1, 2) AS n""",
    # One event in a hundred is an eviction.
    """INSERT INTO event (at, type, uid, queue, data)
    SELECT submitted + k * interval '1 min', 'workload.state', uid, queue, CASE
        WHEN k = 3 AND hashtext(uid) % 20 = 0
        THEN '{"from": "Running", "to": "Evicting", "cause": "reclaim", "beneficiary": "b"}'::jsonb
        ELSE '{"from": "Queued", "to": "Running", "attempt": 1}' END
    FROM workload, generate_series(1, :per_job) AS k""",
    """INSERT INTO cycle (id, epoch, started_at, finished_at, trigger, status, admitted, evicted, waiting)
    SELECT n, 1, at, at, 'change', 'GREEDY', 1, 0, 0 FROM
        (SELECT n, now() - :days * interval '1 day' * (1 - n / :jobs ::float8) AS at
        FROM generate_series(1, :jobs) AS n) AS past""",
    """INSERT INTO audit (at, actor, source, action, reason, detail)
    SELECT now() - 3 * :days * interval '1 day' * (1 - n / :jobs ::float8), 'a', 's', 'repair', '', '{}'
    FROM generate_series(1, :jobs / 10) AS n""",
    """INSERT INTO queue (path, parent_id, weight, state, policy, namespaces, managed_by, revision)
    SELECT 'root.q' || n, (SELECT id FROM queue WHERE path = 'root'), 1, 'open', '{}', '{}', 'api', 1
    FROM generate_series(0, 19) AS n""",
    "UPDATE leader SET epoch = 1",
)
_POD_SETS = '[{"name": "main", "count": 1, "requests": {"cpu": 4000, "pods": 1, "nvidia.com/gpu": 1}}]'


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(prog="python -m bench.history", description=__doc__)
    made.add_argument("--millions", type=whole(1, 50), default=5, help="events; other tables in proportion")
    return made


def main() -> None:
    """Print one JSON object."""
    options = parser().parse_args()
    home = Path(tempfile.mkdtemp(prefix="queuer-bench-"))
    home.chmod(0o755)  # PostgreSQL's account must enter
    server = postgres.start(home / "pg", fsync=False)
    try:
        migrate.upgrade(server.url)
        jobs = options.millions * 1_000_000 // PER_JOB
        fill(server.url, jobs=jobs, days=DAYS, waiting=WAITING, running=RUNNING)
        print(json.dumps(asyncio.run(_measure(server.url)), indent=1))
    finally:
        server.stop()
        shutil.rmtree(home)


def fill(url: str, *, jobs: int, days: int, waiting: int = 0, running: int = 0) -> None:
    """Put `jobs` that ended within the last `days` into an empty database, and some that wait or run."""
    values = {
        "jobs": jobs, "days": days, "waiting": waiting, "running": running, "per_job": PER_JOB, "pod_sets": _POD_SETS,
    }  # fmt: skip
    engine = create_engine(url)
    with engine.begin() as connection:
        connection.execute(
            text("SET session_replication_role = replica")
        )  # foreign keys hold by construction
        for statement in _FILL:
            began = time.perf_counter()
            connection.execute(text(statement), values)
            print(f"{time.perf_counter() - began:6.1f} s {statement.split('(')[0]}", file=sys.stderr)
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text("VACUUM ANALYZE"))
    engine.dispose()


async def _measure(url: str) -> dict[str, dict[str, float | None]]:
    engine = make_engine(url, name="queuer-bench")
    try:
        return {
            "read": {name: await _timed(engine, read) for name, read in _reads(time.time()).items()},
            "prune a batch": await _pruned(engine, now=time.time()),
            "prune nothing": await _pruned(engine, now=time.time() - 5 * DAYS * retention.DAY),
        }
    finally:
        await engine.dispose()


_LISTS = {
    "newest": Wanted(),
    "waiting": Wanted(states=[State.QUEUED]),
    "running": Wanted(states=[State.RUNNING]),
    "one queue": Wanted(queue="root.q1"),
    "failed of one queue": Wanted(queue="root.q1", states=[State.FAILED], deleted=True),
    "a user without jobs": Wanted(user="nobody", deleted=True),
    "a name": Wanted(name="p77", deleted=True),
    "another namespace": Wanted(namespaces=["other"], deleted=True),
}
Act = Callable[[AsyncConnection], Awaitable[object]]


def _reads(now: float) -> dict[str, Act]:
    live = [f"l{n}" for n in range(1, WAITING + RUNNING + 1)]
    return {
        "workloads.load_live": workloads.load_live,
        "workloads.load_runs": lambda c: workloads.load_runs(c, count=5000),
        "inherited.load_admissions": inherited.load_admissions,
        "inherited.load_displacers": lambda c: inherited.load_displacers(c, live),
        "inherited.load_evictions": lambda c: inherited.load_evictions(c, since=now - 3600),
        "inherited.last_cycle": inherited.last_cycle,
        "outbox.undone": outbox.undone,
        "ledger.past_use, all": lambda c: ledger.past_use(c, [WEEK], now=now),
        "ledger.past_use, a day": lambda c: ledger.past_use(
            c, [WEEK], now=now, after=now - 2 * retention.DAY, until=now - retention.DAY
        ),
        "ledger.load_held": ledger.load_held,
        "ledger.load_open": ledger.load_open,
        "usage.tree_view": tree_view,
        **{
            f"listing.workloads, {name}": partial(listing.workloads, wanted=each)
            for name, each in _LISTS.items()
        },
    }


async def _pruned(engine: AsyncEngine, *, now: float) -> dict[str, float | None]:
    return {
        f"{rule.table}, {rule.days} days": await _timed(
            engine, partial(retention.prune, epoch=1, rule=rule, now=now)
        )
        for rule in retention.RULES
    }


async def _timed(engine: AsyncEngine, act: Act) -> float | None:
    began = time.perf_counter()
    try:
        async with begin(engine) as connection:
            await act(connection)
    except DatabaseUnavailable as error:
        print(error, file=sys.stderr)
        return None
    return round(time.perf_counter() - began, 3)


if __name__ == "__main__":
    main()
