"""For whom work is evicted and by which right, as its owner is told: a job of another namespace by queue and amount."""

from __future__ import annotations

from queuer.domain.assignments import EvictionRule
from queuer.domain.figures import devices
from queuer.domain.quantity import format_resources
from queuer.domain.queue import child_towards, common_ancestor
from queuer.domain.workload import Cause, Workload


def for_whom(cause: str, victim: Workload, other: Workload) -> str:
    """A sentence without its end: whose turn it is, what that asks for, why this one has to go."""
    own = other.namespace == victim.namespace
    who = f"{other.namespace}/{other.name} in {other.queue}" if own else f"a job of {other.queue}"
    text = f"evicted for {who}, which asks {devices(format_resources(other.demand))} and "
    if cause == Cause.MAX_RUNTIME:
        return f"{text}has a reservation there; it ran longer than its max-runtime"
    if cause == EvictionRule.RECLAIM:
        at = common_ancestor(victim.queue, other.queue)
        return f"{text}takes back what {child_towards(at, other.queue)} is guaranteed (reclaim at {at})"
    return f"{text}goes first by its priority, {other.priority} over {victim.priority} (preempt)"
