"""The newest stored cycle as a child process keeps it, with everything that several questions share.

A server that is asked does no solver work. It sends a `CycleRequest` to a child whose target is `KeptCycle`, with the
cycle when it is a newer one, and gets plain records back. The questions are in `ask`.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Generic, Protocol, TypeVar

from queuer.domain.errors import InvalidInput
from queuer.solver.after_cycle import AfterCycle
from queuer.solver.clustermap import ClusterMap
from queuer.solver.records import Plan
from queuer.solver.stored import StoredCycle, decode

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class DecidedCycle:
    """A stored cycle that has a plan; for one thread. `seconds`: spent so far on what all questions share."""

    def __init__(self, cycle: StoredCycle, plan: Plan) -> None:
        self.stored, self.plan, self.seconds = cycle, plan, 0.0

    def _made(self, make: Callable[[], T]) -> T:
        began = time.process_time()
        found = make()
        self.seconds += time.process_time() - began
        return found

    @cached_property
    def _world(self) -> AfterCycle:
        return self._made(lambda: AfterCycle.of(self.stored))

    @cached_property
    def after(self) -> AfterCycle:
        """The world that the plan leaves, with the arrays of all that wait."""
        _ = self._made(lambda: self._world.arrays)
        return self._world

    @cached_property
    def ranked(self) -> AfterCycle:
        """The same with its line of turns, which takes longest."""
        _ = self._made(lambda: self.after.line)
        return self.after

    @cached_property
    def map(self) -> ClusterMap:
        """Domains and free room."""
        world = self._world
        return self._made(lambda: ClusterMap(world))


class CycleQuestion(Protocol[T_co]):
    """A question about a cycle. It travels as a pickle, and so does its answer."""

    def answer(self, cycle: DecidedCycle) -> T_co:
        """The answer. A QueuerError reaches whoever asked."""


class KeptCycle:
    """The target of the child process: the newest cycle that it was sent, None where it cannot be read."""

    def __init__(self) -> None:
        self.cycle: DecidedCycle | None = None

    def take(self, body: bytes) -> float:
        """Put this cycle in the place of the last one; the CPU seconds that it took. A cycle of another version of the
        program, or without a plan, cannot be read.
        """
        self.cycle = None
        gc.collect()
        began = time.process_time()
        try:
            cycle = decode(body, name="stored cycle")
        except InvalidInput:
            return 0.0
        if cycle.plan is not None:
            self.cycle = DecidedCycle(cycle, cycle.plan)
        return time.process_time() - began


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleReply(Generic[T]):
    """`readable`: whether there is a cycle that this program reads, so that `value` is an answer. `seconds`: of CPU,
    for reading the cycle and for what all questions share.
    """

    value: T | None
    readable: bool
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleRequest(Generic[T]):
    """A question to the child that keeps a cycle. `body`: a newer cycle, as stored; None = the child has the newest."""

    question: CycleQuestion[T]
    body: bytes | None = None

    @property
    def renews(self) -> bool:
        """See `wire.Request`."""
        return self.body is not None

    def answer(self, kept: KeptCycle) -> CycleReply[T]:
        """In the child."""
        seconds = 0.0 if self.body is None else kept.take(self.body)
        cycle = kept.cycle
        if cycle is None:
            return CycleReply(value=None, readable=False, seconds=seconds)
        before = cycle.seconds
        value = self.question.answer(cycle)
        return CycleReply(value=value, readable=True, seconds=seconds + cycle.seconds - before)
