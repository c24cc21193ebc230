"""The gate of eviction loops: small worlds played on for 50 cycles while gangs arrive. Nobody may be preempted who
was evicted twice in the last hour, and no two gangs may evict each other. In as many other worlds several entitled and
borrowing jobs wait at once: of 200 worlds one may have a start that ends in the same instant.

    python -m tests.solver.loops --worlds 200 [--first SEED]
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterator, Sequence

from bench import arguments
from queuer.domain.assignments import EvictionRule
from queuer.solver.decide import decide
from queuer.solver.records import Budget
from queuer.solver.world import World
from tests.solver.cycles import HOUR, Evicted, Life
from tests.solver.worlds import NOW, world

CYCLES, OFTEN = 50, 2
"""Cycles of one world, and how often a gang may have gone in an hour when it is preempted."""


def played(seed: int) -> list[Evicted]:
    """All evictions in the world of this seed."""
    life = Life.of(seed)
    for _ in range(CYCLES):
        life.cycle(Budget(deterministic=0.0))
    return life.evictions


def loops(evictions: Sequence[Evicted]) -> Iterator[str]:
    """Jobs that went too often, and jobs that evicted each other, in words."""
    times: dict[str, list[float]] = {}
    most: dict[str, int] = {}
    for eviction in evictions:
        at = times.setdefault(eviction.uid, [])
        at.append(eviction.at)
        if eviction.rule is EvictionRule.PREEMPT:
            most[eviction.uid] = max(most.get(eviction.uid, 0), sum(at[-1] - HOUR < other for other in at))
    for uid, often in most.items():
        if often > OFTEN:
            yield f"{uid} is evicted {often} times in an hour"
    pairs = {(e.uid, e.beneficiary) for e in evictions}
    for uid, other in sorted(pairs):
        if uid < other and (other, uid) in pairs:
            yield f"{uid} and {other} evict each other"


def killed_at_once(seed: int) -> int:
    """How many starts end in the instant in which they are made, in a world where all happens at once."""
    there = World(world(seed, nodes=6, pending=16, running=10), now=NOW, landing=0.0, grace=0.0)
    count = 0
    for _ in range(CYCLES):
        plan = decide(there.snapshot(), now=NOW, seed=0, budget=Budget(deterministic=0.0))
        count += sum(there.admitted[e.uid].since == NOW for e in plan.evictions)
        there.apply(plan)
        there.pass_to(NOW)
        if not (plan.admissions or plan.evictions):
            break
    return count


def parser() -> argparse.ArgumentParser:
    """The command line."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    options.add_argument(
        "--worlds", type=arguments.positive, default=200, help="how many (default: %(default)s)"
    )
    options.add_argument("--first", type=arguments.seed, default=0, help="seed of the first")
    return options


def main() -> int:
    """A line for each world at fault, then one JSON line; 1 where there is any."""
    wanted = parser().parse_args()
    counts: Counter[str] = Counter(
        worlds=wanted.worlds, evictions=0, with_evictions=0, killed_at_once=0, at_fault=0
    )
    for seed in range(wanted.first, wanted.first + wanted.worlds):
        evictions = played(seed)
        counts["evictions"] += len(evictions)
        counts["with_evictions"] += bool(evictions)
        counts["killed_at_once"] += bool(killed_at_once(seed))
        if found := list(loops(evictions)):
            counts["at_fault"] += 1
            sys.stdout.write(f"world {seed}: {'; '.join(found)}\n")
    sys.stdout.write(json.dumps(counts) + "\n")
    return int(counts["at_fault"] > 0 or counts["killed_at_once"] > wanted.worlds // 200)


if __name__ == "__main__":
    sys.exit(main())
