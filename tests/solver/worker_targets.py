"""What the solver process is told to call in tests: sound and unsound answers, silence, noise, death."""

from __future__ import annotations

import os
import signal
import sys
from dataclasses import replace
from typing import Any

from queuer.domain.reasons import Explanation, Reason, Token
from queuer.solver import wire
from queuer.solver.problem import Admission, Assignment, Budget, CycleStats, Plan, Snapshot, SolveStatus


def sound(snapshot: Snapshot, *, now: float, seed: int, budget: Budget) -> Plan:
    """Nothing is done, which harms nobody; the note says by whom."""
    del now, seed
    who = "ortools loaded" if "ortools" in sys.modules else f"child {os.getpid()}"
    status = SolveStatus.OPTIMAL if budget.deterministic > 0 else SolveStatus.GREEDY
    stats = CycleStats(status=status, considered=len(snapshot.pending), note=who)
    return Plan(
        admissions=(), evictions=(), bonds=(), reservations=(), explanations={}, order=(), stats=stats
    )


def unsound(snapshot: Snapshot, *, now: float, seed: int, budget: Budget) -> Plan:
    """Starts what does not exist."""
    plan = sound(snapshot, now=now, seed=seed, budget=budget)
    ghost = Admission(
        uid="ghost", assignments=(Assignment(pod_set="main", flavor="default", nodes={"n1": 1}),)
    )
    return Plan(
        admissions=(ghost,),
        evictions=(),
        bonds=(),
        reservations=(),
        explanations={},
        order=(),
        stats=plan.stats,
    )


def hang(snapshot: Snapshot, *, now: float, seed: int, budget: Budget) -> Plan:
    """Stops itself, as `kill -STOP` would; goes on if somebody wakes it."""
    os.kill(os.getpid(), signal.SIGSTOP)
    return sound(snapshot, now=now, seed=seed, budget=budget)


def idle(snapshot: Snapshot, *, now: float, seed: int, budget: Budget) -> Plan:
    """Stops itself, and starts nobody once it is woken, for a reason that is none."""
    plan = hang(snapshot, now=now, seed=seed, budget=budget)
    reason = Explanation(primary=Reason(token=Token.WAITING_FOR_QUOTA, text="Not now.", params={}))
    told = {p.workload.uid: reason for p in snapshot.pending}
    return replace(plan, explanations=told, order=tuple(told))


def die(snapshot: Snapshot, *, now: float, seed: int, budget: Budget) -> Plan:
    """Is killed in the middle, as by the kernel for want of memory."""
    os.kill(os.getpid(), signal.SIGKILL)
    return sound(snapshot, now=now, seed=seed, budget=budget)


def fail(snapshot: Snapshot, *, now: float, seed: int, budget: Budget) -> Plan:
    """Raises."""
    del snapshot, now, seed, budget
    raise ZeroDivisionError("on purpose")


def noise(snapshot: Snapshot, *, now: float, seed: int, budget: Budget) -> Any:
    """Answers with bytes that are no message."""
    wire.pack = lambda message: b"noise " * 20
    return sound(snapshot, now=now, seed=seed, budget=budget)


def hollow(snapshot: Snapshot, *, now: float, seed: int, budget: Budget) -> Plan:
    """Answers with a plan of parts that are none."""
    return replace(sound(snapshot, now=now, seed=seed, budget=budget), admissions=42)  # type: ignore[arg-type]


def uncounted(snapshot: Snapshot, *, now: float, seed: int, budget: Budget) -> Plan:
    """Answers with a plan that does not say how it was made."""
    return replace(sound(snapshot, now=now, seed=seed, budget=budget), stats=None)  # type: ignore[arg-type]


class Exit:
    """Ends whoever unpickles it."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (sys.exit, (3,))


def exit_pickle(snapshot: Snapshot, *, now: float, seed: int, budget: Budget) -> Any:
    """Answers with a message that ends whoever reads it."""
    del snapshot, now, seed, budget
    return Exit()


def broken_pickle(snapshot: Snapshot, *, now: float, seed: int, budget: Budget) -> Any:
    """Answers with a well-framed message that cannot be read."""
    wire.pack = lambda message: wire.HEADER.pack(wire.MARK, 5) + b"\xff\x00abc"
    return sound(snapshot, now=now, seed=seed, budget=budget)


def number(snapshot: Snapshot, *, now: float, seed: int, budget: Budget) -> Any:
    """Answers with something that is no plan."""
    del snapshot, now, seed, budget
    return 42


def chatty(snapshot: Snapshot, *, now: float, seed: int, budget: Budget) -> Plan:
    """Prints to stdout, as C++ libraries do, before it answers."""
    os.write(1, b"a log line\n")
    return sound(snapshot, now=now, seed=seed, budget=budget)


def words(snapshot: Snapshot) -> str:
    """What a snapshot is about."""
    waiting = [p.workload.uid for p in snapshot.pending]
    return f"{[s.node.name for s in snapshot.nodes]} {waiting} {snapshot.tree.leaves}"


def echo(snapshot: Snapshot, *, now: float, seed: int, budget: Budget) -> Plan:
    """Says what it was told; dies at seed 3."""
    return _echo(snapshot, now=now, seed=seed, budget=budget, end=3)


def echo_beside(snapshot: Snapshot, *, now: float, seed: int, budget: Budget) -> Plan:
    """Says what it was told; dies at seed 4."""
    return _echo(snapshot, now=now, seed=seed, budget=budget, end=4)


def _echo(snapshot: Snapshot, *, now: float, seed: int, budget: Budget, end: int) -> Plan:
    if seed == end:
        os.kill(os.getpid(), signal.SIGKILL)
    plan = sound(snapshot, now=now, seed=seed, budget=budget)
    return replace(plan, stats=replace(plan.stats, note=words(snapshot)))


class SlowToFollow:
    """Stops itself when it shall take a snapshot over, and goes on if somebody wakes it; then it is sound."""

    def follow(self, snapshot: Snapshot) -> None:
        """See `queuer.solver.serving.Follows`."""
        del snapshot
        os.kill(os.getpid(), signal.SIGSTOP)

    __call__ = staticmethod(sound)


class CannotFollow:
    """Raises when it shall take a snapshot over."""

    def follow(self, snapshot: Snapshot) -> None:
        """See `queuer.solver.serving.Follows`."""
        del snapshot
        raise ZeroDivisionError("on purpose")

    __call__ = staticmethod(sound)
