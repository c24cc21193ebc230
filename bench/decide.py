"""Seconds from arrays to a verified plan with reasons, over seeds: `python -m bench.decide --help`.

One JSON object: `p50_s p99_s` of the decisions by the clock, `p50_cpu_s p99_cpu_s` of the processor;
`follow_s`: the median time in which the arrays of the cycle before follow to this one (100 gangs came, 30
ended, 30 started); `max_rss_mb` of all processes; `turns`, and `searches` for victims, of which so many were
`proved`; gangs `contested` and of these `repaired`; `refused` by the verifier inside; `more`: decisions that
left something to the next; `started`, `bound`, `evicted`; `worse_than_greedy`: than the same decision without
CP-SAT, where that evicts the same; `violations`.

With `--after K` the decision is the one after K others, each carried out (`bench/course.py`): the state of a cluster
that has been decided about all along, where the drawn one has much to be taken back at once.
"""

from __future__ import annotations

import argparse
import gc
import json
import resource
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import import_module

from bench import arguments
from bench.course import CAME, ENDED, before, carried_out, queued_again
from bench.instances import NOW
from bench.score import score
from bench.sizes import add_sizes, drawn
from queuer.sim.report import quantile
from queuer.solver.arrays import Arrays
from queuer.solver.decide import decide
from queuer.solver.records import Budget, Pending, Plan, Snapshot
from queuer.solver.verify import verify


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One seed: its plan, seconds, and what the judges say."""

    seed: int
    plan: Plan
    seconds: float
    cpu: float
    follow: float
    violations: int
    worse: bool


EVERY = 30.0
"""Seconds from one decision to the next."""


def run(old: Arrays, snapshot: Snapshot, *, now: float, seed: int, budget: Budget) -> Run:
    """Decide once, timed; then judge, not timed (`decide()` has verified its plan itself). `old`: the arrays of the
    cycle before.
    """
    gc.collect()
    gc.disable()  # as in the solver process
    begin = time.perf_counter()
    arrays = old.follow(snapshot)
    followed, spent = time.perf_counter(), time.process_time()
    plan = decide(snapshot, now=now, seed=seed, budget=budget, arrays=arrays)
    seconds, cpu = time.perf_counter() - followed, time.process_time() - spent
    gc.enable()
    greedy = decide(snapshot, now=now, seed=seed, budget=Budget(deterministic=0.0), arrays=arrays)
    return Run(
        seed=seed,
        plan=plan,
        seconds=seconds,
        cpu=cpu,
        follow=followed - begin,
        violations=len(verify(snapshot, plan, now=now)),
        worse=plan.evictions == greedy.evictions
        and score(snapshot, plan, now=now) < score(snapshot, greedy, now=now),
    )


def summary(runs: Sequence[Run]) -> dict[str, float]:
    """The figures over all seeds."""
    kilobytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    kilobytes += resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    return {
        "p50_s": round(quantile([r.seconds for r in runs], 0.5), 4),
        "p99_s": round(quantile([r.seconds for r in runs], 0.99), 4),
        "p50_cpu_s": round(quantile([r.cpu for r in runs], 0.5), 4),
        "p99_cpu_s": round(quantile([r.cpu for r in runs], 0.99), 4),
        "follow_s": round(quantile([r.follow for r in runs], 0.5), 4),
        "max_rss_mb": round(kilobytes / 1024, 1),
        "turns": sum(r.plan.stats.turns for r in runs),
        "searches": sum(r.plan.stats.searches for r in runs),
        "proved": sum(r.plan.stats.proved for r in runs),
        "contested": sum(r.plan.stats.contested for r in runs),
        "repaired": sum(r.plan.stats.repaired for r in runs),
        "refused": sum(r.plan.stats.refused for r in runs),
        "more": sum(r.plan.stats.more for r in runs),
        "started": sum(len(r.plan.admissions) for r in runs),
        "bound": sum(len(r.plan.bonds) for r in runs),
        "evicted": sum(len(r.plan.evictions) for r in runs),
        "worse_than_greedy": sum(r.worse for r in runs),
        "violations": sum(r.violations for r in runs),
    }


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(prog="python -m bench.decide", description=__doc__)
    add_sizes(made)
    made.add_argument(
        "--seeds", type=arguments.positive, default=10, help="instances, with seeds 1 to this number"
    )
    made.add_argument(
        "--budget",
        type=arguments.amount,
        default=2.0,
        help="deterministic time of CP-SAT; 0 = it is not asked",
    )
    made.add_argument(
        "--after", type=arguments.count, default=0, help="decisions that have been carried out before"
    )
    made.add_argument("--json", action="store_true", help="the figures alone, without a line per seed")
    return made


def measured(given: argparse.Namespace, *, seed: int) -> Run:
    """The run of one seed."""
    everything = drawn(given, seed=seed, more=CAME * given.after)
    budget = Budget(deterministic=given.budget)
    to_come, back, now = list(everything.pending[given.pending :]), list[Pending](), NOW
    snapshot = replace(everything, pending=everything.pending[: given.pending])
    arrays = Arrays.of(before(snapshot)) if not given.after else Arrays.of(snapshot)
    for cycle in range(given.after):
        arrays = arrays.follow(snapshot)
        plan = decide(snapshot, now=now, seed=seed, budget=budget, arrays=arrays)
        come, to_come = [*back, *to_come[:CAME]], to_come[CAME:]
        back = queued_again(snapshot, plan)
        snapshot = carried_out(snapshot, plan, now=now, ended=ENDED, come=come, seed=seed + cycle)
        now += EVERY
    return run(arrays, snapshot, now=now, seed=seed, budget=budget)


def main() -> None:
    """Print the figures; exit 1 where a plan is unsound, or worse than without CP-SAT."""
    given = parser().parse_args()
    import_module("ortools.sat.python.cp_model")  # as in the solver process, which has it loaded
    runs = []
    for seed in range(1, given.seeds + 1):
        done = measured(given, seed=seed)
        runs.append(done)
        if not given.json:
            stats = done.plan.stats
            print(
                f"seed {seed}: {done.cpu:.3f} s, {stats.turns} turns, {len(done.plan.admissions)} start, "
                f"{len(done.plan.evictions)} evicted, {stats.repaired} of {stats.contested} contested, {stats.status}",
                file=sys.stderr,
            )
    figures = summary(runs)
    print(json.dumps(figures))
    sys.exit(1 if figures["violations"] or figures["worse_than_greedy"] else 0)


if __name__ == "__main__":
    main()
