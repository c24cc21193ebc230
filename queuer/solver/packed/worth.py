"""`order: packed` (DESIGN 3.4): which queues choose together, and what a gang counts in the sum they ask for.

A gang counts what it asks of its dominant resource, times 1 + age / 2 h. The unit is the largest in which everybody's
amount is whole, so that sums are exact: one GPU, where only GPUs dominate.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import takewhile
from math import gcd, lcm

from queuer.domain.queue import Order, QueueTree
from queuer.domain.workload import Workload, demand_of

AGEING, STEP = 7200, 300
"""Seconds of waiting that count as much as the gang itself; seconds by which age is counted."""


def packed_subtrees(tree: QueueTree) -> dict[str, str]:
    """By leaf whose order is packed, the topmost queue of the packed subtree to which it belongs."""
    if not any(queue.policy.order is Order.PACKED for queue in tree):
        return {}
    found = {}
    for leaf in tree.leaves:
        inside = list(takewhile(lambda path: tree.policy(path).order is Order.PACKED, tree.lineage(leaf)))
        if inside:
            found[leaf] = inside[-1]
    return found


class Worth:
    """What gangs of one packed subtree count, as whole numbers of one unit."""

    def __init__(self, workloads: Iterable[Workload], *, capacity: Mapping[str, int], now: float) -> None:
        """`workloads`: all that may be compared. `capacity`: the live capacity by resource."""
        known = list(workloads)
        self._now = now
        self._dominant = {w.uid: _dominant(w, capacity) for w in known}
        common = lcm(*{capacity[r] for r in self._dominant.values() if r is not None})
        self._scale = {r: common // capacity[r] for r in self._dominant.values() if r is not None}
        amounts = (
            p.requests.get(r, 0) * self._scale[r]
            for w in known
            if (r := self._dominant[w.uid]) is not None
            for p in w.pod_sets
        )
        self._unit = gcd(*amounts) or 1

    def of(self, workload: Workload, counts: Mapping[str, int]) -> int:
        """Units at these sizes, times 24ths of 1 + age / 2 h."""
        resource = self._dominant.get(workload.uid)
        if resource is None:
            return 0
        amount = demand_of(workload.pod_sets, counts).get(resource, 0)
        age = max(0, int(self._now - workload.submitted))
        return amount * self._scale[resource] // self._unit * (AGEING // STEP + age // STEP)


def _dominant(workload: Workload, capacity: Mapping[str, int]) -> str | None:
    """The resource of which it asks for the largest part of the live capacity; `pods` only where there is no other."""
    shares = [(r != "pods", n / capacity[r], r) for r, n in workload.demand.items() if n and capacity.get(r)]
    return max(shares)[2] if shares else None
