"""Answers of the API server, kept for a while: a yes longer than a no, and never more than a bounded number.

Callers with the same question wait for the one answer that is under way.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

GOOD_SECONDS = 60.0
BAD_SECONDS = 5.0
MOST = 50_000


@dataclass(frozen=True, slots=True)
class _Kept(Generic[V]):
    value: V
    seconds: float
    until: float


class Answers(Generic[K, V]):
    """Answers by question. `clock`: seconds, monotonic. Where more than `most` are kept, the longest unused goes.

    A no is kept for `bad` seconds, and for twice as long as before each time that it is given again, up to `worst`. For
    `stale` more it is still answered, while it is asked anew. Noes are `most_bad` at most, apart: however many
    questions are invented, no yes goes for them.
    """

    def __init__(
        self, clock: Callable[[], float], *, most: int = MOST, most_bad: int = MOST, bad: float = BAD_SECONDS,
        worst: float = BAD_SECONDS, stale: float = 0.0,
    ) -> None:  # fmt: skip
        self._clock = clock
        self._bad, self._worst = bad, worst
        self._stale = stale
        self._most = {True: most, False: most_bad}
        self._kept: dict[bool, OrderedDict[K, _Kept[V]]] = {True: OrderedDict(), False: OrderedDict()}
        self._asked: dict[K, asyncio.Task[V]] = {}

    async def get(self, key: K, ask: Callable[[], Awaitable[V]]) -> V:
        """The kept answer, else that of `ask`; a falsy one is a no. Errors of `ask` are raised and not kept."""
        kept = self._kept[True].get(key) or self._kept[False].get(key)
        if kept is not None and self._clock() < kept.until:
            self._kept[bool(kept.value)].move_to_end(key)
            return kept.value
        task = self._asked.get(key)
        if task is None:
            task = self._asked[key] = asyncio.create_task(self._ask(key, ask))
            task.add_done_callback(_seen)
        if kept is not None and not kept.value and self._clock() < kept.until + self._stale:
            return kept.value
        # One of those who wait may be cancelled (its client has gone); the others still want the answer.
        return await asyncio.shield(task)

    async def _ask(self, key: K, ask: Callable[[], Awaitable[V]]) -> V:
        try:
            value = await ask()
        finally:
            del self._asked[key]
        good = bool(value)
        self._kept[True].pop(key, None)
        before = self._kept[False].pop(key, None)
        seconds = (
            GOOD_SECONDS if good else self._bad if before is None else min(2 * before.seconds, self._worst)
        )
        kept = self._kept[good]
        kept[key] = _Kept(value, seconds, self._clock() + seconds)
        kept.move_to_end(key)
        while len(kept) > self._most[good]:
            kept.popitem(last=False)
        return value


def _seen(task: asyncio.Task[V]) -> None:
    """A failure that nobody waits for any more is not worth a warning."""
    if not task.cancelled():
        task.exception()
