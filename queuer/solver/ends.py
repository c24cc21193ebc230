"""When work is expected to end: what waits, if it started at some time, and what runs."""

from __future__ import annotations

from math import inf

from queuer.domain.estimates import LEAST
from queuer.domain.workload import Workload
from queuer.solver.records import Admitted

OVERDUE = 60.0
"""Seconds that work past its expected end is given at least (half its age by then if that is more)."""

SOON = 300.0
"""Seconds in which work that leaves anyway must be known to be gone for anybody to be bound to its room: rather than
wait longer somebody is evicted. However long bonds last, none ends before those it waits for are known to be gone.
"""


def end_of(gang: Workload, *, start: float) -> float | None:
    """When a gang that starts then is expected to end; None = unknown."""
    estimate, most = gang.estimate, gang.max_runtime
    if estimate is None or most is None:
        lasts = most if estimate is None else estimate
        return None if lasts is None else start + lasts
    return start + min(estimate, most)


def foretold_end(admitted: Admitted, *, now: float) -> tuple[float | None, int]:
    """The end that people may be told, and how many runs of jobs like it taught it; 0 = it is promised.

    None where it promises nothing and too few like it have run, or it outlived what they took.
    """
    workload, end = admitted.workload, admitted.expected_end
    runs, most = workload.estimate_runs or 0, workload.max_runtime
    if runs >= LEAST and end is not None and now < end:
        return end, runs
    if workload.estimate_runs is None and most is None:
        return end, 0
    return None if most is None else admitted.since + most, 0


def leaves_soon(admitted: Admitted, *, now: float) -> bool:
    """Whether it is on its way out and expected to be gone at a time to come. Once that has passed nobody knows."""
    return admitted.releasing and admitted.gone_by is not None and now < admitted.gone_by <= now + SOON


def expected_end(admitted: Admitted, *, now: float) -> float:
    """When it is expected to end, after `now`; inf = unknown. Work that outlives an estimate gets another half of its
    age, again and again: for the decision it is never about to end. Its `max_runtime` is not outlived.
    """
    end, most = admitted.expected_end, admitted.workload.max_runtime
    if admitted.releasing:
        gone_by = admitted.gone_by
        return gone_by if gone_by is not None and gone_by > now else now + OVERDUE
    if end is None:
        return inf
    if end > now:
        return end
    age, lasts = now - admitted.since, max(end - admitted.since, 0.0)
    while lasts <= age:
        lasts += max(OVERDUE, 0.5 * lasts)
    return admitted.since + (lasts if most is None or most <= age else min(lasts, most))
