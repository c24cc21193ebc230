"""Past use of queues, the more recent the heavier (policy `halfLife`): exact, without sampling.

A use u from o to c counts at time n as u · (2^(-(n-c)/h) - 2^(-(n-o)/h)). That is the integral of u ·
2^(-(n-t)/h) over t, divided by the same integral of a use of 1 since ever. So the sum is an average use, in
the units of a use.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import exp2

from queuer.domain.quantity import Resources
from queuer.domain.queue import QueueTree, Sharing
from queuer.domain.usage import subtree_sums

Past = Mapping[str, Mapping[str, float]]
"""Decayed average use by queue path (subtree included) and resource, base units."""
HORIZON = 20.0
"""Half-lives after which a use is not looked at any more: a millionth of it would be left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A queue's use from `opened` to `closed` (None = still), base units by resource."""

    queue: str
    amounts: Resources
    opened: float
    closed: float | None = None


def half_lives(tree: QueueTree) -> dict[str, float]:
    """Half-life in seconds by queue path, as the queue above it says, which chooses by share. Queues whose past does
    not count are absent."""
    found = {}
    for queue in tree:
        if queue.parent is not None:
            policy = tree.policy(queue.parent)
            if policy.half_life and policy.sharing is not Sharing.PRIORITY:
                found[queue.path] = policy.half_life
    return found


def weight(opened: float, closed: float | None, *, now: float, half_life: float) -> float:
    """How much a constant use in this interval counts at `now`, 0 to 1."""
    end = now if closed is None else min(closed, now)
    if opened >= end:
        return 0.0
    return exp2((end - now) / half_life) - exp2((opened - now) / half_life)


def past_use(tree: QueueTree, intervals: Iterable[Interval], *, now: float) -> Past:
    """The past of every queue whose past counts."""
    wanted = frozenset(half_lives(tree).values())
    own: dict[float, dict[str, dict[str, float]]] = {h: {} for h in wanted}
    for interval in intervals:
        for half_life in wanted:
            counts = weight(interval.opened, interval.closed, now=now, half_life=half_life)
            if counts:
                held = own[half_life].setdefault(interval.queue, {})
                for resource, amount in interval.amounts.items():
                    held[resource] = held.get(resource, 0.0) + counts * amount
    return rolled_up(tree, own)


def rolled_up(tree: QueueTree, own: Mapping[float, Past]) -> Past:
    """The past of every queue from what the queues used themselves, by half-life.

    The use of a deleted queue counts at its nearest ancestor that exists.
    """
    wanted = half_lives(tree)
    return {
        path: amounts
        for half_life, by_queue in own.items()
        for path, amounts in subtree_sums(tree, by_queue).items()
        if amounts and wanted.get(path) == half_life
    }
