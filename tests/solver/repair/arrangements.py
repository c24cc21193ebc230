"""All arrangements of a few gangs on a few nodes, by trying each: the judge of what the repair and a selection find.

One resource, one pod set a gang; the landing rule in its own words, no code of the decision.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations_with_replacement
from random import Random

from queuer.domain.nodes import Node
from queuer.domain.workload import Workload
from tests.solver.make import GPU, gang, node, pod_set

Spread = dict[str, int]


def cluster(rng: Random, *, racks: int = 2, each: int = 2) -> tuple[list[Node], dict[str, Mapping[str, int]]]:
    """Nodes of 8 GPUs, and what others use there."""
    nodes = [
        node(f"n{r}{i}", labels={"block": "b", "rack": f"r{r}"}) for r in range(racks) for i in range(each)
    ]
    return nodes, {n.name: {GPU: rng.choice((0, 0, 3, 4, 4, 6))} for n in nodes}


def gangs(rng: Random, count: int) -> list[Workload]:
    """In the order of their submit times."""
    return [
        gang(
            f"g{i}",
            pod_set(rng.choice((1, 1, 2, 3)), rng.choice((1, 2, 4, 4, 8))),
            submitted=float(i),
            required=rng.choice((None, None, "rack")),
        )
        for i in range(count)
    ]


def arranged(
    nodes: Sequence[Node], foreign: Mapping[str, Mapping[str, int]], mine: Sequence[Workload]
) -> bool:
    """Whether all of these could start together."""
    free = {n.name: n.allocatable[GPU] - foreign[n.name].get(GPU, 0) for n in nodes}
    racks = {n.name: n.labels["rack"] for n in nodes}
    return _arranged(free, dict(free), racks, sorted(mine, key=lambda g: -g.demand[GPU]), {}, set())


def _arranged(
    open_: Spread,
    free: Spread,
    racks: Mapping[str, str],
    left: Sequence[Workload],
    guests: dict[str, int],
    owned: set[str],
) -> bool:
    if not left:
        return True
    (only,) = left[0].pod_sets
    size = only.requests[GPU]
    for spread in _spreads(free, racks, left[0]):
        choice = len(spread) > 1 and sum(open_[n] // size for n in spread) > only.count
        if owned & spread.keys() or (choice and any(guests.get(n) for n in spread)):
            continue
        after = free | {n: free[n] - size * pods for n, pods in spread.items()}
        there = guests | {n: guests.get(n, 0) + 1 for n in spread}
        if _arranged(open_, after, racks, left[1:], there, owned | spread.keys() if choice else owned):
            return True
    return False


def _spreads(free: Spread, racks: Mapping[str, str], asks: Workload) -> Iterator[Spread]:
    (only,) = asks.pod_sets
    for chosen in combinations_with_replacement(sorted(free), only.count):
        spread = {n: chosen.count(n) for n in dict.fromkeys(chosen)}
        inside = asks.required is None or len({racks[n] for n in spread}) == 1
        if inside and all(free[n] >= pods * only.requests[GPU] for n, pods in spread.items()):
            yield spread
