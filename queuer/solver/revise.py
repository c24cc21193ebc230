"""A second look at the victims of one cycle: taken turn by turn they cost more than a joint set would.

All gangs that are bound are laid out anew in other orders, as a large one leaves room that smaller ones can use. What
each of them may do is what it might do at its turn. The cheapest layout counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from queuer.solver.cycle import Cycle
from queuer.solver.evict import Evict
from queuer.solver.holding import unneeded
from queuer.solver.outcome import Chosen
from queuer.solver.score import eviction_cost
from queuer.solver.victims import Cost

MOST_BOUND = 32
"""Bound gangs up to which they are laid out anew."""
ORDERS = 6
"""Layouts tried."""


def revise(cycle: Cycle, evict: Evict) -> None:
    """Replace the victims of this cycle by cheaper ones, if a layout with such is found."""
    bound = [c for c in cycle.chosen.values() if c.bound]
    if sum(bool(c.evictions) for c in bound) < 2 or len(bound) > MOST_BOUND:
        return
    turn = {c.gang.uid: n for n, c in enumerate(bound)}
    best, least = bound, cost(cycle, bound)
    cycle.lift(bound)
    tried = set[tuple[str, ...]]()
    for attempt in range(ORDERS):
        plain = attempt == 0  # so that no plan is dearer than that rule's
        orders = [bound] if plain else _orders(best, cycle)
        order = next((o for o in orders if tuple(c.gang.uid for c in o) not in tried), None)
        if order is None:
            break
        if not plain:
            tried.add(tuple(c.gang.uid for c in order))
        laid = _laid(cycle, evict, order, least, plain=plain)
        cycle.lift(laid)
        laid.sort(key=lambda c: turn[c.gang.uid])
        cheaper = len(laid) == len(bound) and cost(cycle, laid) < least
        if cheaper and evict.in_order(laid) and _all_needed(cycle, laid):
            best, least = laid, cost(cycle, laid)
    for chosen in best:
        cycle.take(chosen)


def _laid(cycle: Cycle, evict: Evict, order: Sequence[Chosen], least: Cost, *, plain: bool) -> list[Chosen]:
    """The gangs that found a place again, on the board, up to the first that did not or that makes it too dear."""
    laid: list[Chosen] = []
    for one in order:
        found = evict.again(one.gang, one.variant, plain=plain)
        if found is None:
            break
        cycle.take(found)
        laid.append(found)
        if found.evictions and cost(cycle, laid) >= least:
            break
    return laid


def _all_needed(cycle: Cycle, laid: Sequence[Chosen]) -> bool:
    """Whether each victim is needed in the order of the turns, too. None of these is on the board."""
    for one in laid:
        cycle.take(one)
    needed = not unneeded(cycle)
    cycle.lift(laid)
    return needed


def _orders(settled: Sequence[Chosen], cycle: Cycle) -> Iterator[list[Chosen]]:
    """Orders worth trying: large first, as many pods first, dear first, each of the dear ones before all others."""

    def size(one: Chosen) -> int:
        return sum(n for (flavor, _), n in one.charge.items() if flavor is None)

    def dear(one: Chosen) -> Cost:
        return cost(cycle, [one])

    yield sorted(settled, key=size, reverse=True)
    yield sorted(settled, key=lambda c: (c.gang.pending.workload.required is None, size(c)), reverse=True)
    yield sorted(settled, key=dear, reverse=True)
    large = sorted(settled, key=size, reverse=True)
    for first in sorted((c for c in settled if c.evictions), key=dear, reverse=True):
        yield [first, *(c for c in large if c is not first)]
    yield list(reversed(settled))


def cost(cycle: Cycle, settled: Iterable[Chosen]) -> Cost:
    """What the victims of these cost together."""
    board = cycle.board
    gone = ((board.holds[e.uid].admitted, e.rule) for c in settled for e in c.evictions)
    return eviction_cost(gone, capacity=board.capacity, now=board.time)
