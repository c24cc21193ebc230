"""How many pods of one kind fit on each node and in each domain of what is free, and how well they fit there.

The tables follow where a node changes, so that a question costs a look instead of a count of the whole cluster.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import Self

import numpy as np
from numpy.typing import NDArray

from queuer.solver.nodes import ALL, Mask, Matrix, Need, NodeRows, Nodes, Numbers

Counts = NDArray[np.float64]
FEW = 4
"""Changed nodes up to which plain numbers are faster than arrays."""
FOREIGN = 64.0
"""A free resource that the pods do not ask for weighs more than any looseness."""


class View(Enum):
    """A moment at which a gang may take what is free."""

    NOW = "now"  # it starts
    LANDED = "landed"  # it would start, once all pods have landed
    UNHELD = "unheld"  # it would start then, were nothing held for others
    LATER = "later"  # it is bound: the victims have gone


class SlotTable:
    """Slots for one kind of pod on the nodes that accept it: `by_node` (N), `total`, by domain; best fit first."""

    __slots__ = ("_accepting", "_asked", "_fit", "_need", "_nodes", "_sums", "by_node", "seen", "total")

    def __init__(self, nodes: Nodes, free: Matrix, need: Need, accepting: Mask) -> None:
        self._nodes, self._need, self._accepting = nodes, need, accepting
        self._asked: list[tuple[int, int]] = list(
            zip(need.columns.tolist(), need.amounts.tolist(), strict=True)
        )
        self._sums: dict[tuple[int, int], Counts] = {}
        self._fit: Counts | None = None
        self.by_node = self._count(free, ALL)
        self.total = int(self.by_node.sum())
        self.seen = 0

    def _count(self, free: Matrix, nodes: NodeRows) -> Matrix:
        return np.where(self._accepting[nodes], self._need.slots(free[nodes]), 0)

    def by_domain(self, level: int, inside: int) -> Counts:
        """In each domain of a level, on nodes that carry the label of the level `inside`, too; not to be changed."""
        key = (level, inside)
        if key not in self._sums:
            numbers = self._nodes.domains[level]
            known = (numbers >= 0) & (self._nodes.domains[inside] >= 0)
            count = len(self._nodes.domain_names[level])
            there = np.bincount(numbers[known], weights=self.by_node[known], minlength=count)
            self._sums[key] = there.astype(np.float64)
        return self._sums[key]

    def fit(self, free: Matrix) -> Counts:
        """How badly a pod fits each node, see `_looseness` (N); not to be changed."""
        if self._fit is None:
            self._fit = self._looseness(free, ALL)
        return self._fit

    def _looseness(self, free: Matrix, nodes: NodeRows) -> Counts:
        """The parts of a node that stay free; for each, the part that the pod takes of its scarcest resource. Free
        resources that the pod does not ask for count before all that.

        So the fullest node is taken. A node where the pod uses up resources evenly comes before one where it
        would leave, say, GPUs without CPU, which nobody can use.
        """
        columns, rows = self._need.columns, free[nodes]
        asked = rows[:, columns]
        foreign = (rows > 0).sum(axis=1) - (asked > 0).sum(axis=1)
        whole = np.maximum(self._nodes.alloc[nodes][:, columns], 1)
        before, after = asked / whole, (asked - self._need.amounts) / whole
        least = before.min(axis=1, initial=1.0) - after.min(axis=1, initial=1.0)
        loose: Counts = FOREIGN * foreign + after.sum(axis=1) + len(columns) * least
        return loose

    def renew(self, free: Matrix, nodes: Numbers) -> None:
        """These nodes have changed."""
        if len(nodes) <= FEW:
            for node in nodes.tolist():
                self._renew_one(free, node)
            return
        if self._fit is not None:
            self._fit[nodes] = self._looseness(free, nodes)
        now = self._count(free, nodes)
        more = now - self.by_node[nodes]
        if not more.any():
            return
        self.by_node[nodes] = now
        self.total += int(more.sum())
        for (level, inside), there in self._sums.items():
            numbers = self._nodes.domains[level][nodes]
            known = (numbers >= 0) & (self._nodes.domains[inside][nodes] >= 0)
            np.add.at(there, numbers[known], more[known])

    def _renew_one(self, free: Matrix, node: int) -> None:
        """The same for one node, in plain numbers: most changes are of one."""
        row, alloc = free[node].tolist(), self._nodes.alloc[node].tolist()
        if self._fit is not None:
            foreign, loose, before, after = 0, 0.0, 1.0, 1.0
            for amount in row:
                foreign += amount > 0
            for column, asks in self._asked:
                there, whole = row[column], max(alloc[column], 1)
                foreign -= there > 0
                before, after = min(before, there / whole), min(after, (there - asks) / whole)
                loose += (there - asks) / whole
            self._fit[node] = FOREIGN * foreign + loose + len(self._asked) * (before - after)
        now = 0
        if self._accepting[node]:
            now = min((max(row[column], 0) // asks for column, asks in self._asked), default=2**31)
            now = min(now, 1) if self._need.exclusive else now
        more = now - int(self.by_node[node])
        if not more:
            return
        self.by_node[node] = now
        self.total += more
        for (level, inside), sums in self._sums.items():
            domain = self._nodes.domains[level][node]
            if domain >= 0 and self._nodes.domains[inside][node] >= 0:
                sums[domain] += more

    def copy(self) -> Self:
        """One of its own."""
        twin = object.__new__(type(self))
        twin._nodes, twin._need, twin._accepting = self._nodes, self._need, self._accepting
        twin._asked = self._asked
        twin._sums = {key: there.copy() for key, there in self._sums.items()}
        twin._fit = None if self._fit is None else self._fit.copy()
        twin.by_node, twin.total, twin.seen = self.by_node.copy(), self.total, 0
        return twin


class Room:
    """Free amounts (N x R) at one moment, with tables of slots. A caller that changes `free` calls `touch`."""

    __slots__ = ("_base", "_changed", "_differs", "_tables", "free", "nodes", "told")

    def __init__(self, nodes: Nodes, free: Matrix) -> None:
        self.nodes, self.free = nodes, free
        self.told = 0  # changes of its owner that it knows of
        self._base: Room | None = None
        self._differs: Numbers | None = None
        self._changed: list[int] = []
        # With each table the need and the mask that it counts for, so that no others get their identity.
        self._tables: dict[tuple[int, int], tuple[SlotTable, Need, Mask]] = {}

    def touch(self, nodes: Iterable[int]) -> None:
        """These nodes have changed."""
        self._changed.extend(nodes)

    def table(self, need: Need, accepting: Mask) -> SlotTable:
        """Slots for such pods on the nodes that accept them, as things are."""
        key = (id(need), id(accepting))
        known = self._tables.get(key)
        if known is None:
            table = self._new_table(need, accepting)
            self._tables[key] = (table, need, accepting)
            table.seen = len(self._changed)
            return table
        table = known[0]
        if table.seen < len(self._changed):
            table.renew(self.free, np.array(sorted(set(self._changed[table.seen :])), dtype=np.intp))
            table.seen = len(self._changed)
        return table

    def _new_table(self, need: Need, accepting: Mask) -> SlotTable:
        if self._base is None or self._differs is None:
            return SlotTable(self.nodes, self.free, need, accepting)
        table = self._base.table(need, accepting).copy()
        table.renew(self.free, self._differs)
        return table

    def but(self, nodes: Numbers, free: Matrix) -> Room:
        """Another with this much free on some nodes (K x R). It is to be used before anything here changes."""
        twin = Room(self.nodes, self.free.copy())
        twin.free[nodes] = free
        twin._base, twin._differs = self, nodes
        return twin

    def on(self, nodes: Nodes) -> Room:
        """The same on later arrays of nodes that are free alike and take the same pods."""
        twin = Room(nodes, self.free)
        twin._tables, twin._changed = self._tables, self._changed
        for table, _, _ in twin._tables.values():
            table._nodes = nodes  # else they would keep all that came before alive
        return twin
