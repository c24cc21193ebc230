"""A rule to compare evictions with: gang by gang, the newest of the lowest priority until the topology fits.

After Kueue's classic preemption as its documentation and source describe it: candidates by priority, then newest
first, go one by one until the gang fits, then come back, the last first, where it still fits. Not Kueue's code.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from queuer.domain.nodes import Topology
from queuer.domain.workload import Workload
from queuer.solver.records import Admitted, Snapshot

Free = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Uids of the gangs that got a place, and of those evicted for them."""

    placed: frozenset[str]
    victims: frozenset[str]


def evictions(snapshot: Snapshot, *, resource: str) -> Answer:
    """What the rule does with every waiting gang in turn, by priority and submit time. Only `resource` counts, and
    all running work may be evicted.
    """
    floor = _Floor(snapshot, resource)
    placed: list[str] = []
    victims: list[str] = []
    running = sorted(snapshot.admitted, key=lambda a: (a.workload.priority, -a.since, a.workload.uid))
    for pending in sorted(
        snapshot.pending, key=lambda p: (-p.workload.priority, p.workload.submitted, p.workload.uid)
    ):
        workload = pending.workload
        chosen = _victims(floor, workload, [a for a in running if a.workload.uid not in victims])
        if chosen is not None:
            placed.append(workload.uid)
            victims += [a.workload.uid for a in chosen]
            floor.take(workload)
    return Answer(placed=frozenset(placed), victims=frozenset(victims))


def _victims(floor: _Floor, workload: Workload, order: Sequence[Admitted]) -> list[Admitted] | None:
    """Those that go, and have gone from the floor; None, and the floor as it was, where all are not enough."""
    gone: list[Admitted] = []
    for candidate in [None, *order]:
        if candidate is not None:
            floor.remove(candidate)
            gone.append(candidate)
        if floor.place(workload) is not None:
            break
    else:
        for candidate in gone:
            floor.remove(candidate, times=-1)
        return None
    for candidate in list(reversed(gone[:-1])):
        floor.remove(candidate, times=-1)
        if floor.place(workload) is not None:
            gone.remove(candidate)
        else:
            floor.remove(candidate)
    return gone


class _Floor:
    """What is free of one resource on each node (N)."""

    def __init__(self, snapshot: Snapshot, resource: str) -> None:
        self._resource = resource
        self._index = {s.node.name: i for i, s in enumerate(snapshot.nodes)}
        self._free: Free = np.array(
            [s.node.allocatable.get(resource, 0) - s.used.get(resource, 0) for s in snapshot.nodes],
            dtype=np.int64,
        )
        self._topology: Topology = snapshot.topology
        self._domains = [
            np.unique(
                [str(snapshot.topology.domain(s.node, level)) for s in snapshot.nodes], return_inverse=True
            )[1]
            for level in range(len(snapshot.topology.keys))
        ]

    def remove(self, admitted: Admitted, *, times: int = 1) -> None:
        """It leaves its nodes; `times=-1`: it comes back."""
        for node, amounts in admitted.bound.items():
            self._free[self._index[node]] += times * amounts.get(self._resource, 0)

    def take(self, workload: Workload) -> None:
        """The gang takes its place."""
        left = self.place(workload)
        if left is None:
            raise ValueError(f"{workload.uid} does not fit")
        self._free = left

    def place(self, workload: Workload) -> Free | None:
        """What is free with the gang in its place: the narrowest domain within the level that it requires, of those
        the one with the fewest slots, in it the fullest nodes. None = it fits nowhere.
        """
        sizes = sorted(
            ((p.requests.get(self._resource, 0), p.count) for p in workload.pod_sets), reverse=True
        )
        for inside in self._scopes(workload, *sizes[0]):
            left = self._free.copy()
            if all(_fill(left, inside, size, count) for size, count in sizes):
                return left
        return None

    def _scopes(self, workload: Workload, size: int, count: int) -> Iterator[NDArray[np.intp]]:
        """Nodes of the domains that have slots for the largest pods."""
        slots = self._free // size
        if workload.required is None:
            yield np.arange(len(slots))
            return
        widest = self._topology.find(workload.required)
        if widest is None:
            return
        for level in range(len(self._domains) - 1, widest - 1, -1):
            there = np.bincount(self._domains[level], weights=slots)
            enough = np.flatnonzero(there >= count)
            for domain in enough[np.argsort(there[enough], kind="stable")]:
                yield np.flatnonzero(self._domains[level] == domain)


def _fill(free: Free, inside: NDArray[np.intp], size: int, count: int) -> bool:
    """Put pods on one node if one holds all, else on the fullest first; whether all found room."""
    slots = free[inside] // size
    whole = inside[slots >= count]
    usable = whole if len(whole) else inside[slots > 0]
    for node in usable[np.argsort(free[usable], kind="stable")]:
        here = min(count, int(free[node]) // size)
        free[node] -= here * size
        count -= here
        if not count:
            return True
    return False
