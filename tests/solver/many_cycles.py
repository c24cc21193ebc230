"""The long gate of the decision: thousands of random cycles of mixed sizes, each checked for soundness, for being no
worse than greedy, for one reason per waiting gang, and for giving the same plan again.

    python -m tests.solver.many_cycles --cycles 10000 [--first SEED]

A round is one life of small worlds (victims, bonds, late pods) and single cycles of larger ones. The second run of
each decision is made in another process with another hash seed, so that the order of a set cannot hide in a plan.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from random import Random
from typing import Any
from unittest import mock

from bench import arguments
from queuer.solver import attempt, attempts, wire
from queuer.solver.decide import decide
from queuer.solver.problem import Budget, Plan, Snapshot, SolveStatus
from queuer.solver.score import score
from queuer.solver.verify import verify
from tests.solver import worlds
from tests.solver.cases import seeded
from tests.solver.cycles import Life

GREEDY, EXACT = Budget(deterministic=0.0), Budget()
LIFE = 12
"""Cycles of one life."""
SIZES = (8, 8, 16, 16, 24, 32, 48, 64)
"""Nodes at most, waiting and running gangs at most, of the single cycles of a round."""
ROUND = LIFE + len(SIZES)
FAULTS = ("violations", "worse_than_greedy", "without_one_reason", "not_deterministic", "no_plan")


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
    """The cycles of round after round, without end. What breaks a life is counted, and the life ends there."""
    seed = first
    while True:
        life = Life(Random(seed), seeded(seed), expecting=seed % 2 == 1)
        for number in range(LIFE):
            at = life.now
            try:
                snap, plan = life.cycle(EXACT)
            except AssertionError as error:  # a violation, or a pod that finds no host inside its pin
                tally.fault("violations", f"life {seed}, cycle {number}: {error}")
                break
            yield Cycle(name=f"life {seed}, cycle {number}", snapshot=snap, now=at, plan=plan)
        for number, size in enumerate(SIZES):
            snap = worlds.world(seed * len(SIZES) + number, nodes=size, pending=size, running=size)
            if number % 4 == 3:
                snap = worlds.packed(snap, seed)
            if number % 3 == 1:
                snap = worlds.expected(snap, seed)
            plan = decide(snap, now=worlds.NOW, seed=0, budget=EXACT)
            name = f"world {seed * len(SIZES) + number} of size {size}"
            yield Cycle(name=name, snapshot=snap, now=worlds.NOW, plan=plan)
        seed += 1


def decide_again(packed: bytes) -> bytes:
    """The same decision elsewhere: a packed (snapshot, now) gives a packed plan."""
    snap, now = wire.unpack(packed[wire.HEADER.size :])
    return wire.pack(decide(snap, now=now, seed=0, budget=EXACT))


def judge(cycle: Cycle, again: Plan, tally: Tally) -> None:
    """Count what came of a cycle."""
    snap, plan, now, counts = cycle.snapshot, cycle.plan, cycle.now, tally.counts
    if broken := verify(snap, plan, now=now):
        tally.fault("violations", f"{cycle.name}: {broken[0]}")
    if plan.stats.status is SolveStatus.FAILED:
        tally.fault("no_plan", f"{cycle.name}: {plan.stats.note}")
    greedy = decide(snap, now=now, seed=0, budget=GREEDY)
    got, least = score(snap, plan, now=now), score(snap, greedy, now=now)
    if got < least:
        tally.fault("worse_than_greedy", cycle.name)
    counts["better_than_greedy"] += got > least
    waiting = {p.workload.uid for p in snap.pending} - {a.uid for a in plan.admissions}
    if wrong := _unexplained(plan, waiting):
        tally.fault("without_one_reason", f"{cycle.name}: {sorted(wrong)}")
    if again != plan:
        tally.fault("not_deterministic", cycle.name)
    counts["cycles"] += 1
    counts["admitted"] += len(plan.admissions)
    counts["evicted"] += len(plan.evictions)
    counts["waiting"] += len(waiting)
    counts["most_nodes"] = max(counts["most_nodes"], len(snap.nodes))
    for name in ("contested", "rearranged", "proved", "proved_in_place", "deferred"):
        counts[name] += getattr(plan.stats, name)


def _unexplained(plan: Plan, waiting: set[str]) -> set[str]:
    """Gangs that wait without a primary reason with a sentence, or start with one, or are told it twice."""
    doubled = {uid for uid, e in plan.explanations.items() if not e.primary.text or e.primary in e.others}
    return doubled | (waiting ^ set(plan.explanations))


def run(cycles: int, *, first: int, tally: Tally) -> None:
    """Check so many cycles from round `first` on."""

    def watched(snapshot: Snapshot, plan: Plan, *, now: float) -> Any:
        broken = verify(snapshot, plan, now=now)
        tally.counts["refused_inside"] += bool(broken)
        return broken

    seed_of_hashes = {"PYTHONHASHSEED": str(first + 1)}
    with (
        mock.patch.dict(os.environ, seed_of_hashes),
        mock.patch.object(attempt, "verify", watched),
        mock.patch.object(attempts, "verify", watched),
        ProcessPoolExecutor(1, mp_context=get_context("spawn")) as elsewhere,
    ):
        for cycle in rounds(first, tally):
            again = elsewhere.submit(decide_again, wire.pack((cycle.snapshot, cycle.now)))
            judge(cycle, wire.unpack(again.result()[wire.HEADER.size :]), tally)
            if tally.counts["cycles"] >= cycles:
                return


def parser() -> argparse.ArgumentParser:
    """The command line."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    options.add_argument(
        "--cycles", type=arguments.positive, default=10_000, help="how many (default: %(default)s)"
    )
    options.add_argument("--first", type=arguments.seed, default=1000, help="seed of the first round")
    return options


def main() -> int:
    """Print one JSON line; 1 where anything was at fault."""
    wanted = parser().parse_args()
    tally, began = Tally(), time.monotonic()
    run(wanted.cycles, first=wanted.first, tally=tally)
    seconds = time.monotonic() - began
    own, child = (
        resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
    report = {
        "cycles": tally.counts.pop("cycles"),
        **{kind: tally.counts[kind] for kind in FAULTS},
        **{kind: n for kind, n in sorted(tally.counts.items()) if kind not in FAULTS},
        "seconds": round(seconds, 1),
        "max_rss_mb": round((own + child) / 1024),
    }
    sys.stdout.write("".join(f"{line}\n" for line in tally.examples))
    sys.stdout.write(json.dumps(report) + "\n")
    return 0 if tally.sound else 1


if __name__ == "__main__":
    sys.exit(main())
