"""Writes down once a minute what each queue uses and waits for, so that its history can be shown."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from sqlalchemy.ext.asyncio import AsyncEngine

from queuer.store import rollup
from queuer.store.engine import begin
from queuer.store.rollup import Period


async def follow(engine: AsyncEngine, *, epoch: int, clock: Callable[[], float] = time.time) -> None:
    """Write now, then as each minute begins, until cancelled."""
    while True:
        async with begin(engine) as connection:
            await rollup.record(connection, epoch, at=clock())
        async with begin(engine) as connection:
            await rollup.sum_up(connection, epoch, at=clock())
        await asyncio.sleep(Period.MINUTE - clock() % Period.MINUTE)
