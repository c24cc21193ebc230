"""Whose room gangs are bound to besides that of their own victims (3.3): of who leaves anyway, or goes for others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from queuer.solver.board import Board
from queuer.solver.frame import Matrix
from queuer.solver.outcome import Chosen
from queuer.solver.sheet import Hold


def awaited(board: Board, bound: Sequence[Chosen]) -> Mapping[str, Sequence[str]]:
    """Uids of those for whom each bound gang waits, its own victims aside, as the board stands."""
    by: dict[str, list[str]] = {one.gang.uid: [] for one in bound}
    if board.vacating:
        _wait_for_vacating(board, bound, by)
    _wait_for_others(board, bound, by)
    return by


def _wait_for_vacating(board: Board, bound: Sequence[Chosen], by: Mapping[str, list[str]]) -> None:
    """For who leaves anyway: pods on its nodes, and as many more as it takes until quota bears it."""
    staying = {uid: board.holds[uid] for uid in sorted(board.vacating)}
    room = _room_beside(board, staying.values())
    for one in bound:
        short = {
            node
            for node, row in board.rows(one.gang.pending.workload, one.spreads)
            if node in room and np.any((room[node] < 0) & (row > 0))
        }
        by[one.gang.uid] += [uid for uid, hold in staying.items() if not short.isdisjoint(hold.rows)]
    for uid in {uid for uids in by.values() for uid in uids}:
        del staying[uid]
    _wait_for_quota(board, bound, staying, by)


def _wait_for_others(board: Board, bound: Sequence[Chosen], by: Mapping[str, list[str]]) -> None:
    """For victims of another gang on nodes on which, if these stay and that gang is not there, it lacks room."""
    there: dict[int, list[tuple[Chosen, Matrix]]] = {}
    for one in bound:
        for node, row in board.rows(one.gang.pending.workload, one.spreads):
            there.setdefault(node, []).append((one, row))
    for other in bound:
        holds = {e.uid: board.holds[e.uid] for e in other.evictions}
        for node, room in _room_beside(board, holds.values()).items():
            room = room + sum((row for one, row in there.get(node, ()) if one is other), start=0 * room)
            for one, row in there.get(node, ()) if (room < 0).any() else ():
                if one is not other and np.any((room < 0) & (row > 0)):
                    victims = (uid for uid, hold in holds.items() if node in hold.rows)
                    by[one.gang.uid] += [uid for uid in victims if uid not in by[one.gang.uid]]


def _room_beside(board: Board, staying: Iterable[Hold]) -> Mapping[int, Matrix]:
    """What is left of their nodes, all bound gangs in place, if these stay."""
    room: dict[int, Matrix] = {}
    for hold in staying:
        for node, row in board.left_by(hold).items():
            room[node] = (room[node] if node in room else board.later.free[node]) - row
    return room


def _wait_for_quota(
    board: Board, bound: Sequence[Chosen], staying: dict[str, Hold], by: Mapping[str, list[str]]
) -> None:
    """`staying`: who stays as far as nodes are concerned; who quota needs gone is taken out."""
    usage = board.later.usage.copy()
    for hold in staying.values():
        usage.add(hold.admitted.workload.queue, hold.charge)
    for one in bound:
        usage.add(one.gang.queue, one.charge, times=-1)
        while staying and (bar := usage.bar(one.gang.queue, one.charge)) is not None:
            account = tuple(one.charge)[bar.at]
            inside = (
                uid
                for uid, h in staying.items()
                if h.charge.get(account) and bar.queue in board.book.lineage(h.admitted.workload.queue)
            )
            uid = next(inside, None)
            if uid is None:
                break
            hold = staying.pop(uid)
            usage.add(hold.admitted.workload.queue, hold.charge, times=-1)
            by[one.gang.uid].append(uid)
        usage.add(one.gang.queue, one.charge)
