"""The solver process may be late, killed or mad: it is replaced, and the cycle has a plan without CP-SAT."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from queuer.domain.assignments import SolveStatus
from queuer.domain.errors import InvalidInput
from queuer.solver.decide import decide
from queuer.solver.process import parent as solving
from queuer.solver.process import wire
from queuer.solver.process.parent import SolverOutcome, SolverProcess
from queuer.solver.records import Budget, Plan
from queuer.solver.stored import difference
from tests.solver.make import gang, node, pod_set, queue, snapshot
from tests.solver.process import targets
from tests.waiting import until

PATIENT = Budget(deterministic=1.0, wall=30.0)
HASTY = Budget(deterministic=1.0, wall=1.0)
FAILURES = [
    ("die", SolverOutcome.CRASHED),
    ("fail", SolverOutcome.CRASHED),
    ("noise", SolverOutcome.CRASHED),
    ("unreadable", SolverOutcome.CRASHED),
    ("no_plan", SolverOutcome.CRASHED),
    ("hollow", SolverOutcome.CRASHED),
    ("ghost", SolverOutcome.REFUSED),
    ("hang", SolverOutcome.LATE),
]
SMALL = snapshot([node("n1")], [])
IN_PROCESS = {"lost", "pack", "solve", "verify"}
IN_THREAD = {"lost"}


def process(name: str, *, ready_within: float = 30.0) -> SolverProcess:
    return SolverProcess(target=f"tests.solver.process.targets:{name}", ready_within=ready_within)


async def ask(solver: SolverProcess, budget: Budget = PATIENT) -> Plan:
    return await solver.decide(SMALL, now=0.0, seed=1, budget=budget)


def pid_of(solver: SolverProcess) -> int:
    assert solver.pid is not None
    return solver.pid


def state(pid: int) -> str:
    """As the kernel says it: R, S, T, Z; empty for a process that is no more, and was reaped."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return ""


async def test_the_plan_comes_from_the_process() -> None:
    """The same serves on, and no interrupt of the parent's process group ends it."""
    async with process("sound") as solver:
        pid = pid_of(solver)
        assert os.getpgid(pid) != os.getpgid(0)
        for times in (1, 2):
            plan = await ask(solver)
            assert (plan.stats.status, plan.stats.note) == (SolveStatus.OPTIMAL, f"process {pid}")
            assert plan.stats.fallback == ""
            assert plan.stats.phases.keys() == {"pack", "solve", "verify"}
            assert solver.counts == {SolverOutcome.SOLVED: times}
    assert state(pid) == ""
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_the_real_decision_is_the_same_in_the_process() -> None:
    """Also about the snapshot that follows, told as what differs."""
    jobs = [gang(f"g{i}", pod_set(1, 3 + i), submitted=float(i)) for i in range(5)]
    first = snapshot([node("n1"), node("n2")], [queue("root.a")], pending=jobs)
    async with SolverProcess(ready_within=30.0) as solver:
        for given in (first, replace(first, pending=first.pending[1:])):
            plan = await solver.decide(given, now=9.0, seed=1, budget=PATIENT)
            assert difference(decide(given, now=9.0, seed=1, budget=PATIENT), plan) == ""
            assert plan.admissions
            assert plan.explanations
        assert solver.counts == {SolverOutcome.SOLVED: 2}


async def test_callers_wait_in_line_and_prints_of_libraries_are_no_answers() -> None:
    async with process("chatty") as solver:
        plans = await asyncio.gather(*(ask(solver) for _ in range(5)))
        assert {p.stats.note for p in plans} == {f"process {solver.pid}"}
        assert solver.counts == {SolverOutcome.SOLVED: 5}


@pytest.mark.parametrize(("target", "outcome"), FAILURES)
async def test_after_a_failure_the_process_that_replaces_it_decides_without_cp_sat(
    target: str, outcome: SolverOutcome
) -> None:
    async with process(target) as solver:
        for times in (1, 2):  # each time it is asked with CP-SAT first
            pid = pid_of(solver)
            plan = await ask(solver, HASTY if target == "hang" else PATIENT)
            assert (plan.stats.status, plan.stats.fallback) == (SolveStatus.FAILED, outcome)
            assert plan.stats.note.startswith(f"{outcome}: ")
            assert plan.stats.phases.keys() == IN_PROCESS
            assert solver.counts == {outcome: times, SolverOutcome.SOLVED: times}
            assert solver.restarts == times
            assert solver.pid not in (None, pid)
            assert state(pid) == ""


@pytest.mark.parametrize("first", ["sound", "contradictory"])
async def test_a_contradictory_snapshot_is_refused_by_the_same_process(first: str) -> None:
    """The caller is told the fields, no process is lost, and the next sound snapshot has its plan with CP-SAT."""
    good = snapshot([node("n1")], [queue("root.a")], pending=[gang("g", pod_set(1, 1))])
    bad = replace(good, pending=good.pending * 2)
    async with SolverProcess(ready_within=30.0) as solver:
        if first == "sound":
            await solver.decide(good, now=0.0, seed=1, budget=PATIENT)
        pid = pid_of(solver)
        for _ in range(2):
            with pytest.raises(InvalidInput, match="uid: 'g' is there 2 times") as error:
                await solver.decide(bad, now=0.0, seed=1, budget=PATIENT)
            assert [problem.field for problem in error.value.problems] == ["snapshot: uid"]
        plan = await solver.decide(good, now=0.0, seed=1, budget=PATIENT)
        assert [admission.uid for admission in plan.admissions] == ["g"]
        assert plan.stats.fallback == ""
        assert (solver.pid, solver.restarts) == (pid, 0)
        assert solver.counts == {SolverOutcome.SOLVED: 1 + (first == "sound"), SolverOutcome.INVALID: 2}


async def test_where_the_next_process_fails_too_a_thread_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(solving, "decide", targets.sound)
    async with process("die_always") as solver:
        plan = await ask(solver)
        assert (plan.stats.status, plan.stats.fallback) == (SolveStatus.FAILED, SolverOutcome.CRASHED)
        assert plan.stats.phases.keys() == IN_THREAD
        assert (solver.counts, solver.restarts) == ({SolverOutcome.CRASHED: 2}, 1)
        assert (await ask(solver)).stats.fallback == SolverOutcome.NOT_READY  # none is started for a while


@pytest.mark.parametrize("target", ["sound", "SlowToFollow"])
async def test_a_process_that_is_not_ready_is_left_alone_and_a_thread_decides(
    target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped before its first word, or while it takes the snapshot over: no deadline runs before it is asked."""
    monkeypatch.setattr(solving, "decide", targets.sound)
    async with process(target, ready_within=0.1) as solver:
        pid = pid_of(solver)
        if target == "sound":
            os.kill(pid, signal.SIGSTOP)
        for times in (1, 2):
            plan = await ask(solver, HASTY)
            assert (plan.stats.status, plan.stats.fallback) == (SolveStatus.FAILED, SolverOutcome.NOT_READY)
            assert plan.stats.phases.keys() == IN_THREAD
            assert solver.counts == {SolverOutcome.NOT_READY: times}
        await until(lambda: state(pid) == "T")
        os.kill(pid, signal.SIGCONT)
        solver._ready_within = 30.0
        assert (await ask(solver)).stats.note == f"process {pid}"
        assert solver.restarts == 0


@pytest.mark.parametrize(("target", "outcome"), [("SlowToFollow", "late"), ("CannotFollow", "crashed")])
async def test_a_process_that_cannot_take_a_snapshot_over_is_replaced(
    target: str, outcome: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(solving, "decide", targets.sound)
    monkeypatch.setattr(solving, "START_UP", 0.2 if outcome == "late" else 60.0)
    async with process(target) as solver:
        assert (await ask(solver)).stats.fallback == outcome
        assert (solver.counts, solver.restarts) == ({outcome: 2}, 1)


async def test_a_process_killed_between_two_cycles_is_replaced() -> None:
    async with process("sound") as solver:
        await ask(solver)
        os.kill(pid_of(solver), signal.SIGKILL)
        await until(lambda: solver.pid is None)
        assert (await ask(solver)).stats.status is SolveStatus.OPTIMAL
        assert (solver.counts, solver.restarts) == ({SolverOutcome.SOLVED: 2}, 1)


async def test_a_process_killed_while_it_takes_a_snapshot_over_costs_the_next_cycle_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(solving, "decide", targets.sound)
    async with process("sound", ready_within=0.1) as solver:
        os.kill(pid_of(solver), signal.SIGSTOP)
        assert (await ask(solver)).stats.fallback == SolverOutcome.NOT_READY
        os.kill(pid_of(solver), signal.SIGKILL)
        await until(lambda: solver.pid is None)
        solver._ready_within = 30.0
        assert (await ask(solver)).stats.status is SolveStatus.OPTIMAL


async def test_a_fault_of_the_parent_costs_plans_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """After two processes were lost for nothing there is none for a while."""

    def broken(_: wire.SolveRequest, **__: Any) -> bytes:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(solving, "decide", targets.sound)
    async with process("sound") as solver:
        with monkeypatch.context() as patched:
            patched.setattr(wire, "pack", broken)
            assert (await ask(solver)).stats.note == "crashed: RuntimeError: can't start new thread"
        assert (await ask(solver)).stats.fallback == SolverOutcome.NOT_READY
        monkeypatch.setattr(time, "monotonic", lambda: solver._rests_until)
        assert (await ask(solver)).stats.fallback == ""


async def test_a_cancelled_caller_leaves_no_stale_answer() -> None:
    async with process("hang") as solver:
        pid = pid_of(solver)
        asking = asyncio.create_task(ask(solver))
        await until(lambda: state(pid) == "T")
        asking.cancel()
        await asyncio.wait({asking})
        assert solver.pid is None
        without = await ask(solver, replace(PATIENT, deterministic=0.0))
        assert without.stats.note == f"process {solver.pid}"
        assert state(pid) == ""


@pytest.mark.parametrize("stopped", [False, True])
async def test_it_leaves_with_a_parent_that_is_killed(stopped: bool) -> None:
    code = (
        "import asyncio; from tests.solver.process.test_process import ask, process\n"
        "async def main():\n"
        "    async with process('sound') as solver:\n"
        "        await ask(solver)\n"
        "        print(solver.pid, flush=True)\n"
        "        await asyncio.Event().wait()\n"
        "asyncio.run(main())"
    )
    parent = await asyncio.create_subprocess_exec(sys.executable, "-c", code, stdout=subprocess.PIPE)
    assert parent.stdout is not None
    pid = int(await parent.stdout.readline())
    if stopped:
        os.kill(pid, signal.SIGSTOP)  # it cannot notice anything by itself
    parent.kill()
    await parent.wait()
    await until(lambda: state(pid) in ("", "Z"))  # whoever inherits it reaps it


SCRIPTS = {
    "talks without end": f"import os\nos.write(1, {wire.HEADER.pack(wire.MARK, 2**30)!r})\n"
    "while True: os.write(1, bytes(65536))",
    "has started another": "import subprocess\nprint(flush=True)\nsubprocess.run(['sleep', '600'])",
}


@pytest.mark.parametrize("script", SCRIPTS)
async def test_it_is_reaped_whatever_it_is_at(script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It writes without end, or has started a process that would keep its stdout open."""
    popen = subprocess.Popen

    def other(_: Any, **named: Any) -> subprocess.Popen[bytes]:
        return popen((sys.executable, "-c", SCRIPTS[script]), **named)

    monkeypatch.setattr(subprocess, "Popen", other)
    async with asyncio.timeout(60), process("sound") as solver:
        pid = pid_of(solver)
        asking = asyncio.create_task(ask(solver))
        children, moved = Path(f"/proc/{pid}/task/{pid}/children"), Path(f"/proc/{pid}/io")
        await until(lambda: "wchar: 0\n" not in moved.read_text() or bool(children.read_text()))
        asking.cancel()
        await asyncio.wait({asking})
    assert state(pid) == ""


def test_the_parent_loads_no_solver() -> None:
    """ortools is 90 MB and can crash; it belongs to the process alone."""
    code = "import sys, queuer.solver.process.parent; sys.exit(any(m.split('.')[0] == 'ortools' for m in sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
