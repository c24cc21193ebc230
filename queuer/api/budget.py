"""What one caller may ask of a server: so much at once, and so much a minute that comes back. In memory, of one app."""

from __future__ import annotations

import time
from collections.abc import Callable

from queuer.api.http.problems import TooMany

_CALLERS = 10_000
"""Callers that are remembered; the one that asked longest ago is forgotten first."""


class CallerBudget:
    """A bucket of `at_once` tokens for each caller, filled by `a_minute`. `things`: what a token buys, in the plural.

    `clock`: seconds, monotonic.
    """

    def __init__(
        self, things: str, *, a_minute: float, at_once: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._things, self._a_minute, self._at_once, self._clock = things, a_minute, at_once, clock
        self._left: dict[str, tuple[float, float]] = {}  # by caller: tokens left, at a time

    def spend(self, party: str, count: int = 1) -> None:
        """Take `count` tokens of a caller. Raises TooMany, and takes none, where fewer are left."""
        now = self._clock()
        left, at = self._left.pop(party, (self._at_once, now))
        left = min(self._at_once, left + (now - at) * self._a_minute / 60)
        enough = left >= count
        self._left[party] = (left - count if enough else left, now)
        while len(self._left) > _CALLERS:
            del self._left[next(iter(self._left))]
        if not enough:
            raise TooMany(
                f"a caller has {self._at_once:.0f} {self._things} at once and {self._a_minute:.0f} a minute; "
                f"{left:.0f} are left of them",
                hint="ask again in some seconds",
            )
