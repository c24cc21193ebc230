"""What victims leave: as arrays for all that runs, and step by step for a set that is tried in one domain.

Victims come and go thousands of times in one search, so there slots are kept up in plain numbers.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

from queuer.solver.cost import SHARE
from queuer.solver.nodes import Matrix, Numbers
from queuer.solver.placement import Part
from queuer.solver.state import State

Floats = NDArray[np.float64]


class Footprints:
    """What runs, by its place among the state's holds (H). `lost`: work that its eviction loses, rounded; nodes and
    amounts as entries (E, E x R).
    """

    def __init__(self, state: State) -> None:
        self.holds = list(state.holds.values())
        rows = [state.rows_of(uid) for uid in state.holds]
        self.starts: Numbers = np.cumsum([0, *map(len, rows)], dtype=np.intp)
        self.nodes: Numbers = np.array([node for row in rows for node in row], dtype=np.intp)
        listed = [np.zeros(0, dtype=np.int64), *(amounts for row in rows for amounts in row.values())]
        self.amounts: Matrix = np.concatenate(listed).reshape(-1, len(state.nodes.resources))
        admitted = [hold.admitted for hold in self.holds]
        self.priority = np.array([a.workload.priority for a in admitted], dtype=np.int64)
        self.since = np.array([a.since for a in admitted], dtype=np.float64)
        begun = np.maximum(self.since, [a.since if a.checkpoint is None else a.checkpoint for a in admitted])
        held = [[h.charge.get((None, r), 0) / n for h in self.holds] for r, n in state.capacity.items() if n]
        share: Floats = np.max(np.array(held).reshape(-1, len(rows)), axis=0, initial=0.0)
        self.lost: Floats = share * np.maximum(state.time - begun, 0.0) * SHARE

    def entries(self, numbers: Numbers) -> tuple[Numbers, Numbers]:
        """Entries of these, and whose each is."""
        first, counts = self.starts[numbers], self.starts[numbers + 1] - self.starts[numbers]
        whose = np.repeat(numbers, counts)
        return np.arange(len(whose)) + np.repeat(first - (np.cumsum(counts) - counts), counts), whose


class Trial:
    """Some victims gone, at first nobody, and how many slots a pod set lacks in one domain then."""

    def __init__(
        self, footprints: Footprints, part: Part, then: Matrix, most: Matrix | None, slots: Matrix
    ) -> None:
        """`then`: what is free at first; `most`: what may be used all the same, None = all (N x R); `slots`: there are
        at first (N).
        """
        self._footprints, self._part, self._then, self._most = footprints, part, then, most
        self._columns, self._amounts = part.need.columns.tolist(), part.need.amounts.tolist()
        self._at_first = slots
        self._rows = cache(self._find_rows)
        self._nodes: dict[int, list[int]] = {}
        self._slots: dict[int, int] = {}
        self._inside = frozenset[int]()
        self.lacking = 0
        self.gone: dict[int, None] = {}

    def enter(self, nodes: Numbers) -> None:
        """Look at this domain."""
        self._inside = frozenset(nodes[self._part.accepting[nodes]].tolist())
        self.lacking = self._part.count - int(self._at_first[nodes].sum())

    def move(self, number: int, times: int) -> None:
        """It goes; `times=-1`: it stays after all."""
        if times > 0:
            self.gone[number] = None
        else:
            del self.gone[number]
        for node, amounts in self._rows(number) if self._columns else ():
            if node in self._inside:
                before = self._nodes.get(node) or self._then[node, self._columns].tolist()
                free = self._nodes[node] = [n + times * more for n, more in zip(before, amounts, strict=True)]
                if self._most is not None:
                    free = list(map(min, free, self._most[node, self._columns].tolist()))
                slots = max(0, min([n // amount for n, amount in zip(free, self._amounts, strict=True)]))
                slots = min(slots, 1) if self._part.need.exclusive else slots
                self.lacking -= slots - self._slots.get(node, int(self._at_first[node]))
                self._slots[node] = slots

    def _find_rows(self, number: int) -> list[tuple[int, list[int]]]:
        prints, span = self._footprints, slice(*self._footprints.starts[number : number + 2].tolist())
        return list(
            zip(prints.nodes[span].tolist(), prints.amounts[span][:, self._columns].tolist(), strict=True)
        )
