"""Reservations as a decision counts them: what is free on their own nodes at their starts, and what they leave to
others there (DESIGN 3.4). Of other nodes they say nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from queuer.solver.frame import ALL, Matrix, Rows

Amounts = Mapping[int, Matrix]
"""By node number (vectors of R)."""
NOTHING: Mapping[str, Amounts] = {}


@dataclass(slots=True, eq=False)
class Horizon:
    """The nodes of a reservation at its start. Who ends by `start` does not count. By node number (vectors of R):
    `takes`, what it takes, and `free`, what is free with its gang in place and those of other reservations not.
    """

    uid: str
    start: float
    rank: tuple[bool, int]
    takes: Amounts
    free: dict[int, Matrix]

    @classmethod
    def of(
        cls,
        uid: str,
        *,
        start: float,
        rank: tuple[bool, int],
        rows: Iterable[tuple[int, Matrix]],
        free: Matrix,
    ) -> Horizon:
        """`rows`: what it takes, by node number. `free`: what is free at its start without it (N x R)."""
        takes = summed(rows)
        left: dict[int, Matrix] = {node: free[node] - row for node, row in takes.items()}
        return cls(uid=uid, start=start, rank=rank, takes=takes, free=left)

    def copy(self) -> Horizon:
        """An independent copy."""
        free = {node: row.copy() for node, row in self.free.items()}
        return Horizon(uid=self.uid, start=self.start, rank=self.rank, takes=self.takes, free=free)

    @property
    def nodes(self) -> frozenset[int]:
        """Where it is."""
        return frozenset(self.takes)

    def spend(self, rows: Iterable[tuple[int, Matrix]], *, times: int = 1) -> None:
        """Somebody takes this who still runs at its start; `times=-1` gives it back."""
        for node, row in rows:
            if node in self.free:
                self.free[node] = self.free[node] - row * times


def summed(rows: Iterable[tuple[int, Matrix]]) -> dict[int, Matrix]:
    """Amounts by node number, each once."""
    found: dict[int, Matrix] = {}
    for node, row in rows:
        found[node] = found[node] + row if node in found else row
    return found


def behind(
    horizons: Sequence[Horizon],
    free: Matrix,
    nodes: Rows = ALL,
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
    for at, node in enumerate(range(len(free))[nodes] if isinstance(nodes, slice) else nodes.tolist()):
        if node in reserved:
            for uid, left in _left(node, [h for h in horizons if node in h.free]):
                there = more.get(uid, {}).get(node)
                np.minimum(free[at], left if there is None else left + there, out=free[at])
    return free


def _left(node: int, there: Sequence[Horizon]) -> Iterable[tuple[str, Matrix]]:
    """What each of these leaves on a node of theirs beside the others that start no later."""
    for one in there:
        left = one.free[node]
        for other in there:
            if other is not one and other.start <= one.start:
                left = left - other.takes[node]
        yield one.uid, left
