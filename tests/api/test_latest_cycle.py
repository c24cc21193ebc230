"""The child that keeps the newest cycle: when it is told a newer one, and what a lost or busy one costs who asks."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from queuer.api import latest_cycle
from queuer.api.latest_cycle import A_PARTY, KEPT, LINE, SLOW, LatestCycle
from queuer.domain.errors import InvalidInput, Unavailable
from queuer.solver.ask import ClusterSlots, FairShare, QueueRanks
from queuer.solver.kept_cycle import CycleReply, CycleRequest
from queuer.solver.process.child import ChildFailure
from queuer.solver.stored import encode
from queuer.store import stored as store
from queuer.store.stored import StoredRow
from tests.api.rows import Author
from tests.api.test_why import decided
from tests.store.support import workload
from tests.waiting import PATIENCE

NO_ENGINE = cast(AsyncEngine, None)


@dataclass
class Clock:
    now: float = 100.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Fake:
    """A child that says how long it took, and the newest number in the database."""

    seconds: float = 0.0
    newest: int | None = 1
    usable: bool = True
    told: list[bytes | None] = field(default_factory=list)
    free: asyncio.Event = field(default_factory=asyncio.Event)
    failure: ChildFailure | None = None

    async def ask(self, request: CycleRequest[Any], *, within: float) -> CycleReply[Any]:
        assert within > 0
        self.told.append(request.body)
        await self.free.wait()
        if self.failure is not None:
            raise self.failure
        return CycleReply(value=None, readable=True, seconds=self.seconds if request.body else 0.0)

    async def end(self) -> None:
        """Nothing runs."""


@pytest.fixture
def child(monkeypatch: pytest.MonkeyPatch) -> Fake:
    found = Fake()
    found.free.set()

    @asynccontextmanager
    async def begin(_: AsyncEngine) -> AsyncIterator[None]:
        yield

    async def number(_: None) -> int | None:
        return found.newest

    async def row(_: None) -> StoredRow:
        assert found.newest is not None
        return StoredRow(cycle=found.newest, at=0.0, seed=0, body=b"%d" % found.newest)

    monkeypatch.setattr(latest_cycle, "Child", lambda *_, **__: found)
    monkeypatch.setattr(latest_cycle, "begin", begin)
    monkeypatch.setattr(store, "newest_number", number)
    monkeypatch.setattr(store, "newest", row)
    return found


@pytest.mark.parametrize("slow", [False, True])
async def test_a_cycle_that_is_slow_to_read_is_kept(child: Fake, slow: bool) -> None:
    """A small one is always the newest; of a large one its answers say which it is."""
    clock, child.seconds = Clock(), SLOW * 2 if slow else SLOW / 2
    latest = LatestCycle(NO_ENGINE, clock=clock)

    async def known() -> int:
        found = await latest.ask(QueueRanks())
        assert found is not None
        return found.cycle

    assert await known() == 1
    child.newest = 2
    assert await latest.number() == (1 if slow else 2)
    assert await known() == (1 if slow else 2)
    clock.now += KEPT * child.seconds + 0.001
    assert await known() == 2
    assert await known() == 2
    assert child.told.count(b"1") == child.told.count(b"2") == 1


async def test_a_number_that_falls_back_is_another_cycle(child: Fake) -> None:
    """After a restore of a backup answers are about what is stored, not about the higher number that was known."""
    latest, told = LatestCycle(NO_ENGINE), []
    for child.newest in (9, 4, 5):
        found = await latest.ask(QueueRanks())
        assert found is not None
        told.append(found.cycle)
    assert told == [9, 4, 5]


async def test_a_cycle_of_a_database_that_was_lost_is_told_no_more(child: Fake) -> None:
    latest, told = LatestCycle(NO_ENGINE), []
    for child.newest in (9, None, 9):
        found = await latest.ask(QueueRanks())
        told.append(found and found.cycle)
    assert told == [9, None, 9]
    assert child.told.count(b"9") == 2


async def test_a_full_line_is_told_to_come_back(child: Fake) -> None:
    latest = LatestCycle(NO_ENGINE)
    child.free.clear()
    asking = [asyncio.create_task(latest.ask(QueueRanks())) for _ in range(LINE)]
    await asyncio.sleep(0)
    with pytest.raises(Unavailable, match="wait already"):
        await latest.ask(QueueRanks())
    child.free.set()
    assert all(await asyncio.gather(*asking))
    assert await latest.ask(QueueRanks())


async def test_one_caller_does_not_fill_the_line(child: Fake) -> None:
    latest = LatestCycle(NO_ENGINE)
    child.free.clear()
    asking = [asyncio.create_task(latest.ask(QueueRanks(), party="greedy")) for _ in range(A_PARTY)]
    await asyncio.sleep(0)
    with pytest.raises(Unavailable, match="wait already"):
        await latest.ask(QueueRanks(), party="greedy")
    asking.append(asyncio.create_task(latest.ask(QueueRanks(), party="other")))
    child.free.set()
    assert all(await asyncio.gather(*asking))
    assert await latest.ask(QueueRanks(), party="greedy")


async def test_who_asks_once_is_not_behind_all_that_another_asks(child: Fake) -> None:
    latest, answered = LatestCycle(NO_ENGINE), []

    async def ask(party: str) -> None:
        await latest.ask(QueueRanks(), party=party)
        answered.append(party)

    child.free.clear()
    async with asyncio.TaskGroup() as asking:
        for party in ["greedy"] * 5 + ["other"]:
            asking.create_task(ask(party))
            await asyncio.sleep(0)
        child.free.set()
    assert answered.index("other") <= 1


async def test_a_question_that_is_given_up_costs_the_child_nothing(child: Fake) -> None:
    """It goes on reading, and the next question finds the cycle read."""
    latest = LatestCycle(NO_ENGINE)
    child.free.clear()
    asking = asyncio.create_task(latest.ask(QueueRanks()))
    while not child.told:  # noqa: ASYNC110 - one turn of the loop
        await asyncio.sleep(0)
    asking.cancel()
    await asyncio.wait({asking})
    child.free.set()
    assert await latest.ask(QueueRanks())
    assert child.told == [b"1", None]


async def test_who_waits_in_line_waits_no_longer_than_who_is_answered(child: Fake) -> None:
    latest = LatestCycle(NO_ENGINE, within=0.05)
    child.free.clear()
    asking = [asyncio.create_task(latest.ask(QueueRanks())) for _ in range(3)]
    done, waiting = await asyncio.wait(asking, timeout=PATIENCE)
    assert not waiting
    assert all(isinstance(each.exception(), Unavailable) for each in done)
    child.free.set()
    assert await latest.ask(QueueRanks())
    assert child.told == [b"1", None]


async def test_after_a_child_has_failed_the_next_is_told_the_cycle_again(child: Fake) -> None:
    """Nobody knows what it had heard."""
    latest = LatestCycle(NO_ENGINE)
    child.failure = ChildFailure("it ended")
    with pytest.raises(Unavailable, match="it ended"):
        await latest.ask(QueueRanks())
    child.failure = None
    assert await latest.ask(QueueRanks())
    assert child.told == [b"1", b"1"]


async def test_of_two_that_are_decided_again_the_second_comes_back(child: Fake) -> None:
    latest, row = LatestCycle(NO_ENGINE), StoredRow(cycle=1, at=0.0, seed=0, body=b"1")
    child.free.clear()
    first = asyncio.create_task(latest.ask_apart(QueueRanks(), row))
    while not child.told:  # noqa: ASYNC110 - one turn of the loop
        await asyncio.sleep(0)
    with pytest.raises(Unavailable, match="already"):
        await latest.ask_apart(QueueRanks(), row)
    child.free.set()
    await first


async def test_a_child_that_is_dead_is_replaced(author: Author, engine: AsyncEngine) -> None:
    """Its caller is told to ask again, and the next child gets the cycle again. A refusal costs nothing."""
    await author.cycle()
    await author.keep(encode(decided(workload("u1", queue="root", pods=2, gpus=8))))
    latest = LatestCycle(engine)
    assert await latest.ask(QueueRanks())
    first = _pid(latest)
    with pytest.raises(InvalidInput, match="there is no level zone"):
        await latest.ask(ClusterSlots(shape="1xgpu:8", level="zone", flavor=None))
    assert _pid(latest) == first
    assert await latest.ask(FairShare(root="root"))
    os.kill(_pid(latest), signal.SIGKILL)
    while latest._child is not None and latest._child.usable:  # noqa: ASYNC110 - the kernel tells nobody
        await asyncio.sleep(0.01)
    found = await latest.ask(QueueRanks())
    assert found is not None
    assert found.cycle == 1
    assert _pid(latest) != first


async def test_a_cycle_that_this_program_does_not_read_is_none(author: Author, engine: AsyncEngine) -> None:
    latest = LatestCycle(engine)
    assert await latest.ask(QueueRanks()) is None
    await author.cycle()
    await author.keep(b"queuer-cycle 1\n")
    assert await latest.ask(QueueRanks()) is None


def _pid(latest: LatestCycle) -> int:
    assert latest._child is not None
    return latest._child.pid
