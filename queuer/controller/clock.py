"""A leader's clock: the wall clock, except that it never jumps.

Deadlines of landing, bonds, run times and retention are stored as times. Were the machine's clock put five minutes
forward, all of them would pass at once. Gangs that land would be rolled back, and running work evicted. A term begins
with the wall clock; each of its tasks reads this one.
"""

from __future__ import annotations

import time
from collections.abc import Callable

STEP = 2.0
"""Seconds of difference that are made up at once, as NTP does with small ones."""
RATE = 0.1
"""The part by which it runs faster or slower while it makes up a larger difference."""


class SteadyClock:
    """Seconds since the epoch when called, never less than before. It follows the wall clock, larger steps slowly."""

    def __init__(
        self, *, wall: Callable[[], float] = time.time, steady: Callable[[], float] = time.monotonic
    ) -> None:
        self._wall, self._steady = wall, steady
        self._now, self._at = wall(), steady()

    def __call__(self) -> float:
        """The time."""
        at = self._steady()
        passed, self._at = at - self._at, at
        ahead = self._wall() - (self._now + passed)
        if abs(ahead) > STEP:
            ahead = max(-RATE * passed, min(RATE * passed, ahead))
        self._now += max(0.0, passed + ahead)
        return self._now
