"""Why a job is evicted, for its owner: for which job, by which right, and why this one and no other."""

from __future__ import annotations

from queuer.domain.assignments import EvictionRule, LostWork
from queuer.domain.quantity import devices, in_whole_units, short
from queuer.domain.queue import child_towards, common_ancestor
from queuer.domain.workload import Cause, Workload


def evicted_for(cause: str, victim: Workload, other: Workload, lost: LostWork | None = None) -> str:
    """For which job, what that asks, by which right, and the work that is lost beside that of the next candidate.

    A job of another namespace is named by its queue and amount alone.
    """
    own = other.namespace == victim.namespace
    who = f"{other.namespace}/{other.name} in {other.queue}" if own else f"a job of {other.queue}"
    text = f"evicted for {who}, which asks {devices(other.demand)} and "
    if cause == Cause.MAX_RUNTIME:
        return f"{text}has a reservation there; it ran longer than its max-runtime"
    if cause == EvictionRule.RECLAIM:
        at = common_ancestor(victim.queue, other.queue)
        text += f"takes back what {child_towards(at, other.queue)} is guaranteed (reclaim at {at})"
    else:
        text += f"goes first by its priority, {other.priority} over {victim.priority} (preempt)"
    return text if lost is None else f"{text}; {_why_this(lost)}"


def _why_this(lost: LostWork) -> str:
    """Its lost work, and that of the cheapest candidate that stays."""
    unit = f"{short(lost.resource)}-seconds"
    own = f"{in_whole_units(lost.amount, resource=lost.resource):.0f} {unit}"
    if lost.next is None:
        return f"it loses {own} of work, and no other job that is measured in {unit} could go by this right"
    following = f"{in_whole_units(lost.next, resource=lost.resource):.0f}"
    if lost.next >= lost.amount:
        return f"so the least work is lost: {own}; the next candidate would lose {following}"
    return f"it loses {own} of work: sets that make room enough cost more, though one candidate would lose {following}"
