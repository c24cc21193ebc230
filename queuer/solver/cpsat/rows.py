"""Rows of a model over integers. They name no solver, so that a model is built without OR-Tools."""

from __future__ import annotations

from collections.abc import Mapping

HIGHEST = 2**62
Terms = dict[int, int]
"""Coefficients by variable number."""


class Rows:
    """Integer variables from 0 with bounds and hints, and rows `low <= sum of terms <= high`."""

    def __init__(self) -> None:
        self.bounds: list[int] = []
        self.hint: list[int] = []
        self.listed: list[tuple[Terms, int, int]] = []

    def variable(self, high: int) -> int:
        """A new variable; its number."""
        self.bounds.append(high)
        self.hint.append(0)
        return len(self.bounds) - 1

    def row(self, terms: Mapping[int, int], *, low: int = -HIGHEST, high: int = HIGHEST) -> None:
        """A row, left out where it cannot bind. Raises OverflowError where its sum could leave int64."""
        kept = {v: c for v, c in terms.items() if c}
        most = sum(c * self.bounds[v] for v, c in kept.items() if c > 0)
        least = sum(c * self.bounds[v] for v, c in kept.items() if c < 0)
        if max(most, -least) >= HIGHEST:
            raise OverflowError("a row of the model exceeds int64")
        if most > high or least < low:
            self.listed.append((kept, low, high))
