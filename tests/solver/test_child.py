"""A solver process starts, is replaced, and leaves, whatever is done to it."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import CapturingLogger

from queuer.solver import child, wire, worker
from queuer.solver.child import Child, Failure, Outcome, Question
from queuer.solver.problem import Budget, Plan, Snapshot, SolveStatus
from queuer.solver.verify import verify
from queuer.solver.worker import Source
from tests.solver.processes import (
    HASTY,
    NOTHING,
    PATIENT,
    TARGETS,
    ask,
    broken,
    gone,
    pids,
    process,
    small,
    state,
    stopped,
    until,
    woken,
)


async def test_prints_of_libraries_do_not_pass_for_answers() -> None:
    async with process("chatty") as solver:
        assert (await ask(solver)).stats.status is SolveStatus.OPTIMAL


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


async def test_process_that_is_killed_in_the_middle_of_an_answer_is_reaped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What it has written by then is more than is read ahead, and nobody wants it."""
    create = asyncio.create_subprocess_exec
    started: list[asyncio.subprocess.Process] = []

    async def talkative(*_: str, **named: Any) -> asyncio.subprocess.Process:
        head = wire.HEADER.pack(wire.MARK, 2**30)
        script = f"import os\nos.write(1, {head!r})\nwhile True: os.write(1, bytes(65536))"
        started.append(await create(sys.executable, "-c", script, **named))
        return started[0]

    monkeypatch.setattr(asyncio, "create_subprocess_exec", talkative)
    one = Child(f"{TARGETS}:sound", judge=verify)
    await one.start()
    plan = one.plan(Question(1, small(), now=0.0, seed=0), budget=PATIENT, within=30.0, phase="solve")
    asking = asyncio.create_task(plan)
    stdout: Any = started[0].stdout
    await until(lambda: len(stdout._buffer) > 2**20)
    asking.cancel()
    await asyncio.wait({asking})
    await asyncio.wait_for(one.kill(), 20.0)
    assert gone(started[0].pid)


async def test_whom_a_process_has_started_is_killed_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else its stdout stays open, and whoever replaces it would wait for their end."""
    create = asyncio.create_subprocess_exec

    async def parent(*_: str, **named: Any) -> asyncio.subprocess.Process:
        script = "import subprocess\nprint(flush=True)\nsubprocess.run(['sleep', '600'])"
        return await create(sys.executable, "-c", script, **named)

    monkeypatch.setattr(asyncio, "create_subprocess_exec", parent)
    one = Child(f"{TARGETS}:sound", judge=verify)
    await one.start()
    pid = one.pid
    assert pid is not None
    await until(lambda: bool(Path(f"/proc/{pid}/task/{pid}/children").read_text()))
    await asyncio.wait_for(one.kill(), 20.0)
    assert gone(pid)


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


async def test_how_a_process_ended_is_known_though_it_is_killed_once_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It has died, and asyncio has not come to look yet."""
    looked, waitpid = threading.Event(), os.waitpid

    def late(pid: int, options: int) -> tuple[int, int]:
        looked.wait(30)
        return waitpid(pid, options)

    monkeypatch.setattr(os, "waitpid", late)
    alone = Child(f"{TARGETS}:sound", judge=verify)
    await alone.start()
    process = alone._process
    assert process is not None
    os.kill(process.pid, signal.SIGKILL)
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # noqa: ASYNC222
    alone._strike()
    looked.set()
    assert await process.wait() == -signal.SIGKILL


async def test_child_that_still_starts_is_left_alone() -> None:
    async with process("sound") as solver:
        pid = solver.solver.pid
        plan = await ask(solver, Budget(deterministic=1.0, wall=0.001))
        assert plan.stats.status is SolveStatus.FAILED
        assert solver.counts[Source.SOLVER, Outcome.NOT_READY] == 1
        assert solver.solver.pid == pid
        assert (await ask(solver)).stats.status is SolveStatus.OPTIMAL


async def test_child_that_takes_a_snapshot_over_is_left_alone() -> None:
    """No deadline of a cycle runs before it is asked."""
    async with process("SlowToFollow") as solver:
        pid = solver.solver.pid
        assert pid is not None
        for times in (1, 2):
            assert (await ask(solver, HASTY)).stats.fallback == Outcome.NOT_READY
            await until(lambda: stopped(pid))
            assert solver.counts[Source.SOLVER, Outcome.NOT_READY] == times
        os.kill(pid, signal.SIGCONT)
        assert (await ask(solver)).stats.note == f"child {pid}"
        assert (await ask(solver, HASTY)).stats.note == f"child {pid}"
        assert solver.restarts[Source.SOLVER] == 0


@asynccontextmanager
async def alone(name: str, *, start_up: float = 30.0) -> AsyncIterator[Child]:
    """One process, without a stand-in."""
    one = Child(f"{TARGETS}:{name}", judge=verify, start_up=start_up)
    await one.start()
    try:
        yield one
    finally:
        await one.kill()


async def plan(one: Child, *, within: float = 30.0) -> Plan:
    question = Question(1, small(), now=0.0, seed=1)
    return await one.plan(question, budget=PATIENT, within=within, phase="solve")


@pytest.mark.parametrize(("start_up", "replaced"), [(0.0, True), (30.0, False)])
async def test_process_that_does_not_start_in_its_time_is_replaced(start_up: float, replaced: bool) -> None:
    async with alone("sound", start_up=start_up) as one:
        assert one.pid is not None
        os.kill(one.pid, signal.SIGSTOP)
        with pytest.raises(Failure, match="still starting"):
            await plan(one, within=0.1)
        assert (one.pid is None) is replaced


@pytest.mark.parametrize(("start_up", "replaced"), [(0.0, True), (30.0, False)])
async def test_child_that_does_not_take_over_in_its_time_is_replaced(start_up: float, replaced: bool) -> None:
    async with alone("SlowToFollow", start_up=start_up) as one:
        await one.kill()
        await one.renew(Question(1, small(), now=0.0, seed=1))
        pid = one.pid
        assert pid is not None
        await until(lambda: stopped(pid))
        with pytest.raises(Failure, match="still starting"):
            await plan(one, within=0.1)
        assert (one.pid is None) is replaced


async def test_first_word_that_is_read_when_the_wait_for_it_ends_is_not_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else the next is taken for it, and the one after that is waited for in vain."""
    begun, go = threading.Event(), threading.Event()
    unpack = wire.unpack

    def held(body: bytes) -> object:
        begun.set()
        assert go.wait(30)
        return unpack(body)

    monkeypatch.setattr(wire, "unpack", held)
    async with alone("sound") as one:
        pid = one.pid  # alone, so the word is its own
        while not begun.is_set():
            with pytest.raises(Failure, match="still starting"):
                await plan(one, within=0.1)
        go.set()
        assert (await plan(one)).stats.note == f"child {pid}"


async def test_time_of_an_answer_is_without_the_wait_for_who_had_to_start_first() -> None:
    async with alone("sound") as one:
        phases = (await plan(one)).stats.phases
        assert one.took == phases["solve"]
        assert phases["pack"] > 0


async def test_child_that_replaces_another_takes_the_snapshot_over_at_once() -> None:
    """Nobody asks for it: between two questions it has time."""
    async with process("SlowToFollow") as solver:
        pid = solver.solver.pid
        assert pid is not None
        question = asyncio.create_task(ask(solver))
        await until(lambda: stopped(pid))
        os.kill(pid, signal.SIGKILL)
        assert (await question).stats.fallback == Outcome.CRASHED
        await until(lambda: solver.solver.pid not in (None, pid))
        other = solver.solver.pid
        assert other is not None
        await until(lambda: stopped(other))
        os.kill(other, signal.SIGCONT)
        assert (await ask(solver)).stats.note == f"child {other}"


async def test_child_that_cannot_take_a_snapshot_over_is_replaced() -> None:
    async with process("CannotFollow") as solver:
        for times in (1, 2):
            plan = await ask(solver)
            assert plan.stats.fallback == Outcome.CRASHED
            assert "ZeroDivisionError" in plan.stats.note
            await until(lambda times=times: solver.restarts[Source.SOLVER] == times)  # type: ignore[misc]


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
        "import asyncio; from tests.solver.processes import NOTHING, ask, pids, process\n"
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


def test_parent_loads_no_solver() -> None:
    """ortools is 90 MB and can crash; it belongs to the child alone."""
    code = (
        "import sys, queuer.solver.worker; sys.exit(any(m.split('.')[0] == 'ortools' for m in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


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
    assert befores == [None, snapshot, snapshot, snapshot]  # taken over, then asked three times


async def test_process_that_cannot_be_renewed_is_renewed_later(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = CapturingLogger()
    monkeypatch.setattr(worker, "log", lines)
    async with process("sound") as solver:
        await ask(solver)
        assert solver.solver.pid is not None
        os.kill(solver.solver.pid, signal.SIGSTOP)
        with monkeypatch.context() as patched:
            patched.setattr(asyncio, "create_subprocess_exec", broken)
            assert (await ask(solver, HASTY)).stats.fallback == Outcome.LATE
            await until(lambda: bool(lines.calls))
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

    async with AsyncExitStack() as stack:
        with monkeypatch.context() as patched:
            patched.setattr(asyncio, "create_subprocess_exec", refuse)
            solver = await stack.enter_async_context(process("sound"))
            assert (await ask(solver)).stats.fallback == Outcome.CRASHED
            assert solver.counts[Source.CONTROLLER, Outcome.GREEDY] == 1
        assert (await ask(solver)).stats.status is SolveStatus.OPTIMAL
