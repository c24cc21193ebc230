"""What an eviction costs: how sets of victims are compared (DESIGN 3.3)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from queuer.domain.nodes import Flavor, flavor_of
from queuer.domain.quantity import Resources
from queuer.domain.workload import demand_of
from queuer.solver.records import Admitted, EvictionRule, NodeState

SHARE = 10**9
"""A dominant share of 1 as an integer."""
Cost = tuple[int, int, int, int, int]
"""Lost work of those preempted for priority, lost work, gangs, sum of priorities, evictions in the last hour."""


def live_capacity(nodes: Iterable[NodeState], flavors: Sequence[Flavor]) -> dict[str, int]:
    """Allocatable of all nodes that have a flavor, by resource; cordoned and unready ones included, as the work on
    them is still counted as used.
    """
    total: dict[str, int] = {}
    for state in nodes:
        if flavor_of(state.node, flavors) is not None:
            for resource, amount in state.node.allocatable.items():
                total[resource] = total.get(resource, 0) + amount
    return total


def dominant_share(amounts: Resources, capacity: Mapping[str, int]) -> int:
    """Largest part of the live capacity of any resource, in units of 1/SHARE; resources without capacity are
    left out.
    """
    return max((n * SHARE // capacity[r] for r, n in amounts.items() if capacity.get(r)), default=0)


def lost_work(victim: Admitted, *, capacity: Mapping[str, int], now: float) -> int:
    """What an eviction throws away: dominant share times whole seconds since start or last checkpoint."""
    since = victim.since if victim.checkpoint is None else max(victim.since, victim.checkpoint)
    demand = demand_of(victim.workload.pod_sets, victim.counts)
    return dominant_share(demand, capacity) * max(0, int(now - since))


def eviction_cost(
    victims: Iterable[tuple[Admitted, EvictionRule]], *, capacity: Mapping[str, int], now: float
) -> Cost:
    """What a set of victims costs; smaller is better."""
    preempted = lost = gangs = priority = evicted = 0
    for victim, rule in victims:
        work = lost_work(victim, capacity=capacity, now=now)
        preempted += preempted_work(work, rule)
        lost += work
        gangs += 1
        priority += victim.workload.priority
        evicted += victim.evicted
    return preempted, lost, gangs, priority, evicted


def preempted_work(work: int, rule: EvictionRule) -> int:
    """What the eviction of a gang with this lost work adds to the first level of the cost: nothing where it is
    reclaimed, else more than nothing even if it has just started.
    """
    return work + 1 if rule is EvictionRule.PREEMPT else 0
