"""The queues with their amounts as they are now, worked out once for all who ask at the same time.

They are kept until something moves. Those of a large cluster, where something always does, for a moment longer: who
goes on by the stream from the `seq` of an answer misses nothing.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, TypeVar, cast

from fastapi import Depends, Request
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from queuer.api.deps import one_view
from queuer.api.http.lists import Standing, standing
from queuer.api.queues import models, views
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
    standing: Standing
    began: float

    @cached_property
    def queues(self) -> dict[str, models.Queue]:
        """All queues as REST says them, by path, each followed by all below it."""
        return views.queues(self.view)

    @property
    def large(self) -> bool:
        """Whether making it takes long."""
        return len(self.view.queues) + len(self.view.waiting) > LARGE


class TreeNow:
    """Of one app."""

    def __init__(self, engine: AsyncEngine, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._engine, self._clock = engine, clock
        self._lock = asyncio.Lock()
        self._present: Present | None = None
        self._looked = 0.0
        self._making = asyncio.Lock()
        self._told: dict[Any, tuple[float, Present | None, Any]] = {}

    async def __call__(self) -> Present:
        """The tree as it is, or was a moment ago: never before a change of the configuration that its asker made."""
        asked = self._clock()
        async with self._lock:
            if self._present is None or self._looked < asked:  # else somebody looked after this one asked
                looked = self._clock()
                self._present = await self._look(self._present, looked)
                self._looked = looked
            return self._present

    async def _look(self, known: Present | None, looked: float) -> Present:
        async with one_view(self._engine) as connection:
            now = await marks(connection)
            same = known is not None and known.marks.revision == now.revision
            if known is not None and same and looked - known.began < _kept(known, moved=known.marks != now):
                return known
            config = known.view.config if known is not None and same else None
            return Present(
                marks=now,
                view=await tree_view(connection, config),
                standing=await standing(connection),
                began=looked,
            )

    async def told(self, make: Callable[[AsyncConnection, TreeView], Awaitable[T]]) -> T:
        """What `make` works out on the tree, once for all who ask."""
        there = await self()
        async with self._making:
            at, of, found = self._told.get(make, (0.0, None, None))
            if of is not there or self._clock() - at > LASTS:
                at = self._clock()
                async with one_view(self._engine) as connection:
                    found = await make(connection, there.view)
                self._told[make] = at, there, found
            return cast(T, found)


def _kept(known: Present, *, moved: bool) -> float:
    """Seconds for which it is told."""
    return (KEPT if known.large else 0.0) if moved else LASTS


def _now(request: Request) -> TreeNow:
    return cast(TreeNow, request.app.state.tree)


Now = Annotated[TreeNow, Depends(_now)]
