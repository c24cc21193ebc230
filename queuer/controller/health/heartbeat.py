"""Says in the database that this process leads, so that the API can tell a controller that hangs from one that idles.

Beside the loop: it goes on while the loop is stuck, and then says since when.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from sqlalchemy.ext.asyncio import AsyncEngine

from queuer.controller.health.probes import Health
from queuer.store import heartbeat
from queuer.store.engine import begin
from queuer.store.heartbeat import Heartbeat

EVERY = 1.0


async def follow(
    engine: AsyncEngine,
    health: Health,
    *,
    epoch: int,
    holder: str,
    clock: Callable[[], float] = time.time,
    every: float = EVERY,
) -> None:
    """Write until cancelled."""
    while True:
        now = clock()
        beat = Heartbeat(
            holder=holder,
            epoch=epoch,
            phase=health.phase,
            at=now,
            round_at=now - health.silent,
            away_at=None if health.away is None else now - health.away,
            cycle=health.cycle,
        )
        async with begin(engine) as connection:
            await heartbeat.write(connection, beat)
        await asyncio.sleep(every)
