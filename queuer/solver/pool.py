"""Bounds that show without a search that one more gang has no place beside others, wherever these lie.

A node with f free holds at most floor(f / a) pods that ask for a, and each pod that asks for p leaves room for at
least floor(p / a) fewer, whatever the other sizes are. The same holds a level up: a domain with s slots holds at
most floor(s / k) gangs that need k slots in one domain.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from queuer.domain.workload import Workload
from queuer.solver.board import Board
from queuer.solver.contested import Variant
from queuer.solver.floor import Floor
from queuer.solver.frame import Mask, Matrix, Need
from queuer.solver.outcome import Chosen


@dataclass(frozen=True, slots=True, eq=False)
class Pods:
    """Pods of one set: what one needs (R), how many, the nodes open to them; `level`: all pods of the gang lie in one
    domain of it, -1 = anywhere.
    """

    need: Need
    row: Matrix
    count: int
    open: Mask
    level: int


class Pool:
    """Nodes with the places of some settled gangs open. These gangs may only become more.

    `version`: that of the board for which they are all here.
    """

    def __init__(self, board: Board, free: Matrix) -> None:
        """`free`: N x R, the open places included."""
        self.floor = Floor(board.frame, free)
        self.version = -1
        self._frame = board.frame
        self._gangs: dict[str, int] = {}
        self._settled: list[tuple[int, Pods]] = []
        self._slots: dict[tuple[int, int], Matrix] = {}
        self._excluded: dict[object, tuple[int, bool]] = {}

    def share(self, settled: Iterable[Chosen]) -> None:
        """These lie in it: those that did before, and more."""
        for one in settled:
            if one.gang.uid not in self._gangs:
                number = self._gangs[one.gang.uid] = len(self._gangs)
                self._settled += [(number, p) for p in self._pods(one.gang.pending.workload, one.variant)]

    def excludes(self, key: object, workload: Workload, variant: Variant) -> bool:
        """Whether all these and one more such gang have no place together. `key`: equal for gangs that placement cannot
        tell apart.
        """
        known = self._excluded.get(key)
        if known is None or (not known[1] and known[0] < len(self._gangs)):
            mine = list(self._pods(workload, variant))
            short = any(self._short(pods, mine) for pods in mine)
            known = self._excluded[key] = (len(self._gangs), short)
        return known[1]

    def _pods(self, workload: Workload, variant: Variant) -> Iterator[Pods]:
        frame, level = self._frame, -1
        if workload.required is not None:
            found = frame.snapshot.topology.find(workload.required)
            level = -1 if found is None else found
        for pod_set in workload.pod_sets:
            count = variant.counts[pod_set.name]
            if count:
                need, row = frame.need(pod_set), frame.row(pod_set.requests)
                yield Pods(need, row, count, frame.open_to(pod_set, variant.flavors[pod_set.name]), level)

    def _short(self, pods: Pods, mine: list[Pods]) -> bool:
        """Whether the slots for these pods cannot suffice, beside the gang's other pods and all that is settled."""
        slots = self._slots_of(pods)
        taken = _taken(pods, [other for _, other in self._settled])
        beside = _taken(pods, [other for other in mine if other is not pods])
        if np.any(slots.sum(axis=0) - taken.sum(axis=0) - beside.sum(axis=0) < pods.count):
            return True
        if pods.level < 0:
            return False
        by_gang = np.zeros((len(self._gangs), slots.shape[1]), dtype=np.int64)
        for (number, other), asked in zip(self._settled, taken, strict=True):
            if other.level >= pods.level:
                by_gang[number] += asked
        domain = self._frame.domains[pods.level]
        there = np.zeros((len(self._frame.domain_names[pods.level]), slots.shape[1]), dtype=np.int64)
        np.add.at(there, domain[domain >= 0], slots[domain >= 0])
        whole: Matrix = (there // pods.count).sum(axis=0) - (by_gang // pods.count).sum(axis=0)
        return bool(np.any(whole < 1))

    def _slots_of(self, pods: Pods) -> Matrix:
        """Slots by node, judged by each resource alone (N x the resources asked for)."""
        key = (id(pods.need), id(pods.open))
        if key not in self._slots:
            free = np.maximum(self.floor.free[:, pods.need.columns], 0)
            self._slots[key] = free // pods.need.amounts * pods.open[:, None]
        return self._slots[key]


def _taken(pods: Pods, others: Sequence[Pods]) -> Matrix:
    """How many of the slots for these pods each of the others takes at least (others x the resources asked for)."""
    taken = np.zeros((len(others), len(pods.need.columns)), dtype=np.int64)
    for at, other in enumerate(others):
        if other.open is pods.open or not np.any(other.open & ~pods.open):
            taken[at] = other.row[pods.need.columns] // pods.need.amounts * other.count
    return taken
