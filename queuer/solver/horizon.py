"""Reservations as a decision counts them: what is free on their own nodes at their starts, and what they leave to
others there (DESIGN 3.4). Of other nodes they say nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from queuer.solver.frame import ALL, Amounts, Matrix, NodeRows, summed

NOTHING: Mapping[str, Amounts] = {}


@dataclass(slots=True, eq=False)
class Horizon:
    """The nodes of a reservation at its start. Who ends by `start` does not count. By node number (vectors of R):
    `takes`, what it takes, and `free`, what is free with its gang in place and those of other reservations not;
    `spare`: how little that may be before the place is lost, see `of`; it rises by what frees up and is kept for it.
    """

    uid: str
    start: float
    rank: tuple[bool, int]
    takes: Amounts
    free: dict[int, Matrix]
    spare: dict[int, Matrix]

    @classmethod
    def of(
        cls,
        uid: str,
        *,
        start: float,
        rank: tuple[bool, int],
        rows: Iterable[tuple[int, Matrix]],
        free: Matrix,
        over: Matrix | None = None,
    ) -> Horizon:
        """`rows`: what it takes, by node number. `free`: what is free at its start without it (N x R). `over`: what its
        nodes will have more than it takes once all have ended for whom it waits (N x R): who takes no more of them
        leaves the place to it, though it waits with less until then.
        """
        takes = summed(rows)
        left: dict[int, Matrix] = {node: free[node] - row for node, row in takes.items()}
        spare = {node: amount if over is None else amount - over[node] for node, amount in left.items()}
        return cls(uid=uid, start=start, rank=rank, takes=takes, free=left, spare=spare)

    def copy(self) -> Horizon:
        """An independent copy."""
        return replace(self, free=dict(self.free), spare=dict(self.spare))

    @property
    def nodes(self) -> frozenset[int]:
        """Where it is."""
        return frozenset(self.takes)

    def spend(self, rows: Iterable[tuple[int, Matrix]], *, times: int = 1) -> None:
        """Somebody takes this who still runs at its start; `times=-1` gives it back."""
        for node, row in rows:
            if node in self.free:
                self.free[node] = self.free[node] - row * times

    def gain(self, rows: Iterable[tuple[int, Matrix]], *, now: float, times: int = 1) -> None:
        """Somebody goes who would have had this at its start, or with `times=-1` stays after all. What is held from now
        on keeps what frees up.
        """
        rows = list(rows)
        self.spend(rows, times=-times)
        if self.start <= now:
            for node, row in rows:
                if node in self.spare:
                    self.spare[node] = self.spare[node] + row * times


def behind(
    horizons: Sequence[Horizon],
    free: Matrix,
    nodes: NodeRows = ALL,
    *,
    more: Mapping[str, Amounts] = NOTHING,
) -> Matrix:
    """`free` on some nodes (K x R) less what these reservations hold there, each with the gangs of those among them
    that start no later in place, too. `more`: what else is free at their starts, by owner.
    """
    reserved = set[int]().union(*(horizon.free for horizon in horizons))
    if not reserved:
        return free
    free = free.copy()
    for at, node in _rows_of(reserved, nodes):
        there = [h for h in horizons if node in h.free]
        for one in there:
            left, open_ = left_beside(one, node, there), more.get(one.uid, {}).get(node)
            np.minimum(free[at], left if open_ is None else left + open_, out=free[at])
    return free


def _rows_of(reserved: Collection[int], nodes: NodeRows) -> Iterable[tuple[int, int]]:
    """Those of these nodes that are among `nodes`, each with its row there."""
    if isinstance(nodes, slice):  # of all: row by row the same
        return zip(reserved, reserved, strict=True)
    return [(at, node) for at, node in enumerate(nodes.tolist()) if node in reserved]


def left_beside(one: Horizon, node: int, among: Iterable[Horizon]) -> Matrix:
    """What a reservation leaves on a node of its place beside those that start no later."""
    left = one.free[node]
    for other in among:
        if other is not one and other.start <= one.start and node in other.takes:
            left = left - other.takes[node]
    return left


def intact(horizons: Iterable[Horizon], *, now: float) -> frozenset[str]:
    """Owners of the reservations that are whole beside each other, or on whose places nothing has come since they were
    made but what a hold has room for once those have ended for whom it waits. Of two that are too much for a node
    together the one of lower rank is not, else the later one. What is held from now on, for want of a known end, is not
    taken to be in place for others.
    """
    kept: list[Horizon] = []
    for one in sorted(horizons, key=lambda h: (h.start <= now, not h.rank[0], -h.rank[1], h.start)):
        among = [h for h in kept if not h.takes.keys().isdisjoint(one.takes)]
        if all(_whole(h, [*kept, one], now) for h in (*among, one)):
            kept.append(one)
    return frozenset(one.uid for one in kept)


def _whole(one: Horizon, among: Sequence[Horizon], now: float) -> bool:
    counted = in_place(one, among, now=now)
    return all(
        bool(((left_beside(one, node, counted) >= 0) | (free >= one.spare[node])).all())
        for node, free in one.free.items()
    )


def in_place(one: Horizon, among: Iterable[Horizon], *, now: float) -> list[Horizon]:
    """Those of these reservations whose gangs can be taken to be there when this one starts."""
    return [h for h in among if h.start > now or one.start <= now]
