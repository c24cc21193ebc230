"""One value for all who ask at the same time: the only cache of the API.

Work that many readers cause at once is done once. Nobody gets a value that was looked at before their own question, so
that whoever has changed something sees it. The owner of a cache says in `renew` whether the known value still holds.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar, cast

T = TypeVar("T")


class SingleFlight(Generic[T]):
    """`await cache()`: the value."""

    def __init__(
        self, renew: Callable[[T | None], Awaitable[T]], *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`renew`: gets the known value, None at first, and answers it or a newer one."""
        self._renew, self._clock = renew, clock
        self._lock = asyncio.Lock()
        self._value: T | None = None
        self._failure: Exception | None = None
        self._looked = float("-inf")

    async def __call__(self) -> T:
        """Raises what `renew` raised for all who had asked by then."""
        asked = self._clock()
        async with self._lock:
            if self._looked < asked:  # else somebody looked after this question
                looked = self._clock()
                try:
                    self._value, self._failure = await self._renew(self._value), None
                except Exception as error:  # noqa: BLE001 - raised below
                    self._failure = error
                self._looked = looked
            if self._failure is not None:
                raise self._failure
            return cast(T, self._value)
