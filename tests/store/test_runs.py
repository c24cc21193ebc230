"""The run times that a new leader learns from."""

from __future__ import annotations

from sqlalchemy.ext.asyncio import AsyncEngine

from queuer.domain.workload import State
from queuer.store import workloads
from queuer.store.engine import begin
from tests.store.support import NOW, Eviction, evict, start, take_step, workload


async def test_runs_that_ended_by_themselves_are_found_the_oldest_first(
    engine: AsyncEngine, epoch: int
) -> None:
    """Counted from landing where that was seen; not what was evicted, deleted, or runs still."""
    names = ("slow", "quick", "deleted", "evicted", "runs")
    made = {name: workload(name, user="ann") for name in names}

    async def step(name: str, state: State, after: float, cause: str = "") -> None:
        async with begin(engine) as connection:
            await take_step(connection, epoch, name, state, at=NOW + after, cause=cause)

    async with begin(engine) as connection:
        await start(connection, epoch, *made.values())
    await step("slow", State.RUNNING, 10)
    await step("quick", State.SUCCEEDED, 5)
    await step("deleted", State.FAILED, 20, "deleted")
    async with begin(engine) as connection:
        await evict(connection, epoch, [Eviction(uid="evicted", cause="reclaim")], at=NOW + 20)
    await step("evicted", State.SUCCEEDED, 30)
    await step("slow", State.FAILED, 110)
    async with begin(engine) as connection:
        runs = await workloads.load_runs(connection, count=10)
        last = await workloads.load_runs(connection, count=1)
    assert runs == [(made["quick"], 5.0), (made["slow"], 100.0)]
    assert last == [(made["slow"], 100.0)]
