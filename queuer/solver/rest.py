"""Whether a process that fails again and again is worth asking.

Each failure costs a cycle its whole deadline or what was solved, most the process its life. So after the first in a row
it is asked again at once, then left out of 1, 3, 7, ... questions, at most of `LONGEST`, until it answers.
"""

from __future__ import annotations

LONGEST = 31
"""Questions that a process is left out of in a row."""


class Rest:
    """`failures`: in a row; `left`: questions that still go by without the process."""

    def __init__(self) -> None:
        self.failures = self.left = 0

    def goes_on(self) -> bool:
        """Whether the question that has come goes by without it."""
        rests = self.left > 0
        self.left -= rests
        return rests

    def failed(self) -> None:
        """It was asked and gave no answer that may be used."""
        self.failures += 1
        self.left = min(2 ** (self.failures - 1) - 1, LONGEST)

    def answered(self) -> None:
        """It was asked and gave one in time."""
        self.failures = self.left = 0
