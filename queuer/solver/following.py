"""`decide()` for one snapshot after the other, with arrays that are kept in between."""

from __future__ import annotations

from queuer.solver.arrays import Arrays
from queuer.solver.decide import decide
from queuer.solver.records import Budget, Plan, Snapshot


class Following:
    """Called as `decide()` is, with the same answers; cheapest where snapshots share their records."""

    def __init__(self) -> None:
        self._arrays: Arrays | None = None

    def follow(self, snapshot: Snapshot) -> Arrays:
        """The arrays of this snapshot, kept for what is asked next."""
        self._arrays = Arrays.of(snapshot) if self._arrays is None else self._arrays.follow(snapshot)
        return self._arrays

    def __call__(self, snapshot: Snapshot, *, now: float, seed: int, budget: Budget) -> Plan:
        """See `decide`."""
        return decide(snapshot, now=now, seed=seed, budget=budget, arrays=self.follow(snapshot))
