"""Event ids rise in commit order, so a reader that resumes after the last id it saw misses nothing."""

from __future__ import annotations

import asyncio
import random

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
                await append(connection, rows)
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
        await append(connection, [Event(at=NOW, type=f"t{n}", uid="w") for n in range(50)])
        found = await read(connection, after=0)
    assert [event.type for _, event in found] == [f"t{n}" for n in range(50)]
    assert [number for number, _ in found] == sorted(number for number, _ in found)
