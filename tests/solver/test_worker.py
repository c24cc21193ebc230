"""The solver process may be late, killed or mad: the cycle gets greedy's plan, from a stand-in that has it."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest
from structlog.testing import CapturingLogger

from queuer.solver import worker
from queuer.solver.child import Outcome
from queuer.solver.decide import decide
from queuer.solver.following import Following
from queuer.solver.problem import Budget, SolveStatus
from queuer.solver.worker import SolverProcess, Source, UnsoundPlan
from tests.solver import worker_targets
from tests.solver.processes import (
    GREEDY,
    NOTHING,
    PATIENT,
    SOLVED,
    TARGETS,
    ask,
    broken,
    gone,
    pids,
    process,
    stopped,
    until,
)
from tests.solver.worlds import NOW, world

GOOD = (Outcome.SOLVED, Outcome.GREEDY)
FAILURES = [
    ("die", Outcome.CRASHED),
    ("fail", Outcome.CRASHED),
    ("noise", Outcome.GARBAGE),
    ("broken_pickle", Outcome.GARBAGE),
    ("number", Outcome.GARBAGE),
    ("hollow", Outcome.GARBAGE),
    ("uncounted", Outcome.GARBAGE),
    ("exit_pickle", Outcome.GARBAGE),
    ("unsound", Outcome.UNSOUND),
]


async def test_plan_comes_from_the_child() -> None:
    async with process("sound") as solver:
        plan = await ask(solver)
        both = pids(solver)
        assert plan.stats.note == f"child {both[0]}"
        assert plan.stats.fallback == ""
        assert set(plan.stats.phases) == {"pack", "solve", "verify"}
        assert (await ask(solver)).stats.note == f"child {both[0]}"  # the same child serves on
        assert solver.counts[SOLVED] == 2
    assert all(map(gone, both))
    assert asyncio.all_tasks() == {asyncio.current_task()}


@pytest.mark.parametrize(("target", "outcome"), FAILURES)
async def test_wrong_answer_gives_the_plan_of_the_stand_in(target: str, outcome: Outcome) -> None:
    async with process(target) as solver:
        for times in (1, 2):  # the second time from whatever came after the first
            plan = await ask(solver)
            assert plan.stats.status is SolveStatus.FAILED
            assert plan.stats.note.startswith(outcome)
            assert plan.stats.fallback == outcome
            assert set(plan.stats.phases) == {"pack", "greedy", "verify", "hand-over"}
            assert solver.counts == {(Source.SOLVER, outcome): times, GREEDY: times}


@pytest.mark.parametrize(("target", "outcome"), FAILURES)
async def test_wrong_answer_of_the_stand_in_harms_nobody(target: str, outcome: Outcome) -> None:
    async with process("sound", beside=target) as solver:
        for times in (1, 2):
            assert (await ask(solver)).stats.fallback == ""
            await until(lambda times=times: solver.counts.total() == 2 * times)  # type: ignore[misc]
        wrong = solver.counts[Source.STAND_IN, outcome] + solver.counts[Source.STAND_IN, Outcome.STALE]
        assert solver.counts[SOLVED] == wrong == 2


@pytest.mark.parametrize(("target", "outcome"), FAILURES)
async def test_parent_decides_where_both_are_wrong(target: str, outcome: Outcome) -> None:
    async with process(target, beside=target) as solver:
        for times in (1, 2):
            plan = await ask(solver)
            assert plan.stats.fallback == outcome
            assert set(plan.stats.phases) == {"greedy", "verify", "hand-over"}
            assert solver.counts == {
                (Source.SOLVER, outcome): times,
                (Source.STAND_IN, outcome): times,
                (Source.CONTROLLER, Outcome.GREEDY): times,
            }


async def test_unsound_plan_of_the_parent_is_never_handed_out() -> None:
    async with process("die", beside="die", greedy=worker_targets.unsound) as solver:
        with pytest.raises(UnsoundPlan, match="ghost"):
            await ask(solver)


async def test_a_plan_that_starts_less_than_greedy_s_is_not_handed_out() -> None:
    """The verifier finds nothing wrong with it."""
    snap = world(1)
    least = decide(snap, now=NOW, seed=1, budget=NOTHING)
    async with SolverProcess(target=f"{TARGETS}:idle") as solver:
        pid, _ = pids(solver)
        asked = asyncio.create_task(solver.decide(snap, now=NOW, seed=1, budget=PATIENT))
        await until(lambda: stopped(pid) and solver.counts[GREEDY] == 1)
        os.kill(pid, signal.SIGCONT)
        plan = await asked
        assert solver.counts[Source.SOLVER, Outcome.WORSE] == 1
    assert (plan.stats.fallback, plan.admissions) == (Outcome.WORSE, least.admissions)
    assert least.admissions


async def test_limit_of_nothing_asks_the_stand_in_alone() -> None:
    async with process("die") as solver:
        for budget in (NOTHING, Budget(deterministic=1.0, wall=0.0)):
            plan = await ask(solver, budget)
            assert plan.stats.status is SolveStatus.GREEDY
            assert plan.stats.note == f"child {solver.stand_in.pid}"
        assert solver.counts == {GREEDY: 2}


async def test_callers_wait_in_line() -> None:
    async with process("sound") as solver:
        plans = await asyncio.gather(*(ask(solver) for _ in range(5)))
        assert [p.stats.status for p in plans] == [SolveStatus.OPTIMAL] * 5


@pytest.mark.parametrize(
    ("target", "faulty", "source"),
    [
        ("sound", [Source.STAND_IN], Source.SOLVER),
        ("sound", [Source.SOLVER], Source.STAND_IN),
        ("die", [Source.STAND_IN], Source.CONTROLLER),
        ("sound", [Source.SOLVER, Source.STAND_IN], Source.CONTROLLER),
    ],
)
async def test_fault_of_the_parent_in_asking_costs_that_answer_alone(
    target: str,
    faulty: list[Source],
    source: Source,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Above all one of the stand-in, for which nobody waits, does not end the controller."""
    lines = CapturingLogger()
    monkeypatch.setattr(worker, "log", lines)
    async with process(target) as solver:
        with monkeypatch.context() as patched:
            for faults in faulty:
                patched.setattr(solver.solver if faults is Source.SOLVER else solver.stand_in, "plan", broken)
            plan = await ask(solver)
            await until(lambda: all(solver.counts[each, Outcome.NOT_ASKED] == 1 for each in faulty))
        assert [who for who, outcome in solver.counts if outcome in GOOD] == [source]
        assert (plan.stats.fallback == "") is (source is Source.SOLVER)
        assert {line.kwargs["process"] for line in lines.calls} == {faults.value for faults in faulty}
        assert all(isinstance(line.kwargs["exc_info"], RuntimeError) for line in lines.calls)
        assert (await ask(solver, NOTHING)).stats.note == f"child {solver.stand_in.pid}"


async def test_error_of_the_body_stays_what_it_is() -> None:
    with pytest.raises(ZeroDivisionError):
        async with process("sound"):
            raise ZeroDivisionError("on purpose")


def test_decisions_follow_each_other() -> None:
    following = Following()
    for snapshot in [world(seed) for seed in range(8)] * 2:
        alone = decide(snapshot, now=0.0, seed=0, budget=NOTHING)
        assert following(snapshot, now=0.0, seed=0, budget=NOTHING) == alone
