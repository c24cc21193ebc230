"""Simulations are decided in one process beside the server's: neither its loop nor its threads wait for them.

The process is started with the first question. One that is late or dead is replaced with the next. Who asks while many
wait is told to come back, and nobody may ask all the time.
"""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable
from typing import IO, cast

from sqlalchemy.ext.asyncio import AsyncEngine

from queuer.api.cycles.judged import Case, Judged
from queuer.api.cycles.worker import Answer, read
from queuer.api.http.problems import TooMany
from queuer.domain.errors import QueuerError, Unavailable
from queuer.solver.process import wire
from queuer.store import stored
from queuer.store.engine import begin

WITHIN = 20.0
"""Seconds after which an answer is given up. The first of a process takes its start and the reading of a cycle."""
LINE = 8
"""Questions that may wait."""
A_MINUTE, AT_ONCE = 30.0, 10.0
"""Questions of one caller."""
_CALLERS = 10_000


class Simulator:
    """Of one app."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._turn = asyncio.Lock()
        self._waiting = 0
        self._child: _Child | None = None
        self._clock = clock
        self._budgets: dict[str, tuple[float, float]] = {}  # by caller: questions left, at a time

    async def ask(self, engine: AsyncEngine, caller: str, case: Case) -> tuple[int, float, Judged] | None:
        """The number and time of the newest cycle with the answer on it; None = no cycle is stored. Raises TooMany,
        Unavailable, and what the decision refuses.
        """
        self._spend(caller)
        if self._waiting >= LINE:
            raise Unavailable("many simulations wait already", hint="ask again in some seconds")
        self._waiting += 1
        try:
            async with self._turn:
                return await self._ask(engine, case)
        finally:
            self._waiting -= 1

    def _spend(self, caller: str) -> None:
        now = self._clock()
        left, at = self._budgets.pop(caller, (AT_ONCE, now))
        left = min(AT_ONCE, left + (now - at) * A_MINUTE / 60)
        self._budgets[caller] = (max(0.0, left - 1) if left >= 1 else left, now)
        while len(self._budgets) > _CALLERS:
            del self._budgets[next(iter(self._budgets))]
        if left < 1:
            raise TooMany(
                f"more than {A_MINUTE:.0f} simulations a minute were asked for",
                hint="ask again in some seconds",
            )

    async def _ask(self, engine: AsyncEngine, case: Case) -> tuple[int, float, Judged] | None:
        child = self._child
        if child is None or child.process.poll() is not None:
            child = self._child = _Child()
        async with begin(engine) as connection:
            number = await stored.newest_number(connection)
            row = None if number is None or number == child.cycle else await stored.newest(connection)
        if number is None:
            return None
        if row is not None:
            child.told(row.cycle, row.at)
        said = await asyncio.to_thread(child.answer, (None if row is None else row.body, case))
        if isinstance(said, Judged):
            return child.cycle, child.at, said
        child.cycle = 0  # whatever went wrong, it is told the cycle again
        if isinstance(said, QueuerError):
            raise said
        raise Unavailable(f"no answer to the simulation: {said}", hint="ask again in some seconds")


class _Child:
    """One process; it ends with this object."""

    def __init__(self) -> None:
        self.cycle, self.at = 0, 0.0
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            (sys.executable, "-m", "queuer.api.cycles.worker"),
            stdin=pipe,
            stdout=pipe,
            start_new_session=True,
        )
        self._end = weakref.finalize(self, _end, self.process)

    def told(self, cycle: int, at: float) -> None:
        """Which cycle comes with the next question."""
        self.cycle, self.at = cycle, at

    def answer(self, asked: tuple[bytes | None, Case]) -> Answer:
        """The answer; a process that is late is killed."""
        watch = threading.Timer(WITHIN, self.process.kill)
        watch.daemon = True
        watch.start()
        try:
            requests, answers = cast(IO[bytes], self.process.stdin), cast(IO[bytes], self.process.stdout)
            requests.write(wire.pack(asked))
            requests.flush()
            return cast(Answer, read(answers))  # type: ignore[arg-type]
        except (OSError, EOFError, ValueError):
            self._end()
            return f"its process ended, or took more than {WITHIN:g} s"
        finally:
            watch.cancel()


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with contextlib.suppress(OSError):
                pipe.close()
