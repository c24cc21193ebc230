"""Waits over weeks of arrivals, best-effort against reservations on the same jobs: `python -m bench.rolling --help`.

One JSON object: for each policy the means over the seeds, and `ratio` of reservations to best-effort (for
utilisation the difference in points), each with its standard error. `instances.md` fixes workload and measures.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from math import inf
from random import Random
from typing import Any

from bench import arguments
from bench.instances import GPU, KEYS, PER_NODE, PER_RACK, Form, Mix, draw_form, node_at, workload_of
from queuer.domain.nodes import Topology
from queuer.domain.queue import ROOT
from queuer.sim.engine import Simulation
from queuer.sim.report import Spread, quantile
from queuer.sim.scenario import Scenario, Story
from queuer.solver.decide import decide
from queuer.solver.records import Budget, Plan, Snapshot

QUEUE = "root.all"
MEDIAN, USERS, BETWEEN, WITHIN, NOISE = 3600.0, 40, 1.2, 0.9, 0.7
"""Run times: seconds, users, and sigmas of the logarithm between users, of one user, and of what they declare."""
LARGE, SMALL = 64, PER_NODE
"""GPUs from which on a gang is large, up to which it is small."""
WARM = 0.1
"""Part of the jobs that come before anything is measured."""


class Told(StrEnum):
    """What is known of run times beforehand."""

    DECLARED = "declared"
    LEARNED = "learned"


class Rule(StrEnum):
    """What is compared."""

    BEST_EFFORT = "best_effort"
    RESERVATIONS = "reservations"


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """One run; times in seconds. `utilisation`: part of the GPU time between warm-up and the last submission."""

    wait: float
    gpu_wait: float
    large_wait: float
    large_p95: float
    large_max: float
    small_wait: float
    utilisation: float


@dataclass(slots=True)
class Timed:
    """`decide()` with the CPU seconds of each call."""

    seconds: list[float] = field(default_factory=list)

    def __call__(self, snapshot: Snapshot, **given: Any) -> Plan:
        """See `decide`."""
        begin = time.process_time()
        plan = decide(snapshot, **given)
        self.seconds.append(time.process_time() - begin)
        return plan


def stories(*, nodes: int, load: float, jobs: int, mix: Mix, seed: int, told: Told) -> tuple[Story, ...]:
    """The jobs of one seed: as many as asked, over the time in which they are `load` of the cluster's GPU time."""
    rng = Random(seed)
    habits = [MEDIAN * rng.lognormvariate(0, BETWEEN) for _ in range(USERS)]
    drawn = []
    for _ in range(jobs):
        form = draw_form(rng, mix)
        while form.total > _most(form, nodes):
            form = draw_form(rng, mix)
        user = rng.randrange(USERS)
        runtime = _minutes(habits[user] * rng.lognormvariate(0, WITHIN))
        declared = _minutes(runtime * rng.lognormvariate(0, NOISE))
        drawn.append((form, user, runtime, declared if told is Told.DECLARED else None))
    work = sum(form.total * runtime for form, _, runtime, _ in drawn)
    length = work / (load * nodes * PER_NODE)
    times = sorted(round(rng.uniform(0, length)) for _ in drawn)
    return tuple(
        Story(
            workload=workload_of(
                f"w{i:06}", QUEUE, form, submitted=float(at), lasts=declared, user=f"u{user:02}"
            ),
            runtime=runtime,
        )
        for i, (at, (form, user, runtime, declared)) in enumerate(zip(times, drawn, strict=True))
    )


def _most(form: Form, nodes: int) -> int:
    """The most GPUs of a gang: half the cluster, or its rack."""
    half = nodes * PER_NODE // 2
    return min(half, PER_RACK * PER_NODE) if form.required == "rack" else half


def _minutes(seconds: float) -> float:
    return 60.0 * max(1, round(seconds / 60))


def scenario(told: tuple[Story, ...], *, nodes: int, rule: Rule) -> Scenario:
    """The jobs on an empty cluster, in one queue."""
    reservations = 1 if rule is Rule.RESERVATIONS else 0
    return Scenario(
        name="rolling",
        why=rule,
        grace=0.0,
        until=inf,
        topology=Topology(keys=KEYS),
        flavors=(),
        nodes=tuple(node_at(i, used=0).node for i in range(nodes)),
        foreign=(),
        queues={ROOT: {"policy": {"reservations": reservations}}, QUEUE: {}},
        stories=told,
        events=(),
        expect=(),
    )


def run(told: tuple[Story, ...], *, nodes: int, rule: Rule, budget: Budget, timed: Timed) -> Figures:
    """Play the jobs until all that are measured have started."""
    simulation = Simulation(scenario(told, nodes=nodes, rule=rule), budget=budget, decide=timed)
    for _ in simulation.advance(()):
        if len(simulation.admissions) == len(told):
            break
    return measured(told, {uid: at for at, uid in simulation.admissions}, gpus=nodes * PER_NODE)


def measurable(told: Sequence[Story]) -> bool:
    """Whether large and small gangs come after the warm-up, and not all at once."""
    begin, end = _window(told)
    sizes = [s.workload.demand[GPU] for s in told if s.workload.submitted >= begin]
    return begin < end and min(sizes) <= SMALL and max(sizes) >= LARGE


def _window(told: Sequence[Story]) -> tuple[float, float]:
    """The end of the warm-up and the last submission."""
    return told[round(WARM * len(told))].workload.submitted, told[-1].workload.submitted


def measured(told: Sequence[Story], started: dict[str, float], *, gpus: int) -> Figures:
    """What came of the jobs after the warm-up."""
    jobs = [(s.workload.demand[GPU], started[s.workload.uid], s) for s in told]
    begin, end = _window(told)
    busy = sum(size * max(0.0, min(at + (s.runtime or 0.0), end) - max(at, begin)) for size, at, s in jobs)
    waits = [(n, at - s.workload.submitted) for n, at, s in jobs if s.workload.submitted >= begin]
    large = Spread.of([wait for n, wait in waits if n >= LARGE])
    return Figures(
        wait=Spread.of([wait for _, wait in waits]).mean,
        gpu_wait=sum(n * wait for n, wait in waits) / sum(n for n, _ in waits),
        large_wait=large.mean,
        large_p95=large.p95,
        large_max=large.max,
        small_wait=Spread.of([wait for n, wait in waits if n <= SMALL]).mean,
        utilisation=busy / (gpus * (end - begin)),
    )


def compared(found: dict[Rule, list[Figures]]) -> dict[str, dict[str, float | None]]:
    """By figure the ratio of sums over the seeds (utilisation: the mean difference in points) and its error."""
    ours, theirs = (list(map(asdict, found[rule])) for rule in (Rule.RESERVATIONS, Rule.BEST_EFFORT))
    table = {}
    for name in ours[0]:
        pairs = [(a[name], b[name]) for a, b in zip(ours, theirs, strict=True)]
        value = _points if name == "utilisation" else _ratio
        table[name] = {"value": _rounded(value(pairs)), "error": _rounded(_error(pairs, value))}
    return table


def _rounded(value: float) -> float | None:
    """None where there is no such figure: JSON has no word for it."""
    return round(value, 4) if math.isfinite(value) else None


def _ratio(pairs: Sequence[tuple[float, float]]) -> float:
    below = sum(b for _, b in pairs)
    return sum(a for a, _ in pairs) / below if below else math.nan


def _points(pairs: Sequence[tuple[float, float]]) -> float:
    return 100 * sum(a - b for a, b in pairs) / len(pairs)


def _error(pairs: Sequence[tuple[float, float]], value: Any) -> float:
    """Jackknife over seeds."""
    n = len(pairs)
    if n < 2:
        return math.nan
    left = [value([p for j, p in enumerate(pairs) if j != i]) for i in range(n)]
    mean = sum(left) / n
    return math.sqrt((n - 1) / n * sum((x - mean) ** 2 for x in left))


def means(found: Sequence[Figures], timed: Timed) -> dict[str, float]:
    """Over the seeds, with the decisions: how many, and the quantiles of their CPU seconds."""
    rows = list(map(asdict, found))
    table = {name: round(sum(row[name] for row in rows) / len(rows), 4) for name in rows[0]}
    return table | {
        "decisions": len(timed.seconds),
        "p50_s": round(quantile(timed.seconds, 0.5), 4),
        "p99_s": round(quantile(timed.seconds, 0.99), 4),
    }


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(prog="python -m bench.rolling", description=__doc__)
    made.add_argument("--nodes", type=arguments.positive, default=64, help="nodes with 8 GPUs each")
    made.add_argument(
        "--load", type=arguments.above_zero, default=0.95, help="GPU time asked for over GPU time there is"
    )
    made.add_argument("--jobs", type=arguments.positive, default=4000, help="gangs that come in one run")
    made.add_argument("--mix", type=arguments.word(Mix), choices=list(Mix), default=Mix.MIXED)
    made.add_argument("--estimates", type=arguments.word(Told), choices=list(Told), default=Told.DECLARED)
    made.add_argument("--seeds", type=arguments.positive, default=10, help="how many workloads")
    made.add_argument(
        "--first", type=arguments.seed, default=1, help="seed of the first; 101 and more to work with"
    )
    made.add_argument(
        "--budget",
        type=arguments.amount,
        default=2.0,
        help="deterministic time of CP-SAT; 0 = it is not asked",
    )
    made.add_argument("--json", action="store_true", help="the figures alone, without a line per run")
    return made


def main() -> None:
    """Print the figures."""
    given = parser().parse_args()
    found: dict[Rule, list[Figures]] = {rule: [] for rule in Rule}
    timed = {rule: Timed() for rule in Rule}
    for seed in range(given.first, given.first + given.seeds):
        told = stories(
            nodes=given.nodes,
            load=given.load,
            jobs=given.jobs,
            mix=given.mix,
            seed=seed,
            told=given.estimates,
        )
        if not measurable(told):
            missing = f"no gang of {LARGE} GPUs or more, or none up to {SMALL}, comes after the warm-up"
            parser().error(f"arguments --jobs, --nodes: seed {seed}: {missing}; give more")
        for rule in Rule:
            budget = Budget(deterministic=given.budget)
            figures = run(told, nodes=given.nodes, rule=rule, budget=budget, timed=timed[rule])
            found[rule].append(figures)
            if not given.json:
                print(f"seed {seed} {rule}: {_line(figures)}", file=sys.stderr)
    table = {rule.value: means(found[rule], timed[rule]) for rule in Rule}
    print(json.dumps(table | {"ratio": compared(found)}))


def _line(figures: Figures) -> str:
    waits = {k: f"{v / 60:.1f} min" for k, v in asdict(figures).items() if k != "utilisation"}
    return f"{waits} utilisation {figures.utilisation:.4f}"


if __name__ == "__main__":
    main()
