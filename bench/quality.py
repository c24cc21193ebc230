"""How good decisions are, on 200 bursts of `instances.md`: `python -m bench.quality --help`.

One JSON object. `--order default`: the decision against the same without CP-SAT: `worse` and `earlier` (an
earlier gang in the order of turns admitted) count instances. `--order packed`: GPUs that start against first in, first
out with best-fit domains (`bench/fifo.py`); `worse` counts instances in which the GPUs by priority, highest first, are
lexicographically less; `gain`, `top_gain`: GPUs and top-priority GPUs in per cent; `gap`: to a bound for which domains
are pooled (`bench/pooled.py`), given what higher priorities started. `violations`: broken rules, by the verifier.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from bench import arguments
from bench.bursts import NODES, burst, scale
from bench.fifo import fifo
from bench.instances import GPU, NOW, PRIORITIES
from bench.pooled import pooled
from bench.score import score
from queuer.domain.queue import Order
from queuer.solver.decide import decide
from queuer.solver.records import Budget, Plan, Snapshot
from queuer.solver.verify import verify

GREEDY = Budget(deterministic=0.0)
Row = dict[str, Any]


def default(seed: int, *, budget: Budget) -> Row:
    """The decision against the same without CP-SAT."""
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
        "repaired": plan.stats.repaired,
        "violations": len(verify(snapshot, plan, now=NOW)),
    }


def packed(seed: int, *, budget: Budget) -> Row:
    """GPUs by priority against first in, first out."""
    snapshot = burst(seed, order=Order.PACKED)
    plan, seconds = _timed(snapshot, seed=seed, budget=budget)
    started = _gpus(snapshot, plan)
    ours, theirs = _ranked(started), _ranked(fifo(snapshot))
    return {
        "seed": seed,
        "nodes": len(snapshot.nodes),
        "seconds": seconds,
        "worse": ours < theirs,
        "better": ours > theirs,
        "gpus": ours,
        "fifo": theirs,
        "bound": _ranked(pooled(snapshot, started)),
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
    """Sums over all seeds; gains and gaps in per cent."""
    kept = [
        key for key, value in rows[0].items() if key not in ("seed", "nodes") and not isinstance(value, list)
    ]
    found: Row = {"instances": len(rows), **{key: sum(r[key] for r in rows) for key in kept}}
    found["seconds"], found["max_s"] = round(found["seconds"], 1), max(r["seconds"] for r in rows)
    if "gpus" in rows[0]:
        found["gpus"], found["fifo_gpus"] = _total(rows, "gpus"), _total(rows, "fifo")
        found["gain"] = _more(found["gpus"], found["fifo_gpus"])
        found["top_gain"] = _more(_total(rows, "gpus", top=True), _total(rows, "fifo", top=True))
        large = [r for r in rows if r["nodes"] == max(NODES)]
        found["gap"] = _more(_total(rows, "bound"), found["gpus"])
        found[f"gap_{max(NODES)}"] = _more(_total(large, "bound"), _total(large, "gpus"))
    return found


def _total(rows: Sequence[Row], who: str, *, top: bool = False) -> int:
    return sum(r[who][0] if top else sum(r[who]) for r in rows)


def _more(left: int, right: int) -> float | None:
    """By how much the left is more than the right, in per cent."""
    return round(100 * (left / right - 1), 2) if right else None


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(prog="python -m bench.quality", description=__doc__)
    made.add_argument(
        "--seeds", type=arguments.seeds, default="1-200", help="first and last, with a hyphen between them"
    )
    made.add_argument("--order", choices=("default", "packed"), default="default")
    made.add_argument("--nodes", type=int, choices=NODES, help="only the instances with that many nodes")
    made.add_argument(
        "--budget",
        type=arguments.amount,
        default=2.0,
        help="deterministic time of CP-SAT; 0 = it is not asked",
    )
    made.add_argument(
        "--rows",
        type=arguments.to_write,
        help="file of instances, a JSON line each: those there already are not run again",
    )
    made.add_argument("--json", action="store_true", help="no figures of single instances")
    return made


def _measured(given: argparse.Namespace) -> list[Row]:
    """The rows of all seeds, each told as soon as it is known."""
    measure = default if given.order == "default" else packed
    seeds = [s for s in given.seeds if given.nodes in (None, scale(s).nodes)]
    if not seeds:
        parser().error(f"argument --nodes: no instance of --seeds has {given.nodes}; take more seeds")
    rows = {row["seed"]: row for row in _known(given.rows) if row["seed"] in seeds}
    for seed in seeds:
        if seed not in rows:
            rows[seed] = measure(seed, budget=Budget(deterministic=given.budget))
            told = json.dumps(rows[seed])
            if given.rows:
                with given.rows.open("a") as file:
                    file.write(told + "\n")
            print(f"seed {seed} to {seeds[-1]}" if given.json else told, file=sys.stderr, flush=True)
    return list(rows.values())


def _known(path: Path | None) -> list[Row]:
    """The rows in a file of an earlier run."""
    if path is None or not path.exists():
        return []
    try:
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        return [row for row in rows if isinstance(row["seed"], int)]
    except (ValueError, TypeError, KeyError):
        parser().error(f"argument --rows: {path} holds what is no instance's row; name another file")


def main() -> None:
    """Print the figures; exit 1 where a plan is unsound or worse."""
    given = parser().parse_args()
    import_module("ortools.sat.python.cp_model")  # as in the solver process, which has it loaded
    figures = summary(_measured(given))
    print(json.dumps(figures))
    sys.exit(1 if figures["violations"] or figures["worse"] else 0)


if __name__ == "__main__":
    main()
