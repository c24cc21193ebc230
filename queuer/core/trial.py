"""What victims leave: as arrays for all that runs, and step by step for a set that is being tried in one domain.

Victims come and go thousands of times in one search, so slots and use are kept up in plain numbers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence, Set
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from queuer.core.ends import expected_end
from queuer.core.nodes import Mask, Matrix, Need, Numbers
from queuer.core.placement import Part
from queuer.core.slots import Room
from queuer.core.state import ANY, State
from queuer.domain.quota import Account
from queuer.domain.usage import Entry, Usage

Floats = NDArray[np.float64]
NOBODY: Numbers = np.zeros(0, dtype=np.intp)
ENDLESS = 2**31
"""Slots of pods that ask for nothing."""


class Footprints:
    """What runs, by number in the order of the state's holds (H): nodes and amounts as entries (E, E x R)."""

    def __init__(self, state: State) -> None:
        self.holds = list(state.holds.values())
        rows = [state.rows_of(uid) for uid in state.holds]
        self.starts: Numbers = np.cumsum([0, *map(len, rows)], dtype=np.intp)
        self.nodes: Numbers = np.array([node for row in rows for node in row], dtype=np.intp)
        listed = [amounts for row in rows for amounts in row.values()]
        width = len(state.nodes.resources)
        self.amounts: Matrix = np.concatenate(listed or [np.zeros(0, dtype=np.int64)]).reshape(-1, width)
        self.since = np.array([h.admitted.since for h in self.holds], dtype=np.float64)
        self.priority = np.array([h.admitted.workload.priority for h in self.holds], dtype=np.int64)
        self.lost = self._lost(state)

    def _lost(self, state: State) -> Floats:
        """The work that each eviction loses, rounded (H)."""
        begun = np.array([h.admitted.checkpoint or h.admitted.since for h in self.holds], dtype=np.float64)
        lasted = np.maximum(state.time - np.maximum(begun, self.since), 0.0)
        share = np.zeros(len(self.holds))
        for resource, live in state.capacity.items():
            if live:
                held = [hold.charge.get((None, resource), 0) for hold in self.holds]
                np.maximum(share, np.array(held, dtype=np.float64) / live, out=share)
        return np.asarray(share * lasted * 1e9, dtype=np.float64)

    def entries(self, numbers: Numbers) -> tuple[Numbers, Numbers]:
        """Entries of these, and for each its position in `numbers`."""
        first, counts = self.starts[numbers], self.starts[numbers + 1] - self.starts[numbers]
        at = np.repeat(np.arange(len(numbers)), counts)
        return np.arange(len(at)) + np.repeat(first - (np.cumsum(counts) - counts), counts), at


class Clearing:
    """What a gang may use `then`, once some admitted work has gone; the reservations of `bars` stay whole."""

    def __init__(self, state: State, footprints: Footprints, bars: tuple[str, ...]) -> None:
        self._state, self._footprints, self._bars = state, footprints, bars
        self.reserved = frozenset(node for uid in bars for node in state.reserved[uid].takes)
        self._room = Room(state.nodes, state.behind(bars, state.then.copy()))

    def free(self, numbers: Numbers) -> Matrix:
        """With these gone (N x R)."""
        entries, _ = self._footprints.entries(numbers)
        free = self._state.then.copy()
        np.add.at(free, self._footprints.nodes[entries], self._footprints.amounts[entries])
        for uid in self._bars:
            self._keep_whole(uid, free, numbers.tolist())
        return free

    def room(self, numbers: Numbers) -> Room:
        """The same with tables of slots."""
        if not len(numbers):
            return self._room
        entries, _ = self._footprints.entries(numbers)
        nodes = np.unique(self._footprints.nodes[entries])
        return self._room.but(nodes, self.free(numbers)[nodes])

    def _keep_whole(self, uid: str, free: Matrix, gone: Sequence[int]) -> None:
        """What is left beside a reservation, to which those add who would still be there at its start."""
        state, reserved = self._state, self._state.reserved[uid]
        spare = dict(reserved.spare)
        for hold in map(self._footprints.holds.__getitem__, gone):
            rows = state.rows_of(hold.admitted.workload.uid)
            if (
                not spare.keys().isdisjoint(rows)
                and expected_end(hold.admitted, now=state.time) > reserved.start
            ):
                for node in spare.keys() & rows.keys():
                    spare[node] = spare[node] + rows[node]
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


def kinds_of(parts: Sequence[Part], closed: Mask | None) -> list[Kind]:
    """The pods of a gang, those first of which there are most."""
    merged: dict[tuple[int, int], Kind] = {}
    for part in parts:
        key = (id(part.need), id(part.accepting))
        there = part.accepting if closed is None else part.accepting & ~closed
        before = merged[key].count if key in merged else 0
        merged[key] = Kind(part.need, there, before + part.count)
    return sorted(merged.values(), key=lambda kind: -kind.count)


def tolls(kinds: Sequence[Kind], free: Matrix) -> Matrix:
    """By node the slots for the first kind that a pod of the last would take there; endless where it does not fit (N)."""
    first, last = kinds[0], kinds[-1]
    left = free.copy()
    left[:, last.need.columns] -= last.need.amounts
    return np.where(last.slots(free) > 0, first.slots(free) - first.slots(left), ENDLESS)


class Trial:
    """Some victims gone, at first nobody: what the pods of a gang still lack in one domain, and what is used then.

    `gone`: victims by number. `lacking`: missing slots by kind, 0 or less = enough.
    """

    def __init__(
        self,
        state: State,
        clearing: Clearing,
        footprints: Footprints,
        kinds: Sequence[Kind],
        usages: Sequence[Usage],
        accounts: Set[Account],
    ) -> None:
        """`usages`: to be kept up, in these accounts."""
        self._then, self._clearing, self._footprints = state.then, clearing, footprints
        self._columns = sorted({column for kind in kinds for column in kind.need.columns.tolist()})
        self._kinds = kinds
        self._pairs = [
            [
                (self._columns.index(c), n)
                for c, n in zip(k.need.columns.tolist(), k.need.amounts.tolist(), strict=True)
            ]
            for k in kinds
        ]
        free = clearing.room(NOBODY).free
        self._at_first = [kind.slots(free) for kind in kinds]
        if len(kinds) > 1:
            self._at_first.append(tolls(kinds, free))
        self._rows: dict[int, list[tuple[int, list[int]]]] = {}
        self._free: dict[int, list[int]] = {}
        self._known: dict[int, list[int]] = {}
        self._tolls = Counter[int]()
        self._entries: dict[int, Entry] = {}
        self._usages, self._accounts = usages, frozenset(accounts)
        self._inside: frozenset[int] = frozenset()
        self.gone: dict[int, None] = {}
        self.lacking: list[int] = []
        self.steps = 0

    def enter(self, nodes: Numbers) -> None:
        """Look at this domain."""
        self._inside = frozenset(nodes.tolist())
        self.lacking = [
            kind.count - int(slots[nodes].sum())
            for kind, slots in zip(self._kinds, self._at_first, strict=False)
        ]
        if len(self._kinds) > 1:
            self._tolls = Counter(self._at_first[-1][nodes].tolist())

    def remove(self, number: int) -> None:
        """It goes."""
        self.gone[number] = None
        self._move(number, 1)

    def put_back(self, number: int) -> None:
        """It stays after all."""
        del self.gone[number]
        self._move(number, -1)

    @property
    def has_room(self) -> bool:
        """Whether there are slots enough for the pods of each kind alone, and beside one pod of the last."""
        if any(lacking > 0 for lacking in self.lacking):
            return False
        return len(self.lacking) == 1 or self.lacking[0] + min(t for t, n in self._tolls.items() if n) <= 0

    def _move(self, number: int, times: int) -> None:
        self.steps += 1
        for node, amounts in self._rows.get(number) or self._rows_of(number):
            if node in self._inside:
                before = self._free.get(node) or self._open(node)
                free = [n + times * more for n, more in zip(before, amounts, strict=True)]
                self._free[node] = free
                self._recount(node, free)
        if self._usages:
            entry = self._entries.get(number) or self._entry(number)
            for usage in self._usages:
                usage.enter(entry, times=-times)

    def _recount(self, node: int, free: list[int]) -> None:
        if node in self._clearing.reserved:
            gone = np.array(list(self.gone), dtype=np.intp)
            free = self._clearing.free(gone)[node, self._columns].tolist()
        known = self._known[node]
        for at, kind in enumerate(self._kinds):
            if kind.open[node]:
                slots = self._holds(at, free)
                self.lacking[at] -= slots - known[at]
                known[at] = slots
        if len(self._kinds) > 1:
            self._tolls[known[-1]] -= 1
            known[-1] = self._toll(free, known)
            self._tolls[known[-1]] += 1

    def _holds(self, at: int, free: Sequence[int]) -> int:
        """Slots for a kind on a node with so much free."""
        fit = max(0, min([free[column] // amount for column, amount in self._pairs[at]], default=ENDLESS))
        return min(fit, 1) if self._kinds[at].need.exclusive else fit

    def _toll(self, free: list[int], known: Sequence[int]) -> int:
        if not known[-2]:
            return ENDLESS
        left = list(free)
        for column, amount in self._pairs[-1]:
            left[column] -= amount
        return known[0] - self._holds(0, left) if known[0] else 0

    def _open(self, node: int) -> list[int]:
        """What is free there at first."""
        self._known[node] = [int(slots[node]) for slots in self._at_first]
        free: list[int] = self._then[node, self._columns].tolist()
        return free

    def _rows_of(self, number: int) -> list[tuple[int, list[int]]]:
        prints = self._footprints
        span = slice(prints.starts[number], prints.starts[number + 1])
        nodes, amounts = prints.nodes[span].tolist(), prints.amounts[span, self._columns].tolist()
        self._rows[number] = list(zip(nodes, amounts, strict=True))
        return self._rows[number]

    def _entry(self, number: int) -> Entry:
        hold = self._footprints.holds[number]
        queue = hold.admitted.workload.queue
        entry = self._entries[number] = self._usages[0].entry(queue, hold.charge, self._accounts)
        return entry
