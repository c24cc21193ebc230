"""How good decisions are, on 200 bursts of `instances.md`: `python -m bench.quality --help`.

One JSON object. `--order default`: the decision with the exact solver against greedy alone: `worse` and `earlier` (an
earlier gang in the order of turns admitted) count instances. `--order packed`: GPUs that start against first in, first
out with best-fit domains (`bench/fifo.py`); `worse` counts instances in which the GPUs by priority, highest first, are
lexicographically less. `violations`: broken rules, by the verifier.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from bench.bursts import burst, scale
from bench.fifo import fifo
from bench.instances import GPU, NOW, PRIORITIES
from queuer.domain.queue import Order
from queuer.solver.decide import decide
from queuer.solver.problem import Budget, Plan, Snapshot
from queuer.solver.score import score
from queuer.solver.verify import verify

GREEDY = Budget(deterministic=0.0)
Row = dict[str, Any]


def default(seed: int, *, budget: Budget) -> Row:
    """The decision with the exact solver against greedy alone."""
    snapshot = burst(seed, order=Order.PRIORITY)
    plan, seconds = _timed(snapshot, seed=seed, budget=budget)
    greedy = decide(snapshot, now=NOW, seed=seed, budget=GREEDY)
    ours, theirs = score(snapshot, plan, now=NOW), score(snapshot, greedy, now=NOW)
    return {
        "seed": seed,
        "seconds": seconds,
        "worse": ours < theirs,
        "earlier": ours.flags > theirs.flags,
        "better": ours > theirs,
        "contested": plan.stats.contested,
        "rearranged": plan.stats.rearranged,
        "proved": plan.stats.proved,
        "deferred": plan.stats.deferred,
        "violations": len(verify(snapshot, plan, now=NOW)),
    }


def packed(seed: int, *, budget: Budget) -> Row:
    """GPUs by priority against first in, first out."""
    snapshot = burst(seed, order=Order.PACKED)
    plan, seconds = _timed(snapshot, seed=seed, budget=budget)
    ours, theirs = (_ranked(found) for found in (_gpus(snapshot, plan), fifo(snapshot)))
    return {
        "seed": seed,
        "seconds": seconds,
        "worse": ours < theirs,
        "better": ours > theirs,
        "gpus": ours,
        "fifo": theirs,
        "violations": len(verify(snapshot, plan, now=NOW)),
    }


def _timed(snapshot: Snapshot, *, seed: int, budget: Budget) -> tuple[Plan, float]:
    begin = time.process_time()
    plan = decide(snapshot, now=NOW, seed=seed, budget=budget)
    return plan, round(time.process_time() - begin, 3)


def _gpus(snapshot: Snapshot, plan: Plan) -> dict[int, int]:
    waiting = {p.workload.uid: p.workload for p in snapshot.pending}
    found: dict[int, int] = {}
    for admission in plan.admissions:
        workload = waiting[admission.uid]
        found[workload.priority] = found.get(workload.priority, 0) + workload.demand[GPU]
    return found


def _ranked(gpus: dict[int, int]) -> list[int]:
    return [gpus.get(priority, 0) for priority in sorted(PRIORITIES, reverse=True)]


def summary(rows: Sequence[Row]) -> Row:
    """Sums over all seeds; gains in per cent."""
    found: Row = {key: sum(r[key] for r in rows) for key in rows[0] if key not in ("seed", "gpus", "fifo")}
    found = {"instances": len(rows), **found, "max_s": max(r["seconds"] for r in rows)}
    found["seconds"] = round(found["seconds"], 1)
    if "gpus" in rows[0]:
        for name, part in (("gain", slice(None)), ("top_gain", slice(1))):
            ours, theirs = (sum(sum(r[who][part]) for r in rows) for who in ("gpus", "fifo"))
            found[name] = round(100 * (ours / theirs - 1), 2)
        found["gpus"], found["fifo_gpus"] = (sum(sum(r[who]) for r in rows) for who in ("gpus", "fifo"))
    return found


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(prog="python -m bench.quality", description=__doc__)
    made.add_argument("--seeds", default="1-200", help="first and last, with a hyphen between them")
    made.add_argument("--order", choices=("default", "packed"), default="default")
    made.add_argument("--nodes", type=int, help="only the instances with that many nodes")
    made.add_argument(
        "--budget", type=float, default=2.0, help="deterministic time of the exact solver; 0 = none"
    )
    made.add_argument("--json", action="store_true", help="the figures alone, without a line per seed")
    return made


def main() -> None:
    """Print the figures; exit 1 where a plan is unsound or worse."""
    given = parser().parse_args()
    import_module("queuer.solver.cpsat")  # as in the solver process, which has it loaded
    first, last = map(int, given.seeds.split("-"))
    measure = default if given.order == "default" else packed
    rows = []
    for seed in range(first, last + 1):
        if given.nodes in (None, scale(seed).nodes):
            rows.append(measure(seed, budget=Budget(deterministic=given.budget)))
            if not given.json:
                print(json.dumps(rows[-1]), file=sys.stderr)
    figures = summary(rows)
    print(json.dumps(figures))
    sys.exit(1 if figures["violations"] or figures["worse"] else 0)


if __name__ == "__main__":
    main()
