"""A leader's clock: that of PostgreSQL, except that it never jumps.

Deadlines of landing, bonds, run times and retention are stored as times, and readers count ages by PostgreSQL's clock.
By a wrong clock of its machine a term would store wrong ones. Were a clock put five minutes forward, all deadlines
would pass at once. Gangs that land would be rolled back, and running work evicted. Each task of a term reads this one.
"""

from __future__ import annotations

import time
from collections.abc import Callable

STEP = 2.0
"""Seconds of difference that are the way of an answer, and not made up."""
RATE = 0.1
"""The part by which it runs faster or slower while it makes up a larger difference."""


class SteadyClock:
    """Seconds since the epoch when called, never less than before. It follows what it was `told`, slowly."""

    def __init__(self, told: float, *, steady: Callable[[], float] = time.monotonic) -> None:
        """`told`: PostgreSQL's time."""
        self._steady = steady
        self._now, self._at = told, steady()
        self.hear(told)

    def hear(self, told: float) -> None:
        """PostgreSQL's time is this."""
        self._ahead = told - self._steady()

    def __call__(self) -> float:
        """The time."""
        at = self._steady()
        passed, self._at = at - self._at, at
        ahead = self._ahead + at - (self._now + passed)
        if abs(ahead) > STEP:
            passed += max(-RATE * passed, min(RATE * passed, ahead))
        self._now += passed
        return self._now
