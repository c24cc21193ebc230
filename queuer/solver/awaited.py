"""For whom of those that leave anyway gangs are bound: nobody is evicted for room that is being vacated (3.3)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from queuer.solver.board import Board
from queuer.solver.frame import Matrix
from queuer.solver.outcome import Chosen
from queuer.solver.sheet import Hold


class Awaited:
    """`by`: uids of those for whom each bound gang waits, as the board stands: for pods on its nodes, and for as many
    more as it takes until quota bears it.
    """

    def __init__(self, board: Board, bound: Sequence[Chosen]) -> None:
        self.by: dict[str, list[str]] = {one.gang.uid: [] for one in bound}
        if not board.vacating:
            return
        self._board = board
        left = {uid: board.holds[uid] for uid in sorted(board.vacating)}
        room = self._room_without(left.values())
        for one in bound:
            short = {
                node
                for node, row in board.rows(one.gang.pending.workload, one.spreads)
                if node in room and np.any((room[node] < 0) & (row > 0))
            }
            self.by[one.gang.uid] += [uid for uid, h in left.items() if not short.isdisjoint(h.rows)]
        for uid in {uid for uids in self.by.values() for uid in uids}:
            del left[uid]
        self._wait_for_quota(bound, left)

    def _room_without(self, staying: Iterable[Hold]) -> Mapping[int, Matrix]:
        """What is left of their nodes, all bound gangs in place, if these stay."""
        room: dict[int, Matrix] = {}
        for hold in staying:
            for node, row in self._board.left_by(hold).items():
                room[node] = (room[node] if node in room else self._board.later.free[node]) - row
        return room

    def _wait_for_quota(self, bound: Sequence[Chosen], left: dict[str, Hold]) -> None:
        """`left`: who stays as far as nodes are concerned."""
        book, usage = self._board.book, self._board.later.usage.copy()
        for hold in left.values():
            usage.add(hold.admitted.workload.queue, hold.charge)
        for one in bound:
            usage.add(one.gang.queue, one.charge, times=-1)
            while left and (bar := usage.bar(one.gang.queue, one.charge)) is not None:
                account = tuple(one.charge)[bar.at]
                inside = (
                    uid
                    for uid, h in left.items()
                    if h.charge.get(account) and bar.queue in book.lineage(h.admitted.workload.queue)
                )
                uid = next(inside, None)
                if uid is None:
                    break
                hold = left.pop(uid)
                usage.add(hold.admitted.workload.queue, hold.charge, times=-1)
                self.by[one.gang.uid].append(uid)
            usage.add(one.gang.queue, one.charge)
