"""Writes decisions down beside the loop: the newest to the database, those that deserve a second look to files.

The API explains jobs from the decision in the database. `queuer cycles replay FILE` makes one in a file anew. Of each
kind the newest few files stay. The kinds are `unsound` (no sound plan), `failed` (no usable plan from the solver
process), `slow`, and at most once a minute `regular`. No decision waits for a record; while one is being written others
pass by.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

from sqlalchemy.ext.asyncio import AsyncEngine

from queuer.controller.logs import logger
from queuer.domain.assignments import SolveStatus
from queuer.solver.stored import StoredCycle, encode
from queuer.store import stored
from queuer.store.engine import begin
from queuer.store.stored import StoredRow

log = logger("recorder")

REGULAR = "regular"
REGULAR_EVERY = 60.0
"""Seconds between two files of cycles that nothing is wrong with."""
BETWEEN = 1.0
"""Seconds between two writes at least."""
REST = 10.0
"""An encoding that took so much CPU is followed by so many times that without a write to the database: it holds up the
loop's thread. Files wait for no row, and no row for them.
"""
MOST_BYTES = 2**26
"""The most that is written to the database."""


class Recorder:
    """Writes to the database under one epoch, and at most `kept` files of each kind into `directory`, None = no files.

    `slow`: seconds that make a decision slow; `between`: see `BETWEEN`.
    """

    def __init__(
        self,
        engine: AsyncEngine,
        *,
        epoch: int,
        slow: float,
        directory: Path | None = None,
        kept: int = 0,
        between: float = BETWEEN,
        most: int = MOST_BYTES,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._engine, self._epoch, self._slow = engine, epoch, slow
        self._directory, self._kept = directory, kept
        self._between, self._most, self._clock = between, most, clock
        self._row_offered, self._file_offered = asyncio.Event(), asyncio.Event()
        self._row: tuple[int, StoredCycle] | None = None
        self._file: tuple[str, StoredCycle] | None = None
        self._regular = float("-inf")
        self._told = False

    def offer(self, number: int, cycle: StoredCycle, *, took: float, committed: bool) -> None:
        """The decision that was concluded last, with its number; returns at once.

        The database gets it if it was `committed`. A file is written if it is worth one and no other file waits.
        """
        if committed:
            self._row = number, cycle
            self._row_offered.set()
        kind, now = self._kind(cycle, took), self._clock()
        due = kind != REGULAR or now >= self._regular + REGULAR_EVERY
        if self._directory is not None and self._file is None and due:
            self._file = f"{number:010}-{kind}.cycle", cycle
            self._regular = now if kind == REGULAR else self._regular
            self._file_offered.set()

    def _kind(self, cycle: StoredCycle, took: float) -> str:
        if cycle.plan is None:
            return "unsound"
        if cycle.plan.stats.status is SolveStatus.FAILED:
            return "failed"
        return "slow" if took > self._slow else REGULAR

    async def write_rows(self) -> None:
        """Write to the database until cancelled. Raises what keeps it from there; may be run again."""
        while True:
            await self._row_offered.wait()
            self._row_offered.clear()
            row, self._row = self._row, None
            spent = 0.0 if row is None else await self._write_row(*row)
            await asyncio.sleep(max(self._between, REST * spent))

    async def write_files(self) -> None:
        """Write files until cancelled; may be run again. One that still waits at the end of a term is written then."""
        try:
            while True:
                await self._file_offered.wait()
                self._file_offered.clear()
                await asyncio.to_thread(self._write_file, *self._take_file())
                await asyncio.sleep(self._between)
        finally:
            self._write_file(*self._take_file())

    def _take_file(self) -> tuple[str, StoredCycle | None]:
        """Name and cycle of the file that waits, which waits no more; None = none does."""
        (name, cycle), self._file = self._file or ("", None), None
        return name, cycle

    def _write_file(self, name: str, cycle: StoredCycle | None) -> None:
        """Write the file, then remove the oldest of its kind. A failure is logged."""
        if cycle is None or self._directory is None:
            return
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            part = self._directory / f"{name}.part"
            part.write_bytes(encode(cycle))
            part.replace(self._directory / name)
            alike = sorted(self._directory.glob(f"*-{name.rpartition('-')[2]}"))
            for old in alike[: -self._kept]:
                old.unlink(missing_ok=True)
        except Exception as error:  # noqa: BLE001 -- at a term's end, another error would hide that the task is cancelled
            log.warning("a cycle was not recorded", file=name, said=str(error))

    async def _write_row(self, number: int, cycle: StoredCycle) -> float:
        """The CPU seconds that it took to encode it."""
        body, spent = await asyncio.to_thread(_encoded, cycle)
        if len(body) > self._most:
            if not self._told:
                log.warning("decisions are too large to be kept", bytes=len(body), most=self._most)
            self._told = True
            return spent
        row = StoredRow(cycle=number, at=cycle.now, seed=cycle.seed, body=body)
        async with begin(self._engine) as connection:
            await stored.put(connection, self._epoch, row)
        return spent


def _encoded(cycle: StoredCycle) -> tuple[bytes, float]:
    """The row's content, and the CPU seconds that it took."""
    began = time.thread_time()
    return encode(cycle), time.thread_time() - began
