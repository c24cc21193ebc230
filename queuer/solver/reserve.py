"""Reservations: the earliest time at which a gang that is blocked by capacity alone will fit, held for it
(DESIGN 3.4).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from queuer.domain.nodes import DEFAULT_FLAVOR
from queuer.solver.board import Board, Horizon, end_of
from queuer.solver.bonds import restored
from queuer.solver.capacity import place
from queuer.solver.contested import Variant
from queuer.solver.frame import Matrix
from queuer.solver.greedy import Greedy
from queuer.solver.order import Gang
from queuer.solver.outcome import Chosen, assignments
from queuer.solver.problem import Reservation

LEAST = 300.0
"""Seconds that a reservation outlives its start at least."""


class Reserver:
    """Keeps, renews and grants the reservations of one cycle."""

    def __init__(self, greedy: Greedy) -> None:
        self._greedy = greedy
        self._board = greedy.board
        self._flavors: dict[str, list[str]] = {}
        self._taken: dict[str, tuple[float, list[tuple[int, Matrix]]]] = {}
        self.held: dict[str, Reservation] = {}

    def resume(self, gangs: Mapping[str, Gang]) -> None:
        """Put standing reservations on the board; one whose time came or whose place is lost is renewed."""
        for old in self._board.snapshot.reservations:
            gang = gangs.get(old.uid)
            if gang is None or old.expires <= self._board.time:
                continue
            chosen = restored(self._board, gang, old.assignments)
            if chosen is not None and old.start > self._board.time:
                free = self._at(old.start)
                if _fits(free, chosen, self._board):
                    self._hold(chosen, free, start=old.start, expires=old.expires)
                    continue
            self._find(gang, expires=old.expires)

    def started(self, uid: str) -> None:
        """The gang has its place: its reservation ends."""
        if self.held.pop(uid, None) is not None:
            self._board.horizons.pop(uid)
            self._board.changed()
            for uids in self._flavors.values():
                if uid in uids:
                    uids.remove(uid)

    def finish(self, gangs: Mapping[str, Gang]) -> None:
        """Renew reservations that were displaced in this cycle."""
        for uid in list(self.held):
            if not self._intact(uid):
                expires = self.held[uid].expires
                self.started(uid)
                self._find(gangs[uid], expires=expires)

    def _intact(self, uid: str) -> bool:
        nodes = [node for node, _ in self._taken[uid][1]]
        return bool((self._board.horizons[uid].free[nodes] >= 0).all())

    def consider(self, gang: Gang) -> None:
        """The gang was refused for capacity: keep what it has, or reserve if its flavors have one left."""
        if gang.uid in self.held:
            if self._intact(gang.uid):
                return
            expires = self.held[gang.uid].expires
            self.started(gang.uid)
            self._find(gang, expires=expires)
            return
        most = self._board.book.tree.policy(gang.queue).reservations or 0
        if all(len(self._flavors.get(f, ())) < most for f in gang.shape.flavors or {DEFAULT_FLAVOR}):
            self._find(gang, expires=None)

    def _find(self, gang: Gang, *, expires: float | None) -> None:
        workload = gang.pending.workload
        times = sorted({end for end, _ in self._ends()})
        if not times:
            return
        closed = self._board.closed(gang.pending.avoid)
        for full in gang.shape.variants:
            variant, charge = self._greedy.resized(gang, full, gang.shape.least)
            if self._board.now.usage.shortfall(gang.queue, charge, live=False) is not None:
                continue
            found = self._earliest(gang, variant, times)
            if found is None:
                continue
            start, free = found
            spreads = place(self._board.frame, free, workload, variant, closed=closed)
            assert spreads is not None
            chosen = Chosen(gang=gang, variant=variant, charge=charge, spreads=spreads)
            until = start + max(LEAST, start - self._board.time)
            self._hold(
                chosen, free, start=start, expires=until if expires is None else max(expires, start + LEAST)
            )
            return

    def _earliest(self, gang: Gang, variant: Variant, times: Sequence[float]) -> tuple[float, Matrix] | None:
        """By bisection: what is free only grows with time."""
        closed = self._board.closed(gang.pending.avoid)

        def fits(free: Matrix) -> bool:
            return place(self._board.frame, free, gang.pending.workload, variant, closed=closed) is not None

        low, high = 0, len(times) - 1
        if not fits(self._at(times[high])):
            return None
        while low < high:
            middle = (low + high) // 2
            if fits(self._at(times[middle])):
                high = middle
            else:
                low = middle + 1
        return times[high], self._at(times[high])

    def _ends(self) -> list[tuple[float, list[tuple[int, Matrix]]]]:
        """Who ends when, with what it frees by node; those that started in this cycle included."""
        board = self._board
        ends = [(end, list(hold.rows.items())) for end, hold in board.ends()]
        for chosen in self._greedy.chosen.values():
            end = end_of(chosen.gang.pending.workload, start=board.time)
            if end is not None and not chosen.bound:
                ends.append((end, _rows(board, chosen)))
        return ends

    def _at(self, time: float) -> Matrix:
        """What is free at a time if everything ends as expected and nothing else starts."""
        free = self._board.later.free.copy()
        for end, rows in self._ends():
            if end <= time:
                for node, row in rows:
                    free[node] += row
        for uid, (start, rows) in self._taken.items():
            if uid in self._board.horizons and start <= time:
                for node, row in rows:
                    free[node] -= row
        return free

    def _hold(self, chosen: Chosen, free: Matrix, *, start: float, expires: float) -> None:
        board = self._board
        taken = _rows(board, chosen)
        self._taken[chosen.gang.uid] = (start, taken)
        for node, row in taken:
            free[node] -= row
        board.horizons[chosen.gang.uid] = Horizon(
            uid=chosen.gang.uid,
            start=start,
            free=free,
            rank=self._greedy.rank(chosen.gang, chosen.charge),
            nodes=frozenset(node for node, _ in taken),
        )
        board.changed()
        self.held[chosen.gang.uid] = Reservation(
            uid=chosen.gang.uid, assignments=assignments(board, chosen), start=start, expires=expires
        )
        for flavor in set(chosen.variant.flavors.values()):
            self._flavors.setdefault(flavor, []).append(chosen.gang.uid)


def _rows(board: Board, chosen: Chosen) -> list[tuple[int, Matrix]]:
    return board.rows(chosen.gang.pending.workload, chosen.spreads)


def _fits(free: Matrix, chosen: Chosen, board: Board) -> bool:
    left = free.copy()
    for node, row in _rows(board, chosen):
        left[node] -= row
    touched = sorted({n for spread in chosen.spreads.values() for n in spread})
    return bool((left[touched] >= 0).all())
