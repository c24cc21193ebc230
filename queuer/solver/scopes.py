"""Where victims could make room for one gang: hosts, domains or all nodes, each with a bound on what it costs there.

The bound is that of a divisible good: the candidates that free most for the least loss go first, the last one in part.
It is worked out at once for all places where somebody can go, so that a search looks into the few that can be cheapest.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from queuer.solver.asker import Asker
from queuer.solver.board import Board
from queuer.solver.frame import Mask, Numbers
from queuer.solver.holds import Holds
from queuer.solver.victims import Candidate, Cost, Prey

PREEMPTED = 1e18
"""How much more the lost work of a gang weighs that is preempted, not reclaimed: more than all work there is."""


@dataclass(frozen=True, slots=True, eq=False)
class Scope:
    """A place to look in. `bound`: least weight of what must go; `members`: who has pods there, cheapest first."""

    bound: float
    members: list[Candidate]


def weight(cost: Cost) -> float:
    """A cost as one number, up to ties."""
    return cost[0] * PREEMPTED + cost[1]


def scopes(board: Board, prey: Prey, asker: Asker, found: Sequence[Candidate]) -> Iterator[Scope]:
    """Places where enough could be freed, by bound. `found`: the candidates, cheapest first."""
    frame, parts = board.frame, asker.parts(board)
    asked = np.sum([p.row * p.count for p in parts], axis=0)
    column = int(np.argmax(asked / np.maximum(frame.total, 1)))
    usable = np.any([p.open for p in parts], axis=0)
    level = asker.level(board)
    if level is not None:
        usable &= frame.domains[level] >= 0
    at, nodes, amount = _freed(prey.holds, found, usable, column)
    if len(parts) == 1 and parts[0].count == 1:
        spots, where = np.unique(nodes, return_inverse=True)
        there = asker.behind(board, board.later.free[spots], spots)[:, column]
        there = np.maximum(there, 0).astype(np.float64)
    else:
        place = np.zeros(len(frame.names), dtype=np.intp) if level is None else frame.domains[level]
        spots, where = np.unique(place[nodes], return_inverse=True)
        free = np.maximum(asker.behind(board, board.later.free)[:, column], 0)
        there = np.bincount(place[usable], weights=free[usable])[spots]
    bounds = _bounds(asked[column] - there, np.array([weight(c.cost) for c in found]), at, where, amount)
    order = np.argsort(where, kind="stable")
    starts = np.searchsorted(where[order], np.arange(len(spots) + 1)).tolist()
    there = at[order]
    for n in np.argsort(bounds, kind="stable")[: np.isfinite(bounds).sum()].tolist():
        members = {*there[starts[n] : starts[n + 1]].tolist()}
        yield Scope(bounds.item(n), [found[i] for i in sorted(members)])


def _freed(
    holds: Holds, found: Sequence[Candidate], usable: Mask, column: int
) -> tuple[Numbers, Numbers, NDArray[np.float64]]:
    """Who frees how much on which usable node: position in `found`, node, amount."""
    _, nodes, amounts = holds.entries
    mine = np.array([holds.number_of[c.uid] for c in found], dtype=np.intp)
    starts, counts = holds.spans[mine], holds.spans[mine + 1] - holds.spans[mine]
    at = np.repeat(np.arange(len(found)), counts)
    entries = np.arange(len(at)) + np.repeat(starts - (np.cumsum(counts) - counts), counts)
    inside = usable[nodes[entries]]
    at, entries = at[inside], entries[inside]
    return at, nodes[entries], amounts[entries, column].astype(np.float64)


def _bounds(
    lacking: NDArray[np.float64],
    weights: NDArray[np.float64],
    at: Numbers,
    where: Numbers,
    amount: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Least weight for each place to free what it lacks; infinite where all together free too little."""
    count = len(lacking)
    total = np.bincount(where, weights=amount, minlength=count)
    key = at * count + where
    in_order = np.argsort(key, kind="stable")
    key = key[in_order]
    first_of = np.flatnonzero(np.diff(key, prepend=-1))
    sums = np.add.reduceat(amount[in_order], first_of) if len(first_of) else amount
    owner, spot = key[first_of] // count, key[first_of] % count
    some = sums > 0
    owner, spot, sums = owner[some], spot[some], sums[some]
    order = np.lexsort((weights[owner] / sums, spot))
    owner, spot, sums = owner[order], spot[order], sums[order]
    before = np.cumsum(sums) - sums
    first = np.searchsorted(spot, np.arange(count))
    base = np.append(before, 0.0)[np.minimum(first, len(before))]
    part = np.clip((lacking[spot] - (before - base[spot])) / sums, 0.0, 1.0)
    bounds = np.bincount(spot, weights=part * weights[owner], minlength=count).astype(np.float64) * (1 - 1e-9)
    bounds[total < lacking] = np.inf
    return bounds
