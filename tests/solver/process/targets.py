"""Targets of solver processes in tests: sound and unsound answers, silence, noise, death.

All but the last few go wrong only where CP-SAT would be asked.
"""

from __future__ import annotations

import os
import signal
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from queuer.domain.assignments import Admission, Assignment, SolveStatus
from queuer.domain.estimates import StartRange
from queuer.solver.process import wire
from queuer.solver.records import Budget, CycleStats, Plan, Snapshot


def words(snapshot: Snapshot) -> str:
    """The subject of a snapshot."""
    waiting = [p.workload.uid for p in snapshot.pending]
    return f"{[s.node.name for s in snapshot.nodes]} {waiting} {snapshot.tree.leaves}"


def sound(snapshot: Snapshot, *, now: float, seed: int, budget: Budget) -> Plan:
    """Nothing is done, which harms nobody; the note says by whom."""
    del snapshot, now, seed
    status = SolveStatus.OPTIMAL if budget.deterministic > 0 else SolveStatus.GREEDY
    stats = CycleStats(status=status, note=f"process {os.getpid()}")
    return Plan(
        admissions=(), evictions=(), bonds=(), reservations=(), explanations={}, order=(), stats=stats
    )


def echo(snapshot: Snapshot, *, now: float, seed: int, budget: Budget) -> Plan:
    """Says what it was told; is killed at seed 3."""
    if seed == 3 and budget.deterministic > 0:
        os.kill(os.getpid(), signal.SIGKILL)
    plan = sound(snapshot, now=now, seed=seed, budget=budget)
    return replace(plan, stats=replace(plan.stats, turns=len(snapshot.pending), note=words(snapshot)))


def chatty(snapshot: Snapshot, **asked: Any) -> Plan:
    """Prints to stdout, as C++ libraries do, before it answers."""
    os.write(1, b"a log line\n")
    return sound(snapshot, **asked)


class Wrong:
    """Goes wrong as `how` says, where CP-SAT would be asked or `always`."""

    how = "die"
    always = False

    def __call__(self, snapshot: Snapshot, *, budget: Budget, **asked: Any) -> Any:
        plan: Any = sound(snapshot, budget=budget, **asked)
        if not self.always and budget.deterministic <= 0:
            return plan
        match self.how:
            case "die":
                os.kill(os.getpid(), signal.SIGKILL)
            case "hang":
                os.kill(os.getpid(), signal.SIGSTOP)
            case "fail":
                raise ZeroDivisionError("on purpose")
            case "noise":
                wire.pack = lambda *_, **__: b"noise " * 20
            case "unreadable":
                wire.pack = lambda *_, **__: wire.HEADER.pack(wire.MARK, 5) + b"\xff\x00abc"
            case "no-plan":
                return None
            case "hollow":
                return replace(plan, admissions=42)
            case "ghost":
                place = Assignment(pod_set="main", flavor="default", nodes={"n1": 1})
                return replace(plan, admissions=(Admission(uid="ghost", assignments=(place,)),))
        return plan


def wrong(how: str, *, always: bool = False) -> type[Wrong]:
    return type(how, (Wrong,), {"how": how, "always": always})


die, hang, fail, noise, unreadable, no_plan, hollow, ghost = map(
    wrong, ("die", "hang", "fail", "noise", "unreadable", "no-plan", "hollow", "ghost")
)
die_always = wrong("die", always=True)


class SlowToFollow:
    """Stops itself when it shall take a snapshot over, and goes on if somebody wakes it; then it is sound."""

    __call__ = staticmethod(sound)

    def follow(self, _: Snapshot) -> None:
        os.kill(os.getpid(), signal.SIGSTOP)


class CannotFollow(SlowToFollow):
    """Raises when it shall take a snapshot over."""

    def follow(self, _: Snapshot) -> None:
        raise ZeroDivisionError("on purpose")


# Forecasts: they write into the file that the environment names


def forecast_at_the_third(_: Snapshot, **__: Any) -> dict[str, StartRange]:
    """An error, then a crash, then an empty answer."""
    file = Path(os.environ["FORECASTS"])
    times = len(file.read_text()) if file.exists() else 0
    file.write_text("x" * (times + 1))
    if times == 0:
        raise ZeroDivisionError("on purpose")
    if times == 1:
        os._exit(3)
    return {}


def forecast_without_end(_: Snapshot, **__: Any) -> dict[str, StartRange]:
    """Writes its process id."""
    Path(os.environ["FORECASTS"]).write_text(str(os.getpid()))
    time.sleep(600)
    return {}
