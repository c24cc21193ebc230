"""What is written into the pods so that they land where the plan wants them, whatever kube-scheduler picks
(DESIGN 3.5).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from queuer.domain.workload import Workload
from queuer.solver.board import Board
from queuer.solver.problem import Assignment


def pinned(board: Board, workload: Workload, rows: Sequence[Assignment]) -> tuple[Assignment, ...]:
    """The rows with selectors and host lists."""
    return tuple(
        replace(row, selector=_selector(board, workload, row), hosts=tuple(sorted(row.nodes))) for row in rows
    )


def _selector(board: Board, workload: Workload, row: Assignment) -> dict[str, str]:
    """Labels of the flavor, and of the required levels."""
    frame, topology = board.frame, board.snapshot.topology
    selector = dict(frame.flavors[row.flavor].node_labels)
    pod_set = next(p for p in workload.pod_sets if p.name == row.pod_set)
    first = next(iter(row.nodes))
    labels = board.snapshot.nodes[frame.index[first]].node.labels
    for level in (workload.required, pod_set.required):
        at = topology.find(level) if level else None
        if at is not None and (key := topology.keys[at]) in labels:
            selector[key] = labels[key]
    return selector
