"""Usage over time: minutes as the tree was, hours as their averages, both for as long as retention says."""

from __future__ import annotations

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from queuer.store import ledger, retention, rollup
from queuer.store.engine import begin
from queuer.store.rollup import Period, UsagePoint
from tests.store.support import GPU, NOW, admission, come, commit_cycle, cycle, document, wish, workload

MINUTE, HOUR, DAY = 60.0, 3600.0, retention.DAY
START = NOW // HOUR * HOUR
TREE = document({
    "root.a": {"quota": [{"resource": GPU, "guaranteed": "2", "limit": "8"}]},
    "root.b": {"quota": [{"resource": GPU, "guaranteed": "4"}]},
})  # fmt: skip


async def _history(engine: AsyncEngine, queue: str, period: Period) -> list[UsagePoint]:
    async with begin(engine) as connection:
        return await rollup.history(connection, queue, period=period, since=START, until=START + DAY)


async def _record(engine: AsyncEngine, epoch: int, *minutes: int) -> None:
    for minute in minutes:
        async with begin(engine) as connection:
            await rollup.record(connection, epoch, at=START + minute * MINUTE + 0.7)
            await rollup.sum_up(connection, epoch, at=START + minute * MINUTE + 0.7)


def _gpus(point: UsagePoint) -> tuple[int, int, int | None, int, int]:
    (found,) = (a for a in point.amounts if (a.flavor, a.resource) == (None, GPU))
    return found.used, found.guaranteed, found.limit, found.borrowed, found.pending


async def test_minutes_and_hours(engine: AsyncEngine, epoch: int) -> None:
    """A gang of 4 runs for half of the hour, one of 3 waits throughout: all shows, also a gap in which nobody led."""
    runs, waits = workload("runs", pods=4), workload("waits", pods=3)
    async with begin(engine) as connection:
        await wish(connection, TREE)
        await come(connection, epoch, runs, waits)
        await commit_cycle(connection, epoch=epoch, record=cycle(1), admissions=[admission(runs)])
    await _record(engine, epoch, 0, 1, 1)
    async with begin(engine) as connection:
        await ledger.close(connection, epoch, ["runs"], NOW + 1)
    await _record(engine, epoch, 2, 3)
    points = await _history(engine, "root.a", Period.MINUTE)
    assert [point.at - START for point in points] == [0, MINUTE, 2 * MINUTE, 3 * MINUTE]
    assert [_gpus(point) for point in points] == [(4, 2, 8, 2, 3)] * 2 + [(0, 2, 8, 0, 3)] * 2
    assert [(point.waiting, point.admitted) for point in points] == [(1, 1)] * 4
    assert await _history(engine, "root.a", Period.HOUR) == []
    await _record(engine, epoch, 3 * 60, 3 * 60 + 1)  # nobody led for hours
    (hour,) = await _history(engine, "root.a", Period.HOUR)
    assert hour.at == START
    assert _gpus(hour) == (2, 2, 8, 1, 3)
    assert (hour.waiting, hour.admitted) == (1, 1)
    (above,) = await _history(engine, "root", Period.HOUR)
    assert _gpus(above) == (2, 6, None, 0, 3)


async def test_minutes_go_after_two_days_and_hours_after_ninety(engine: AsyncEngine, epoch: int) -> None:
    """The newest are there as long as they are promised."""
    await _record(engine, epoch, 0, 60)
    rules = [rule for rule in retention.RULES if rule.table == "usage_rollup"]
    left = []
    for age in (1, 3, 100):
        async with begin(engine) as connection:
            for rule in rules:
                await retention.prune(connection, epoch, rule, now=START + age * DAY)
            found = await connection.execute(
                text("SELECT DISTINCT seconds FROM usage_rollup ORDER BY seconds")
            )
            left.append(list(found.scalars()))
    assert left == [[60, 3600], [3600], []]
