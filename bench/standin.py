"""Seconds from the failure of the solver process to a verified plan: `python -m bench.standin --help`.

Cycles in which it is killed (SIGKILL) or stopped (SIGSTOP) at a moment drawn from `--seed`, each after undisturbed
ones. One JSON object. Medians: `undisturbed_s`, seconds of a cycle, and `ready_s`, until the stand-in's plan is there
and verified. Median, largest and number, from the signal, or for a stopped process from the deadline, to the plan:
`killed_s`, `stopped_s`, and `killed_early_s`, where the stand-in was still at work: what it had left is in them.
`rss_mb`: memory of each process after the last cycle.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import signal
import sys
import time
from statistics import median

import psutil
import structlog

from bench import arguments
from bench.course import before
from bench.instances import NOW
from bench.sizes import add_sizes, drawn
from queuer.solver.problem import Budget, Plan, Snapshot
from queuer.solver.worker import SolverProcess

SPARE = 1.2
"""Times the undisturbed cycle, until a stopped process is given up."""
PATIENT, NOTHING = Budget(wall=600.0), Budget(deterministic=0.0)


class Course:
    """The cycles; `seconds` by what they are of."""

    def __init__(self, solver: SolverProcess, snapshot: Snapshot, *, seed: int) -> None:
        self.seconds: dict[str, list[float]] = {
            name: [] for name in ("undisturbed", "ready", "killed", "killed_early", "stopped")
        }
        self._solver = solver
        self._cycles = (before(snapshot), snapshot)
        self._random = random.Random(seed)

    async def undisturbed(self) -> float:
        """Both processes decide in peace; how long the first took for the later cycle. They end on the earlier one."""
        earlier, later = self._cycles
        await self._both(earlier)
        took, ready = await self._both(later)
        await self._both(earlier)
        self.seconds["undisturbed"].append(took)
        self.seconds["ready"].append(ready)
        return took

    async def _both(self, snapshot: Snapshot) -> tuple[float, float]:
        """Seconds of a cycle, and until the stand-in's plan of it is there."""
        _, took = await self._cycle(snapshot, PATIENT)
        beside, _ = await self._cycle(snapshot, NOTHING)
        return took, sum(beside.stats.phases.values())

    async def disturbed(self, *, usual: float, number: signal.Signals) -> None:
        """The first process gets a signal on its way to a plan; where it is being replaced just then nobody does."""
        at = self._random.uniform(0.0, 0.9 * usual)
        budget = Budget(wall=SPARE * usual if number is signal.SIGSTOP else PATIENT.wall)
        asked = asyncio.create_task(self._cycle(self._cycles[1], budget))
        await asyncio.sleep(at)
        pid = self._solver.solver.pid
        if pid is None:
            await asked
            return
        os.kill(pid, number)
        plan, took = await asked
        if not plan.stats.fallback:  # it had just answered
            if number is signal.SIGSTOP:
                os.kill(pid, signal.SIGCONT)
            return
        phases = dict(plan.stats.phases)
        del phases["hand-over"]
        if number is signal.SIGSTOP:
            self.seconds["stopped"].append(took - phases["pack"] - budget.wall)
        else:
            self.seconds["killed" if at > sum(phases.values()) else "killed_early"].append(took - at)

    async def _cycle(self, snapshot: Snapshot, budget: Budget) -> tuple[Plan, float]:
        began = time.perf_counter()
        plan = await self._solver.decide(snapshot, now=NOW, seed=1, budget=budget)
        return plan, time.perf_counter() - began


def resident(solver: SolverProcess) -> dict[str, float]:
    """Megabytes of memory by process."""
    pids = {"parent": os.getpid(), "solver": solver.solver.pid, "stand_in": solver.stand_in.pid}
    return {name: round(psutil.Process(pid).memory_info().rss / 2**20, 1) for name, pid in pids.items()}


async def measure(snapshot: Snapshot, *, runs: int, seed: int, quiet: bool) -> dict[str, object]:
    """The figures."""
    async with SolverProcess() as solver:
        course = Course(solver, snapshot, seed=seed)
        for run in range(runs):
            usual = await course.undisturbed()
            await course.disturbed(usual=usual, number=signal.SIGSTOP if run % 2 else signal.SIGKILL)
            if not quiet:
                print(
                    {name: [round(s, 3) for s in all_] for name, all_ in course.seconds.items()},
                    file=sys.stderr,
                )
        await course.undisturbed()
        found: dict[str, object] = {
            f"{name}_s": round(median(course.seconds[name]), 3) for name in ("undisturbed", "ready")
        }
        for name in ("killed", "killed_early", "stopped"):
            seconds = course.seconds[name]
            found[f"{name}_s"] = (
                [round(median(seconds), 3), round(max(seconds), 3), len(seconds)] if seconds else None
            )
        return {**found, "rss_mb": resident(solver)}


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(prog="python -m bench.standin", description=__doc__)
    add_sizes(made)
    made.add_argument(
        "--runs", type=arguments.positive, default=10, help="cycles that fail, killed and stopped in turn"
    )
    made.add_argument("--seed", type=arguments.seed, default=1, help="of the instance and of the moments")
    made.add_argument("--json", action="store_true", help="the figures alone, without a line per run")
    return made


def main() -> None:
    """Print the figures."""
    given = parser().parse_args()
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    snapshot = drawn(given, seed=given.seed)
    print(json.dumps(asyncio.run(measure(snapshot, runs=given.runs, seed=given.seed, quiet=given.json))))


if __name__ == "__main__":
    main()
