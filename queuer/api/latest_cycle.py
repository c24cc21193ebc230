"""The newest stored cycle, kept by one child process that answers all questions which need the solver.

The server's loop and threads only wait for it. The child is started with the first question; one that is late or dead
is replaced at the next. A large cluster's cycle is kept for longer than it took to read: else readers of a busy cluster
would wait for nothing but reading. Every answer says of which cycle it is.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar, cast

from sqlalchemy.ext.asyncio import AsyncEngine

from queuer.domain.errors import Unavailable
from queuer.solver.kept_cycle import CycleQuestion, CycleReply, CycleRequest
from queuer.solver.process.child import Child, ChildFailure
from queuer.store import stored
from queuer.store.engine import begin

T = TypeVar("T")
TARGET, NICE = "queuer.solver.kept_cycle:KeptCycle", 10
"""Decisions of a controller on the same machine come first."""
WITHIN = 20.0
"""Seconds after which an answer is given up. The first of a child takes its start and the reading of a cycle."""
LINE = 64
"""Questions that may wait."""
SLOW, KEPT = 0.1, 4.0
"""What took the child more than SLOW seconds of CPU to read or work out for all is kept for KEPT times as long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleAnswer(Generic[T]):
    """`cycle`, `at`: number and time of the cycle that `value` is about."""

    cycle: int
    at: float
    value: T


class LatestCycle:
    """Of one app."""

    def __init__(self, engine: AsyncEngine, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._engine, self._clock = engine, clock
        self._turn = asyncio.Lock()
        self._waiting = 0
        self._child: Child | None = None
        self._cycle, self._at = 0, 0.0  # as the child was told; 0 = none
        self._until = float("-inf")

    async def ask(self, question: CycleQuestion[T], *, within: float = WITHIN) -> CycleAnswer[T] | None:
        """The answer; None: no cycle is stored that this program reads.

        Raises Unavailable where too many wait already or no answer came, and what the question raises.
        """
        if self._waiting >= LINE:
            raise _busy("many questions about the newest cycle wait already")
        self._waiting += 1
        try:
            async with self._turn:
                return await self._ask(question, within)
        finally:
            self._waiting -= 1

    async def number(self) -> int | None:
        """The cycle that the next answer is about; None before the first."""
        if self._kept:
            return self._cycle
        async with begin(self._engine) as connection:
            return await stored.newest_number(connection)

    @property
    def _kept(self) -> bool:
        """Whether the child's cycle counts as the newest one without a look."""
        return self._cycle > 0 and self._clock() < self._until

    async def _ask(self, question: CycleQuestion[T], within: float) -> CycleAnswer[T] | None:
        child = await self._usable()
        row = await self._newer()
        if row is not None:
            self._cycle, self._at = row.cycle, row.at
        if not self._cycle:
            return None
        request = CycleRequest(question=question, body=None if row is None else row.body)
        try:
            reply: CycleReply[T] = await child.ask(request, within=within)
        except (ChildFailure, asyncio.CancelledError) as error:
            self._cycle = 0  # the child may have died, or may not have got the cycle
            if isinstance(error, asyncio.CancelledError):
                raise
            raise _busy(f"no answer about the newest cycle: {error}") from error
        if reply.seconds > SLOW:
            self._until = max(self._until, self._clock() + KEPT * reply.seconds)
        if not reply.readable:
            return None
        return CycleAnswer(cycle=self._cycle, at=self._at, value=cast(T, reply.value))

    async def _usable(self) -> Child:
        """The child, or one that knows no cycle yet in the place of one that is gone."""
        if self._child is None or not self._child.usable:
            if self._child is not None:
                await self._child.end()
            self._child, self._cycle = Child(TARGET, nice=NICE), 0
        return self._child

    async def _newer(self) -> stored.StoredRow | None:
        """The stored cycle, if the child has another one and it is time to look."""
        if self._kept:
            return None
        async with begin(self._engine) as connection:
            number = await stored.newest_number(connection)
            return None if number in (None, self._cycle) else await stored.newest(connection)


def _busy(text: str) -> Unavailable:
    return Unavailable(text, hint="ask again in some seconds")
