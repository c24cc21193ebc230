"""Whether the pods of a gang have slots enough while victims come and go, node by node in plain numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from operator import floordiv, sub

import numpy as np

from queuer.solver import floors
from queuer.solver.asker import Asker, Credit
from queuer.solver.board import Board
from queuer.solver.parts import Part
from queuer.solver.sheet import Hold

NONE = frozenset[int]()
NOWHERE = 2**40
"""Slots that a leader takes of a node on which it has no room: more than any domain has."""


class PodSlots:
    """Slots of nodes and domains for the pods of one set. `credit`: see `Credit`."""

    def __init__(self, board: Board, asker: Asker, part: Part) -> None:
        level, pods = asker.level(board), (part.need, part.accepting, part.closed)
        self._count = part.count
        self._exclusive = part.need.exclusive
        self._columns: list[int] = part.need.columns.tolist()
        self._amounts: list[int] = part.need.amounts.tolist()
        self._loose = board.later.awaiting
        self._sheet = board.later.copy() if self._loose else board.later
        self._board, self._asker = board, asker
        self._reserved = frozenset[int]().union(*(board.horizons[uid].nodes for uid in asker.bars))
        self.credit = Credit(board, asker.bars)
        tables = floors.later_behind(board, asker.bars).slots
        self._open = part.open
        self._domain = (
            np.zeros(len(part.open), dtype=np.intp) if level is None else board.frame.domains[level]
        )
        there = np.array([tables.total(*pods)]) if level is None else tables.by_domain(*pods, level, level)
        self._at_first, self._there = tables.by_node(part.need, part.accepting, part.closed), there
        self._enough = int((there >= self._count).sum())
        # Most nodes are never asked about.
        self._rows: dict[str, list[tuple[int, list[int]]]] = {}
        self._free: dict[int, list[int]] = {}
        self._slots: dict[int, int] = {}
        self._domains: dict[int, int] = {}
        self._in_domain: dict[int, int] = {}

    def move(self, hold: Hold, times: int) -> None:
        """The hold goes, or comes back with `times=-1`."""
        if self._reserved:
            self.credit.move(hold, times)
        rows = self._rows_of(hold)  # before anything on the sheet moves
        anew = self._loose.intersection(hold.rows) if self._loose else NONE
        if anew:
            self._sheet.vacate(hold, times=times)
        for node, row in rows:
            if node in anew:
                free = self._free_on(node)
            else:
                free = [before + times * more for before, more in zip(self._free[node], row, strict=True)]
            self._free[node] = free
            self._recount(node, free)

    def _rows_of(self, hold: Hold) -> list[tuple[int, list[int]]]:
        """What it leaves of what the pods ask for, on nodes that they may use; the first time these are looked up."""
        uid = hold.admitted.workload.uid
        if uid not in self._rows:
            nodes = [node for node in hold.rows if self._open[node] and self._domain[node] >= 0]
            self._rows[uid] = [(node, hold.rows[node][self._columns].tolist()) for node in nodes]
            for node in nodes:
                if node not in self._free:
                    self._free[node] = self._free_on(node)
                    self._slots[node] = self._at_first[node].item()
                    domain = self._domains[node] = self._domain[node].item()
                    self._in_domain.setdefault(domain, int(self._there[domain]))
        return self._rows[uid]

    def _free_on(self, node: int) -> list[int]:
        free: list[int] = self._sheet.free[node, self._columns].tolist()
        return free

    def _recount(self, node: int, free: list[int]) -> None:
        if not free:
            return
        if node in self._reserved:
            free = list(map(min, free, self._kept(node)))
        slots = self._holds(free)
        more = slots - self._slots[node]
        if more:
            domain = self._domains[node]
            before = self._in_domain[domain]
            self._slots[node] = slots
            self._in_domain[domain] = before + more
            self._enough += (before + more >= self._count) - (before >= self._count)

    def _holds(self, free: list[int]) -> int:
        """Slots of a node with so much free; the columns that the pods ask for come first, others may follow."""
        slots = max(0, min(map(floordiv, free, self._amounts)))
        return 1 if self._exclusive and slots > 1 else slots

    def _kept(self, node: int) -> list[int]:
        """What the bars leave there of what the pods ask for."""
        most = np.full((1, self._sheet.free.shape[1]), np.iinfo(np.int64).max)
        free = self._asker.behind(self._board, most, np.array([node]), more=self.credit.more)
        kept: list[int] = free[0, self._columns].tolist()
        return kept

    def fits(self) -> bool:
        """Whether one domain has slots enough."""
        return self._enough > 0


class LedSlots(PodSlots):
    """The same while a pod of another set, the leader of many, lies on one of those nodes: exact for one such pod, and
    a bound where more of them or further sets come.

    A domain has slots enough if that holds without those which the leader takes on the node where it takes fewest.
    """

    def __init__(self, board: Board, asker: Asker, part: Part, leader: Part) -> None:
        super().__init__(board, asker, part)
        free = floors.later_behind(board, asker.bars).free
        beside = np.where(part.open, part.need.slots(free - leader.row), 0)
        fits = leader.open & (leader.need.slots(free) > 0) & (self._domain >= 0)
        self._takes = np.where(fits, self._at_first - beside, NOWHERE)
        least = np.full(len(self._there), NOWHERE)
        np.minimum.at(least, self._domain[fits], self._takes[fits])
        self._enough = int((self._there - least >= self._count).sum())
        self._columns += [c for c in leader.need.columns.tolist() if c not in self._columns]
        self._leader: list[int] = leader.row[self._columns].tolist()
        self._asked = [(at, amount) for at, amount in enumerate(self._leader) if amount]
        self._workers_open, self._leader_open = part.open, leader.open
        self._open = part.open | leader.open
        self._taken: dict[int, int] = {}  # by node: slots that the leader would take there
        self._tolls: dict[int, Counter[int]] = {}  # by domain: on how many nodes it would take so many

    def _recount(self, node: int, free: list[int]) -> None:
        if node in self._reserved:
            free = list(map(min, free, self._kept(node)))
        slots = self._holds(free) if self._workers_open[node] else 0
        taken = NOWHERE
        if self._leader_open[node] and all(free[at] >= amount for at, amount in self._asked):
            taken = slots - self._holds(list(map(sub, free, self._leader))) if slots else 0
        domain = self._domains[node]
        if domain not in self._tolls:
            self._tolls[domain] = Counter(self._takes[self._domain == domain].tolist())
        before = self._suffices(domain)
        there = self._tolls[domain]
        known = self._taken.get(node)
        there[int(self._takes[node]) if known is None else known] -= 1
        there[taken] += 1
        self._taken[node] = taken
        self._in_domain[domain] += slots - self._slots[node]
        self._slots[node] = slots
        self._enough += self._suffices(domain) - before

    def _suffices(self, domain: int) -> bool:
        spare = self._in_domain[domain] - self._count
        return spare >= 0 and any(n and taken <= spare for taken, n in self._tolls[domain].items())


def pod_slots(board: Board, asker: Asker, parts: Sequence[Part]) -> PodSlots:
    """For the set with most pods, with one of the set with fewest beside them."""
    few, *_, many = sorted(parts, key=lambda part: part.count) if len(parts) > 1 else (None, parts[0])
    if few is None or not len(many.need.columns):
        return PodSlots(board, asker, many)
    return LedSlots(board, asker, many, few)
