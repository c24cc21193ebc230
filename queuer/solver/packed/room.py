"""What is free on nodes and in quota while a packed subtree tries selections: a light copy of the board.

Gangs are only ever added, so what does not fit once need not be tried again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial

import numpy as np

from queuer.domain.quota import Charge
from queuer.domain.usage import Usage
from queuer.domain.workload import Workload
from queuer.solver.board import Board
from queuer.solver.capacity import place
from queuer.solver.contested import Variant
from queuer.solver.ends import end_of
from queuer.solver.frame import Matrix, summed
from queuer.solver.greedy import Greedy
from queuer.solver.horizon import behind
from queuer.solver.order import Gang
from queuer.solver.outcome import Block, Chosen, Refusal
from queuer.solver.parts import Spread

NO = Refusal(block=Block.PLACE)


class Room:
    """Free amounts (N x R), usage by sheet, and what reservations leave. `apart`: uids of gangs that keep, where they
    can, off the hosts of those that spread over several, as they could not land beside them.
    """

    def __init__(self, greedy: Greedy) -> None:
        """As the board of the decision stands."""
        board = greedy.board
        self.greedy = greedy
        self.free: Matrix = np.minimum(board.now.free, board.later.free)
        self.usages: list[Usage] = [sheet.usage.copy() for sheet in board.sheets()]
        self._claimed = self.usages[0] if board.claimed is board.now.usage else board.claimed.copy()
        self._horizons = {uid: horizon.copy() for uid, horizon in board.horizons.items()}
        self.apart: frozenset[str] = frozenset()
        self._dead: set[object] = set()
        self._shared = np.zeros(len(self.free), dtype=bool)
        for chosen in greedy.chosen.values():
            self._note(chosen)

    def copy(self) -> Room:
        """An independent copy."""
        twin = Room.__new__(Room)
        twin.greedy, twin.free = self.greedy, self.free.copy()
        twin.usages = [usage.copy() for usage in self.usages]
        twin._claimed = twin.usages[0] if self._claimed is self.usages[0] else self._claimed.copy()
        twin._horizons = {uid: horizon.copy() for uid, horizon in self._horizons.items()}
        twin.apart = self.apart
        twin._dead = set(self._dead)
        twin._shared = self._shared.copy()
        return twin

    def find(self, gang: Gang) -> Chosen | None:
        """A place for the gang in its first flavors that have one, at its largest size there."""
        for variant, charge in zip(gang.shape.variants, gang.shape.charges, strict=True):
            found = self.greedy.sized(gang, variant, charge, self.attempt)
            if isinstance(found, Chosen):
                return found
        return None

    def attempt(self, gang: Gang, variant: Variant, charge: Charge) -> Chosen | Refusal:
        """A place at these flavors and sizes."""
        bars = self._bars(gang, charge)
        key = (self.greedy.key(gang, variant), bars)
        if key in self._dead or not self.allows(gang, charge):
            return NO
        free = self._behind(bars)
        board, workload, closed = self.greedy.board, gang.pending.workload, self.greedy.closed(gang)
        find = partial(place, board.frame, free, workload, variant, limits=board.limits())
        spreads = None
        if gang.uid in self.apart:
            others = self._shared if closed is None else self._shared | closed
            spreads = find(closed=others)
        spreads = spreads or find(closed=closed)
        if spreads is None:
            self._dead.add(key)
            return NO
        return Chosen(gang=gang, variant=variant, charge=charge, spreads=spreads)

    def allows(self, gang: Gang, charge: Charge) -> bool:
        """Whether quota bears the gang."""
        workload = gang.pending.workload
        key = ("quota", gang.shape.number, id(charge), workload.preemptible)
        if key in self._dead:
            return False
        allowed = _allowed(workload, charge, self.usages, self._claimed)
        if not allowed:
            self._dead.add(key)
        return allowed

    def bears(self, chosen: Chosen) -> bool:
        """Whether quota and the very nodes bear the gang where it lies."""
        if not self.allows(chosen.gang, chosen.charge):
            return False
        bars = self._bars(chosen.gang, chosen.charge)
        return _on_nodes(self.greedy.board, chosen, [self._behind(bars)])

    def leaves_all_reserved(self, chosen: Chosen) -> bool:
        """Whether the very nodes bear the gang beside all reservations, even those that do not bind it."""
        return _on_nodes(self.greedy.board, chosen, [self._behind(self._horizons)])

    def least(self) -> Matrix:
        """What is free to gangs that must leave all reservations whole (N x R)."""
        return self._behind(self._horizons).copy()

    def take(self, chosen: Chosen) -> None:
        """The gang takes its place and quota."""
        board, workload = self.greedy.board, chosen.gang.pending.workload
        usages = self.usages if self._claimed is self.usages[0] else [*self.usages, self._claimed]
        for usage in usages:
            usage.add(workload.queue, chosen.charge)
        self.greedy.spend(self.free, chosen)
        self._note(chosen)
        end = end_of(workload, start=board.time)
        for uid, horizon in self._horizons.items():
            if uid != workload.uid and (end is None or end > horizon.start):
                horizon.spend(board.rows(workload, chosen.spreads))

    def _note(self, chosen: Chosen) -> None:
        if _spreads(chosen.spreads):
            self._shared[list(chosen.nodes)] = True

    def _behind(self, bars: Iterable[str]) -> Matrix:
        """What is free to those who must leave these reservations whole (N x R), not to be changed."""
        return behind([self._horizons[uid] for uid in bars], self.free)

    def _bars(self, gang: Gang, charge: Charge) -> tuple[str, ...]:
        if not self._horizons:
            return ()
        bars = self.greedy.board.bars(gang.pending.workload, rank=self.greedy.rank(gang, charge))
        return tuple(uid for uid in bars if uid in self._horizons)  # not those that came since


def stands(greedy: Greedy, chosen: Chosen) -> bool:
    """Whether the board as it is bears the gang where it lies: `Room.bears` without a room."""
    board, gang = greedy.board, chosen.gang
    workload, sheets = gang.pending.workload, board.sheets()
    if not _allowed(workload, chosen.charge, [sheet.usage for sheet in sheets], board.claimed):
        return False
    bars = board.bars(workload, rank=greedy.rank(gang, chosen.charge))
    return _on_nodes(board, chosen, [board.behind(bars, s.free) for s in sheets])


def _allowed(workload: Workload, charge: Charge, usages: Iterable[Usage], claimed: Usage) -> bool:
    return all(usage.fits(workload.queue, charge) for usage in usages) and (
        workload.preemptible or claimed.entitled(workload.queue, charge, at=workload.queue)
    )


def _on_nodes(board: Board, chosen: Chosen, frees: Sequence[Matrix]) -> bool:
    """Whether the very nodes bear the gang in each of these (N x R)."""
    rows = summed(board.rows(chosen.gang.pending.workload, chosen.spreads))
    return not any(
        bool(((free[node] < row) & (row > 0)).any()) for free in frees for node, row in rows.items()
    )


def _spreads(spreads: Mapping[str, Spread]) -> bool:
    """Whether a gang lies on several hosts, so that kube-scheduler chooses among them."""
    return any(len(spread) > 1 for spread in spreads.values())
