"""The queues with their amounts as they are now, read once for all who ask at the same time.

They are kept until something moves. On a large cluster something always moves, so its tree is kept a moment longer. A
reader that follows the stream from the `seq` of an answer misses nothing.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Annotated, Any, Generic, TypeVar

from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from queuer.api.deps import app_part, one_view
from queuer.api.http.lists import ViewStamp, standing
from queuer.api.queues import models, views
from queuer.api.single_flight import SingleFlight
from queuer.store.origins import Origins, origins
from queuer.store.usage import Marks, TreeView, marks, tree_view

T = TypeVar("T")
LARGE, KEPT = 1000, 1.0
"""Queues and groups of waiting jobs above which the tree is kept for so many seconds, although work has moved."""
LASTS = 5.0
"""Seconds for which it is told, although nothing has moved: it says of what time it is."""


@dataclass(frozen=True, kw_only=True)
class Present:
    """One moment. `began`: when reading it began, by the clock of who keeps it."""

    marks: Marks
    view: TreeView
    origins: Origins
    standing: ViewStamp
    began: float

    @cached_property
    def queues(self) -> dict[str, models.Queue]:
        """All queues as REST says them, by path, each followed by all below it."""
        return views.queues(self.view, self.origins)

    @property
    def large(self) -> bool:
        """Whether making it takes long."""
        return len(self.view.queues) + len(self.view.waiting) > LARGE


@dataclass(frozen=True, kw_only=True)
class Derived(Generic[T]):
    """A value worked out on a tree at a time."""

    of: Present
    at: float
    value: T


class TreeCache:
    """Of one app."""

    def __init__(self, engine: AsyncEngine, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._engine, self._clock = engine, clock
        self._present = SingleFlight(self._look, clock=clock)
        self._derived: dict[Any, SingleFlight[Any]] = {}

    async def __call__(self) -> Present:
        """The tree as it is, or was a moment ago: never before a change of the configuration that its asker made."""
        return await self._present()

    async def view(self) -> TreeView:
        """Its queues with their amounts."""
        return (await self()).view

    async def _look(self, known: Present | None) -> Present:
        looked = self._clock()
        async with one_view(self._engine) as connection:
            now = await marks(connection)
            same = known is not None and known.marks.revision == now.revision
            if known is not None and same and looked - known.began < _kept(known, moved=known.marks != now):
                return known
            kept = known if same else None
            view = await tree_view(connection, None if kept is None else kept.view.config)
            return Present(
                marks=now,
                view=view,
                origins=await origins(connection, view, None if kept is None else kept.origins),
                standing=await standing(connection),
                began=looked,
            )

    async def derived(self, make: Callable[[AsyncConnection, Present], Awaitable[T]]) -> T:
        """The value that `make` works out on the tree, once for all who ask."""
        if make not in self._derived:
            self._derived[make] = SingleFlight(partial(self._derive, make), clock=self._clock)
        found: Derived[T] = await self._derived[make]()
        return found.value

    async def _derive(
        self, make: Callable[[AsyncConnection, Present], Awaitable[T]], known: Derived[T] | None
    ) -> Derived[T]:
        there = await self()
        if known is not None and known.of is there and self._clock() - known.at <= LASTS:
            return known
        at = self._clock()
        async with one_view(self._engine) as connection:
            return Derived(of=there, at=at, value=await make(connection, there))


def _kept(known: Present, *, moved: bool) -> float:
    """Seconds for which it is told."""
    return (KEPT if known.large else 0.0) if moved else LASTS


Tree = Annotated[TreeCache, app_part("tree")]
