"""The solver process may be late, killed, stopped or mad: the cycle gets greedy's plan, from a stand-in that has it."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from queuer.domain.nodes import Node
from queuer.domain.queue import QueueTree
from queuer.solver import child
from queuer.solver.child import Outcome
from queuer.solver.decide import decide
from queuer.solver.following import Following
from queuer.solver.problem import Budget, NodeState, Plan, Snapshot, SolveStatus
from queuer.solver.serving import Decide
from queuer.solver.worker import SolverProcess, Source, UnsoundPlan
from tests.solver import worker_targets
from tests.solver.worlds import world

TARGETS = "tests.solver.worker_targets"
PATIENT = Budget(deterministic=1.0, wall=30.0)
HASTY = Budget(deterministic=1.0, wall=0.5)
NOTHING = Budget(deterministic=0.0)
NOTHING_HASTY = Budget(deterministic=0.0, wall=0.5)
SOLVED, GREEDY = (Source.SOLVER, Outcome.SOLVED), (Source.STAND_IN, Outcome.GREEDY)
GOOD = (Outcome.SOLVED, Outcome.GREEDY)
FAILURES = [
    ("die", Outcome.CRASHED),
    ("fail", Outcome.CRASHED),
    ("noise", Outcome.GARBAGE),
    ("broken_pickle", Outcome.GARBAGE),
    ("number", Outcome.GARBAGE),
    ("hollow", Outcome.UNSOUND),
    ("unsound", Outcome.UNSOUND),
]


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


async def test_prints_of_libraries_do_not_pass_for_answers() -> None:
    async with process("chatty") as solver:
        assert (await ask(solver)).stats.status is SolveStatus.OPTIMAL


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


async def woken(solver: SolverProcess, pid: int) -> None:
    """Ask once, and wake `hang`, so that it answers: it has started."""
    question = asyncio.create_task(ask(solver))
    await until(lambda: stopped(pid))
    os.kill(pid, signal.SIGCONT)
    assert (await question).stats.status is SolveStatus.OPTIMAL


async def test_stopped_child_is_killed_at_the_deadline_and_replaced() -> None:
    async with process("hang") as solver:
        pid, beside = pids(solver)
        await woken(solver, pid)
        plan = await ask(solver, HASTY)
        assert plan.stats.status is SolveStatus.FAILED
        assert solver.counts[Source.SOLVER, Outcome.LATE] == 1
        await until(lambda: gone(pid) and solver.solver.pid not in (None, pid))
        assert solver.stand_in.pid == beside
        assert solver.restarts == {Source.SOLVER: 1, Source.STAND_IN: 0}


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
        beside = solver.stand_in.pid
        assert beside is not None
        await ask(solver)
        await until(lambda: stopped(beside))
        assert solver.solver.pid is not None
        os.kill(solver.solver.pid, signal.SIGSTOP)
        await ask(solver, budget)
        assert stopped(beside)
        assert solver.counts[Source.CONTROLLER, Outcome.GREEDY] == 1
        assert solver.restarts[Source.STAND_IN] == 0
        os.kill(beside, signal.SIGCONT)  # it is not too late for the next
        await until(lambda: solver.counts[Source.STAND_IN, Outcome.STALE] == 1)


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
        pid = solver.stand_in.pid
        assert pid is not None
        await ask(solver)
        await until(lambda: stopped(pid))
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
        pid = solver.stand_in.pid
        assert pid is not None
        await ask(solver)
        await until(lambda: stopped(pid))
        question = asyncio.create_task(ask(solver, Budget(deterministic=1.0, wall=0.0)))
        for _ in range(2):
            await until(lambda: stopped(pid))
            os.kill(pid, signal.SIGCONT)
            await until(lambda: not stopped(pid))
        assert (await question).stats.note == f"child {pid}"
        assert solver.counts == {SOLVED: 1, (Source.STAND_IN, Outcome.STALE): 1, GREEDY: 1}


async def test_processes_killed_between_two_cycles_are_replaced() -> None:
    async with process("sound") as solver:
        await ask(solver)
        await ask(solver, NOTHING)  # the stand-in has started, too
        for pid in pids(solver):
            os.kill(pid, signal.SIGKILL)
        await until(lambda: solver.solver.pid is None and solver.stand_in.pid is None)
        assert (await ask(solver)).stats.status is SolveStatus.OPTIMAL
        assert (await ask(solver, NOTHING)).stats.note == f"child {solver.stand_in.pid}"
        assert solver.restarts == {Source.SOLVER: 1, Source.STAND_IN: 1}
        assert {source for source, _ in solver.counts} == {Source.SOLVER, Source.STAND_IN}


async def test_limit_of_nothing_asks_the_stand_in_alone() -> None:
    async with process("die") as solver:
        for budget in (NOTHING, Budget(deterministic=1.0, wall=0.0)):
            plan = await ask(solver, budget)
            assert plan.stats.status is SolveStatus.GREEDY
            assert plan.stats.note == f"child {solver.stand_in.pid}"
        assert solver.counts == {GREEDY: 2}


async def test_child_that_still_starts_is_left_alone() -> None:
    async with process("sound") as solver:
        pid = solver.solver.pid
        plan = await ask(solver, Budget(deterministic=1.0, wall=0.001))
        assert plan.stats.status is SolveStatus.FAILED
        assert solver.counts[Source.SOLVER, Outcome.NOT_READY] == 1
        assert solver.solver.pid == pid
        assert (await ask(solver)).stats.status is SolveStatus.OPTIMAL


async def test_cancelled_caller_leaves_no_stale_answer() -> None:
    async with process("hang", beside="hang") as solver:
        pid, beside = pids(solver)
        await woken(solver, pid)
        await until(lambda: stopped(beside))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await ask(solver)
        assert solver.solver.pid is None
        await until(lambda: gone(pid))
        assert stopped(beside)  # what it has begun it may end
    assert gone(beside)
    assert asyncio.all_tasks() == {asyncio.current_task()}


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


async def test_interrupt_of_the_process_group_does_not_reach_the_children() -> None:
    async with process("sound") as solver:
        await ask(solver)
        await ask(solver, NOTHING)
        for pid in pids(solver):
            assert os.getpgid(pid) != os.getpgid(0)
            os.kill(pid, signal.SIGINT)  # even one that is meant for it
        assert (await ask(solver)).stats.status is SolveStatus.OPTIMAL
        assert (await ask(solver, NOTHING)).stats.note == f"child {solver.stand_in.pid}"


@pytest.mark.parametrize("stopped", [0, 1, 2])
async def test_children_leave_with_a_parent_that_is_killed(stopped: int) -> None:
    code = (
        "import asyncio; from tests.solver.test_worker import NOTHING, ask, pids, process\n"
        "async def main():\n"
        "    async with process('sound') as solver:\n"
        "        await ask(solver)\n"
        "        await ask(solver, NOTHING)\n"
        "        print(*pids(solver), flush=True)\n"
        "        await asyncio.Event().wait()\n"
        "asyncio.run(main())"
    )
    pipe = asyncio.subprocess.PIPE
    parent = await asyncio.create_subprocess_exec(sys.executable, "-c", code, stdout=pipe)
    assert parent.stdout is not None
    both = [int(word) for word in (await parent.stdout.readline()).split()]
    assert len(both) == 2
    for pid in both[:stopped]:
        os.kill(pid, signal.SIGSTOP)  # it cannot notice anything by itself
    parent.kill()
    await parent.wait()
    await until(lambda: all(state(pid) in ("", "Z") for pid in both))  # whoever inherits them reaps them


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


async def test_plan_of_the_stand_in_is_greedys_cycle_after_cycle() -> None:
    async with SolverProcess(target=f"{TARGETS}:fail") as solver:
        for seed in range(6):
            snapshot = world(seed)
            plan = await solver.decide(snapshot, now=0.0, seed=seed, budget=PATIENT)
            greedy = decide(snapshot, now=0.0, seed=seed, budget=NOTHING)
            assert replace(plan, stats=greedy.stats) == greedy
        assert solver.counts[GREEDY] == 6


async def test_snapshot_is_packed_once_for_both(monkeypatch: pytest.MonkeyPatch) -> None:
    befores = []
    told = child._told

    def counted(before: Snapshot | None, snapshot: Snapshot) -> bytes:
        befores.append(before)
        return told(before, snapshot)

    monkeypatch.setattr(child, "_told", counted)
    snapshot = small()
    async with process("unsound") as solver:  # so that each cycle waits for the stand-in
        for _ in range(3):
            await solver.decide(snapshot, now=0.0, seed=1, budget=PATIENT)
        assert solver.restarts == {Source.SOLVER: 0, Source.STAND_IN: 0}
    assert befores == [None, snapshot, snapshot]


async def broken(*_: object, **__: object) -> Plan:
    raise RuntimeError("can't start new thread")


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
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Above all one of the stand-in, for which nobody waits, does not end the controller."""
    async with process(target) as solver:
        with monkeypatch.context() as patched:
            for faults in faulty:
                patched.setattr(solver.solver if faults is Source.SOLVER else solver.stand_in, "plan", broken)
            plan = await ask(solver)
            await until(lambda: all(solver.counts[each, Outcome.NOT_ASKED] == 1 for each in faulty))
        assert [who for who, outcome in solver.counts if outcome in GOOD] == [source]
        assert (plan.stats.fallback == "") is (source is Source.SOLVER)
        told = [r for r in caplog.records if r.name == "queuer.solver.worker"]
        assert [r.exc_info is not None for r in told] == [True] * len(faulty)
        assert (await ask(solver, NOTHING)).stats.note == f"child {solver.stand_in.pid}"


async def test_process_that_cannot_be_renewed_is_renewed_later(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with process("sound") as solver:
        await ask(solver)
        assert solver.solver.pid is not None
        os.kill(solver.solver.pid, signal.SIGSTOP)
        with monkeypatch.context() as patched:
            patched.setattr(asyncio, "create_subprocess_exec", broken)
            assert (await ask(solver, HASTY)).stats.fallback == Outcome.LATE
            await until(lambda: bool(caplog.records))
        assert (await ask(solver)).stats.fallback == ""


async def test_start_that_is_cancelled_leaves_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of the two is there, the other is not yet."""
    started: list[asyncio.subprocess.Process] = []
    create, calls = asyncio.create_subprocess_exec, itertools.count()

    async def once(*args: str, **named: Any) -> asyncio.subprocess.Process:
        if next(calls):
            await asyncio.Event().wait()
        started.append(await create(*args, **named))
        return started[0]

    monkeypatch.setattr(asyncio, "create_subprocess_exec", once)
    start = asyncio.create_task(process("sound").__aenter__())
    await until(lambda: bool(started))
    start.cancel()
    await asyncio.wait({start})
    assert start.cancelled()
    assert gone(started[0].pid)
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_process_that_cannot_be_started_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(*_: object, **__: object) -> asyncio.subprocess.Process:
        raise BlockingIOError("Resource temporarily unavailable")

    with monkeypatch.context() as patched:
        patched.setattr(asyncio, "create_subprocess_exec", refuse)
        solver = await process("sound").__aenter__()
        assert (await ask(solver)).stats.fallback == Outcome.CRASHED
        assert solver.counts[Source.CONTROLLER, Outcome.GREEDY] == 1
    assert (await ask(solver)).stats.status is SolveStatus.OPTIMAL
    await solver.__aexit__(None, None, None)


async def test_error_of_the_body_stays_what_it_is() -> None:
    with pytest.raises(ZeroDivisionError):
        async with process("sound"):
            raise ZeroDivisionError("on purpose")


def test_decisions_follow_each_other() -> None:
    following = Following()
    for snapshot in [world(seed) for seed in range(8)] * 2:
        alone = decide(snapshot, now=0.0, seed=0, budget=NOTHING)
        assert following(snapshot, now=0.0, seed=0, budget=NOTHING) == alone
