"""Work lost to evictions on full clusters, against a Kueue-like rule: `python -m bench.preempt --help`.

A leaf looks for victims for one gang in a cycle, so cycles follow at the same time until one settles nothing more.
One JSON object, for all instances together and under `sizes` by nodes/gangs: `cost_ratio_total` and
`worst_ratio` (lost work, ours by the rule's, over the instances where both placed the same gangs), `worse`
(those where ours is more), `differ` (the other instances) and of them `missed` (the rule placed a gang that
ours did not), `placed` and `victims` beside the rule's, `proved` (part of the searches whose sets are the
cheapest on the nodes looked at), `cycles`, and CPU seconds: `p50_s p95_s` of a decision, `all_p95_s` of an
instance's.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from importlib import import_module

from bench import arguments, kueue_like
from bench.course import at_once
from bench.instances import GPU, NOW, Mix, crowded, most_blocked
from bench.score import live_capacity
from queuer.domain.assignments import EvictionRule
from queuer.sim.report import quantile
from queuer.solver.arrays import Arrays
from queuer.solver.decide import decide
from queuer.solver.eviction.lost_work import lost_work
from queuer.solver.records import Budget, Snapshot

SIZES = tuple((nodes, gangs) for nodes in (64, 160, 640) for gangs in (1, 4, 16))


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One instance. `ours`, `rule`: lost work, victims, gangs placed. `seconds`: CPU of each decision.
    `searches`: for victims, of which so many were `proved` the cheapest.
    """

    size: tuple[int, int]
    seed: int
    ours: tuple[int, int, frozenset[str]]
    rule: tuple[int, int, frozenset[str]]
    seconds: tuple[float, ...]
    searches: int
    proved: int

    @property
    def same(self) -> bool:
        """Whether both placed the same gangs."""
        return self.ours[2] == self.rule[2]

    @property
    def ratio(self) -> float:
        """Lost work, ours by the rule's; where the rule loses none, 1 or, if ours does, 2."""
        return self.ours[0] / self.rule[0] if self.rule[0] else 1.0 + (self.ours[0] > 0)


def run(size: tuple[int, int], seed: int, budget: Budget, *, equal: bool) -> Run:
    """Decide one instance, cycle by cycle, timed, and apply the rule to it."""
    nodes, gangs = size
    snapshot = crowded(
        nodes=nodes,
        gangs=gangs,
        mix=Mix.MIXED if seed % 2 else Mix.LARGE,
        rule=EvictionRule.RECLAIM if seed % 4 in (1, 2) else EvictionRule.PREEMPT,
        equal=equal,
        seed=seed,
    )
    arrays, then, seconds = Arrays.of(snapshot), snapshot, list[float]()
    placed, victims = frozenset[str](), frozenset[str]()
    searches = proved = 0
    gc.collect()
    while len(seconds) <= len(snapshot.pending):
        begin = time.process_time()
        plan = decide(then, now=NOW, seed=seed, budget=budget, arrays=arrays)
        seconds.append(time.process_time() - begin)
        searches, proved = searches + plan.stats.searches, proved + plan.stats.proved
        settled = frozenset([*(a.uid for a in plan.admissions), *(b.uid for b in plan.bonds)]) - placed
        if not settled:
            break
        placed, victims = placed | settled, victims | {e.uid for e in plan.evictions}
        then = at_once(then, plan, now=NOW)
        arrays = arrays.follow(then)
    rule = kueue_like.evictions(snapshot, resource=GPU)
    return Run(
        size=size,
        seed=seed,
        ours=(_lost(snapshot, victims), len(victims), placed),
        rule=(_lost(snapshot, rule.victims), len(rule.victims), rule.placed),
        seconds=tuple(seconds),
        searches=searches,
        proved=proved,
    )


def _lost(snapshot: Snapshot, victims: Collection[str]) -> int:
    capacity = live_capacity(snapshot.nodes, snapshot.flavors)
    return sum(
        lost_work(a, capacity=capacity, now=NOW) for a in snapshot.admitted if a.workload.uid in victims
    )


def summary(runs: Sequence[Run]) -> dict[str, float | int | None]:
    """The figures over these instances."""
    same = [r for r in runs if r.same]
    lost = sum(r.rule[0] for r in same)
    each = [seconds for r in runs for seconds in r.seconds]
    return {
        "cost_ratio_total": round(sum(r.ours[0] for r in same) / lost, 4) if lost else None,
        "worst_ratio": round(max(r.ratio for r in same), 4) if same else None,
        "worse": sum(r.ratio > 1 for r in same),
        "differ": len(runs) - len(same),
        "missed": sum(bool(r.rule[2] - r.ours[2]) for r in runs),
        "placed": sum(len(r.ours[2]) for r in runs),
        "placed_by_rule": sum(len(r.rule[2]) for r in runs),
        "victims": sum(r.ours[1] for r in runs),
        "victims_by_rule": sum(r.rule[1] for r in runs),
        "proved": round(sum(r.proved for r in runs) / max(1, sum(r.searches for r in runs)), 4),
        "cycles": len(each),
        "p50_s": round(quantile(each, 0.5), 4),
        "p95_s": round(quantile(each, 0.95), 4),
        "all_p95_s": round(quantile([sum(r.seconds) for r in runs], 0.95), 4),
    }


def _size(text: str) -> tuple[int, int]:
    try:
        nodes, gangs = map(arguments.positive, text.split("/"))
    except (argparse.ArgumentTypeError, ValueError):
        raise argparse.ArgumentTypeError(f"{text!r} is not NODES/GANGS, two whole numbers from 1") from None
    if gangs > (most := most_blocked(nodes)):
        raise argparse.ArgumentTypeError(f"{text}: {nodes} nodes bear at most {most} blocked gangs")
    return nodes, gangs


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(prog="python -m bench.preempt", description=__doc__)
    made.add_argument(
        "--seeds",
        type=arguments.positive,
        default=20,
        help="instances of each size, with seeds from the first on",
    )
    made.add_argument("--first", type=arguments.seed, default=1, help="first seed")
    made.add_argument("--sizes", type=_size, nargs="+", default=SIZES, help="nodes/gangs, default: all nine")
    made.add_argument("--budget", type=arguments.amount, default=2.0, help="deterministic time of CP-SAT")
    made.add_argument("--equal", action="store_true", help="all that runs has one priority")
    made.add_argument("--json", action="store_true", help="no figures of single instances")
    return made


def main() -> None:
    """Print the figures; exit 1 where a plan costs more than the rule's or misses a gang that the rule places."""
    given = parser().parse_args()
    import_module("ortools.sat.python.cp_model")  # as in the solver process, which has it loaded
    runs = []
    for size in given.sizes:
        for seed in range(given.first, given.first + given.seeds):
            done = run(size, seed, Budget(deterministic=given.budget), equal=given.equal)
            runs.append(done)
            print(
                f"{size[0]}/{size[1]} seed {seed}"
                if given.json
                else f"{size[0]}/{size[1]} seed {seed}: ratio {done.ratio:.3f}, {done.ours[1]} victims, the rule's "
                f"{done.rule[1]}; placed {len(done.ours[2])}, {len(done.rule[2])} in {len(done.seconds)} cycles; "
                f"{max(done.seconds):.3f} s",
                file=sys.stderr,
                flush=True,
            )
    figures = summary(runs)
    by_size = {f"{n}/{g}": summary([r for r in runs if r.size == (n, g)]) for n, g in given.sizes}
    print(json.dumps(figures | {"sizes": by_size}))
    sys.exit(1 if figures["worse"] or figures["missed"] else 0)


if __name__ == "__main__":
    main()
