"""When work is expected to end: what waits, if it started at some time, and what runs."""

from __future__ import annotations

from math import inf

from queuer.domain.workload import Workload
from queuer.solver.problem import Admitted

OVERDUE = 60.0
"""Seconds that work past its expected end is given at least (half its age by then if that is more)."""


def end_of(gang: Workload, *, start: float) -> float | None:
    """When a gang that starts then is expected to end; None = unknown."""
    estimate, most = gang.estimate, gang.max_runtime
    if estimate is None or most is None:
        lasts = most if estimate is None else estimate
        return None if lasts is None else start + lasts
    return start + min(estimate, most)


def expected_end(admitted: Admitted, *, now: float) -> float:
    """When it is expected to end, after `now`; inf = unknown. Whoever outlives an estimate is given another half of its
    age by then, again and again: for the decision it is never about to end.
    """
    end = admitted.expected_end
    if admitted.releasing:
        return now + OVERDUE
    if end is None:
        return inf
    if end > now:
        return end
    age = max(end - admitted.since, 0.0)
    while age <= now - admitted.since:
        age += max(OVERDUE, 0.5 * age)
    return admitted.since + age
