"""Sentences about queues that are held, drain or are over a limit: by whom, why, and what becomes of their jobs."""

from __future__ import annotations

from collections.abc import Sequence

from queuer.domain.queue import QueueState
from queuer.domain.reasons.amounts import be, plural


def halting(
    state: QueueState,
    *,
    running: tuple[int, str],
    waiting: tuple[int, str],
    kept: int = 0,
    closed: Sequence[str] = (),
) -> str:
    """The effect of another state of a queue. `running`, `waiting`: how many jobs, and what they have or ask for.
    `kept`: how many more wait on, as these other queues are `closed`.
    """
    if state is QueueState.OPEN:
        start = f"{jobs_with(*waiting)} may start again"
        where = f"{closed[0]} is" if len(closed) == 1 else f"{len(closed)} other queues are"
        on = f"{plural(kept, 'job')} {'waits' if kept == 1 else 'wait'} on, as {where} not open"
        return f"{start}; {on}" if kept else start
    run, wait = "runs" if running[0] == 1 else "run", "waits and does" if waiting[0] == 1 else "wait and do"
    new = "new jobs wait as well" if state is QueueState.HELD else "new jobs are not queued"
    return f"{jobs_with(*running)} {run} on, {jobs_with(*waiting)} {wait} not start, {new}"


def closed_queue(path: str, state: QueueState, *, by: str, why: str, jobs: int) -> str:
    """That a queue is not open. `jobs`: those that are held there by that."""
    held = f"{plural(jobs, 'job')} {be(jobs)} held there" if jobs else "no job is held there"
    return f"{path} {'is held' if state is QueueState.HELD else 'drains'}{said_by(by, why)}; {held}"


def over_limit_of(path: str, over: str, *, by: str, why: str) -> str:
    """That a queue uses more than its limit. `by`: who cut the limit, where that is known."""
    cut = f". The limit was cut{said_by(by, why)}" if by else ""
    return f"{path} uses {over} more than its limit, and nothing new starts there{cut}"


def left_of_guarantee(left: str, asks: str) -> str:
    """That what is left of a guarantee is too small for every job that waits."""
    return (
        f"{left} of the guarantee {be(left.partition(' ')[0])} left, and the smallest pending job asks {asks}"
    )


def said_by(by: str, why: str) -> str:
    """` by admin: "maintenance"`, as far as it is known."""
    return (f" by {by}" if by else "") + (f': "{why}"' if why else "")


def jobs_with(count: int, amounts: str) -> str:
    """`2 jobs (16 gpu)`."""
    return plural(count, "job") + (f" ({amounts})" if amounts else "")
