"""Seconds of one decision that starts all that waits: `python -m bench.backlog --help`.

5,000 one-pod jobs in 36 queues that all fit one node and their quota (`bench/baseline.py`). Prints what `bench.decide`
prints.
"""

from __future__ import annotations

import argparse
import json
import sys

from bench import arguments
from bench.baseline import backlog
from bench.decide import run, summary
from queuer.solver.arrays import Arrays
from queuer.solver.records import Budget


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(prog="python -m bench.backlog", description=__doc__)
    made.add_argument("--jobs", type=arguments.positive, default=5_000)
    made.add_argument("--runs", type=arguments.positive, default=3, help="decisions about the same jobs")
    return made


def main() -> None:
    """Print the figures; exit 1 where a plan is unsound or not all jobs start."""
    given = parser().parse_args()
    snapshot, runs = backlog(given.jobs), []
    for seed in range(given.runs):
        runs.append(run(Arrays.of(snapshot), snapshot, now=60.0, seed=seed, budget=Budget()))
    figures = summary(runs)
    print(json.dumps(figures))
    all_start = all(len(r.plan.admissions) == given.jobs for r in runs)
    sys.exit(0 if all_start and not figures["violations"] else 1)


if __name__ == "__main__":
    main()
