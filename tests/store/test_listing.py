"""A list that matches little of a long past looks at few of its rows: an index serves each filter."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from queuer.domain.reasons import Token
from queuer.domain.workload import State
from queuer.store import listing
from queuer.store.engine import begin, make_engine
from queuer.store.listing import Order, Wanted

PAST, LIVE, MOST = 20_000, 400, 2_500
_FILL = text("""
    INSERT INTO workload (uid, kind, namespace, name, queue, user_name, priority, preemptible, submitted, hold,
        pod_sets, state, finished_at, deleted_at)
    SELECT md5(n::text), 'Job', CASE WHEN n < :past / 20 THEN 'old' ELSE 'ns' || n % 40 END, 'train-' || n % 900,
        'root.o' || n % 5 || '.q' || CASE WHEN n < :past / 20 THEN n % 30 ELSE n % 25 END, 'user' || n % 70,
        n % 3, true, now() - n * interval '1 min', false, '[{"name": "main", "count": 1, "requests": {"cpu": 1}}]',
        CASE WHEN n <= :live THEN 'Queued' WHEN n % 300 = 0 THEN 'Failed' ELSE 'Succeeded' END,
        CASE WHEN n > :live THEN now() END, CASE WHEN n > 3 * :live THEN now() END
    FROM generate_series(1, :past) AS n
""")
CASES = {
    "newest": Wanted(),
    "waiting": Wanted(states=[State.QUEUED]),
    "held, of which there is none": Wanted(states=[State.HELD]),
    "a reason that nobody has": Wanted(tokens=[Token.SOLVER_DEFERRED]),
    "failed": Wanted(states=[State.FAILED], deleted=True),
    "failed of nobody": Wanted(states=[State.FAILED], user="nobody", deleted=True),
    "a leaf": Wanted(queue="root.o3.q3", deleted=True),
    "an inner queue": Wanted(queue="root.o3", deleted=True),
    "all queues": Wanted(queue="root", deleted=True),
    "a namespace of long ago": Wanted(namespaces=["old"], deleted=True),
    "that has nothing left": Wanted(namespaces=["old"]),
    "many namespaces": Wanted(namespaces=[f"ns{n}" for n in range(40)], deleted=True),
    "none": Wanted(namespaces=[], deleted=True),
    "a name": Wanted(name="train-7", deleted=True),
    "no such name": Wanted(name="nothing", deleted=True),
    "a part of a name that few have": Wanted(name="*ain-899*", deleted=True),
    "a part of a name that nobody has": Wanted(name="*nothing*", deleted=True),
    "a user": Wanted(user="user7", deleted=True),
    "no such user": Wanted(user="nobody", deleted=True),
}


@pytest_asyncio.fixture
async def filled(database_url: str) -> AsyncIterator[AsyncEngine]:
    """Two weeks of jobs, with statistics."""
    engine = make_engine(database_url, name="lists")
    async with begin(engine) as connection:
        await connection.execute(text("SET LOCAL session_replication_role = replica"))
        await connection.execute(_FILL, {"past": PAST, "live": LIVE})
        await connection.execute(text("ANALYZE workload"))
    yield engine
    await engine.dispose()


def looked_at(plan: dict[str, Any]) -> float:
    """Rows of the table that a plan met, shown or not."""
    removed = sum(plan.get(key, 0) for key in ("Rows Removed by Filter", "Rows Removed by Index Recheck"))
    own = plan["Actual Rows"] + removed if plan["Node Type"].endswith("Scan") else 0
    return float(own * plan["Actual Loops"]) + sum(map(looked_at, plan.get("Plans", ())))


async def test_no_list_looks_at_more_than_an_eighth_of_the_past(
    filled: AsyncEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "RECENT", 600)
    met = {}
    async with begin(filled) as connection:
        for name, wanted in CASES.items():
            statement, values = listing.select(
                wanted, order=Order.SUBMITTED, rising=False, after=None, count=50
            )
            explain = text(f"EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON) {statement}")
            (plan,) = (await connection.execute(explain, values)).scalar_one()
            met[name] = looked_at(plan["Plan"])
    assert {name: rows for name, rows in met.items() if rows > MOST} == {}
