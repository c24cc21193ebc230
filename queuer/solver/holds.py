"""What runs as arrays: who holds what where, so that what any set of them leaves is one sum.

Sets are flags by number; numbers are those of the board's holds in their order. Shapes: H holds, R resources.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from queuer.domain.quota import Account
from queuer.domain.usage import Usage
from queuer.solver.board import Board
from queuer.solver.frame import Amounts, Matrix, Numbers, summed
from queuer.solver.frame import Mask as Flags
from queuer.solver.horizon import Horizon
from queuer.solver.kept import Kept
from queuer.solver.sheet import Hold
from queuer.solver.sound import MOST_AMOUNT


class Holds:
    """The holds of a board; none come or go in a cycle, but some leave."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self._leaving: Kept[Flags] = Kept(lambda: board.version)
        self._left: tuple[set[str], Flags] = (set(), self.nobody())
        self._charges: dict[Account, NDArray[np.int64] | NDArray[np.object_]] = {}

    @cached_property
    def number_of(self) -> Mapping[str, int]:
        """Numbers by uid."""
        return {uid: n for n, uid in enumerate(self._board.holds)}

    @cached_property
    def entries(self) -> tuple[Numbers, Numbers, Matrix]:
        """What they leave free: hold number (E), node (E), amounts (E x R)."""
        rows = [
            (h, node, row)
            for h, hold in enumerate(self._board.holds.values())
            for node, row in hold.rows.items()
        ]
        width = len(self._board.frame.resources)
        return (
            np.array([h for h, _, _ in rows], dtype=np.intp),
            np.array([n for _, n, _ in rows], dtype=np.intp),
            np.array([r for _, _, r in rows], dtype=np.int64).reshape(len(rows), width),
        )

    @cached_property
    def spans(self) -> Numbers:
        """Where the entries of each hold begin, and where all end (H + 1)."""
        return np.searchsorted(self.entries[0], np.arange(len(self._board.holds) + 1))

    def nobody(self) -> Flags:
        """No flag is set (H)."""
        return np.zeros(len(self._board.holds), dtype=bool)

    def flagged(self, uids: Iterable[str]) -> Flags:
        """These as flags (H)."""
        found = self.nobody()
        found[[self.number_of[uid] for uid in uids]] = True
        return found

    def staying(self, flags: Flags) -> Flags:
        """The flagged who are not leaving yet (H)."""
        staying: Flags = flags & ~self._leaving.of(None, self._leavers)
        return staying

    def _leavers(self) -> Flags:
        """Brought up to date by those who have changed their mind since it was asked for."""
        known, flags = self._left
        for uid in known ^ self._board.leaving:
            flags[self.number_of[uid]] = uid in self._board.leaving
        self._left = (set(self._board.leaving), flags)
        return flags

    # What the flagged leave free on nodes

    def vacated(self, flags: Flags) -> tuple[Numbers, Matrix]:
        """What the flagged leave free: nodes (K), amounts (K x R); all that they could have landed on counts."""
        holds, nodes, amounts = self._by_node
        mine = np.flatnonzero(flags[holds])
        if not len(mine):
            return mine, amounts[mine]
        there = nodes[mine]
        starts = np.flatnonzero(np.diff(there, prepend=-1))
        return there[starts], np.add.reduceat(amounts[mine], starts)

    def credited(self, flags: Flags, bars: Iterable[str]) -> Mapping[str, Amounts]:
        """What the flagged leave free at the starts of these reservations when they would still have been there, by
        owner; all that they could have landed on counts.
        """
        return {uid: summed(self._lasting(flags, self._board.horizons[uid])) for uid in bars}

    def _lasting(self, flags: Flags, horizon: Horizon) -> Iterator[tuple[int, Matrix]]:
        """Where on a reservation's nodes the flagged have what they would still have had at its start, and how much."""
        holds, nodes, amounts = self._by_node
        for node in horizon.nodes:
            first, last = np.searchsorted(nodes, (node, node + 1)).tolist()
            for at in range(first, last):
                if flags[holds[at]] and self._board.outlasts(self._listed[holds[at]], horizon.start):
                    yield node, amounts[at]

    @cached_property
    def _listed(self) -> list[Hold]:
        return list(self._board.holds.values())

    @cached_property
    def _by_node(self) -> tuple[Numbers, Numbers, Matrix]:
        """`entries` by node."""
        holds, nodes, amounts = self.entries
        order = np.argsort(nodes, kind="stable")
        return holds[order], nodes[order], amounts[order]

    # What the flagged give back of quota

    def release(self, usage: Usage, flags: Flags, *, only: frozenset[Account]) -> None:
        """Take the flagged off a usage, in these accounts."""
        names, numbers = self._queues
        total: dict[int, dict[Account, int]] = {}
        for account in only:
            charges = self._charged(account)
            sums = np.zeros(len(names), dtype=charges.dtype)
            np.add.at(sums, numbers[flags], charges[flags])
            for queue in np.flatnonzero(sums).tolist():
                total.setdefault(queue, {})[account] = int(sums[queue])
        for queue, amounts in total.items():
            usage.add(names[queue], amounts, times=-1)

    @cached_property
    def _queues(self) -> tuple[list[str], Numbers]:
        """Names of queues that hold something, and the number of its queue by hold (H)."""
        of = [hold.admitted.workload.queue for hold in self._board.holds.values()]
        names = {queue: n for n, queue in enumerate(dict.fromkeys(of))}
        return list(names), np.array([names[queue] for queue in of], dtype=np.intp)

    def charged(self, account: Account, flags: Flags) -> int:
        """What the flagged hold together in an account."""
        return int(self._charged(account)[flags].sum())

    def _charged(self, account: Account) -> NDArray[np.int64] | NDArray[np.object_]:
        """What each holds in an account (H); as Python's numbers where 64 bits may not hold the sum: a job that was
        started beside the queue is not set aside for what it asks, as one that waits is.
        """
        if account not in self._charges:
            amounts = [hold.charge.get(account, 0) for hold in self._board.holds.values()]
            small = sum(amounts) <= MOST_AMOUNT
            self._charges[account] = np.array(amounts, dtype=np.int64 if small else object)
        return self._charges[account]
