"""Short jobs that come fast, in virtual time: `python -m bench.stream --help`.

36 queues, one large node, 3,000 one-pod jobs of three priorities, borrowing (`bench/baseline.py`). A job's pod is bound
2 s after the job starts, and runs from then on. One JSON object: `p50_ms p99_ms max_ms`, CPU of a decision; `makespan`
and the `least` possible one, seconds from the first submission to the last end, and their `ratio`; `decisions`;
`evictions`, how many there are for `each_job`, `most` of one job; of those that were `reclaimed` how many went
`within_a_second` of their start, and `at_once`, in the same instant; `useful`, the part of the quota, over the whole
run, in which jobs ran that ended; `wait`, seconds from submission to the first start by class.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, dataclass, field
from typing import Any

from bench import arguments
from bench.baseline import CLASSES, QUOTA, least_makespan, stream
from bench.rolling import Timed
from queuer.domain.assignments import EvictionRule
from queuer.sim.engine import Simulation
from queuer.sim.report import Spread, quantile
from queuer.sim.scenario import Scenario
from queuer.solver.records import Budget, Plan, Snapshot


@dataclass
class _Watched(Timed):
    """`decide()`, timed. `reclaimed`: seconds from its start until each reclaimed job is evicted."""

    reclaimed: list[float] = field(default_factory=list)

    def __call__(self, snapshot: Snapshot, **given: Any) -> Plan:
        """See `decide`."""
        plan = Timed.__call__(self, snapshot, **given)
        since = {run.workload.uid: run.since for run in snapshot.admitted}
        gone = [e.uid for e in plan.evictions if e.rule is EvictionRule.RECLAIM]
        self.reclaimed += [given["now"] - since[uid] for uid in gone]
        return plan


def run(scenario: Scenario, *, landing: float, budget: Budget) -> dict[str, object]:
    """Play all jobs to their end."""
    timed = _Watched()
    simulation = Simulation(scenario, budget=budget, decide=timed, landing=landing)
    end = 0.0
    for now in simulation.advance(()):
        end = now
    first = min(s.workload.submitted for s in scenario.stories)
    makespan, least = end - first, least_makespan(scenario, landing=landing)
    waits: dict[str, list[float]] = {cls.name: [] for cls in CLASSES}
    for uid, job in simulation.jobs.items():
        if job.started is not None:
            waits[uid.rsplit("-", 2)[1]].append(job.started - job.workload.submitted)
    evictions = [len(job.evictions) for job in simulation.jobs.values()]
    ran = sum(s.workload.demand["cpu"] * (s.runtime or 0.0) for s in scenario.stories)
    return {
        "jobs": len(scenario.stories),
        "decisions": len(timed.seconds),
        "p50_ms": round(1000 * quantile(timed.seconds, 0.5), 2),
        "p99_ms": round(1000 * quantile(timed.seconds, 0.99), 2),
        "max_ms": round(1000 * max(timed.seconds), 2),
        "makespan": round(makespan, 2),
        "least": round(least, 2),
        "ratio": round(makespan / least, 3),
        "evictions": sum(evictions),
        "each_job": round(sum(evictions) / len(evictions), 3),
        "most": max(evictions),
        "reclaimed": len(timed.reclaimed),
        "within_a_second": sum(lasted < 1.0 for lasted in timed.reclaimed),
        "at_once": timed.reclaimed.count(0.0),
        "useful": round(ran / (1_000 * QUOTA * makespan), 3),
        "wait": {
            name: {key: round(value, 2) for key, value in asdict(Spread.of(found)).items()}
            for name, found in waits.items()
        },
    }


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(prog="python -m bench.stream", description=__doc__)
    made.add_argument(
        "--scale", type=arguments.above_zero, default=0.2, help="part of the test's jobs; 0.2 = 3,000"
    )
    made.add_argument(
        "--runtime-factor", type=arguments.above_zero, default=1.0, help="run times so many times as long"
    )
    made.add_argument(
        "--jitter", type=arguments.amount, default=0.0, help="seconds that a job comes later, at most"
    )
    made.add_argument(
        "--landing", type=arguments.amount, default=2.0, help="seconds from a start until its pod is bound"
    )
    made.add_argument(
        "--budget",
        type=arguments.amount,
        default=2.0,
        help="deterministic time of CP-SAT; 0 = it is not asked",
    )
    return made


def main() -> None:
    """Print the figures."""
    given = parser().parse_args()
    budget = Budget(deterministic=given.budget)
    scenario = stream(given.scale, runtime_factor=given.runtime_factor, jitter=given.jitter)
    print(json.dumps(run(scenario, landing=given.landing, budget=budget)))


if __name__ == "__main__":
    main()
