"""The stand-in has greedy's plan when the solver fails, and holds nobody up."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import pytest

from bench.standin import Course
from queuer.solver.child import Failure, Outcome, Question
from queuer.solver.decide import decide
from queuer.solver.problem import Budget, Plan, Snapshot
from queuer.solver.worker import SolverProcess, Source
from tests.solver import worker_targets
from tests.solver.processes import (
    GREEDY,
    HASTY,
    NOTHING,
    NOTHING_HASTY,
    PATIENT,
    SOLVED,
    TARGETS,
    ask,
    delayed,
    gone,
    pids,
    process,
    stopped,
    until,
)
from tests.solver.worlds import world


async def test_plan_of_the_stand_in_is_there_when_the_solver_fails() -> None:
    """It is made at the same time, and judged: nothing is asked of the stand-in any more."""
    async with process("hang") as solver:
        pid, beside = pids(solver)
        question = asyncio.create_task(ask(solver))
        await until(lambda: stopped(pid) and solver.counts[GREEDY] == 1)
        os.kill(beside, signal.SIGSTOP)
        await until(lambda: stopped(beside))
        os.kill(pid, signal.SIGKILL)
        plan = await question
        assert (plan.stats.fallback, stopped(beside)) == (Outcome.CRASHED, True)
        assert solver.counts == {(Source.SOLVER, Outcome.CRASHED): 1, GREEDY: 1}


@pytest.mark.parametrize("budget", [HASTY, Budget(deterministic=1.0, wall=0.0), NOTHING_HASTY])
async def test_stand_in_stopped_in_the_cycle_before_is_not_waited_for_without_end(budget: Budget) -> None:
    """Neither for what it is still at nor for what is asked now: one limit, long before it is replaced."""
    async with process("sound", beside="hang", hand_over=0.2) as solver:
        beside = await delayed(solver)
        assert solver.solver.pid is not None
        os.kill(solver.solver.pid, signal.SIGSTOP)
        await ask(solver, budget)
        assert stopped(beside)
        assert solver.counts[Source.CONTROLLER, Outcome.GREEDY] == 1
        assert solver.restarts[Source.STAND_IN] == 0
        os.kill(beside, signal.SIGCONT)  # it is not too late for the next
        await until(lambda: solver.counts[Source.STAND_IN, Outcome.STALE] == 1)


async def test_both_stopped_cost_the_deadline_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stand-in was asked when the solver was, so it is late when the solver is: nothing is left to wait for it."""
    left: list[float] = []
    async with process("sound", beside="hang", hand_over=0.01) as solver:
        instead = solver._instead

        async def noted(
            question: Question, standing: asyncio.Task[Plan | Failure], budget: Budget, until: float
        ) -> Plan:
            left.append(until - asyncio.get_running_loop().time())
            return await instead(question, standing, budget, until)

        await delayed(solver)
        assert solver.solver.pid is not None
        os.kill(solver.solver.pid, signal.SIGSTOP)
        monkeypatch.setattr(solver, "_instead", noted)
        plan = await ask(solver, HASTY)
        assert plan.stats.fallback == Outcome.LATE
        assert [seconds <= 0.01 for seconds in left] == [True]
        assert solver.counts[Source.CONTROLLER, Outcome.GREEDY] == 1


async def test_parent_decides_where_both_are_stopped() -> None:
    async with process("hang", beside="hang", patience=1.0) as solver:
        both = pids(solver)
        question = asyncio.create_task(ask(solver))
        await until(lambda: all(map(stopped, both)))
        await until(lambda: solver.restarts[Source.STAND_IN] == 1)  # it is replaced in the meantime
        os.kill(both[0], signal.SIGKILL)
        assert (await question).stats.fallback == Outcome.CRASHED
        assert solver.counts[Source.STAND_IN, Outcome.LATE] == 1
        assert solver.counts[Source.CONTROLLER, Outcome.GREEDY] == 1
        assert gone(both[1])


async def test_stand_in_that_is_late_holds_nobody_up_and_goes_on_with_the_newest() -> None:
    async with process("sound", beside="hang") as solver:
        pid = await delayed(solver)
        for _ in range(5):
            assert (await ask(solver)).stats.fallback == ""
        assert solver.counts == {SOLVED: 6}
        os.kill(pid, signal.SIGCONT)
        await until(lambda: solver.counts[Source.STAND_IN, Outcome.STALE] == 1)
        last = asyncio.create_task(ask(solver, NOTHING))
        await until(lambda: stopped(pid))  # asked a second time, not a seventh
        os.kill(pid, signal.SIGCONT)
        assert (await last).stats.note == f"child {pid}"
        assert solver.counts == {SOLVED: 6, GREEDY: 1, (Source.STAND_IN, Outcome.STALE): 1}


async def test_question_that_waits_for_the_stand_in_is_asked_when_it_is_free() -> None:
    """Its plan is needed while it is still at the cycle before."""
    async with process("sound", beside="hang") as solver:
        pid = await delayed(solver)
        question = asyncio.create_task(ask(solver, Budget(deterministic=1.0, wall=0.0)))
        for _ in range(2):
            await until(lambda: stopped(pid))
            os.kill(pid, signal.SIGCONT)
            await until(lambda: not stopped(pid))
        assert (await question).stats.note == f"child {pid}"
        assert solver.counts == {SOLVED: 1, (Source.STAND_IN, Outcome.STALE): 1, GREEDY: 1}


async def test_caller_cancelled_while_it_waits_for_the_stand_in() -> None:
    async with process("die", beside="hang") as solver:
        pid = solver.stand_in.pid
        assert pid is not None
        question = asyncio.create_task(ask(solver))
        await until(lambda: stopped(pid) and solver.counts[Source.SOLVER, Outcome.CRASHED] == 1)
        question.cancel()
        await asyncio.wait({question})
        os.kill(pid, signal.SIGCONT)
        await until(lambda: solver.counts[Source.STAND_IN, Outcome.STALE] == 1)
        assert solver.stand_in.pid == pid


async def test_plan_of_the_stand_in_is_greedys_cycle_after_cycle() -> None:
    async with SolverProcess(target=f"{TARGETS}:fail") as solver:
        for seed in range(6):
            snapshot = world(seed)
            plan = await solver.decide(snapshot, now=0.0, seed=seed, budget=PATIENT)
            greedy = decide(snapshot, now=0.0, seed=seed, budget=NOTHING)
            assert replace(plan, stats=greedy.stats) == greedy
        assert solver.counts[GREEDY] == 6


async def test_stand_in_is_waited_for_as_long_as_it_usually_takes() -> None:
    """On a large cluster that is longer than any deadline, and the parent, from nothing, would take longer still."""
    async with process("sound", beside="hang", hand_over=0.01) as solver:
        pid = await delayed(solver)
        os.kill(pid, signal.SIGCONT)
        await until(lambda: solver.counts[Source.STAND_IN, Outcome.STALE] == 1)
        assert solver.stand_in.took > 0
        solver.stand_in.took = 30.0
        question = asyncio.create_task(ask(solver, Budget(deterministic=1.0, wall=0.0)))
        await until(lambda: stopped(pid))
        os.kill(pid, signal.SIGCONT)
        assert (await question).stats.note == f"child {pid}"
        assert solver.counts == {SOLVED: 1, (Source.STAND_IN, Outcome.STALE): 1, GREEDY: 1}


async def test_stand_in_is_never_waited_for_longer_than_until_it_is_replaced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whatever it took last."""

    async def hangs(*_: object, **__: object) -> Plan:
        await asyncio.Event().wait()
        raise AssertionError

    async with process("sound", hand_over=0.01, patience=0.1) as solver:
        monkeypatch.setattr(solver.stand_in, "plan", hangs)
        solver.stand_in.took = 1000.0
        async with asyncio.timeout(30):
            plan = await ask(solver, Budget(deterministic=1.0, wall=0.0))
        assert solver.counts == {(Source.CONTROLLER, Outcome.GREEDY): 1}
        assert "hand-over" not in plan.stats.phases


async def test_plan_of_the_stand_in_is_taken_even_when_the_parent_has_begun_its_own() -> None:
    """In the first cycle of a large cluster nobody knows how long it takes, but it has most of that behind it."""
    begun, go = threading.Event(), threading.Event()

    def greedy(snapshot: Snapshot, *, now: float, seed: int, budget: Budget) -> Plan:
        begun.set()
        assert go.wait(60)
        return worker_targets.sound(snapshot, now=now, seed=seed, budget=budget)

    async with process("die", beside="hang", greedy=greedy, hand_over=0.01) as solver:
        pid = solver.stand_in.pid
        assert pid is not None
        question = asyncio.create_task(ask(solver, Budget(deterministic=1.0, wall=0.0)))
        try:
            await until(lambda: begun.is_set() and stopped(pid))
            os.kill(pid, signal.SIGCONT)
            assert (await question).stats.note == f"child {pid}"
        finally:
            go.set()
        assert solver.counts == {GREEDY: 1}


async def test_bench_skips_a_run_in_which_the_process_is_just_being_replaced() -> None:
    class Renewing:
        solver = SimpleNamespace(pid=None)

        async def decide(self, snapshot: Snapshot, *, now: float, seed: int, budget: Budget) -> Plan:
            return worker_targets.sound(snapshot, now=now, seed=seed, budget=budget)

    course = Course(cast("SolverProcess", Renewing()), world(0), seed=1)
    await course.disturbed(usual=0.0, number=signal.SIGKILL)
    assert not any(course.seconds.values())
