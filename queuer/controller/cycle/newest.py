"""Keeps the newest decision in the database, so that the API can explain it; written beside the loop.

One that is not written is replaced by the next: whoever asks sees an older one meanwhile.
"""

from __future__ import annotations

import asyncio
import time

from sqlalchemy.ext.asyncio import AsyncEngine

from queuer.controller.logs import logger
from queuer.solver.stored import StoredCycle, encode
from queuer.store import stored
from queuer.store.engine import begin
from queuer.store.stored import StoredRow

log = logger("newest")

BETWEEN = 1.0
"""Seconds between two writes at least."""
REST = 10.0
"""A write that took so long is followed by so many times that without one: encoding holds up the loop's thread, and
each version stays in the table until it is vacuumed.
"""
MOST_BYTES = 2**26
"""A larger one is not written."""


class Keeper:
    """Writes what was offered last under one epoch. `between`: see `BETWEEN`."""

    def __init__(
        self, engine: AsyncEngine, *, epoch: int, between: float = BETWEEN, most: int = MOST_BYTES
    ) -> None:
        self._engine, self._epoch, self._between, self._most = engine, epoch, between, most
        self._latest: tuple[int, StoredCycle] | None = None
        self._offered = asyncio.Event()
        self._told = False

    def offer(self, number: int, cycle: StoredCycle) -> None:
        """The decision that was concluded last, with its number; returns at once."""
        self._latest = (number, cycle)
        self._offered.set()

    async def run(self) -> None:
        """Write until cancelled. Raises what keeps it from writing; may be run again."""
        while True:
            await self._offered.wait()
            self._offered.clear()
            assert self._latest is not None
            began = time.monotonic()
            await self._write(*self._latest)
            await asyncio.sleep(max(self._between, REST * (time.monotonic() - began)))

    async def _write(self, number: int, cycle: StoredCycle) -> None:
        body = await asyncio.to_thread(encode, cycle)
        if len(body) > self._most:
            if not self._told:
                log.warning("decisions are too large to be kept", bytes=len(body), most=self._most)
            self._told = True
            return
        row = StoredRow(cycle=number, at=cycle.now, seed=cycle.seed, body=body)
        async with begin(self._engine) as connection:
            await stored.put(connection, self._epoch, row)
