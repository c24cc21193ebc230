"""Sentences about queues that are held or drain: what that does to their jobs."""

from __future__ import annotations

from queuer.domain.queue import QueueState
from queuer.domain.reasons.amounts import plural


def halting(state: QueueState, *, running: tuple[int, str], waiting: tuple[int, str]) -> str:
    """The effect of another state of a queue. `running`, `waiting`: how many jobs, and what they have or ask for."""
    if state is QueueState.OPEN:
        return f"{jobs_with(*waiting)} may start again"
    run, wait = "runs" if running[0] == 1 else "run", "waits and does" if waiting[0] == 1 else "wait and do"
    new = "new jobs wait as well" if state is QueueState.HELD else "new jobs are not queued"
    return f"{jobs_with(*running)} {run} on, {jobs_with(*waiting)} {wait} not start, {new}"


def jobs_with(count: int, amounts: str) -> str:
    """`2 jobs (16 nvidia.com/gpu)`."""
    return plural(count, "job") + (f" ({amounts})" if amounts else "")
