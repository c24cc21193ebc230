"""The simple order: jobs go by lost work for each slot until there is room, and each is then tried back once.

It gives CP-SAT its bound and first hint. It is the answer where CP-SAT is not asked, or has none.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain, islice

import numpy as np

from queuer.solver.eviction.candidates import Candidates
from queuer.solver.eviction.grounds import Clearing, Ground
from queuer.solver.eviction.lost_work import Cost

GROUNDS, TRIES = 3, 32
"""Domains of which a set is taken, and domains in which one is looked for, at most."""
NEEDED = 64
"""Victims of a set that are found to be needed, after which no more are tried back."""


def cheapest_set(clearing: Clearing) -> list[int]:
    """The cheapest set that the order finds on the first few grounds; [] = none."""
    candidates, grounds = clearing.candidates, islice(clearing.grounds(), TRIES)
    sets = (simple_order(clearing, ground) for ground in grounds)
    found = [(gone, candidates.rules(gone)) for gone in islice(filter(None, sets), GROUNDS)]
    costs = [(candidates.cost(gone, rules), gone) for gone, rules in found if rules is not None]
    return min(costs, key=lambda row: row[0], default=(Cost(), list[int]()))[1]


def next_best(clearing: Clearing, gone: Sequence[int]) -> list[int]:
    """The cheapest set without the dearest of these on the first few grounds; [] = none."""
    dearest = max(gone, key=lambda n: float(clearing.candidates.weights[n]), default=None)
    sets = (simple_order(clearing, ground, dearest) for ground in islice(clearing.grounds(), GROUNDS))
    return min(filter(None, sets), key=clearing.candidates.weight, default=[])


def simple_order(clearing: Clearing, ground: Ground, spared: int | None = None) -> list[int]:
    """Candidates that go until there is room on the ground and limits bear the gang; [] = there never is.

    Jobs go first that free quota where it is short. Where no such prefix is enough the smallest go first, for the last
    may cross the line of a guarantee.
    """
    candidates, inside = clearing.candidates, set(ground.order)
    line = [*sorted(clearing.helpers, key=lambda n: n not in inside), *ground.order]
    line = [n for n in dict.fromkeys(line) if n != spared]
    for order in (line, *candidates.orders(line)):
        if gone := _shortest(clearing, ground, order):
            useful = _useful(clearing, ground, gone)
            return thinned(candidates, useful, partial(clearing.enough, ground=ground))
    return []


def _shortest(clearing: Clearing, ground: Ground, order: Sequence[int]) -> list[int]:
    """The shortest prefix of those that may go in this order that is enough; [] = none."""
    gone, look, least = list[int](), 1, 1
    for number in clearing.candidates.permitted(order):
        gone.append(number)
        if len(gone) == look:
            if clearing.enough(gone, ground):
                break
            least, look = look + 1, look * 2
    else:
        if not clearing.enough(gone, ground):
            return []
    enough = bisect_left(range(least, len(gone)), True, key=lambda n: clearing.enough(gone[:n], ground))
    return gone[: least + enough]


def _useful(clearing: Clearing, ground: Ground, gone: Sequence[int]) -> Sequence[int]:
    """Those of a set on whose nodes slots come to be, so that few are left to be tried back.

    For several pod sets, once more have gone than can be tried back: those on the nodes where the gang would lie.
    """
    candidates, nodes = clearing.candidates, ground.nodes
    if clearing.limited:
        return gone
    if len(clearing.parts) == 1:
        at, now = candidates.slots_freed(clearing.parts[0], gone, nodes)
        return candidates.near(gone, at[now > clearing.slots[0][0][at]])
    spreads = candidates.placed(clearing.seeker, gone, nodes) if len(gone) > NEEDED else None
    if spreads is None:
        return gone
    near = candidates.near(gone, np.array([*chain(*spreads.values())], dtype=np.intp))
    return near if clearing.enough(near, ground) else gone


def thinned(
    candidates: Candidates, gone: Sequence[int], enough: Callable[[Sequence[int]], object]
) -> list[int]:
    """Those who are needed once all have been tried back, the dearest first, until `NEEDED` were found.

    Long runs that are not needed are found by doubling. Whoever may go may still go if others before it stay.
    """
    line = sorted(gone, key=lambda n: float(candidates.weights[n]), reverse=True)
    left, run, needed = list(gone), 1, 0
    while line and needed < NEEDED:
        stays = set(line[:run])
        rest = [n for n in left if n not in stays]
        if rest and enough(rest):
            left, line, run = rest, line[run:], run * 2
        elif run == 1:
            line, needed = line[1:], needed + 1
        else:
            run = 1 if run == 2 else run // 4
    return left
