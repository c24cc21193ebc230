"""Pods that are alike into the nodes of one scope: one node that fits best, else several, the fullest first.

A gang that asks for a level is kept together further down: of each narrower level it takes the fewest domains.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from queuer.solver.nodes import Matrix, Numbers
from queuer.solver.slots import Counts


def fill(slots: Matrix, fit: Counts, count: int, levels: Iterable[Numbers] = ()) -> dict[int, int] | None:
    """Pods by position in `slots` and `fit`, the slots and looseness of the scope's nodes; None = too few slots.

    `levels`: the domain numbers of these nodes, by level from wide to narrow, for a gang that is kept together.
    """
    alone = np.where(slots >= count, fit, np.inf)
    best = int(alone.argmin()) if len(alone) else 0
    if len(alone) and np.isfinite(alone[best]):
        return {best: count}
    usable = np.flatnonzero(slots)
    if int(slots[usable].sum()) < count:
        return None
    spread = dict[int, int]()
    for numbers in levels:
        whole, usable = _fewest_domains(slots, usable, numbers, count)
        spread.update(zip(whole.tolist(), slots[whole].tolist(), strict=True))
        count -= int(slots[whole].sum())
    order = usable[np.argsort(fit[usable], kind="stable")]
    chosen = order[: int(np.searchsorted(np.cumsum(slots[order]), count)) + 1]
    beyond = int(slots[chosen].sum()) - count
    if beyond and (slots[chosen] == beyond).any():  # without this node every host is filled: no choice
        chosen, beyond = np.delete(chosen, np.flatnonzero(slots[chosen] == beyond)[-1]), 0
    spread.update(zip(chosen.tolist(), slots[chosen].tolist(), strict=True))
    spread[int(chosen[-1])] -= beyond
    return spread


def _fewest_domains(slots: Matrix, usable: Numbers, numbers: Numbers, count: int) -> tuple[Numbers, Numbers]:
    """Nodes of the domains that the pods fill altogether, and those of the domain that takes the rest of them."""
    own = np.where(numbers[usable] < 0, -1 - usable, numbers[usable])  # in no domain: one of its own
    names, domain = np.unique(own, return_inverse=True)
    if len(names) == 1:
        return usable[:0], usable
    sums = np.bincount(domain, weights=slots[usable]).astype(np.int64)
    *filled, last = _fewest(sums, count)
    return usable[np.isin(domain, filled)], usable[domain == last]


def _fewest(sums: Matrix, count: int) -> list[int]:
    """The fewest of these that hold so many pods. Each is the smallest with which that few are enough, so that the
    larger ones stay whole.
    """
    order, chosen = np.argsort(-sums, kind="stable"), list[int]()
    while count > 0:
        first = sums[order]
        most = np.cumsum(first)
        others = int(np.searchsorted(most, count))
        least = count - (int(most[others - 1]) if others else 0)
        at = int(np.argmax(first == first[first >= least][-1]))
        chosen.append(int(order[at]))
        count -= int(first[at])
        order = np.delete(order, at)
    return chosen
