"""The long gate of the decision: thousands of random cycles of mixed sizes. Each must be sound and no worse
than the same decision without CP-SAT. It has one reason per waiting gang, and gives the same plan again.

    python -m tests.solver.many_cycles --cycles 2000 [--first SEED]

A round is one life of a small world and single cycles of larger ones. The second run of each decision is made
in another process with another hash seed. So the order of a set cannot hide in a plan.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from unittest import mock

from bench import arguments
from bench.score import score
from queuer.solver import stored
from queuer.solver.decide import decide
from queuer.solver.records import Budget, Plan, Snapshot
from queuer.solver.stored import StoredCycle
from queuer.solver.verify import verify
from tests.solver.cycles import Life
from tests.solver.strict import passers
from tests.solver.worlds import NOW, packed, world

GREEDY, EXACT = Budget(deterministic=0.0), Budget()
LIFE = 12
"""Cycles of one life."""
SIZES = (8, 8, 16, 16, 24, 32, 48, 64)
"""Nodes at most, waiting and running gangs at most, of the single cycles of a round."""
ROUND = LIFE + len(SIZES)
FAULTS = ("violations", "refused", "worse_than_greedy", "without_one_reason", "not_deterministic", "failed")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cycle:
    """One decision and what it was asked."""

    name: str
    snapshot: Snapshot
    now: float
    plan: Plan


@dataclass(slots=True, kw_only=True)
class Tally:
    """Counts of what happened and of what must not happen; the names of the first cycles at fault."""

    counts: Counter[str] = field(default_factory=Counter)
    examples: list[str] = field(default_factory=list)

    def fault(self, kind: str, text: str) -> None:
        """Count something that must not happen."""
        self.counts[kind] += 1
        if len(self.examples) < 20:
            self.examples.append(f"{kind}: {text}")

    @property
    def sound(self) -> bool:
        """Whether nothing was at fault."""
        return not any(self.counts[kind] for kind in FAULTS)


def rounds(first: int, tally: Tally) -> Iterator[Cycle]:
    """The cycles of round after round, without end. A broken decision is counted; a life ends there."""
    seed = first
    while True:
        life = Life.of(seed)
        for number in range(LIFE):
            at, name = life.now, f"life {seed}, cycle {number}"
            try:
                snap, plan = life.cycle(EXACT)
            except Exception as error:  # noqa: BLE001 - whatever a decision raises is what is looked for
                tally.fault("failed", f"{name}: {type(error).__name__}: {error}")
                break
            yield Cycle(name=name, snapshot=snap, now=at, plan=plan)
        for number, size in enumerate(SIZES):
            of = seed * len(SIZES) + number
            snap, name = world(of, nodes=size, pending=size, running=size), f"world {of} of size {size}"
            if number % 4 == 3:
                snap, name = packed(snap, seed), f"{name}, packed by {seed}"
            try:
                plan = decide(snap, now=NOW, seed=0, budget=EXACT)
            except Exception as error:  # noqa: BLE001 - see above
                tally.fault("failed", f"{name}: {type(error).__name__}: {error}")
                continue
            yield Cycle(name=name, snapshot=snap, now=NOW, plan=plan)
        seed += 1


def difference_elsewhere(packed_cycle: bytes) -> str:
    """Where the plan of the same decision, made in this process, differs."""
    cycle = stored.decode(packed_cycle)
    return stored.difference(cycle.plan, stored.again(cycle)) if cycle.plan is not None else "no plan"


def judge(cycle: Cycle, differs: str, tally: Tally) -> None:
    """Count what came of a cycle."""
    snap, plan, now, counts = cycle.snapshot, cycle.plan, cycle.now, tally.counts
    counts["cycles"] += 1
    if broken := verify(snap, plan, now=now):
        tally.fault("violations", f"{cycle.name}: {broken[0]}")
    if passed := passers(snap, plan):
        tally.fault("violations", f"{cycle.name}: {passed[0]} in a strict queue")
    if plan.stats.refused:
        tally.fault("refused", f"{cycle.name}: {plan.stats.note}")
    greedy = decide(snap, now=now, seed=0, budget=GREEDY)
    got, least = score(snap, plan, now=now), score(snap, greedy, now=now)
    if got < least and plan.evictions in ((), greedy.evictions):
        tally.fault("worse_than_greedy", cycle.name)
    counts["better_than_greedy"] += got > least
    waiting = {p.workload.uid for p in snap.pending} - {a.uid for a in plan.admissions}
    silent = {uid for uid, told in plan.explanations.items() if not told.primary.text}
    if wrong := silent | (waiting ^ set(plan.explanations)):
        tally.fault("without_one_reason", f"{cycle.name}: {sorted(wrong)}")
    if differs:
        tally.fault("not_deterministic", f"{cycle.name}: {differs}")
    counts["admitted"] += len(plan.admissions)
    counts["evicted"] += len(plan.evictions)
    counts["waiting"] += len(waiting)
    for name in ("turns", "searches", "contested", "repaired"):
        counts[name] += getattr(plan.stats, name)


def run(cycles: int, *, first: int, tally: Tally) -> None:
    """Check so many cycles from round `first` on."""
    with (
        mock.patch.dict(os.environ, {"PYTHONHASHSEED": str(first + 1)}),
        ProcessPoolExecutor(1, mp_context=get_context("spawn")) as elsewhere,
    ):
        for cycle in rounds(first, tally):
            given = StoredCycle(snapshot=cycle.snapshot, now=cycle.now, seed=0, budget=EXACT, plan=cycle.plan)
            differs = elsewhere.submit(difference_elsewhere, stored.encode(given))
            judge(cycle, differs.result(), tally)
            if tally.counts["cycles"] >= cycles:
                return


def parser() -> argparse.ArgumentParser:
    """The command line."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    options.add_argument(
        "--cycles", type=arguments.positive, default=2_000, help="how many (default: %(default)s)"
    )
    options.add_argument("--first", type=arguments.seed, default=1000, help="seed of the first round")
    return options


def main() -> int:
    """Print one JSON line; 1 where anything was at fault."""
    wanted = parser().parse_args()
    tally, began = Tally(), time.monotonic()
    run(wanted.cycles, first=wanted.first, tally=tally)
    report = {
        "cycles": tally.counts.pop("cycles"),
        **{kind: tally.counts[kind] for kind in FAULTS},
        **{kind: n for kind, n in sorted(tally.counts.items()) if kind not in FAULTS},
        "seconds": round(time.monotonic() - began, 1),
    }
    sys.stdout.write("".join(f"{line}\n" for line in tally.examples))
    sys.stdout.write(json.dumps(report) + "\n")
    return 0 if tally.sound else 1


if __name__ == "__main__":
    sys.exit(main())
