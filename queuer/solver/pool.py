"""Bounds that show without a search that one more gang has no place beside others, wherever these lie.

A node with f free holds at most floor(f / a) pods that ask for a, and each pod that asks for p leaves room for at
least floor(p / a) fewer, whatever the other sizes are. The same holds a level up: a domain with s slots holds at
most floor(s / k) gangs that need k slots in one domain.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from queuer.domain.workload import Workload
from queuer.solver.contested import Variant
from queuer.solver.floor import Floor
from queuer.solver.frame import Frame, Mask, Matrix, Need, Numbers


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


class SettledPods:
    """Pods of settled gangs as arrays (S) that grow. `gangs`: how many there are; `seen`: how many were looked at."""

    def __init__(self, frame: Frame) -> None:
        self.gangs = 0
        self.seen = 0
        self._frame = frame
        self._count = 0
        self._numbers = np.zeros((16, 4), dtype=np.int64)
        self._rows = np.zeros((16, len(frame.resources)), dtype=np.int64)
        self._masks: list[Mask] = []
        self._nested: dict[tuple[int, int, int], bool] = {}

    @property
    def of(self) -> Matrix:
        """Number of the gang (S)."""
        return self._numbers[: self._count, 0]

    def add(self, workload: Workload, variant: Variant) -> None:
        """One more gang."""
        for pods in pods_of(self._frame, workload, variant):
            if self._count == len(self._rows):
                grown = [np.concatenate([a, np.zeros_like(a)]) for a in (self._numbers, self._rows)]
                self._numbers, self._rows = grown
            mask = next((n for n, m in enumerate(self._masks) if m is pods.open), len(self._masks))
            if mask == len(self._masks):
                self._masks.append(pods.open)
            self._numbers[self._count] = (self.gangs, pods.level, pods.count, mask)
            self._rows[self._count] = pods.row
            self._count += 1
        self.gangs += 1

    def inside(self, level: int) -> Mask:
        """Which of the sets lie in one domain of this level wherever they lie (S)."""
        levels, masks = self._numbers[: self._count, 1], self._numbers[: self._count, 3]
        found: Mask = levels >= level
        for mask, narrow in {*zip(masks[found].tolist(), levels[found].tolist(), strict=True)}:
            key = (mask, narrow, level)
            if key not in self._nested:
                self._nested[key] = self._frame.nested(self._masks[mask], narrow, level)
            if not self._nested[key]:
                found &= (masks != mask) | (levels != narrow)
        return found

    def taken(self, pods: Pods) -> Matrix:
        """How many of the slots for these pods each set takes at least, by resource asked for (S x C)."""
        counts = self._numbers[: self._count, 2, None]
        taken: Matrix = self._rows[: self._count, pods.need.columns] // pods.need.amounts * counts
        for number, mask in enumerate(self._masks):
            if not _inside(mask, pods.open):
                taken[self._numbers[: self._count, 3] == number] = 0
        return taken


class Pool:
    """Nodes with the places of some settled gangs open. These gangs may only become more."""

    def __init__(self, frame: Frame, floor: Floor, settled: SettledPods) -> None:
        """`floor`: the open places included."""
        self.floor = floor
        self._frame = frame
        self._settled = settled
        self._excluded: dict[object, tuple[int, bool]] = {}

    def but(self, nodes: Numbers, more: Matrix) -> Pool:
        """The same with more free on some nodes (K x R). It is to be used before anything here changes."""
        floor = self.floor.but(nodes, self.floor.free[nodes] + more)
        return Pool(self._frame, floor, self._settled)

    def emptied(self) -> Emptied:
        """One of its own for what is free here and more."""
        return Emptied(Pool(self._frame, self.floor.copy(), self._settled))

    def renew(self, nodes: Numbers, free: Matrix) -> None:
        """This much is free on some nodes now (K x R)."""
        more = self.floor.renew(nodes, free)
        self._excluded = {} if more else {k: known for k, known in self._excluded.items() if known[1]}

    def excludes(self, key: object, workload: Workload, variant: Variant) -> bool:
        """Whether all these and one more such gang have no place together. `key`: equal for gangs that placement cannot
        tell apart.
        """
        known = self._excluded.get(key)
        if known is None or (not known[1] and known[0] < self._settled.gangs):
            mine = list(pods_of(self._frame, workload, variant))
            short = any(self._short(pods, mine) for pods in mine)
            known = self._excluded[key] = (self._settled.gangs, short)
        return known[1]

    def _short(self, pods: Pods, mine: list[Pods]) -> bool:
        """Whether the slots for these pods cannot suffice, beside the gang's other pods and all that is settled."""
        slots, taken = self.floor.slots.alone(pods.need, pods.open), self._settled.taken(pods)
        together = taken.sum(axis=0)
        left = slots.total - together
        for other in mine:
            if other is not pods and _inside(other.open, pods.open):
                left -= other.row[pods.need.columns] // pods.need.amounts * other.count
        if np.any(left < pods.count):
            return True
        if pods.level < 0:
            return False
        whole = slots.whole(pods.level, pods.count)
        if np.all(whole > together // pods.count):  # one by one they take no more than that
            return False
        by_gang = np.zeros((self._settled.gangs, taken.shape[1]), dtype=np.int64)
        inside = self._settled.inside(pods.level)
        np.add.at(by_gang, self._settled.of[inside], taken[inside])
        return bool(np.any(whole <= (by_gang // pods.count).sum(axis=0)))


@dataclass(slots=True, eq=False)
class Emptied:
    """A pool with more free than another. `gone`: who left that, equal for the same; None = the other has changed."""

    pool: Pool
    gone: object = None

    def renew(self, base: Pool, nodes: Numbers, more: Matrix) -> None:
        """There is more free than in this pool on some nodes now (K x R)."""
        free = base.floor.free.copy()
        free[nodes] += more
        self.pool.renew(np.arange(len(free)), free)


def pods_of(frame: Frame, workload: Workload, variant: Variant) -> Iterator[Pods]:
    """The pods of a gang, by set."""
    found = None if workload.required is None else frame.snapshot.topology.find(workload.required)
    level = -1 if found is None else found
    for pod_set in workload.pod_sets:
        count = variant.counts[pod_set.name]
        if count:
            need, row = frame.need(pod_set), frame.row(pod_set.requests)
            yield Pods(need, row, count, frame.open_to(pod_set, variant.flavors[pod_set.name]), level)


def _inside(inner: Mask, outer: Mask) -> bool:
    return inner is outer or not np.any(inner & ~outer)
