"""The solver process may be late, killed, stopped or mad: the cycle gets the greedy plan at once."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from queuer.domain.nodes import Node
from queuer.domain.queue import QueueTree
from queuer.solver.arrays import Arrays
from queuer.solver.decide import decide
from queuer.solver.following import Following
from queuer.solver.problem import Budget, NodeState, Plan, Snapshot, SolveStatus
from queuer.solver.worker import Outcome, SolverProcess, UnsoundPlan
from tests.solver import worker_targets
from tests.solver.worlds import world

TARGETS = "tests.solver.worker_targets"
PATIENT = Budget(deterministic=1.0, wall=30.0)
HASTY = Budget(deterministic=1.0, wall=0.5)


def small() -> Snapshot:
    node = Node(name="n1", labels={}, allocatable={"cpu": 1000, "pods": 10})
    return Snapshot(nodes=(NodeState(node=node),), tree=QueueTree.of([]))


def process(name: str) -> SolverProcess:
    return SolverProcess(target=f"{TARGETS}:{name}", greedy=worker_targets.sound)


async def ask(solver: SolverProcess, budget: Budget = PATIENT) -> Plan:
    return await solver.decide(small(), now=0.0, seed=1, budget=budget)


def gone(pid: int) -> bool:
    """Neither running nor a zombie."""
    return not Path(f"/proc/{pid}").exists()


async def test_plan_comes_from_the_child() -> None:
    async with process("sound") as solver:
        plan = await ask(solver)
        pid = solver.pid
        assert plan.stats.note == f"child {pid}"
        assert plan.stats.fallback == ""
        assert set(plan.stats.phases) == {"pack", "solve", "verify"}
        assert (await ask(solver)).stats.note == f"child {pid}"  # the same child serves on
        assert solver.counts == {Outcome.SOLVED: 2}
    assert pid is not None
    assert gone(pid)


async def test_prints_of_libraries_do_not_pass_for_answers() -> None:
    async with process("chatty") as solver:
        assert (await ask(solver)).stats.status is SolveStatus.OPTIMAL


@pytest.mark.parametrize(
    ("target", "outcome"),
    [
        ("die", Outcome.CRASHED),
        ("fail", Outcome.CRASHED),
        ("noise", Outcome.GARBAGE),
        ("broken_pickle", Outcome.GARBAGE),
        ("number", Outcome.GARBAGE),
        ("unsound", Outcome.UNSOUND),
    ],
)
async def test_wrong_answer_gives_the_greedy_plan(target: str, outcome: Outcome) -> None:
    async with process(target) as solver:
        for times in (1, 2):  # the second time from whatever came after the first
            plan = await ask(solver)
            assert plan.stats.status is SolveStatus.FAILED
            assert plan.stats.note.startswith(outcome)
            assert plan.stats.fallback == outcome
            assert set(plan.stats.phases) == {"greedy", "verify"}
            assert solver.counts == {outcome: times}


async def test_stopped_child_is_killed_at_the_deadline_and_replaced() -> None:
    async with process("hang") as solver:
        await started(solver)
        pid = solver.pid
        before = time.monotonic()
        plan = await ask(solver, HASTY)
        assert time.monotonic() - before < HASTY.wall + 0.5  # slack of a busy machine; the work is 0.1 s
        assert plan.stats.status is SolveStatus.FAILED
        assert solver.counts[Outcome.LATE] == 1
        assert pid is not None
        assert gone(pid)
        assert solver.pid not in (None, pid)
        assert solver.restarts == 1


async def started(solver: SolverProcess) -> None:
    """Wait until the child has been asked once: `hang` is woken, so that it answers."""
    question = asyncio.create_task(ask(solver))
    assert solver.pid is not None
    await until(stopped, solver.pid)
    os.kill(solver.pid, signal.SIGCONT)
    assert (await question).stats.status is SolveStatus.OPTIMAL


async def until(happened: Callable[[int], bool], pid: int) -> None:
    """The kernel tells nobody when another's child stops, so ask until it has; fails after 30 s."""
    async with asyncio.timeout(30):
        while not happened(pid):  # noqa: ASYNC110
            await asyncio.sleep(0.01)


def stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "T"


async def test_child_killed_between_two_cycles() -> None:
    async with process("sound") as solver:
        await ask(solver)
        assert solver.pid is not None
        os.kill(solver.pid, signal.SIGKILL)
        assert (await ask(solver)).stats.status is SolveStatus.FAILED
        assert (await ask(solver)).stats.status is SolveStatus.OPTIMAL
        assert solver.counts == {Outcome.SOLVED: 2, Outcome.CRASHED: 1}


async def test_limit_of_nothing_never_asks_the_child() -> None:
    async with process("die") as solver:
        before = time.monotonic()
        plan = await ask(solver, Budget(deterministic=0.0))
        assert time.monotonic() - before < 0.1
        assert plan.stats.status is SolveStatus.GREEDY
        assert solver.counts == {Outcome.GREEDY: 1}


async def test_child_that_still_starts_is_left_alone() -> None:
    async with process("sound") as solver:
        pid = solver.pid
        plan = await ask(solver, Budget(deterministic=1.0, wall=0.001))
        assert plan.stats.status is SolveStatus.FAILED
        assert solver.counts == {Outcome.NOT_READY: 1}
        assert solver.pid == pid
        assert (await ask(solver)).stats.status is SolveStatus.OPTIMAL


async def test_cancelled_caller_leaves_no_stale_answer() -> None:
    async with process("hang") as solver:
        await started(solver)
        pid = solver.pid
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await ask(solver)
        assert solver.pid is None
        assert pid is not None
        await until(gone, pid)


async def test_unsound_greedy_plan_is_never_handed_out() -> None:
    async with SolverProcess(target=f"{TARGETS}:die", greedy=worker_targets.unsound) as solver:
        with pytest.raises(UnsoundPlan, match="ghost"):
            await ask(solver)


async def test_interrupt_of_the_process_group_does_not_reach_the_child() -> None:
    async with process("sound") as solver:
        assert solver.pid is not None
        assert os.getpgid(solver.pid) != os.getpgid(0)
        await ask(solver)
        os.kill(solver.pid, signal.SIGINT)  # even one that is meant for it
        assert (await ask(solver)).stats.status is SolveStatus.OPTIMAL


async def test_callers_wait_in_line() -> None:
    async with process("sound") as solver:
        plans = await asyncio.gather(*(ask(solver) for _ in range(5)))
        assert [p.stats.status for p in plans] == [SolveStatus.OPTIMAL] * 5


def test_parent_loads_no_solver() -> None:
    """ortools is 90 MB and can crash; it belongs to the child alone."""
    code = (
        "import sys, queuer.solver.worker; sys.exit(any(m.split('.')[0] == 'ortools' for m in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


async def test_greedy_is_ready_when_the_child_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it needs was made while the child was at work, from what it had in the cycle before."""
    built: list[Snapshot] = []
    anew = Arrays.of

    def of(snapshot: Snapshot) -> Arrays:
        built.append(snapshot)
        return anew(snapshot)

    monkeypatch.setattr(Arrays, "of", of)
    async with SolverProcess(target=f"{TARGETS}:sound") as solver:
        await ask(solver)
        assert len(built) == 1
        assert solver.pid is not None
        os.kill(solver.pid, signal.SIGKILL)
        plan = await ask(solver)
    assert plan.stats.fallback == Outcome.CRASHED
    assert len(built) == 1


def test_decisions_of_several_threads_do_not_meet() -> None:
    following = Following()
    snapshots = [world(seed) for seed in range(8)] * 4
    alone = {id(s): decide(s, now=0.0, seed=0, budget=Budget(deterministic=0.0)) for s in snapshots}

    def again(snapshot: Snapshot) -> bool:
        following.follow(snapshot)
        plan = following(snapshot, now=0.0, seed=0, budget=Budget(deterministic=0.0))
        return plan == alone[id(snapshot)]

    with ThreadPoolExecutor(4) as threads:
        assert all(threads.map(again, snapshots))
