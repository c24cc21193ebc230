"""How long a job will run: what it declares, else what was learned from jobs like it, else from all of its queue.

A decision takes what there is. People are told a time only if it is promised, or learned from enough jobs like it.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Hashable
from dataclasses import dataclass, replace

from queuer.domain.workload import Workload

RUNS = 20
"""Last runs that an estimate is the median of: on traces it errs less than fewer runs or other quantiles do."""
LEAST = 5
"""Runs, or ranges that are over, without which nobody is told what rests on them; a decision takes what there is."""
FORETOLD = 10
"""So many at the head of each queue are told when they may start."""
KEPT = 10_000
"""Kinds of jobs that are remembered; the one that ended longest ago is forgotten first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StartRange:
    """When a gang starts, seconds since the epoch: the first of all rolls, the median, the last. None = later than
    was rolled. `basis`: what it rests on, in words. `made`: as of when.
    """

    earliest: float
    likely: float | None
    latest: float | None
    basis: str = ""
    made: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class News:
    """The news of one more run: `keys` of `queue` by which workloads are to be `estimated` again."""

    queue: str
    keys: frozenset[Hashable]

    def concerns(self, workload: Workload) -> bool:
        """Whether the workload is like the run."""
        if workload.queue != self.queue:
            return False
        return self.queue in self.keys or not self.keys.isdisjoint(_keys(workload))


class Estimates:
    """Run times of what ended, by queue, user and shape, and by queue. Seconds."""

    def __init__(self, *, runs: int = RUNS, quantile: float = 0.5) -> None:
        """`runs`: how many of the last ones count; `quantile`: which of these is the estimate, from 0 to below 1."""
        self._most, self._quantile = runs, quantile
        self._runs: OrderedDict[Hashable, deque[float]] = OrderedDict()

    def learn(self, workload: Workload, seconds: float) -> News | None:
        """A run ended by itself, not by eviction. News: it is the first of its queue, or makes an estimate sound."""
        marked = set[Hashable]()
        for key in _keys(workload):
            runs = self._runs.setdefault(key, deque(maxlen=self._most))
            if len(runs) in (LEAST - 1, self._most - 1) or (key == workload.queue and not runs):
                marked.add(key)
            runs.append(seconds)
            self._runs.move_to_end(key)
        while len(self._runs) > KEPT:
            self._runs.popitem(last=False)
        return News(queue=workload.queue, keys=frozenset(marked)) if marked else None

    def estimated(self, workload: Workload) -> Workload:
        """The workload with what is learned of jobs like it, if anything is. A declared estimate stays."""
        if workload.estimate is not None and workload.estimate_runs is None:
            return workload
        bare = replace(workload, estimate=None)
        key = next((key for key in _keys(workload) if key in self._runs), None)
        if key is None:
            return replace(bare, estimate_runs=None)
        runs = 0 if key == workload.queue else len(self._runs[key])
        return replace(workload, estimate=self.of(bare), estimate_runs=runs)

    def of(self, workload: Workload) -> float | None:
        """The workload's `estimate`, else the median of the learned runs, never above `max_runtime`; None =
        nothing is known.
        """
        found = workload.estimate
        if found is None:
            runs = next((self._runs[key] for key in _keys(workload) if key in self._runs), ())
            if not runs:
                return None
            found = sorted(runs)[int(len(runs) * self._quantile)]
        return found if workload.max_runtime is None else min(found, workload.max_runtime)


def is_sound(workload: Workload) -> bool:
    """Whether people may be told a time that rests on its estimate: it is declared, or enough runs were learned."""
    return workload.estimate_runs is None or workload.estimate_runs >= LEAST


def expected_by(runs: int) -> str:
    """The basis of a learned end, in words."""
    return f"expected by the last {runs} runs of such jobs in the queue"


def _keys(workload: Workload) -> tuple[Hashable, ...]:
    """Keys by which a run is remembered, the nearest first. They are the user's jobs of this shape, jobs of
    this size (to a power of two), and all of the queue.
    """
    shape = tuple((p.count, tuple(sorted(p.requests.items()))) for p in workload.pod_sets)
    demand = workload.demand
    of = [name for name in demand if "/" in name] or demand  # devices, if it has any
    size = tuple(sorted((name, demand[name].bit_length()) for name in of))
    return (workload.queue, workload.user, shape), (workload.queue, size), workload.queue
