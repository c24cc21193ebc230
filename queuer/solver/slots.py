"""How many pods of one set fit on each node and in each domain of what is free at one moment, counted once for alike
sets: the tables in which most questions for a place are answered with no. They follow where a node changes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from copy import copy
from functools import partial
from typing import Self

import numpy as np
from numpy.typing import NDArray

from queuer.solver.frame import ALL, Frame, Mask, Matrix, Need, NodeRows, Numbers
from queuer.solver.journal import Followed, Journal

Counts = NDArray[np.float64]

TABLES = 24
"""Tables of each sort that are kept."""


class _Table(ABC):
    """What is worked out of free amounts (N x R) and follows them."""

    __slots__ = ("_frame", "_free")

    def __init__(self, frame: Frame, free: Matrix) -> None:
        self._frame, self._free = frame, free

    @abstractmethod
    def renew(self, nodes: Numbers) -> None:
        """These nodes have changed."""

    def on(self, free: Matrix, differs: Numbers) -> Self:
        """The same table of other amounts (N x R) that differ on these nodes."""
        twin = copy(self)
        twin._free = free
        twin._part()
        twin.renew(differs)
        return twin

    @abstractmethod
    def _part(self) -> None:
        """Let this copy have arrays of its own."""


class Counted(_Table):
    """Slots for one kind of pod on the nodes that accept it: `by_node` (N), in all, by domain."""

    __slots__ = ("_accepting", "_need", "_sums", "by_node", "total")

    def __init__(self, frame: Frame, free: Matrix, need: Need, accepting: Mask) -> None:
        super().__init__(frame, free)
        self._need, self._accepting = need, accepting
        self._sums: dict[tuple[int, int], Counts] = {}
        self.by_node = self._count(ALL)
        self.total = int(self.by_node.sum())

    def _count(self, nodes: NodeRows) -> Matrix:
        return np.where(self._accepting[nodes], self._need.slots(self._free[nodes]), 0)

    def by_domain(self, level: int, inside: int) -> Counts:
        """In each domain of a level, on nodes that carry the label of the level `inside`, too; not to be changed."""
        key = (level, inside)
        if key not in self._sums:
            numbers = self._frame.domains[level]
            known = (numbers >= 0) & (self._frame.domains[inside] >= 0)
            count = len(self._frame.domain_names[level])
            there = np.bincount(numbers[known], weights=self.by_node[known], minlength=count)
            self._sums[key] = there.astype(np.float64)
        return self._sums[key]

    def renew(self, nodes: Numbers) -> None:
        """These nodes have changed."""
        now = self._count(nodes)
        more = now - self.by_node[nodes]
        moved = more != 0
        if not moved.any():
            return
        nodes, more = nodes[moved], more[moved]
        self.by_node[nodes] = now[moved]
        self.total += int(more.sum())
        for (level, inside), there in self._sums.items():
            numbers = self._frame.domains[level][nodes]
            known = (numbers >= 0) & (self._frame.domains[inside][nodes] >= 0)
            np.add.at(there, numbers[known], more[known])

    def _part(self) -> None:
        self._sums = {key: there.copy() for key, there in self._sums.items()}
        self.by_node = self.by_node.copy()


class Alone(_Table):
    """Slots for one kind of pod on the nodes that accept it, by each of the C resources that it asks for alone: `total`
    (C), by domain.
    """

    __slots__ = ("_accepting", "_by_node", "_need", "_sums", "_whole", "total")

    def __init__(self, frame: Frame, free: Matrix, need: Need, accepting: Mask) -> None:
        super().__init__(frame, free)
        self._need, self._accepting = need, accepting
        self._sums: dict[int, Matrix] = {}
        self._whole: dict[tuple[int, int], Matrix] = {}
        self._by_node = self._count(ALL)
        self.total: Matrix = self._by_node.sum(axis=0)

    def _count(self, nodes: NodeRows) -> Matrix:
        free = np.maximum(self._free[nodes][:, self._need.columns], 0)
        alone: Matrix = free // self._need.amounts * self._accepting[nodes, None]
        return alone

    def whole(self, level: int, count: int) -> Matrix:
        """How often there are so many slots in one domain of a level (C); not to be changed."""
        if (level, count) not in self._whole:
            self._whole[level, count] = (self._by_domain(level) // count).sum(axis=0)
        return self._whole[level, count]

    def _by_domain(self, level: int) -> Matrix:
        """D x C."""
        if level not in self._sums:
            numbers = self._frame.domains[level]
            there = np.zeros((len(self._frame.domain_names[level]), self._by_node.shape[1]), dtype=np.int64)
            known = np.flatnonzero(numbers >= 0)
            for column in range(there.shape[1]):
                np.add.at(there[:, column], numbers[known], self._by_node[known, column])
            self._sums[level] = there
        return self._sums[level]

    def renew(self, nodes: Numbers) -> None:
        """These nodes have changed."""
        now = self._count(nodes)
        more = now - self._by_node[nodes]
        self._by_node[nodes] = now
        self._whole.clear()
        self.total += more.sum(axis=0)
        for level, there in self._sums.items():
            numbers = self._frame.domains[level][nodes]
            np.add.at(there, numbers[numbers >= 0], more[numbers >= 0])

    def _part(self) -> None:
        self._sums = {level: there.copy() for level, there in self._sums.items()}
        self._whole = {}
        self._by_node, self.total = self._by_node.copy(), self.total.copy()


class Emptiness(_Table):
    """Free part of the nodes in some resources, summed: `by_node` (N), by domain."""

    __slots__ = ("_columns", "_sums", "by_node")

    def __init__(self, frame: Frame, free: Matrix, columns: tuple[int, ...]) -> None:
        super().__init__(frame, free)
        self._columns = columns
        self._sums: dict[int, Counts] = {}
        self.by_node = self._sum(ALL)

    def _sum(self, nodes: NodeRows) -> Counts:
        free, alloc = self._free[nodes], self._frame.alloc[nodes]
        total = np.zeros(len(free))
        for column in self._columns:
            total += np.maximum(free[:, column], 0) / np.maximum(alloc[:, column], 1)
        return total

    def by_domain(self, level: int) -> Counts:
        """In each domain of a level; not to be changed."""
        if level not in self._sums:
            numbers, count = self._frame.domains[level], len(self._frame.domain_names[level])
            known = numbers >= 0
            there = np.bincount(numbers[known], weights=self.by_node[known], minlength=count)
            self._sums[level] = there.astype(np.float64)
        return self._sums[level]

    def _part(self) -> None:
        self._sums = {level: there.copy() for level, there in self._sums.items()}
        self.by_node = self.by_node.copy()

    def renew(self, nodes: Numbers) -> None:
        """These nodes have changed. Domains are summed anew, as differences would round otherwise."""
        self.by_node[nodes] = self._sum(nodes)
        for level, there in self._sums.items():
            for domain in np.unique(self._frame.domains[level][nodes]).tolist():
                if domain >= 0:
                    inside = self.by_node[self._frame.members(level, domain)]
                    there[domain] = np.bincount(np.zeros(len(inside), dtype=np.intp), weights=inside)[0]


class Slots:
    """Tables of free amounts (N x R). Who changes these says where, see `renew`."""

    __slots__ = ("_alone", "_base", "_counted", "_differs", "_empty", "_frame", "_journal", "free")

    def __init__(
        self, frame: Frame, free: Matrix, *, base: Slots | None = None, differs: Numbers | None = None
    ) -> None:
        """`base`: of amounts that are the same but on the nodes `differs`; asked only before it changes."""
        self.free = free
        self._frame = frame
        self._base, self._differs = base, differs
        self._journal = Journal()
        self._counted: Followed[Counted] = Followed(self._journal, most=TABLES)
        self._alone: Followed[Alone] = Followed(self._journal, most=TABLES)
        self._empty: Followed[Emptiness] = Followed(self._journal, most=TABLES)

    def renew(self, *nodes: int) -> None:
        """These nodes have changed."""
        self._journal.touch(nodes)

    def but(self, nodes: Numbers, free: Matrix) -> Slots:
        """The same with this much free on some nodes (K x R). It is to be used before anything here changes."""
        changed = self.free.copy()
        changed[nodes] = free
        return Slots(self._frame, changed, base=self, differs=nodes)

    def by_node(self, need: Need, accepting: Mask, closed: Mask | None) -> Matrix:
        """Slots for such pods on the nodes that accept them and are not closed (N); not to be changed."""
        there = self.counted(need, accepting).by_node
        return there if closed is None else np.where(closed, 0, there)

    def total(self, need: Need, accepting: Mask, closed: Mask | None) -> int:
        """The same on all nodes together."""
        counted = self.counted(need, accepting)
        return counted.total if closed is None else counted.total - int(counted.by_node[closed].sum())

    def by_domain(self, need: Need, accepting: Mask, closed: Mask | None, level: int, inside: int) -> Counts:
        """The same in each domain of a level, on nodes that carry the label of the level `inside`, too."""
        counted = self.counted(need, accepting)
        there = counted.by_domain(level, inside)
        if closed is None:
            return there
        numbers = self._frame.domains[level]
        shut = np.flatnonzero(closed & (numbers >= 0) & (self._frame.domains[inside] >= 0))
        return there - np.bincount(numbers[shut], weights=counted.by_node[shut], minlength=len(there))

    def counted(self, need: Need, accepting: Mask) -> Counted:
        """Slots for such pods on all nodes that accept them."""
        key = (id(need), id(accepting))  # the table keeps the two, so that no other gets their number
        return self._counted.of(key, partial(self._count, need, accepting), Counted.renew)

    def _count(self, need: Need, accepting: Mask) -> Counted:
        if self._base is None or self._differs is None:
            return Counted(self._frame, self.free, need, accepting)
        return self._base.counted(need, accepting).on(self.free, self._differs)

    def alone(self, need: Need, accepting: Mask) -> Alone:
        """Slots for such pods by each resource alone on the nodes that accept them."""
        key = (id(need), id(accepting))
        return self._alone.of(key, partial(self._weigh, need, accepting), Alone.renew)

    def _weigh(self, need: Need, accepting: Mask) -> Alone:
        if self._base is None or self._differs is None:
            return Alone(self._frame, self.free, need, accepting)
        return self._base.alone(need, accepting).on(self.free, self._differs)

    def emptiness(self, columns: tuple[int, ...]) -> Emptiness:
        """The free part of the nodes in these resources."""
        return self._empty.of(columns, partial(self._sum, columns), Emptiness.renew)

    def _sum(self, columns: tuple[int, ...]) -> Emptiness:
        if self._base is None or self._differs is None:
            return Emptiness(self._frame, self.free, columns)
        return self._base.emptiness(columns).on(self.free, self._differs)
