"""A reader who pages while jobs come, go, move and end gets each lasting job exactly once."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import text

from queuer.domain.workload import State
from queuer.store import listing, workloads
from queuer.store.engine import begin, make_engine
from queuer.store.listing import Order, Wanted
from tests.store.support import NOW, come, take_office, take_step, workload

LIVE = [state for state in State if not state.ended]
OTHERS = ("new", "gone", "ends", "first")
_KEYS = {
    Order.SUBMITTED: lambda w: w.submitted,
    Order.PRIORITY: lambda w: w.priority,
    Order.NAME: lambda w: w.name,
    Order.QUEUE: lambda w: w.queue,
    Order.USER: lambda w: w.user,
}
# Submit times, priorities, names, queues and users from few values: most rows have equals, and pages end among them.
JOBS = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 2), st.integers(0, 2), st.integers(0, 2), st.booleans()),
    min_size=1, max_size=30,
)  # fmt: skip


@pytest.mark.timeout(120)
@settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(
    jobs=JOBS,
    order=st.sampled_from(Order),
    rising=st.booleans(),
    limit=st.integers(1, 7),
    deeds=st.lists(st.sampled_from(OTHERS), max_size=8),
    narrow=st.booleans(),
)
def test_no_page_repeats_or_skips(
    database_url: str,
    jobs: list[tuple[int, int, int, int, bool]],
    order: Order,
    rising: bool,
    limit: int,
    deeds: list[str],
    narrow: bool,
) -> None:
    """`narrow`: by namespace, so that an index for each is merged. Leaving rows belong to no job that
    stays.
    """
    made = [
        workload(
            f"u{n:02}", submitted=NOW + at, priority=priority, name=f"n{name}", queue=f"root.q{queue}",
            user=f"user{name}", namespace=("a", "b")[n % 2],
        )
        for n, (at, priority, name, queue, _) in enumerate(jobs)
    ]  # fmt: skip
    leaving = [w.uid for w, job in zip(made, jobs, strict=True) if job[4]]
    stay = [w for w in made if w.uid not in leaving]
    past = order is Order.SUBMITTED
    wanted = Wanted(namespaces=["a", "b"] if narrow else None, states=() if past else LIVE)

    async def paged() -> list[str]:
        engine, seen, after, step = make_engine(database_url, name="churn"), list[str](), None, 0
        try:
            async with begin(engine) as connection:
                await connection.execute(text("TRUNCATE workload CASCADE"))
                epoch = await take_office(connection)
                await come(connection, epoch, *made)
            while True:
                async with begin(engine) as connection:
                    page = await listing.workloads(
                        connection, wanted, order=order, rising=rising, after=after, count=limit
                    )
                if not page:
                    return seen
                seen += [found.workload.uid for found in page]
                last = page[-1].workload
                after = (_KEYS[order](last), last.uid)
                if step < len(deeds):
                    async with begin(engine) as connection:
                        deed, step = deeds[step], step + 1
                        if deed in ("new", "first"):
                            at = NOW + (1 if deed == "new" else 9)
                            late = workload(f"late{step}", submitted=at, queue="root.q1", namespace="a")
                            await come(connection, epoch, late)
                        elif leaving and deed == "gone":
                            await workloads.forget(connection, epoch, [leaving.pop()], NOW)
                        elif leaving:
                            await take_step(connection, epoch, leaving.pop(), State.FAILED, at=NOW + 9)
        finally:
            await engine.dispose()

    seen = asyncio.run(paged())
    assert len(seen) == len(set(seen))
    known = {w.uid for w in stay}
    assert [uid for uid in seen if uid in known] == [
        w.uid for w in sorted(stay, key=lambda w: (_KEYS[order](w), w.uid), reverse=not rising)
    ]
