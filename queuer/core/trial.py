"""What victims leave: as arrays for all that runs, and step by step for a set that is being tried in one domain.

Victims come and go thousands of times in one search, so slots and use are kept up in plain numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from queuer.core.ends import expected_end
from queuer.core.nodes import Mask, Matrix, Need, Numbers
from queuer.core.placement import Part
from queuer.core.state import ANY, State
from queuer.domain.quota import Charge
from queuer.domain.usage import Usage

Floats = NDArray[np.float64]
ENDLESS = 2**31
"""Slots of pods that ask for nothing."""


class Footprints:
    """What runs, by number in the order of the state's holds (H): its nodes and amounts as entries (E, E x R)."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.holds = list(state.holds.values())
        rows = [state.rows_of(uid) for uid in state.holds]
        counts = [len(row) for row in rows]
        self.starts: Numbers = np.cumsum([0, *counts], dtype=np.intp)
        self.nodes: Numbers = np.array([node for row in rows for node in row], dtype=np.intp)
        listed = [amounts for row in rows for amounts in row.values()]
        width = len(state.nodes.resources)
        self.amounts: Matrix = np.concatenate(listed or [np.zeros(0, dtype=np.int64)]).reshape(-1, width)
        self.since = np.array([h.admitted.since for h in self.holds])
        self.priority = np.array([h.admitted.workload.priority for h in self.holds], dtype=np.int64)
        self.lost = self._lost()

    def _lost(self) -> Floats:
        """The work that each eviction loses, rounded (H)."""
        begun = np.array([h.admitted.checkpoint or h.admitted.since for h in self.holds], dtype=np.float64)
        lasted = np.maximum(self.state.time - np.maximum(begun, self.since), 0.0)
        share = np.zeros(len(self.holds))
        for resource, live in self.state.capacity.items():
            if live:
                held = [hold.charge.get((None, resource), 0) for hold in self.holds]
                np.maximum(share, np.array(held, dtype=np.float64) / live, out=share)
        return np.asarray(share * lasted * 1e9)

    def entries(self, numbers: Numbers) -> tuple[Numbers, Numbers]:
        """Of these: positions in `numbers`, and entries."""
        first, counts = self.starts[numbers], self.starts[numbers + 1] - self.starts[numbers]
        at = np.repeat(np.arange(len(numbers)), counts)
        return at, np.arange(len(at)) + np.repeat(first - (np.cumsum(counts) - counts), counts)


class Clearing:
    """What a gang may use `then`, once some admitted work has gone: reservations of `bars` stay whole."""

    def __init__(self, state: State, footprints: Footprints, bars: tuple[str, ...]) -> None:
        self._state, self._footprints, self.bars = state, footprints, bars
        self.reserved = frozenset(node for uid in bars for node in state.reserved[uid].takes)

    def free(self, numbers: Numbers) -> Matrix:
        """With these gone (N x R)."""
        _, entries = self._footprints.entries(numbers)
        free = self._state.then.copy()
        np.add.at(free, self._footprints.nodes[entries], self._footprints.amounts[entries])
        for uid in self.bars:
            self._limit(free, uid, numbers)
        return free

    def _limit(self, free: Matrix, uid: str, numbers: Numbers) -> None:
        """Leave a reservation whole, to which those add who would still be there at its start."""
        state, reserved = self._state, self._state.reserved[uid]
        more = {node: np.zeros_like(row) for node, row in reserved.takes.items()}
        for number in numbers.tolist():
            hold = self._footprints.holds[number]
            rows = state.rows_of(hold.admitted.workload.uid)
            if (
                not more.keys().isdisjoint(rows)
                and expected_end(hold.admitted, now=state.time) > reserved.start
            ):
                for node in more.keys() & rows.keys():
                    more[node] = more[node] + rows[node]
        for node, row in reserved.takes.items():
            least = np.maximum(reserved.spare[node] + more[node], 0)
            np.minimum(free[node], np.where(row > 0, least, ANY), out=free[node])


@dataclass(frozen=True, slots=True, eq=False)
class Kind:
    """Pods that are alike, of one or several sets: how many, and the nodes that may take them (N)."""

    need: Need
    open: Mask
    count: int


def kinds_of(parts: Sequence[Part], closed: Mask | None) -> list[Kind]:
    """The pods of a gang by kind, the one with most pods first."""
    merged: dict[tuple[int, int], Kind] = {}
    for part in parts:
        key = (id(part.need), id(part.accepting))
        open_ = part.accepting if closed is None else part.accepting & ~closed
        before = merged[key].count if key in merged else 0
        merged[key] = Kind(part.need, open_, before + part.count)
    return sorted(merged.values(), key=lambda kind: -kind.count)


def slots_of(kind: Kind, free: Matrix) -> Matrix:
    """Slots for these pods on each node (N)."""
    return np.where(kind.open, kind.need.slots(free), 0)


class Trial:
    """Some victims gone, at first nobody, and whether the gang has room in a domain and quota then."""

    def __init__(
        self,
        clearing: Clearing,
        footprints: Footprints,
        kinds: Sequence[Kind],
        slots: Sequence[Matrix],
        line: Usage,
        later: Usage,
        asked: tuple[str, Charge],
    ) -> None: ...
