"""A bound that shows at once that no pass could improve a plan, which most plans of full clusters need no model for."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

import numpy as np

from queuer.solver.board import Board
from queuer.solver.outcome import Chosen, assignments
from queuer.solver.parts import Spread
from queuer.solver.score import width


def at_best(board: Board, laid: Collection[Chosen]) -> bool:
    """Nobody is evicted, no gang lies wider than it would on idle nodes, and all nodes that any of them may use are
    full in one resource that all their pods ask for, so that what is left is the same in any arrangement.
    """
    if any(one.bound or not _narrowest(board, one) for one in laid):
        return False
    parts = [(p, one.variant.flavors[p.name]) for one in laid for p in one.gang.pending.workload.pod_sets]
    usable = np.any([board.frame.open_to(p, flavor) for p, flavor in parts], axis=0)
    common = set(board.frame.resources) - {"pods"}
    common = common.intersection(*({r for r, n in p.requests.items() if n} for p, _ in parts))
    return any(not np.any(board.now.free[usable, board.frame.column[r]] > 0) for r in common)


def _narrowest(board: Board, one: Chosen) -> bool:
    workload = one.gang.pending.workload
    found = _wide(board, one, one.spreads)
    if not found or len(workload.pod_sets) > 1 or workload.pod_sets[0].required:
        return not found
    idle = board.idle.place(workload, one.variant, form=one.gang.shape.form, avoid=frozenset()).spreads
    return idle is not None and workload.pod_sets[0].preferred is None and found == _wide(board, one, idle)


def _wide(board: Board, one: Chosen, spreads: Mapping[str, Spread]) -> int:
    rows = assignments(board, replace(one, spreads=spreads))
    return width(one.gang.pending.workload, rows, snapshot=board.snapshot)
