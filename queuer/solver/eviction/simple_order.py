"""The simple order: jobs go by lost work for each slot until there is room, and each is then tried back once.

It gives CP-SAT its bound and first hint. It is the answer where CP-SAT is not asked, or has none.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from itertools import islice
from math import inf

from queuer.solver.eviction.candidates import Candidates
from queuer.solver.eviction.grounds import CLOSE, Clearing, Ground
from queuer.solver.eviction.lost_work import Cost

GROUNDS = 3
"""Domains in which a set is looked for, unless nothing is found there."""


def cheapest(clearing: Clearing) -> list[int]:
    """The cheapest set that the order finds on the first few grounds; [] = none."""
    candidates, best, found = clearing.candidates, list[int](), 0
    least, cost = inf, Cost()
    for ground in clearing.grounds():
        if found == GROUNDS or ground.estimate > least * CLOSE:
            break
        gone = simple_order(clearing, ground)
        found += bool(gone)
        rules = candidates.rules(gone)
        if gone and rules is not None and (not best or candidates.cost(gone, rules) < cost):
            best, cost, least = gone, candidates.cost(gone, rules), candidates.weight(gone)
    return best


def next_best(clearing: Clearing, gone: Sequence[int]) -> list[int]:
    """A set without the dearest of these, on the first of the cheapest grounds that has one; [] = none."""
    dearest = max(gone, key=lambda n: float(clearing.candidates.weights[n]), default=None)
    sets = (simple_order(clearing, ground, dearest) for ground in islice(clearing.grounds(), GROUNDS))
    return next(filter(None, sets), [])


def simple_order(clearing: Clearing, ground: Ground, spared: int | None = None) -> list[int]:
    """Candidates that go until there is room on the ground and limits bear the gang; [] = there never is.

    Jobs go first that free quota where it is short. Where no such prefix is enough the smallest go first, for the last
    may cross the line of a guarantee.
    """
    candidates, inside = clearing.candidates, set(ground.order)
    line = [*sorted(clearing.helpers, key=lambda n: n not in inside), *ground.order]
    line = [n for n in dict.fromkeys(line) if n != spared]
    for order in (line, sorted(line, key=lambda n: (float(candidates.footprints.share[n]), n))):
        if gone := _shortest(clearing, ground, order):
            return thinned(candidates, gone, lambda rest: clearing.enough(rest, ground))
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


def thinned(
    candidates: Candidates,
    gone: Sequence[int],
    enough: Callable[[Sequence[int]], object],
    most: int | None = None,
) -> list[int]:
    """Those who are needed once each has been tried back, the dearest first. `most`: how many are tried."""
    left = list(gone)
    for number in sorted(gone, key=lambda n: float(candidates.weights[n]), reverse=True)[:most]:
        rest = [n for n in left if n != number]
        if rest and candidates.rules(rest) is not None and enough(rest):
            left = rest
    return left
