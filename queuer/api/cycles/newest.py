"""The newest stored cycle, from which it is worked out all that can be said of a waiting job.

It is read and decoded once and kept until there is a newer one; both and the working out happen in a thread. A large
cluster's is kept for longer than reading it took: else readers of a busy cluster would wait for nothing but reading.
Garbage is not collected meanwhile: among a million records that is half of the time.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Callable
from functools import partial
from typing import ParamSpec, TypeVar

from sqlalchemy.ext.asyncio import AsyncConnection

from queuer.domain.errors import InvalidInput
from queuer.domain.reasons import Explanation
from queuer.solver.clustermap import ClusterMap
from queuer.solver.explain.detail import Explainer
from queuer.solver.stored import StoredCycle, decode
from queuer.store import stored

P = ParamSpec("P")
T = TypeVar("T")
SLOW, KEPT = 0.1, 4.0
"""A cycle is kept for so many times as long as something that took more seconds to read or make of it, although there
may be a newer one.
"""


class Newest:
    """Of one app."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._until = 0.0
        self._lock = asyncio.Lock()  # an explainer is for one thread at a time
        self._asking = asyncio.Lock()
        self._cycle = 0
        self._stored: StoredCycle | None = None
        self._explainer: Explainer | None = None
        self._map: tuple[int, ClusterMap] | None = None

    async def read(self, connection: AsyncConnection) -> stored.StoredRow | None:
        """The row, if there is one that is not known yet and it is time to read it."""
        if self._clock() < self._until:
            return None
        number = await stored.newest_number(connection)
        return None if number is None or number == self._cycle else await stored.newest(connection)

    async def explain(self, row: stored.StoredRow | None, uid: str) -> Explanation | None:
        """What the newest cycle has to say of a workload; None: it is not among those that wait after it, or there is
        none that this program reads. `row`: what `read` found.
        """
        async with self._lock:
            await self._follow(row)
            return (
                None if self._stored is None else await asyncio.to_thread(_uncollected, self._explained, uid)
            )

    async def ask(self, row: stored.StoredRow | None, work: Callable[[int, StoredCycle], T]) -> T | None:
        """What `work` makes, in a thread, of the newest cycle and its number; the cycle has a plan. One at a time, as
        decisions are not cheap. None: there is none that this program reads. `row`: what `read` found.
        """
        async with self._lock:
            await self._follow(row)
            number, cycle = self._cycle, self._stored
        if cycle is None:
            return None
        async with self._asking:
            return await asyncio.to_thread(_uncollected, work, number, cycle)

    async def map(
        self, row: stored.StoredRow | None, work: Callable[[int, float, ClusterMap], T]
    ) -> T | None:
        """What `work` makes, in a thread, of the cluster as the newest cycle left it; its number and time come first.
        None: there is none that this program reads. `row`: what `read` found.
        """

        def asked(number: int, cycle: StoredCycle) -> T:
            if self._map is None or self._map[0] != number:
                self._map = number, self.made(lambda: ClusterMap(cycle))
            return work(number, cycle.now, self._map[1])

        return await self.ask(row, asked)

    async def _follow(self, row: stored.StoredRow | None) -> None:
        if row is None or row.cycle <= self._cycle:
            return
        self._stored = await asyncio.to_thread(_uncollected, self.made, lambda: _read(row.body))
        self._cycle, self._explainer = row.cycle, None

    def made(self, make: Callable[[], T]) -> T:
        """What is made of the cycle for all who ask, in their thread: the longer it takes, the longer it is kept."""
        began = self._clock()
        found = make()
        took = self._clock() - began
        if took > SLOW:
            self._until = max(self._until, self._clock() + KEPT * took)
        return found

    def _explained(self, uid: str) -> Explanation | None:
        if self._explainer is None:
            cycle = self._stored
            assert cycle is not None
            assert cycle.plan is not None
            of = partial(Explainer, cycle.snapshot, cycle.plan, now=cycle.now, seed=cycle.seed)
            self._explainer = self.made(of)
        return self._explainer.find(uid)


def _read(body: bytes) -> StoredCycle | None:
    """Nothing where another version of the program wrote it, and where there is no plan."""
    try:
        cycle = decode(body, name="stored cycle")
    except InvalidInput:
        return None
    return cycle if cycle.plan is not None else None


def _uncollected(work: Callable[P, T], *given: P.args, **named: P.kwargs) -> T:
    gc.disable()
    try:
        return work(*given, **named)
    finally:
        gc.enable()
