"""What victims leave: as arrays for all that runs, and step by step for a set that is tried in one domain.

Victims come and go thousands of times in one search, so there slots are kept up in plain numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from math import ceil

import numpy as np
from numpy.typing import NDArray

from queuer.core.nodes import Mask, Matrix, Numbers
from queuer.core.placement import Part
from queuer.core.score import SHARE
from queuer.core.state import State

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


def kinds_of(parts: Sequence[Part], closed: Mask | None) -> list[Part]:
    """The pods of a gang by kind, on the nodes left to them: who fits into the slot of a larger pod counts as that."""
    kinds: dict[int, list[Part]] = {}
    for part in sorted(parts, key=lambda part: tuple(-part.row)):
        alike = kinds.setdefault(id(part.accepting), [])
        for at, larger in enumerate(alike):
            if part.need is larger.need and (fit := 1):
                alike[at] = replace(larger, count=larger.count + ceil(part.count / fit))
                break
        else:
            alike.append(part)
    found = [kind for alike in kinds.values() for kind in alike]
    return found if closed is None else [replace(kind, accepting=kind.accepting & ~closed) for kind in found]


def slots_of(kind: Part, free: Matrix) -> Matrix:
    """On each node (N)."""
    return np.where(kind.accepting, kind.need.slots(free), 0)


class Trial:
    """Some victims gone, at first nobody, and how many slots a gang lacks in one domain then, by kind of pod."""

    def __init__(
        self, footprints: Footprints, kinds: Sequence[Part], then: Matrix, most: Matrix | None
    ) -> None:
        """`then`: what is free at first; `most`: what may be used all the same, None = all (N x R)."""
        self._footprints, self._kinds, self._then, self._most = footprints, kinds, then, most
        columns = self._columns = sorted({c for kind in kinds for c in kind.need.columns.tolist()})
        needs = [zip(k.need.columns.tolist(), k.need.amounts.tolist(), strict=True) for k in kinds]
        self._asks = [[(columns.index(column), amount) for column, amount in need] for need in needs]
        usable = then if most is None else np.minimum(then, most)
        self._at_first = [slots_of(kind, usable) for kind in kinds]
        self._rows = cache(self._find_rows)
        self._nodes: dict[int, tuple[list[int], list[int], list[int] | None]] = {}
        self._inside = frozenset[int]()
        self.lacking: list[int] = []
        self.gone: dict[int, None] = {}

    def enter(self, nodes: Numbers) -> None:
        """Look at this domain."""
        self._inside = frozenset(nodes.tolist())
        there = [int(slots[nodes].sum()) for slots in self._at_first]
        self.lacking = [kind.count - slots for kind, slots in zip(self._kinds, there, strict=True)]

    def move(self, number: int, times: int) -> None:
        """It goes; `times=-1`: it stays after all."""
        if times > 0:
            self.gone[number] = None
        else:
            del self.gone[number]
        for node, amounts in self._rows(number):
            if node in self._inside:
                free, slots, most = self._nodes.get(node) or self._first(node)
                free[:] = [n + times * more for n, more in zip(free, amounts, strict=True)]
                usable = free if most is None else list(map(min, free, most))
                for at, (kind, asks) in enumerate(zip(self._kinds, self._asks, strict=True)):
                    if slots[at] >= 0:
                        fit = max(0, min([usable[column] // amount for column, amount in asks]))
                        fit = min(fit, 1) if kind.need.exclusive else fit
                        self.lacking[at] -= fit - slots[at]
                        slots[at] = fit

    def _first(self, node: int) -> tuple[list[int], list[int], list[int] | None]:
        """What is free there at first; slots by kind, -1 where no victim changes them; what may be used."""
        counts = zip(self._kinds, self._at_first, strict=True)
        slots = [
            int(s[node]) if kind.accepting[node] and len(kind.need.columns) else -1 for kind, s in counts
        ]
        most = None if self._most is None else self._most[node, self._columns].tolist()
        self._nodes[node] = (self._then[node, self._columns].tolist(), slots, most)
        return self._nodes[node]

    def _find_rows(self, number: int) -> list[tuple[int, list[int]]]:
        prints, span = self._footprints, slice(*self._footprints.starts[number : number + 2].tolist())
        return list(
            zip(prints.nodes[span].tolist(), prints.amounts[span][:, self._columns].tolist(), strict=True)
        )
