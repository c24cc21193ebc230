"""Keeps the queues' decayed past use in memory (policy `halfLife`), summed from the ledger bit by bit.

A sum only decays, so each row of the ledger is read once. A look adds the rows that were closed since the last one.
Until everything that counts is in, it adds one more day from before the first. No read grows with the history.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from math import exp2

from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from queuer.controller.memory.state import ClusterState
from queuer.domain.past_use import HORIZON, Past, half_lives, rolled_up
from queuer.domain.queue import QueueTree
from queuer.store import ledger
from queuer.store.engine import begin

EVERY = 30.0
PAUSE = 0.1
"""Seconds between two looks while older days are still to be read."""
STEP = 86_400.0
"""Seconds of the past that one look adds."""
LAG = 60.0
"""Rows closed so short ago are read anew each time: the transaction that closed one may still be under way."""

Sums = dict[float, dict[str, dict[str, float]]]
"""By half-life, queue and resource."""


class PastUse:
    """Sums of the rows closed after `first` up to `last`, as they count at `at`."""

    def __init__(self) -> None:
        self._sums: Sums = {}
        self.at = self.first = self.last = 0.0

    @property
    def whole(self) -> bool:
        """Whether nothing older is to be read."""
        return not self._sums or self.first <= self.at - HORIZON * max(self._sums)

    async def look(self, connection: AsyncConnection, tree: QueueTree, *, now: float) -> Past:
        """The past of every queue whose past counts, as far as it was read; asks nothing where there is none."""
        wanted = frozenset(half_lives(tree).values())
        if wanted != self._sums.keys():
            self._sums = {half_life: {} for half_life in wanted}
            self.at, self.first, self.last = now, now - LAG, now - LAG
        self._decay(now)
        if not self.whole:
            await self._read_older(connection, now=now)
        if now - LAG > self.last:
            _add(
                self._sums,
                await ledger.past_use(connection, wanted, now=now, after=self.last, until=now - LAG),
            )
            self.last = now - LAG
        recent = await ledger.past_use(connection, wanted, now=now, after=self.last)
        _add(recent, self._sums)
        return rolled_up(tree, recent)

    def _decay(self, now: float) -> None:
        for half_life, by_queue in self._sums.items():
            factor = exp2((self.at - now) / half_life)
            for amounts in by_queue.values():
                for resource in amounts:
                    amounts[resource] *= factor
        self.at = now

    async def _read_older(self, connection: AsyncConnection, *, now: float) -> None:
        start = self.first - STEP
        older = await ledger.past_use(connection, self._sums, now=now, after=start, until=self.first)
        _add(self._sums, older)
        oldest = await ledger.first_closed(connection)
        self.first = start if oldest is not None and oldest <= start else float("-inf")


def _add(sums: Sums, more: Sums) -> None:
    for half_life, by_queue in more.items():
        for queue, amounts in by_queue.items():
            held = sums[half_life].setdefault(queue, {})
            for resource, amount in amounts.items():
                held[resource] = held.get(resource, 0.0) + amount


async def follow(
    engine: AsyncEngine,
    state: ClusterState,
    *,
    clock: Callable[[], float],
    every: float = EVERY,
) -> None:
    """Sum for ever, from now on."""
    use = PastUse()
    while True:
        async with begin(engine) as connection:
            state.past = await use.look(connection, state.rules.tree, now=clock())
        await asyncio.sleep(every if use.whole else PAUSE)
