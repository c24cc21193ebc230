"""How many pods of one set fit on each node and in each domain of what is free at one moment, counted once for alike
sets: the tables in which most questions for a place are answered with no.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from queuer.solver.frame import Frame, Mask, Matrix, Need

Counts = NDArray[np.float64]


class Slots:
    """Tables of free amounts (N x R) that do not change while they are asked about."""

    __slots__ = ("_by_domain", "_by_node", "_empty", "_frame", "free")

    def __init__(self, frame: Frame, free: Matrix) -> None:
        self.free = free
        self._frame = frame
        self._by_node: dict[tuple[int, int], tuple[Need, Mask, Matrix]] = {}
        self._by_domain: dict[tuple[int, int, int, int], Counts] = {}
        self._empty: dict[tuple[int, ...], Counts] = {}

    def by_node(self, need: Need, open_: Mask) -> Matrix:
        """On the nodes of a mask (N), not to be changed."""
        key = (id(need), id(open_))
        if key not in self._by_node:  # with the two, so that no other gets their number
            self._by_node[key] = (need, open_, np.where(open_, need.slots(self.free), 0))
        return self._by_node[key][2]

    def by_domain(self, need: Need, open_: Mask, level: int, inside: int) -> Counts:
        """In each domain of a level, on the nodes of the mask that carry the label of the level `inside`, too."""
        key = (id(need), id(open_), level, inside)
        if key not in self._by_domain:
            numbers = self._frame.domains[level]
            known = (numbers >= 0) & (self._frame.domains[inside] >= 0)
            slots, count = self.by_node(need, open_), len(self._frame.domain_names[level])
            there = np.bincount(numbers[known], weights=slots[known], minlength=count)
            self._by_domain[key] = there.astype(np.float64)
        return self._by_domain[key]

    def emptiness(self, columns: tuple[int, ...]) -> Counts:
        """Free part of each node in these resources, summed (N)."""
        if columns not in self._empty:
            at = list(columns)
            share = np.maximum(self.free[:, at], 0) / np.maximum(self._frame.alloc[:, at], 1)
            self._empty[columns] = share.sum(axis=1)
        return self._empty[columns]
