"""How long to wait before what failed is tried again: twice as long each time, up to a bound."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count


@dataclass(frozen=True, slots=True, kw_only=True)
class BackOff:
    """Seconds: the `first` pause, and the `longest`. Iterated, it gives one pause after the other, without end."""

    first: float
    longest: float

    def after(self, failures: int) -> float:
        """The pause after the n-th failure in a row (from 1)."""
        return min(self.longest, self.first * 2.0 ** min(failures - 1, 30))

    def __iter__(self) -> Iterator[float]:
        return map(self.after, count(1))
