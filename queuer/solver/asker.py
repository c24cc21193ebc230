"""The gang for which victims are looked for, and what the reservations that it must leave whole keep from it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from queuer.domain.quota import Charge
from queuer.domain.workload import Workload
from queuer.solver.board import Board
from queuer.solver.contested import Variant
from queuer.solver.frame import ALL, Amounts, Mask, Matrix, NodeRows
from queuer.solver.horizon import NOTHING
from queuer.solver.parts import Part, parts_of
from queuer.solver.sheet import Hold


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

    def is_led(self, board: Board) -> bool:
        """Whether it is one pod and many of another set, none with a level of its own: counting says where it has room,
        but not whether the two sets land beside each other.
        """
        parts = self.parts(board)
        levels = any(part.required is not None or part.preferred is not None for part in parts)
        return len(parts) == 2 and min(part.count for part in parts) == 1 and not levels

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
