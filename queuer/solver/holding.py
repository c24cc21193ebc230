"""Whether nodes, quota, reservations and victims bear what was put on the board in other places, and the way back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from queuer.solver import horizon
from queuer.solver.board import Board
from queuer.solver.cycle import Cycle
from queuer.solver.frame import Matrix
from queuer.solver.needs import Needs
from queuer.solver.outcome import Chosen
from queuer.solver.sheet import Sheet

FEW_SETTLED = 128
"""Gangs up to which it is looked, where some of them are moved, whether all victims are still needed."""


def holds(cycle: Cycle, lifted: Sequence[Chosen], laid: Sequence[Chosen]) -> bool:
    """Whether nodes and quota bear the layout, in which these lie elsewhere or are new."""
    board = cycle.board
    touched = set[int]().union(*(c.nodes for c in laid))
    gone, going = ({e.uid for c in side for e in c.evictions} for side in (lifted, laid))
    touched |= {node for uid in gone - going for node in board.holds[uid].rows}  # they stay after all
    new = {c.gang.uid for c in laid}
    for chosen in cycle.chosen.values():
        workload = chosen.gang.pending.workload
        rows = [(n, row) for n, row in board.rows(workload, chosen.spreads) if n in touched]
        quota = chosen.gang.uid in new or not gone <= going
        for sheet in board.sheets()[-1:] if chosen.bound else board.sheets():
            if any(short(sheet.free[node], row) for node, row in rows):
                return False
            if quota and _over(sheet, chosen):
                return False
    return True


def lift(cycle: Cycle, gangs: Iterable[Chosen]) -> None:
    """Off the board and off the list of those settled, the end of which is where they come if they are taken again."""
    gangs = list(gangs)
    cycle.lift(gangs)
    for one in gangs:
        del cycle.chosen[one.gang.uid]
    cycle.board.changed()


def restore(cycle: Cycle, before: dict[str, Chosen]) -> None:
    """All settled gangs as they were."""
    tried = cycle.chosen.keys() - before.keys()
    lift(cycle, difference(cycle.chosen, before))
    for one in difference(before, cycle.chosen):
        cycle.take(one)
    for uid in tried:
        cycle.forget(uid)
    cycle.chosen = before


def difference(these: Mapping[str, Chosen], others: Mapping[str, Chosen]) -> list[Chosen]:
    """Those that are new or lie elsewhere."""
    return [one for uid, one in these.items() if others.get(uid) is not one]


def intact(board: Board) -> frozenset[str]:
    """Owners of the reservations whose place is whole."""
    return horizon.intact(board.horizons.values(), now=board.time)


def unharmed(cycle: Cycle, new: Chosen) -> frozenset[str]:
    """Owners of the reservations that stay whole, whatever is moved so that this gang has a place: those that it may
    not displace itself. It is not on the board yet.
    """
    rank = cycle.rank_beside(new.gang, new.charge)
    return frozenset(uid for uid in intact(cycle.board) if rank <= cycle.board.horizons[uid].rank)


def keeps_needed(cycle: Cycle, laid: Iterable[Chosen]) -> bool:
    """Whether all victims are needed, but for those that are not now, where these lie as they say, moved or new. It is
    not looked at where many are settled.
    """
    if len(cycle.chosen) > FEW_SETTLED:
        return True
    found = unneeded(cycle, laid)
    return not found or found <= unneeded(cycle)


def unneeded(cycle: Cycle, laid: Iterable[Chosen] = ()) -> frozenset[str]:
    """Victims of this cycle that the gangs up to their beneficiary could do without; `laid`: where these lie as they
    say, and not as they are on the board.
    """
    board, found = cycle.board, set[str]()
    lying = {**cycle.chosen, **{one.gang.uid: one for one in laid}}
    if not any(one.evictions for one in lying.values()):
        return frozenset()
    needs = Needs(board.later.copy())
    for one in cycle.chosen.values():
        needs.sheet.usage.add(one.gang.queue, one.charge, times=-1)
        for node, row in board.rows(one.gang.pending.workload, one.spreads):
            needs.sheet.free[node] += row
        for eviction in one.evictions:
            needs.sheet.release(board.holds[eviction.uid], times=-1)
    for one in cycle.in_turn(lying.values()):
        needs.settle(one.gang.queue, one.charge, board.rows(one.gang.pending.workload, one.spreads))
        mine = [board.holds[eviction.uid] for eviction in one.evictions]
        for hold in mine:
            needs.sheet.release(hold)
        found |= {hold.admitted.workload.uid for hold in mine if not needs.needs(hold)}
    return frozenset(found)


def short(free: Matrix, row: Matrix) -> bool:
    """Whether a node lacks what is asked for there (R each)."""
    return bool(np.any((free < 0) & (row > 0)))


def _over(sheet: Sheet, chosen: Chosen) -> bool:
    queue = chosen.gang.queue
    sheet.usage.add(queue, chosen.charge, times=-1)
    fits = sheet.usage.fits(queue, chosen.charge)
    sheet.usage.add(queue, chosen.charge)
    return not fits
