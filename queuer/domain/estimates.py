"""How long a job will run: what it declares, else what was learned from jobs like it, else from all of its queue."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from queuer.domain.workload import Workload

RUNS = 20
"""Last runs that an estimate is the median of: on traces it errs less than fewer runs or other quantiles do."""
LEAST = 5
"""Runs without which nobody is told a time that rests on them; a decision takes what there is."""
FORETOLD = 10
"""So many at the head of each queue are told when they may start."""
KEPT = 10_000
"""Kinds of jobs that are remembered; the one that ended longest ago is forgotten first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StartRange:
    """When a gang starts, seconds since the epoch: the first of all rolls, the median, the last. None = later than
    was rolled. `basis`: what it rests on, in words.
    """

    earliest: float
    likely: float | None
    latest: float | None
    basis: str = ""


class Estimates:
    """Run times of what ended, by queue, user and shape, and by queue. Seconds."""

    def __init__(self, *, runs: int = RUNS, quantile: float = 0.5) -> None:
        """`runs`: how many of the last ones count; `quantile`: which of these is the estimate, from 0 to below 1."""
        self._most, self._quantile = runs, quantile
        self._runs: OrderedDict[Hashable, deque[float]] = OrderedDict()

    def learn(self, workload: Workload, seconds: float) -> bool:
        """A run ended by itself, not by eviction. Whether it is the first of its queue."""
        new = workload.queue not in self._runs
        for key in _keys(workload):
            runs = self._runs.setdefault(key, deque(maxlen=self._most))
            runs.append(seconds)
            self._runs.move_to_end(key)
        while len(self._runs) > KEPT:
            self._runs.popitem(last=False)
        return new

    def of(self, workload: Workload) -> float | None:
        """The workload's `estimate`, else the median of the learned runs, never above `max_runtime`; None =
        nothing is known.
        """
        found = workload.estimate
        if found is None:
            runs = self._of(workload)
            if not runs:
                return None
            found = sorted(runs)[int(len(runs) * self._quantile)]
        return found if workload.max_runtime is None else min(found, workload.max_runtime)

    def _of(self, workload: Workload) -> Sequence[float]:
        return next((self._runs[key] for key in _keys(workload) if key in self._runs), ())

    def is_sound(self, workload: Workload) -> bool:
        """Whether people may be told a time that rests on its end: it declares a bound, or enough runs were learned."""
        return workload.max_runtime is not None or len(self._of(workload)) >= LEAST


def _keys(workload: Workload) -> tuple[Hashable, ...]:
    """Keys by which a run is remembered, the nearest first."""
    shape = tuple((p.count, tuple(sorted(p.requests.items()))) for p in workload.pod_sets)
    return (workload.queue, workload.user, shape), workload.queue
