"""Lost work: the cost of an eviction as plans compare it, and as the owner of the evicted job counts it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from queuer.domain.assignments import EvictionRule, LostWork
from queuer.domain.quantity import Resources
from queuer.domain.workload import demand_of
from queuer.solver.records import Admitted

SHARE = 10**9
"""A dominant share of 1 as an integer."""
Cost = tuple[int, ...]
"""Lost work of those preempted for priority, lost work, gangs, sum of priorities, evictions in the last hour."""


def lost_work(victim: Admitted, *, capacity: Mapping[str, int], now: float) -> int:
    """The work that an eviction loses: dominant share of live capacity, in units of 1/SHARE, times seconds."""
    shares = (n * SHARE // capacity[r] for r, n in _demand(victim).items() if capacity.get(r))
    return max(shares, default=0) * seconds_lost(victim, now=now)


def seconds_lost(victim: Admitted, *, now: float) -> int:
    """Whole seconds since its start or last checkpoint."""
    since = victim.since if victim.checkpoint is None else max(victim.since, victim.checkpoint)
    return max(0, int(now - since))


def preempted_work(work: int, rule: EvictionRule) -> int:
    """The first level of the cost of evicting a gang with this lost work. A reclaimed gang adds nothing, another adds
    something even if it has just started.
    """
    return work + 1 if rule is EvictionRule.PREEMPT else 0


def losses(
    victims: Sequence[Admitted],
    next_best: Sequence[Admitted],
    *,
    capacity: Mapping[str, int],
    now: float,
    proved: bool,
    jobs: int,
) -> Iterator[LostWork]:
    """The work that each victim loses, beside that of all and of the next best set, () = none is known.

    `jobs`: for how many waiting jobs they were chosen together.
    """
    measures = [_main_resource(_demand(victim), capacity) for victim in victims]
    comparable = {_main_resource(_demand(v), capacity) for v in next_best} == set(measures)
    all_, others = (
        {r: sum(_amount_lost(v, r, now=now) for v in some) for r in set(measures)}
        for some in (victims, next_best)
    )
    for victim, resource in zip(victims, measures, strict=True):
        yield LostWork(
            resource=resource,
            amount=_amount_lost(victim, resource, now=now),
            all=all_[resource],
            next=others[resource] if comparable and others[resource] >= all_[resource] else None,
            proved=proved,
            jobs=jobs,
        )


def _amount_lost(victim: Admitted, resource: str, *, now: float) -> int:
    return _demand(victim).get(resource, 0) * seconds_lost(victim, now=now)


def _main_resource(amounts: Resources, capacity: Mapping[str, int]) -> str:
    """The resource by which people measure this work: a device before cpu, else that of the largest share."""
    shares = {
        r: (("/" in r, r == "cpu"), n / capacity[r]) for r, n in amounts.items() if n and capacity.get(r)
    }
    return max(shares, key=lambda r: shares[r], default="cpu")


def _demand(victim: Admitted) -> Resources:
    return demand_of(victim.workload.pod_sets, victim.counts)
