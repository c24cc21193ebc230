"""Solver processes for tests: with what they are asked, and what the kernel says of them."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path

from queuer.domain.nodes import Node
from queuer.domain.queue import QueueTree
from queuer.solver.child import Outcome
from queuer.solver.problem import Budget, NodeState, Plan, Snapshot, SolveStatus
from queuer.solver.serving import Decide
from queuer.solver.worker import SolverProcess, Source
from tests.solver import worker_targets

TARGETS = "tests.solver.worker_targets"
PATIENT = Budget(deterministic=1.0, wall=30.0)
HASTY = Budget(deterministic=1.0, wall=0.5)
NOTHING = Budget(deterministic=0.0)
NOTHING_HASTY = Budget(deterministic=0.0, wall=0.5)
SOLVED, GREEDY = (Source.SOLVER, Outcome.SOLVED), (Source.STAND_IN, Outcome.GREEDY)


def small() -> Snapshot:
    node = Node(name="n1", labels={}, allocatable={"cpu": 1000, "pods": 10})
    return Snapshot(nodes=(NodeState(node=node),), tree=QueueTree.of([]))


def process(
    name: str,
    *,
    beside: str = "sound",
    greedy: Decide = worker_targets.sound,
    patience: float = 30.0,
    hand_over: float = 30.0,
) -> SolverProcess:
    return SolverProcess(
        target=f"{TARGETS}:{name}",
        stand_in=f"{TARGETS}:{beside}",
        greedy=greedy,
        patience=patience,
        hand_over=hand_over,
    )


async def ask(solver: SolverProcess, budget: Budget = PATIENT) -> Plan:
    return await solver.decide(small(), now=0.0, seed=1, budget=budget)


def gone(pid: int) -> bool:
    """Neither running nor a zombie."""
    return not Path(f"/proc/{pid}").exists()


def state(pid: int) -> str:
    """As the kernel says it: R, S, T, Z; empty for a process that is no more."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return ""


def stopped(pid: int) -> bool:
    return state(pid) == "T"


async def until(happened: Callable[[], bool]) -> None:
    """The kernel tells nobody when another's child stops, so ask until it has; fails after 30 s."""
    async with asyncio.timeout(30):
        while not happened():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


def pids(solver: SolverProcess) -> tuple[int, int]:
    assert solver.solver.pid is not None
    assert solver.stand_in.pid is not None
    return solver.solver.pid, solver.stand_in.pid


async def woken(solver: SolverProcess, pid: int) -> None:
    """Ask once, and wake `hang`, so that it answers: it has started."""
    question = asyncio.create_task(ask(solver))
    await until(lambda: stopped(pid))
    os.kill(pid, signal.SIGCONT)
    assert (await question).stats.status is SolveStatus.OPTIMAL


async def delayed(solver: SolverProcess) -> int:
    """Ask once, and see `hang` stop in the place of the stand-in; its pid."""
    _, beside = pids(solver)
    await ask(solver)
    await until(lambda: stopped(beside))
    return beside


async def broken(*_: object, **__: object) -> Plan:
    raise RuntimeError("can't start new thread")
