"""What reservations leave of their nodes to the gangs of a question for the exact solver."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from queuer.domain.quota import Charge
from queuer.solver.contested import Reserved
from queuer.solver.cycle import Cycle
from queuer.solver.frame import Matrix
from queuer.solver.holding import intact
from queuer.solver.horizon import Horizon, in_place, left_beside
from queuer.solver.order import Gang


def limits(
    cycle: Cycle,
    asked: Gang | None = None,
    charges: Sequence[Charge] = (),
    *,
    bound: bool = False,
    displacing: bool = False,
) -> tuple[Reserved, ...]:
    """What they leave to those that are settled, and to the asked gang at these charges, which may be `bound`.
    `displacing`: where that one may displace a reservation of an earlier cycle, so may the others, if they outrank it.
    """
    board = cycle.board
    horizons = list(board.horizons.values())
    bars = [] if asked is None else [_bars(cycle, asked, charge, bound=bound) for charge in charges]
    earlier = {held.uid for held in board.snapshot.reservations}
    found, whole = [], intact(board)
    for one in horizons:
        taken, counted = _taken(cycle, one), in_place(one, horizons, now=board.time)
        settled = {n: taken[n] + np.maximum(left_beside(one, n, counted), 0) for n in one.nodes}
        beside = [
            {n: taken[n] + left_beside(one, n, there) for n in one.nodes} if one in there else None
            for there in bars
        ]
        may = displacing and one.uid in earlier and not any(beside)
        displacers = frozenset(_displacers(cycle, one)) if may else frozenset[str]()
        keeps = one.nodes if one.start <= board.time and one.uid in whole else frozenset[int]()
        lacks = {n: np.maximum(-left_beside(one, n, counted), 0) for n in keeps}
        found.append(
            Reserved(
                start=one.start,
                settled=settled,
                asked=beside,
                displacers=displacers,
                lacks=lacks,
                takes={n: row for n, row in cycle.outliving(one.uid).items() if n in lacks},
            )
        )
    return tuple(found)


def _displacers(cycle: Cycle, one: Horizon) -> Iterator[str]:
    """Uids of the settled gangs that it did not bind at their turns."""
    claimed = cycle.board.claimed
    for settled in cycle.chosen.values():
        gang, charge = settled.gang, settled.charge
        claimed.add(gang.queue, charge, times=-1)
        rank = cycle.rank(gang, charge)
        claimed.add(gang.queue, charge)
        if not cycle.board.binds(one, gang.pending.workload, rank=rank, bound=settled.bound):
            yield gang.uid


def _bars(cycle: Cycle, gang: Gang, charge: Charge, *, bound: bool) -> list[Horizon]:
    """The reservations that the gang must leave whole."""
    rank = cycle.rank_beside(gang, charge)
    bars = cycle.board.bars(gang.pending.workload, rank=rank, bound=bound)
    return [cycle.board.horizons[uid] for uid in bars]


def _taken(cycle: Cycle, one: Horizon) -> dict[int, Matrix]:
    """What settled gangs take of its nodes that would still run when it starts, less what their victims leave."""
    board = cycle.board
    taken: dict[int, Matrix] = dict.fromkeys(one.nodes, np.zeros_like(board.frame.alloc[0]))
    taken.update(cycle.outliving(one.uid))
    for eviction in (e for c in cycle.chosen.values() for e in c.evictions):
        hold = board.holds[eviction.uid]
        if board.outlasts(hold, one.start):
            for node in one.nodes & hold.rows.keys():
                taken[node] = taken[node] - board.left_by(hold)[node]
    return taken
