"""`decide()` for one snapshot after the other, with arrays that are kept in between."""

from __future__ import annotations

from threading import Lock

from queuer.solver.arrays import Arrays
from queuer.solver.decide import decide
from queuer.solver.problem import Budget, Plan, Snapshot


class Following:
    """Called as `decide()` is, with the same answers; cheapest where snapshots share their records.

    One thread at a time: a decision that nobody waits for any more comes to its end before the next one begins.
    """

    def __init__(self) -> None:
        self._arrays: Arrays | None = None
        self._lock = Lock()

    def __call__(self, snapshot: Snapshot, *, now: float, seed: int, budget: Budget) -> Plan:
        """See `decide`."""
        with self._lock:
            return decide(snapshot, now=now, seed=seed, budget=budget, arrays=self._followed(snapshot))

    def follow(self, snapshot: Snapshot) -> None:
        """Be ready for this snapshot."""
        with self._lock:
            self._followed(snapshot)

    def _followed(self, snapshot: Snapshot) -> Arrays:
        self._arrays = Arrays.of(snapshot) if self._arrays is None else self._arrays.follow(snapshot)
        return self._arrays
