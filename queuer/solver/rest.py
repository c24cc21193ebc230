"""Whether a process that is late again and again is worth asking.

Each late answer costs a cycle its whole deadline and the process its life. So after the first in a row it is asked
again at once, then left out of 1, 3, 7, ... questions, at most of `MOST`, until it answers in time.
"""

from __future__ import annotations

MOST = 31
"""Questions that a process is left out of in a row."""


class Rest:
    """`late`: answers in a row that were late; `left`: questions that still go by without the process."""

    def __init__(self) -> None:
        self.late = self.left = 0

    def goes_on(self) -> bool:
        """Whether the question that has come goes by without it."""
        rests = self.left > 0
        self.left -= rests
        return rests

    def was_late(self) -> None:
        """It was asked and gave no answer in time."""
        self.late += 1
        self.left = min(2 ** (self.late - 1) - 1, MOST)

    def in_time(self) -> None:
        """It was asked and answered."""
        self.late = self.left = 0
