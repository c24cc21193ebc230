"""Past use as PostgreSQL sums it is what the domain's closed form gives for the same intervals."""

from __future__ import annotations

from random import Random

import pytest
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from queuer.controller.cycle.past_use import PastUse
from queuer.domain.past_use import Interval, past_use, rolled_up
from queuer.domain.queue import Policy, Queue, QueueTree
from queuer.store import ledger
from queuer.store.engine import begin
from queuer.store.ledger import LedgerRow
from tests.store.support import GPU, NOW, ledger_row

HOUR = 3_600.0
TREE = QueueTree.of(
    [
        Queue(path="root", policy=Policy(half_life=4 * HOUR)),
        Queue(path="root.a"),
        Queue(path="root.b", policy=Policy(half_life=HOUR)),
        Queue(path="root.b.x"),
        Queue(path="root.b.y"),
    ]
)


def row(number: int, queue: str, opened: float, **amounts: int) -> LedgerRow:
    named = {{"gpu": GPU}.get(name, name): amount for name, amount in amounts.items()}
    return ledger_row(f"w{number}", queue=queue, amounts=named, opened=opened)


async def test_sums_are_those_of_the_closed_form(engine: AsyncEngine, epoch: int) -> None:
    random = Random(7)
    intervals = []
    async with begin(engine) as connection:
        for number in range(60):
            queue = random.choice(("root.a", "root.b.x", "root.b.y", "root.b.gone"))
            opened = NOW - random.choice((0.5, 3, 30, 5_000)) * HOUR * random.random()
            amounts = {"gpu": random.randint(1, 64), "memory": random.randint(1, 2**43)}
            made = row(number, queue, opened, **amounts)
            await ledger.charge(connection, [made])
            closed = None
            if random.random() < 0.8:
                closed = opened + (NOW - opened) * random.random()
                await ledger.close(connection, epoch, [made.uid], closed)
            intervals.append(Interval(queue=queue, amounts=made.amounts, opened=opened, closed=closed))
        own = await ledger.past_use(connection, {HOUR, 4 * HOUR}, now=NOW)
    summed, expected = rolled_up(TREE, own), past_use(TREE, intervals, now=NOW)
    assert set(expected) == {"root.a", "root.b", "root.b.x", "root.b.y"}
    assert set(summed) == set(expected)
    for path, used in expected.items():
        assert summed[path] == pytest.approx(used, rel=1e-4), path


async def test_summed_bit_by_bit_it_is_the_same(engine: AsyncEngine, epoch: int) -> None:
    """Each row counts once, closed before the first look, between two, or written late."""
    random, use, now = Random(11), PastUse(), NOW
    intervals: list[Interval] = []

    async def put(connection: AsyncConnection, *, closed: float) -> None:
        made = row(
            len(intervals), random.choice(("root.a", "root.b.x")), closed - HOUR, gpu=random.randint(1, 64)
        )
        await ledger.charge(connection, [made])
        await ledger.close(connection, epoch, [made.uid], closed)
        intervals.append(Interval(queue=made.queue, amounts=made.amounts, opened=made.opened, closed=closed))

    async with begin(engine) as connection:
        runs = row(99, "root.a", NOW - 2 * HOUR, gpu=5)
        await ledger.charge(connection, [runs])
        for hours in (0, 1, 5, 30, 50, 79):
            await put(connection, closed=NOW - hours * HOUR)
        for _ in range(8):
            await use.look(connection, TREE, now=now)
            await put(connection, closed=now + random.random() * 20)
            await put(connection, closed=now - random.random() * 50)  # its transaction took that long
            now += 30
        assert use.whole
        found = await use.look(connection, TREE, now=now)
    intervals.append(Interval(queue=runs.queue, amounts=runs.amounts, opened=runs.opened))
    expected = past_use(TREE, intervals, now=now)
    assert set(found) == set(expected) == {"root.a", "root.b", "root.b.x"}
    for path, used in expected.items():
        assert found[path] == pytest.approx(used, rel=1e-4), path


async def test_nobody_asks_nothing_is_read(engine: AsyncEngine, epoch: int) -> None:
    async with begin(engine) as connection:
        await ledger.charge(connection, [row(1, "root.a", NOW - HOUR, gpu=8)])
        assert await ledger.past_use(connection, (), now=NOW) == {}


async def test_a_row_from_long_ago_or_from_a_clock_ahead_does_no_harm(
    engine: AsyncEngine, epoch: int
) -> None:
    async with begin(engine) as connection:
        await ledger.charge(connection, [row(1, "root.a", NOW - 400_000 * HOUR, gpu=8)])
        await ledger.charge(connection, [row(2, "root.b", NOW + HOUR, gpu=8)])
        own = await ledger.past_use(connection, [HOUR], now=NOW)
        assert (await ledger.past_use(connection, [1e12], now=NOW))[1e12]["root.a"][GPU] < 1e-2
    assert own == {HOUR: {"root.a": {GPU: pytest.approx(8.0)}, "root.b": {GPU: 0.0}}}
