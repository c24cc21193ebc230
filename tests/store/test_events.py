"""Event ids rise in commit order, so a reader that resumes after the last id it saw misses nothing."""

from __future__ import annotations

import asyncio
import random

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from queuer.store.engine import begin
from queuer.store.events import Event, append, read
from tests.store.support import NOW


async def test_a_resuming_reader_sees_every_event_once(engine: AsyncEngine) -> None:
    """Writers that commit at odd moments, a reader that never looks back: nothing is skipped or seen twice."""
    seeds, writers, rounds = random.Random(7), 6, 12
    pauses = [[seeds.uniform(0, 0.01) for _ in range(rounds)] for _ in range(writers)]
    writing = asyncio.Event()

    async def write(writer: int) -> None:
        for number, pause in enumerate(pauses[writer]):
            async with begin(engine) as connection:
                rows = [Event(at=NOW, type="t", data={"n": [writer, number, k]}) for k in range(2)]
                append(connection, rows)
                await asyncio.sleep(pause)  # the transaction stays open while others want to number theirs

    async def follow() -> list[list[int]]:
        seen, last = [], 0
        while True:
            ended = writing.is_set()
            async with begin(engine) as connection:
                fresh = await read(connection, after=last)
            for last, event in fresh:  # noqa: B007
                seen.append(event.data["n"])
            if ended and not fresh:
                return seen

    async with asyncio.TaskGroup() as group:
        reader = group.create_task(follow())
        async with asyncio.TaskGroup() as work:
            for writer in range(writers):
                work.create_task(write(writer))
        writing.set()
    seen = reader.result()
    assert len(seen) == writers * rounds * 2
    assert {tuple(n) for n in seen} == {
        (w, r, k) for w in range(writers) for r in range(rounds) for k in range(2)
    }


async def test_order_inside_a_batch(engine: AsyncEngine) -> None:
    """Events of one call keep their order."""
    async with begin(engine) as connection:
        append(connection, [Event(at=NOW, type=f"t{n}", uid="w") for n in range(50)])
        assert await read(connection, after=0) == []
    async with begin(engine) as connection:
        found = await read(connection, after=0)
    assert [event.type for _, event in found] == [f"t{n}" for n in range(50)]
    assert [number for number, _ in found] == sorted(number for number, _ in found)


async def test_nobody_waits_for_a_batch_that_is_being_written(engine: AsyncEngine) -> None:
    """The lock that orders ids is taken when all else is done: another writer passes a transaction under way."""
    async with asyncio.timeout(60), begin(engine) as slow:
        append(slow, [Event(at=NOW, type="slow")])
        await slow.execute(text("SELECT 1"))
        async with begin(engine) as quick:
            append(quick, [Event(at=NOW, type="quick")])
    async with begin(engine) as connection:
        assert [event.type for _, event in await read(connection, after=0)] == ["quick", "slow"]


async def test_a_transaction_that_fails_leaves_no_events_to_the_next(engine: AsyncEngine) -> None:
    """The connection goes back to the pool, what was collected on it does not."""

    async def fail() -> None:
        async with begin(engine) as connection:
            append(connection, [Event(at=NOW, type="lost")])
            raise RuntimeError

    with pytest.raises(RuntimeError):
        await fail()
    async with begin(engine) as connection:
        assert await read(connection, after=0) == []
    async with begin(engine) as connection:
        assert await read(connection, after=0) == []
