"""The newest decision is in the database for whoever explains it, and a decision never waits for that."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from queuer.controller.cycle import recorder as module
from queuer.controller.cycle.recorder import Recorder
from queuer.domain.queue import QueueTree
from queuer.solver.records import Budget, Pending, Snapshot
from queuer.solver.stored import StoredCycle, decode
from queuer.store import stored
from queuer.store.engine import begin
from queuer.store.leader import LeadershipLost
from queuer.store.stored import StoredRow
from tests import waiting
from tests.solver.make import plan_of
from tests.store.support import NOW, take_office, workload
from tests.unit.make import sure
from tests.waiting import beside


def decision(*uids: str, at: float = NOW) -> StoredCycle:
    """One about these waiting workloads."""
    pending = tuple(Pending(workload=workload(uid)) for uid in uids)
    snapshot = Snapshot(nodes=(), tree=QueueTree.of(()), pending=pending)
    return StoredCycle(snapshot=snapshot, now=at, seed=3, budget=Budget(), plan=plan_of(order=uids))


async def kept(engine: AsyncEngine) -> StoredRow | None:
    """The rows in the database."""
    async with begin(engine) as connection:
        return await stored.newest(connection)


async def until(engine: AsyncEngine, fits: Callable[[StoredRow | None], bool]) -> None:
    """Wait until what is in the database fits."""

    async def found() -> bool:
        return fits(await kept(engine))

    await waiting.until(found)


@asynccontextmanager
async def recording(recorder: Recorder) -> AsyncIterator[asyncio.Task[None]]:
    async with beside(recorder.write_rows()) as task:
        yield task


async def test_one_row_is_replaced(engine: AsyncEngine, epoch: int) -> None:
    assert await kept(engine) is None
    for cycle in (1, 2):
        row = StoredRow(cycle=cycle, at=NOW + cycle, seed=7, body=bytes(range(256)) * cycle)
        async with begin(engine) as connection:
            await stored.put(connection, epoch, row)
            assert await stored.newest_number(connection) == cycle
        assert await kept(engine) == row


async def test_what_is_kept_is_the_decision_that_was_offered_last(
    engine: AsyncEngine, epoch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that came while one was being written pass by."""
    monkeypatch.setattr(module, "REST", 0.0)
    recorder = Recorder(engine, epoch=epoch, slow=9.0, between=0.0)
    recorder.offer(1, decision("a"), took=0.1, committed=True)
    recorder.offer(2, decision("a", "b", at=NOW + 1.0), took=0.1, committed=True)
    async with recording(recorder):
        await until(engine, lambda row: row is not None)
        row = sure(await kept(engine))
        assert (row.cycle, row.at, row.seed) == (2, NOW + 1.0, 3)
        assert decode(row.body) == decision("a", "b", at=NOW + 1.0)
        recorder.offer(3, decision("c"), took=0.1, committed=True)
        await until(engine, lambda row: row is not None and row.cycle == 3)


async def test_there_is_time_between_two_writes(engine: AsyncEngine, epoch: int) -> None:
    recorder = Recorder(engine, epoch=epoch, slow=9.0, between=0.5)
    loop = asyncio.get_running_loop()
    recorder.offer(1, decision("a"), took=0.1, committed=True)
    async with recording(recorder):
        await until(engine, lambda row: row is not None)
        first = loop.time()
        recorder.offer(2, decision("a"), took=0.1, committed=True)
        await until(engine, lambda row: row is not None and row.cycle == 2)
    assert loop.time() - first >= 0.4


async def test_one_that_is_too_large_is_left_out(engine: AsyncEngine, epoch: int) -> None:
    """Once the queue is short again it is kept again."""
    small, large = decision(), decision(*(f"{n:x}" for n in range(200)))
    recorder = Recorder(engine, epoch=epoch, slow=9.0, between=0.0, most=1000)
    recorder.offer(1, large, took=0.1, committed=True)
    async with recording(recorder) as task:
        await asyncio.wait({task}, timeout=0.3)
        assert await kept(engine) is None
        recorder.offer(2, small, took=0.1, committed=True)
        await until(engine, lambda row: row is not None and row.cycle == 2)


async def test_a_former_leader_does_not_overwrite_what_its_successor_keeps(
    engine: AsyncEngine, epoch: int
) -> None:
    recorder = Recorder(engine, epoch=epoch, slow=9.0, between=0.0)
    async with begin(engine) as connection:
        await take_office(connection)
    recorder.offer(1, decision("a"), took=0.1, committed=True)
    async with recording(recorder) as task:
        with pytest.raises(LeadershipLost):
            await task
    assert await kept(engine) is None
