"""Keeps decisions that deserve a second look as files for `queuer sim cycle`, written beside the loop.

Of each kind the newest few are kept: `unsound` (no plan could be committed), `failed` (the solver process gave none
that could be used), `slow`, and every minute or less often one that is none of these. While one is being
written others pass by: a record is not worth a delay.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

from queuer.controller.logs import logger
from queuer.domain.assignments import SolveStatus
from queuer.solver.stored import StoredCycle, encode

log = logger("recorder")

REGULAR = "regular"
BETWEEN = 60.0
"""Seconds between two records of cycles that nothing is wrong with."""


class Recorder:
    """Writes at most `kept` files of each kind into a directory. `slow`: seconds that make a decision slow."""

    def __init__(
        self, directory: Path, *, kept: int, slow: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._directory, self._kept, self._slow, self._clock = directory, kept, slow, clock
        self._waiting: asyncio.Queue[tuple[str, StoredCycle]] = asyncio.Queue(maxsize=1)
        self._regular = float("-inf")

    def offer(self, cycle: StoredCycle, *, number: int, took: float) -> None:
        """Keep this decision if it is worth it and nothing else is being written. Returns at once."""
        kind = self._kind(cycle, took)
        now = self._clock()
        if self._waiting.full() or (kind == REGULAR and now < self._regular + BETWEEN):
            return
        if kind == REGULAR:
            self._regular = now
        self._waiting.put_nowait((f"{number:010}-{kind}.cycle", cycle))

    def _kind(self, cycle: StoredCycle, took: float) -> str:
        if cycle.plan is None:
            return "unsound"
        if cycle.plan.stats.status is SolveStatus.FAILED:
            return "failed"
        return "slow" if took > self._slow else REGULAR

    async def run(self) -> None:
        """Write what is offered until cancelled. What cannot be written is logged."""
        while True:
            name, cycle = await self._waiting.get()
            try:
                await asyncio.to_thread(self._write, name, cycle)
            except OSError as error:
                log.warning("a cycle was not recorded", file=name, said=str(error))

    def _write(self, name: str, cycle: StoredCycle) -> None:
        self._directory.mkdir(parents=True, exist_ok=True)
        part = self._directory / f"{name}.part"
        part.write_bytes(encode(cycle))
        part.replace(self._directory / name)
        alike = sorted(self._directory.glob(f"*-{name.rpartition('-')[2]}"))
        for old in alike[: -self._kept]:
            old.unlink(missing_ok=True)
