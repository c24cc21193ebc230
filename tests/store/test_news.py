"""A live view misses nothing, in whatever order transactions end."""

from __future__ import annotations

import asyncio

from sqlalchemy.ext.asyncio import AsyncEngine

from queuer.store import cycles, events, news, reasons, stored
from queuer.store.engine import begin
from tests.store.support import NOW, come, cycle, waits, workload
from tests.waiting import PATIENCE


async def test_a_reason_that_was_written_first_and_committed_last_is_told(
    engine: AsyncEngine, epoch: int
) -> None:
    """The transition of `slow` has the smaller id, and nobody sees it before that of `quick`."""
    async with begin(engine) as connection:
        await come(connection, epoch, workload("slow"), workload("quick"))
    async with begin(engine) as late:
        await reasons.record(late, {"slow": waits()}, at=NOW)
        async with begin(engine) as early:
            await reasons.record(early, {"quick": waits()}, at=NOW)
        async with begin(engine) as reader:
            seen = await news.mark(reader)
            assert await news.moved(reader, seen, count=9) == []
    async with begin(engine) as reader:
        assert [row.uid for row in await news.moved(reader, seen, count=9)] == ["slow"]
        assert (await news.mark(reader)).event > seen.event
        assert {event.type for _, event in (await events.page(reader)).rows} == {"workload.submitted"}


async def test_a_cycle_is_news_once_what_explains_it_is_stored(engine: AsyncEngine, epoch: int) -> None:
    """A view that hears of it before reads the cycle before once more, and shows a node that is gone."""
    async with begin(engine) as connection:
        await cycles.record(connection, epoch, cycle(1), admitted=0, evicted=0)
    async with begin(engine) as reader:
        assert (await news.mark(reader)).stored == 0
    async with news.doorbell(engine) as rung, asyncio.timeout(PATIENCE):
        async with begin(engine) as connection:
            await stored.put(connection, epoch, stored.StoredRow(cycle=1, at=NOW, seed=1, body=b""))
        await rung(2 * PATIENCE)
    async with begin(engine) as reader:
        assert (await news.mark(reader)).stored == 1
