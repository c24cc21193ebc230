"""Two rules that put one pod after another on nodes, to compare with: BestFit and fragmentation gradient descent.

Both as Weng et al. (*Beware of Fragmentation*, USENIX ATC 2023) define them, for pods of whole GPUs. Not their code.
Shapes: N nodes, 3 resources: GPUs, millicores, bytes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

Amounts = NDArray[np.int64]
Costs = NDArray[np.float64]
Rule = Callable[[Amounts, Amounts, Amounts], Costs]
"""From what is free (N x 3), the numbers of the nodes that fit, and a pod's requests (3): a cost of each, the least of
which is taken."""

LARGEST = np.array([8.0, 128_000.0])
"""GPUs and millicores by which BestFit scales."""
POPULAR = 0.95
"""Part of the pods whose shapes FGD looks at, the most frequent first."""


def best_fit(free: Amounts, fitting: Amounts, requests: Amounts) -> Costs:
    """GPUs and CPU left after the pod, each by the largest node's, in equal parts."""
    left: Costs = ((free[fitting, :2] - requests[:2]) / LARGEST).mean(axis=1)
    return left


def descent(shapes: Sequence[tuple[int, int, int]], access: Callable[[int], NDArray[np.bool_]]) -> Rule:
    """Fragmentation gradient descent (FGD): by how much the pod raises the number of GPUs on the node which pods drawn
    from `shapes` are expected to find useless.

    `shapes`: (GPUs, millicores, number of the accepted models) of each pod of the list; `access`: nodes that such a
    number accepts (N). Free GPUs are useless to a pod that finds too few of them, too little CPU, or another model.
    """
    counted = Counter(shapes).most_common()
    wanted, kept = POPULAR * len(shapes), 0
    popular = []
    for shape, count in counted:
        if kept < wanted:
            popular.append((shape, count))
            kept += count
    gpus, cpu, models, parts = (
        np.array(column) for column in zip(*((*shape, count / kept) for shape, count in popular), strict=True)
    )
    open_ = np.stack([access(int(m)) for m in models], axis=1)

    def useless(free: Amounts, nodes: Amounts) -> Costs:
        able = (free[:, :1] >= gpus) & (free[:, 1:2] >= cpu) & open_[nodes]
        found: Costs = free[:, 0] * (~able @ parts)
        return found

    def cost(free: Amounts, fitting: Amounts, requests: Amounts) -> Costs:
        there = free[fitting]
        raised: Costs = np.round(useless(there - requests, fitting) - useless(there, fitting), 9)
        return raised

    return cost
