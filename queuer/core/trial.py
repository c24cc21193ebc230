"""What victims leave: as arrays for all that runs, and step by step for a set that is tried in one domain.

Victims come and go thousands of times in one search, so there slots and use are kept up in plain numbers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from queuer.core.ends import expected_end
from queuer.core.nodes import Mask, Matrix, Need, Numbers
from queuer.core.placement import Part
from queuer.core.score import SHARE
from queuer.core.slots import Room
from queuer.core.state import ANY, State

Floats = NDArray[np.float64]
ENDLESS = 2**31
"""More slots than there are."""


class Footprints:
    """What runs, by its place among the state's holds (H): `lost`, the work that its eviction loses, rounded; nodes and
    amounts as entries (E, E x R).
    """

    def __init__(self, state: State) -> None:
        self.holds = list(state.holds.values())
        rows = [state.rows_of(uid) for uid in state.holds]
        self.starts: Numbers = np.cumsum([0, *map(len, rows)], dtype=np.intp)
        self.nodes: Numbers = np.array([node for row in rows for node in row], dtype=np.intp)
        listed = [amounts for row in rows for amounts in row.values()]
        self.amounts: Matrix = np.array(listed, dtype=np.int64).reshape(-1, len(state.nodes.resources))
        admitted = [hold.admitted for hold in self.holds]
        self.priority = np.array([a.workload.priority for a in admitted], dtype=np.int64)
        self.since = np.array([a.since for a in admitted], dtype=np.float64)
        begun = np.maximum(self.since, [a.checkpoint or 0.0 for a in admitted])
        held = [[h.charge.get((None, r), 0) / n for h in self.holds] for r, n in state.capacity.items() if n]
        share = np.max(np.array(held).reshape(-1, len(rows)), axis=0, initial=0.0)
        self.lost: Floats = share * np.maximum(state.time - begun, 0.0) * SHARE

    def entries(self, numbers: Numbers) -> tuple[Numbers, Numbers]:
        """Entries of these, and whose each is."""
        first, counts = self.starts[numbers], self.starts[numbers + 1] - self.starts[numbers]
        whose = np.repeat(numbers, counts)
        return np.arange(len(whose)) + np.repeat(first - (np.cumsum(counts) - counts), counts), whose


class Clearing:
    """What a gang may use `then`, once some work has gone (N x R); the reservations of `bars` stay whole."""

    def __init__(self, state: State, footprints: Footprints, bars: tuple[str, ...]) -> None:
        self._state, self._footprints, self._bars = state, footprints, bars
        self.reserved = frozenset(node for uid in bars for node in state.reserved[uid].takes)
        self.room = Room(state.nodes, state.behind(bars, state.then.copy()))

    def free(self, gone: Numbers) -> Matrix:
        """With these gone."""
        entries, _ = self._footprints.entries(gone)
        free = self._state.then.copy()
        np.add.at(free, self._footprints.nodes[entries], self._footprints.amounts[entries])
        for uid in self._bars:
            self._keep_whole(uid, free, gone)
        return free

    def without(self, gone: Numbers) -> Room:
        """The room with these gone."""
        nodes = np.unique(self._footprints.nodes[self._footprints.entries(gone)[0]])
        return self.room.but(nodes, self.free(gone)[nodes])

    def _keep_whole(self, uid: str, free: Matrix, gone: Numbers) -> None:
        """Leave what is spare beside a reservation, and what those leave who would still be there at its start."""
        state, reserved = self._state, self._state.reserved[uid]
        spare = dict(reserved.spare)
        for hold in (self._footprints.holds[number] for number in gone.tolist()):
            rows = state.rows_of(hold.admitted.workload.uid)
            if spare.keys() & rows.keys() and expected_end(hold.admitted, now=state.time) > reserved.start:
                spare |= {node: spare[node] + rows[node] for node in spare.keys() & rows.keys()}
        for node, row in reserved.takes.items():
            np.minimum(free[node], np.where(row > 0, np.maximum(spare[node], 0), ANY), out=free[node])


@dataclass(frozen=True, slots=True, eq=False)
class Kind:
    """Pods that are alike, of one or several sets: how many, and the nodes that may take them (N)."""

    need: Need
    open: Mask
    count: int

    def slots(self, free: Matrix) -> Matrix:
        """On each node (N)."""
        return np.where(self.open, self.need.slots(free), 0)

    def holds(self, free: Mapping[int, int]) -> int:
        """Slots on a node that is open, with so much free by column."""
        need = self.need
        pairs = zip(need.columns.tolist(), need.amounts.tolist(), strict=True)
        fit = max(0, min([free[column] // amount for column, amount in pairs], default=ENDLESS))
        return min(fit, 1) if need.exclusive else fit


def kinds_of(parts: Sequence[Part], closed: Mask | None) -> list[Kind]:
    """The pods of a gang, those first of which there are most."""
    merged: dict[tuple[int, int], Kind] = {}
    for part in parts:
        open_ = part.accepting if closed is None else part.accepting & ~closed
        kind = merged.setdefault((id(part.need), id(part.accepting)), Kind(part.need, open_, 0))
        merged[id(part.need), id(part.accepting)] = replace(kind, count=kind.count + part.count)
    return sorted(merged.values(), key=lambda kind: -kind.count)


def tolls(kinds: Sequence[Kind], free: Matrix) -> Matrix:
    """By node the slots for the first kind that a pod of the last would take there, endless where it does not fit (N)."""
    first, last = kinds[0], kinds[-1]
    left = free.copy()
    left[:, last.need.columns] -= last.need.amounts
    return np.where(last.slots(free) > 0, first.slots(free) - first.slots(left), ENDLESS)
