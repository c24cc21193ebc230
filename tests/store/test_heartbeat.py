"""Others see from one row that the leader is there, that its loop goes round, and what it decided last."""

from __future__ import annotations

import asyncio

from sqlalchemy.ext.asyncio import AsyncEngine

from queuer.controller.clock import SteadyClock
from queuer.controller.health.probes import Health, Phase, write_heartbeat
from queuer.store import heartbeat
from queuer.store.engine import begin
from queuer.store.heartbeat import Heartbeat, LastCycle
from queuer.store.leader import check_epoch
from tests.store.support import NOW
from tests.unit.make import sure
from tests.waiting import beside

CYCLE = LastCycle(id=7, at=NOW - 3, took=0.25, waiting=12, status="OPTIMAL")


async def _read(engine: AsyncEngine) -> Heartbeat | None:
    async with begin(engine) as connection:
        return await heartbeat.read(connection)


async def test_the_leader_says_what_it_did_last_also_when_idle(engine: AsyncEngine, epoch: int) -> None:
    """Written while a decision's transaction holds the epoch, so that neither waits for the other."""
    assert await _read(engine) is None
    now = NOW
    clock = SteadyClock(NOW, steady=lambda: now)
    health = Health(stalled=30.0, clock=lambda: now, phase=Phase.LEADING)
    async with begin(engine) as deciding:
        await check_epoch(deciding, epoch)
        writes = write_heartbeat(engine, health, epoch=epoch, holder="one", clock=clock, every=0.01)
        async with asyncio.timeout(60), beside(writes) as task:
            while (first := await _read(engine)) is None:
                assert not task.done()
            now, health.cycle = NOW + 5, CYCLE
            while (later := await _read(engine)) is None or later.at == first.at:
                assert not task.done()
    assert first == Heartbeat(holder="one", epoch=epoch, phase="leading", at=NOW, round_at=NOW)
    assert later.at > NOW + 5, "its clock follows the database's"
    assert (later.phase, later.cycle) == ("leading", CYCLE)
    assert sure(await _read(engine)).phase == "standby", "the last sign says that the term has ended"
