"""Which room a gang may take, by what it is to do there and whose reservations it must leave whole.

Each floor is kept by the board under its name and follows what changes there, with the places found on it.
"""

from __future__ import annotations

from queuer.domain.workload import Workload
from queuer.solver.board import Board
from queuer.solver.floor import Floor


def now(board: Board, gang: Workload, *, rank: tuple[bool, int]) -> Floor:
    """What this gang may take at once."""
    return now_behind(board, board.bars(gang, rank=rank))


def now_behind(board: Board, bars: tuple[str, ...]) -> Floor:
    """What those may take at once who must leave these reservations whole."""
    return board.floor(("now", bars), lambda nodes: board.behind(bars, board.unheld(nodes), nodes))


def landed(board: Board, gang: Workload, *, rank: tuple[bool, int]) -> Floor:
    """What this gang may take once pods of earlier cycles lie, as tight as they can."""
    bars = board.bars(gang, rank=rank)
    return board.floor(("landed", bars), lambda nodes: board.behind(bars, board.landed(nodes), nodes))


def later(board: Board, gang: Workload, *, rank: tuple[bool, int]) -> Floor:
    """What this gang may be bound to beside what is held already."""
    return later_behind(board, board.bars(gang, rank=rank, bound=True))


def later_behind(board: Board, bars: tuple[str, ...]) -> Floor:
    """What those may be bound to who must leave these reservations whole."""
    return board.floor(
        ("later", bars), lambda nodes: board.behind(bars, board.later.free[nodes].copy(), nodes)
    )


def unvacated(board: Board, gang: Workload, *, rank: tuple[bool, int]) -> Floor:
    """What this gang may be bound to if it may evict nobody: no room for which somebody must go who leaves anyway.
    Until he has gone that spares evictions and nothing else: his own queue is thought to use it still, and comes
    behind others who have no better claim to it.
    """
    if not board.vacating:
        return later(board, gang, rank=rank)
    bars = board.bars(gang, rank=rank, bound=True)
    return board.floor(
        ("unvacated", bars),
        lambda nodes: board.behind(bars, board.later.free[nodes] - board.vacated[nodes], nodes),
    )


def present(board: Board) -> Floor:
    """What is free now, less what is held for bound gangs; reservations aside."""
    return board.floor("present", board.unheld)
