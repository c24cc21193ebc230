"""The newest stored cycle, kept by one child process that answers all questions which need the solver.

The server's loop and threads only wait for it. The child is started with the first question; one that is dead or much
too late is replaced at the next. A large cluster's cycle is kept for longer than it took to read: else readers of a
busy cluster would wait for nothing but reading. Every answer says of which cycle it is.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar, cast
from weakref import WeakValueDictionary

from sqlalchemy.ext.asyncio import AsyncEngine

from queuer.domain.errors import QueuerError, Unavailable
from queuer.solver.kept_cycle import CycleQuestion, CycleReply, CycleRequest
from queuer.solver.process.child import Child, ChildFailure
from queuer.store import stored
from queuer.store.engine import begin

T = TypeVar("T")
TARGET, NICE = "queuer.solver.kept_cycle:KeptCycle", 10
"""Decisions of a controller on the same machine come first."""
WITHIN, LONGEST = 20.0, 60.0
"""Seconds after which who asks is told to ask again, and after which the child is given up. It works on meanwhile: the
first answer on a cycle takes the reading of it, which the next question finds done.
"""
LINE, A_PARTY = 64, 16
"""Questions that may wait, in all and of one caller (`Caller.party`)."""
NO_DECISION = "no decision is stored yet that this version reads; the controller makes one when it leads"
"""Later one is made where somebody waits, or where the capacity has changed."""
SLOW, KEPT = 0.1, 3.0
"""What took the child more than SLOW seconds of CPU to read or work out for all is kept for KEPT times as long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleAnswer(Generic[T]):
    """`cycle`, `at`: number and time of the cycle that `value` is about."""

    cycle: int
    at: float
    value: T


class LatestCycle:
    """Of one app."""

    def __init__(
        self, engine: AsyncEngine, *, clock: Callable[[], float] = time.monotonic, within: float = WITHIN
    ) -> None:
        """`within`: see WITHIN."""
        self._engine, self._clock, self._within = engine, clock, within
        self._turn, self._apart = asyncio.Lock(), asyncio.Lock()
        self._lines: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()  # by party
        self._waiting: Counter[str] = Counter()
        self._child: Child | None = None
        self._cycle, self._at = 0, 0.0  # what the child has; 0 = none that is known
        self._until = float("-inf")

    async def ask(self, question: CycleQuestion[T], *, party: str = "") -> CycleAnswer[T] | None:
        """The answer; None: no cycle is stored that this program reads. `party`: of whom asks, "" = the server itself.

        Raises Unavailable where too many wait already or no answer came within WITHIN, and what the question raises.
        """
        if self._waiting.total() >= LINE or (party and self._waiting[party] >= A_PARTY):
            raise _busy("many questions about the newest cycle wait already")
        self._waiting[party] += 1
        try:
            async with asyncio.timeout(self._within), self._line_of(party):
                await self._turn.acquire()
                answering = asyncio.create_task(self._ask(question))
                answering.add_done_callback(self._end_turn)
                return await asyncio.shield(answering)
        except TimeoutError as error:
            raise _busy(f"no answer about the newest cycle within {self._within:g} s") from error
        finally:
            self._waiting -= Counter([party])

    def _line_of(self, party: str) -> asyncio.Lock:
        """One question of each party waits for the child: however many a caller has, others are asked in between."""
        return self._lines.setdefault(party, asyncio.Lock())

    async def ask_apart(self, question: CycleQuestion[T], row: stored.StoredRow) -> T | None:
        """The answer about this stored cycle, by a child of its own: long work that nobody else waits for.

        One at a time. None: this program cannot read it. Raises as `ask` does.
        """
        if self._apart.locked():
            raise _busy("a cycle is decided again already")
        async with self._apart:
            child = Child(TARGET, nice=NICE)
            try:
                reply = await child.ask(CycleRequest(question=question, body=row.body), within=LONGEST)
            except ChildFailure as error:
                raise _busy(f"no answer about cycle {row.cycle}: {error}") from error
            finally:
                await child.end()
        return cast(T | None, reply.value)

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

    def _end_turn(self, answered: asyncio.Task[object]) -> None:
        self._turn.release()
        if not answered.cancelled():
            answered.exception()  # nobody may be left who would hear it

    async def _ask(self, question: CycleQuestion[T]) -> CycleAnswer[T] | None:
        child = await self._usable()
        row = await self._newer()
        cycle, at = (self._cycle, self._at) if row is None else (row.cycle, row.at)
        if not cycle:
            return None
        self._cycle = 0  # a child that fails may have it or not
        try:
            request = CycleRequest(question=question, body=None if row is None else row.body)
            reply: CycleReply[T] = await child.ask(request, within=LONGEST)
        except ChildFailure as error:
            raise _busy(f"no answer about the newest cycle: {error}") from error
        except QueuerError:
            self._cycle, self._at = cycle, at
            raise
        self._cycle, self._at = cycle, at
        if reply.seconds > SLOW:
            self._until = max(self._until, self._clock() + KEPT * reply.seconds)
        if not reply.readable:
            return None
        return CycleAnswer(cycle=cycle, at=at, value=cast(T, reply.value))

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
            if number is None:
                self._cycle = 0  # the child's is one of a database that was lost
            return None if number in (None, self._cycle) else await stored.newest(connection)


def _busy(text: str) -> Unavailable:
    return Unavailable(text, hint="ask again in some seconds")
