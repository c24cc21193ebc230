"""The run times that a new leader learns from."""

from __future__ import annotations

from sqlalchemy.ext.asyncio import AsyncEngine

from queuer.domain.workload import State
from queuer.store import workloads
from queuer.store.engine import begin
from tests.store.support import (
    NOW,
    Eviction,
    Step,
    admission,
    commit_cycle,
    cycle,
    evict,
    intake_of,
    take_steps,
    workload,
)


async def test_runs_that_ended_by_themselves_are_found_the_oldest_first(
    engine: AsyncEngine, epoch: int
) -> None:
    """Counted from landing where that was seen; not what was evicted, deleted, or runs still."""
    names = ("slow", "quick", "deleted", "evicted", "runs")
    made = {name: workload(name, user="ann") for name in names}

    async def step(name: str, state: State, after: float, cause: str = "") -> None:
        async with begin(engine) as connection:
            change = Step(uid=name, state=state, at=NOW + after, cause=cause)
            await take_steps(connection, epoch, [change])

    async with begin(engine) as connection:
        await workloads.intake(connection, epoch, [intake_of(one) for one in made.values()], at=NOW)
        new = [admission(one) for one in made.values()]
        await commit_cycle(connection, epoch=epoch, record=cycle(1), admissions=new)
    await step("slow", State.RUNNING, 10)
    await step("quick", State.SUCCEEDED, 5)
    await step("deleted", State.FAILED, 20, "deleted")
    async with begin(engine) as connection:
        gone = Eviction(uid="evicted", cause="reclaim", patch={})
        await evict(connection, epoch, [gone], at=NOW + 20)
    await step("evicted", State.SUCCEEDED, 30)
    await step("slow", State.FAILED, 110)
    async with begin(engine) as connection:
        runs = await workloads.load_runs(connection, count=10)
        last = await workloads.load_runs(connection, count=1)
    assert runs == [(made["quick"], 5.0), (made["slow"], 100.0)]
    assert last == [(made["slow"], 100.0)]
