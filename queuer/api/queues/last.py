"""How the queues stood after the newest stored cycle, worked out once and kept until there is a newer one."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from sqlalchemy.ext.asyncio import AsyncConnection

from queuer.api.cycles.newest import Newest
from queuer.solver.standing import Standing
from queuer.solver.stored import StoredCycle
from queuer.store.stored import StoredRow

T = TypeVar("T")


class LastStanding:
    """Of one app. All work on it is done in a thread, one after the other."""

    def __init__(self, newest: Newest) -> None:
        self._newest = newest
        self._number = 0
        self._standing: Standing | None = None

    async def read(self, connection: AsyncConnection) -> StoredRow | None:
        """The stored cycle, if it is not known yet."""
        return await self._newest.read(connection)

    async def ask(self, row: StoredRow | None, work: Callable[[int, Standing], T]) -> T | None:
        """What `work` makes of it and its number; None: there is no cycle that this program reads."""
        return await self._newest.ask(row, lambda number, cycle: work(number, self._of(number, cycle)))

    def _of(self, number: int, cycle: StoredCycle) -> Standing:
        if self._standing is None or self._number != number:
            self._standing = self._newest.made(lambda: _standing(cycle))
            self._number = number
        return self._standing


def _standing(cycle: StoredCycle) -> Standing:
    """With its line, which most ask for and which takes longest."""
    assert cycle.plan is not None
    found = Standing(cycle.snapshot, cycle.plan, now=cycle.now, seed=cycle.seed)
    _ = found.line
    return found
