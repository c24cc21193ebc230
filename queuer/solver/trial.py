"""A set of victims being tried for one gang: what they leave free, and the lines that they must not have crossed.

Victims come and go thousands of times in one search, so slots, domains and usage are kept up step by step.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from operator import floordiv

import numpy as np

from queuer.domain.quota import Charge
from queuer.domain.usage import Entry
from queuer.domain.workload import Workload
from queuer.solver import floors
from queuer.solver.board import Board
from queuer.solver.capacity import place
from queuer.solver.contested import Variant
from queuer.solver.frame import ALL, Amounts, Mask, Matrix, NodeRows
from queuer.solver.horizon import NOTHING
from queuer.solver.parts import Part, Spread, parts_of
from queuer.solver.sheet import Hold
from queuer.solver.slots import Slots
from queuer.solver.victims import Candidate

NONE = frozenset[int]()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Asker:
    """The gang for which victims are looked for. `closed`: nodes that it keeps off; `bars`: owners of the reservations
    that it must leave whole.
    """

    workload: Workload
    variant: Variant
    charge: Charge
    closed: Mask | None
    bars: tuple[str, ...]

    def level(self, board: Board) -> int | None:
        """The level of which one domain must hold it."""
        required = self.workload.required
        return None if required is None else board.frame.snapshot.topology.find(required)

    def parts(self, board: Board) -> list[Part]:
        """Its pod sets."""
        return parts_of(board.frame, self.workload, self.variant, self.closed)

    def behind(
        self, board: Board, free: Matrix, nodes: NodeRows = ALL, *, more: Mapping[str, Amounts] = NOTHING
    ) -> Matrix:
        """`free` on some nodes (K x R) less what its bars hold there. `more`: see `Board.behind`."""
        return board.behind(self.bars, free, nodes, more=more)


class Credit:
    """What those who have gone leave free at the starts of reservations when they would still have been there: `more`,
    by owner and node.
    """

    def __init__(self, board: Board, bars: Iterable[str]) -> None:
        self._board = board
        self._horizons = [(board.horizons[uid], board.horizons[uid].nodes) for uid in bars]
        self.more: dict[str, dict[int, Matrix]] = {horizon.uid: {} for horizon, _ in self._horizons}

    def move(self, hold: Hold, times: int) -> None:
        """The hold goes, or comes back with `times=-1`."""
        for horizon, reserved in self._horizons:
            nodes = [node for node in hold.rows if node in reserved]
            if nodes and self._board.outlasts(hold, horizon.start):
                there, left = self.more[horizon.uid], self._board.left_by(hold)
                for node in nodes:
                    row = left[node] * times
                    there[node] = there[node] + row if node in there else row


class Trial:
    """The state once some candidates have gone; at first nobody has, and in the end all must have come back: what is
    used is counted on the board itself. `short`: quota is in the way, too; `placed`: the nodes alone.
    """

    def __init__(self, board: Board, asker: Asker, found: Sequence[Candidate]) -> None:
        queue, charge = asker.workload.queue, asker.charge
        binding = {a: charge[a] for a in board.claimed.binding(queue, charge)}
        self.short = not board.later.usage.fits(queue, binding)
        accounts = {account for c in found for way in c.by_rule for account, _ in way.lines or ()}
        self._queue, self._asked = queue, binding
        self._usage = board.later.usage if self.short else None
        self._line = board.line() if accounts else None
        self._counted = [usage for usage in (self._usage, self._line) if usage is not None]
        self._accounts = frozenset(accounts | set(binding))
        self._entries: dict[str, Entry] = {}
        parts = asker.parts(board)
        self.placed = (
            PodSlots(board, asker, parts[0]) if _slots_decide(parts) else Placing(board, asker, parts)
        )

    def going(self, candidate: Candidate) -> Candidate | None:
        """See `Candidate.going`, now that those before it have gone."""
        return candidate if self._line is None else candidate.going(self._line)

    def remove(self, candidate: Candidate) -> None:
        """It goes."""
        self._move(candidate, 1)

    def put_back(self, candidate: Candidate) -> None:
        """It stays after all."""
        self._move(candidate, -1)

    def _move(self, candidate: Candidate, times: int) -> None:
        self.placed.move(candidate.hold, times)
        for usage in self._counted:
            if candidate.uid not in self._entries:
                self._entries[candidate.uid] = self._entry(candidate.hold)
            usage.enter(self._entries[candidate.uid], times=-times)

    def _entry(self, hold: Hold) -> Entry:
        """What it uses in the accounts that decide anything here."""
        return self._counted[0].entry(hold.admitted.workload.queue, hold.charge, self._accounts)

    def fits(self) -> bool:
        """Whether the gang has quota and a place."""
        has_quota = self._usage is None or self._usage.fits(self._queue, self._asked)
        return has_quota and self.placed.fits()


def _slots_decide(parts: Sequence[Part]) -> bool:
    """Whether the gang is one pod set with no level of its own."""
    return len(parts) == 1 and parts[0].required is None and parts[0].preferred is None


class Placing:
    """Nodes for a gang of several pod sets, which is placed to see whether it fits, once its most pods have slots. The
    last place found stands while the nodes there are as they were.
    """

    def __init__(self, board: Board, asker: Asker, parts: Sequence[Part]) -> None:
        self._board, self._asker = board, asker
        self._sheet = board.later.copy()
        self._slots = Slots(board.frame, self._sheet.free)
        self._most = PodSlots(board, asker, max(parts, key=lambda part: part.count))
        self._hosts = frozenset[int]()  # of the last place found
        self._moved = set[str]()  # who has gone from there, or come back, since

    def move(self, hold: Hold, times: int) -> None:
        """The hold goes, or comes back with `times=-1`."""
        self._sheet.vacate(hold, times=times)
        self._slots.renew(*hold.rows)
        self._most.move(hold, times)
        if not self._hosts.isdisjoint(hold.rows):
            self._moved ^= {hold.admitted.workload.uid}

    def fits(self) -> bool:
        """Whether there is a place."""
        if not self._most.fits():
            return False
        if self._hosts and not self._moved:
            return True
        found = self._place()
        if found is not None:
            self._hosts, self._moved = frozenset(chain.from_iterable(found.values())), set()
        return found is not None

    def _place(self) -> Mapping[str, Spread] | None:
        board, asker = self._board, self._asker
        slots = self._slots
        if asker.bars:
            left = asker.behind(board, self._sheet.free, more=self._most.credit.more)
            slots = Slots(board.frame, left)
        return place(
            board.frame,
            slots.free,
            asker.workload,
            asker.variant,
            closed=asker.closed,
            limits=board.limits(),
            slots=slots,
        )


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
        self._at_first, self._there = tables.by_node(part.need, part.accepting, None), there
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
        slots = max(0, min(map(floordiv, free, self._amounts)))
        if self._exclusive and slots > 1:
            slots = 1
        more = slots - self._slots[node]
        if more:
            domain = self._domains[node]
            before = self._in_domain[domain]
            self._slots[node] = slots
            self._in_domain[domain] = before + more
            self._enough += (before + more >= self._count) - (before >= self._count)

    def _kept(self, node: int) -> list[int]:
        """What the bars leave there of what the pods ask for."""
        most = np.full((1, self._sheet.free.shape[1]), np.iinfo(np.int64).max)
        free = self._asker.behind(self._board, most, np.array([node]), more=self.credit.more)
        kept: list[int] = free[0, self._columns].tolist()
        return kept

    def fits(self) -> bool:
        """Whether one domain has slots enough."""
        return self._enough > 0
