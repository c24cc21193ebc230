"""The solver in a process of its own, so that a late, dead or mad one costs a cycle its refinement, no more.

Parent and child exchange length-prefixed pickles over the child's stdin and stdout. The child leads its own
session, so that an interrupt for the parent's process group does not reach it, and leaves when its stdin
ends. The parent never imports ortools. Every plan of the child passes the verifier in the parent; in its
place comes the greedy plan, computed in the parent by the same `decide()` with a budget of 0.

Both keep the arrays of the cycle before, so that the greedy plan comes at once; the child is told what differs from the
snapshot that it answered for last.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import importlib
import itertools
import os
import queue
import signal
import sys
import threading
import time
from collections import Counter
from dataclasses import replace
from enum import StrEnum
from types import TracebackType
from typing import Any, BinaryIO, NoReturn, Protocol, Self

from queuer.domain.errors import QueuerError
from queuer.solver import wire
from queuer.solver.difference import Difference
from queuer.solver.following import Following
from queuer.solver.problem import Budget, Plan, Snapshot, SolveStatus
from queuer.solver.verify import Violation, verify

DECIDE = "queuer.solver.following:Following"
START_UP = 30.0
"""Seconds after which a child that has not said it is ready is replaced."""
_READY = "ready"


class Decide(Protocol):
    """The decision (DESIGN 4)."""

    def __call__(self, snapshot: Snapshot, *, now: float, seed: int, budget: Budget) -> Plan:
        """A plan for the snapshot."""


class Verify(Protocol):
    """The judge of plans."""

    def __call__(self, snapshot: Snapshot, plan: Plan, *, now: float) -> tuple[Violation, ...]:
        """Broken rules."""


class Outcome(StrEnum):
    """How a decision came about; all but the first two are failures of the child and give the greedy plan."""

    SOLVED = "solved"
    GREEDY = "greedy"  # asked for: a budget of 0
    NOT_READY = "not-ready"
    LATE = "late"
    CRASHED = "crashed"
    GARBAGE = "garbage"
    UNSOUND = "unsound"


class UnsoundPlan(QueuerError):
    """Even the greedy plan breaks a rule; nothing may be committed."""

    code = "unsound_plan"


class _Failure(Exception):
    """The child gave no plan."""

    def __init__(self, outcome: Outcome, text: str) -> None:
        super().__init__(text)
        self.outcome = outcome


class _Watch:
    """Seconds between laps, by name."""

    def __init__(self) -> None:
        self.laps: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, name: str) -> None:
        """What has passed since the last lap was `name`."""
        now = time.perf_counter()
        self.laps[name] = round(now - self._last, 6)
        self._last = now


class SolverProcess:
    """`decide()` in a child process: `async with SolverProcess() as solver: plan = await solver.decide(…)`.

    `counts`: decisions by `Outcome`. `restarts`: children started after the first. One decision at a time;
    more callers wait in line. A plan's `stats.phases` say how long it took to `pack` the request, to `solve` (or
    `greedy`) and to `verify`.
    """

    def __init__(self, *, target: str = DECIDE, greedy: Decide | None = None, judge: Verify = verify) -> None:
        """`target`: `module:function` that the child calls, or a class of which it makes one to call. `greedy`: what
        the parent calls with budget 0, the decision itself unless said.
        """
        self.counts: Counter[Outcome] = Counter()
        self.restarts = 0
        self._target = target
        self._greedy = greedy or Following()
        self._judge = judge
        self._child: asyncio.subprocess.Process | None = None
        self._ready = False
        self._since = 0.0
        self._told: Snapshot | None = None  # what the child has
        self._numbers = itertools.count(1)
        self._turn = asyncio.Lock()

    async def __aenter__(self) -> Self:
        await self._start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._kill()

    @property
    def pid(self) -> int | None:
        """Process id of the child, None when there is none."""
        return None if self._child is None else self._child.pid

    async def decide(self, snapshot: Snapshot, *, now: float, seed: int, budget: Budget) -> Plan:
        """A verified plan: the child's, or in its place the greedy one with status FAILED and the reason.

        Raises UnsoundPlan where even that one breaks a rule.
        """
        async with self._turn:
            if budget.deterministic <= 0 or budget.wall <= 0:
                self.counts[Outcome.GREEDY] += 1
                return await self._fall_back(snapshot, now=now, seed=seed, budget=budget)
            try:
                plan = await self._ask(snapshot, now=now, seed=seed, budget=budget)
            except _Failure as failure:
                self.counts[failure.outcome] += 1
                return await self._fall_back(snapshot, now=now, seed=seed, budget=budget, failure=failure)
            self.counts[Outcome.SOLVED] += 1
            return plan

    async def _fall_back(
        self, snapshot: Snapshot, *, now: float, seed: int, budget: Budget, failure: _Failure | None = None
    ) -> Plan:
        watch = _Watch()
        nothing = replace(budget, deterministic=0.0)
        plan = await asyncio.to_thread(self._greedy, snapshot, now=now, seed=seed, budget=nothing)
        watch.lap("greedy")
        broken = await asyncio.to_thread(self._judge, snapshot, plan, now=now)
        watch.lap("verify")
        if broken:
            raise UnsoundPlan(f"the greedy plan breaks {len(broken)} rules, first {broken[0]}")
        stats = replace(plan.stats, phases=watch.laps)
        if failure is not None:
            note = f"{failure.outcome}: {failure}"
            stats = replace(stats, status=SolveStatus.FAILED, note=note, fallback=failure.outcome.value)
        return replace(plan, stats=stats)

    async def _ask(self, snapshot: Snapshot, *, now: float, seed: int, budget: Budget) -> Plan:
        number = next(self._numbers)
        watch = _Watch()
        request = await asyncio.to_thread(self._request, (number, now, seed, budget), snapshot)
        watch.lap("pack")
        standing_by = asyncio.get_running_loop().run_in_executor(None, self._stand_by, snapshot)
        try:
            async with asyncio.timeout(budget.wall):
                plan = await self._exchange(request, number)
        except TimeoutError:
            await self._late(budget)
        except _Failure as failure:
            if failure.outcome is not Outcome.UNSOUND:
                await self._restart()
            raise
        except BaseException:  # cancelled: the child still works on what nobody waits for
            self._strike()
            raise
        self._told = snapshot
        watch.lap("solve")
        await standing_by
        broken = await asyncio.to_thread(self._judge, snapshot, plan, now=now)
        watch.lap("verify")
        if broken:
            raise _Failure(Outcome.UNSOUND, f"{len(broken)} rules broken, first {broken[0]}")
        return replace(plan, stats=replace(plan.stats, phases={**plan.stats.phases, **watch.laps}))

    def _stand_by(self, snapshot: Snapshot) -> None:
        """Make what the greedy plan needs, while the child is at work."""
        if isinstance(self._greedy, Following):
            self._greedy.follow(snapshot)

    def _request(self, asked: tuple[int, float, int, Budget], snapshot: Snapshot) -> bytes:
        """The question as bytes, with the whole snapshot or what differs from the one that the child has."""
        if self._child is None or self._told is None:
            return wire.pack((*asked, snapshot))
        return wire.pack((*asked, Difference.between(self._told, snapshot)))

    async def _late(self, budget: Budget) -> NoReturn:
        asked = self._ready
        if asked or asyncio.get_running_loop().time() - self._since > START_UP:
            await self._restart()
        if asked:
            raise _Failure(Outcome.LATE, f"no plan within {budget.wall:g} s")
        raise _Failure(Outcome.NOT_READY, "the solver process is still starting")

    async def _exchange(self, request: bytes, number: int) -> Plan:
        if self._child is None:
            await self._restart()
        child = self._child
        assert child is not None
        assert child.stdin is not None
        try:
            if not self._ready:
                if await self._receive(child) != _READY:
                    raise _Failure(Outcome.GARBAGE, "a first word that is none")
                self._ready = True
            child.stdin.write(request)
            await child.stdin.drain()
            answer = await self._receive(child)
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            raise _Failure(Outcome.CRASHED, f"the solver process ended ({type(error).__name__})") from error
        match answer:
            case (got, Plan() as plan) if got == number:
                return plan
            case (got, str(text)) if got == number:
                raise _Failure(Outcome.CRASHED, text)
        raise _Failure(Outcome.GARBAGE, f"an answer of type {type(answer).__name__}")

    async def _receive(self, child: asyncio.subprocess.Process) -> object:
        assert child.stdout is not None
        head = await child.stdout.readexactly(wire.HEADER.size)
        try:
            body = await child.stdout.readexactly(wire.length_of(head))
            return await asyncio.to_thread(wire.unpack, body)
        except (asyncio.IncompleteReadError, ConnectionError):
            raise
        except Exception as error:  # unpickling garbage can raise anything
            raise _Failure(Outcome.GARBAGE, f"no message ({type(error).__name__}: {error})") from error

    async def _restart(self) -> None:
        await self._kill()
        self.restarts += 1
        await self._start()

    async def _start(self) -> None:
        self._ready = False
        self._told = None
        self._since = asyncio.get_running_loop().time()
        self._child = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "queuer.solver.worker",
            self._target,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,
        )

    async def _kill(self) -> None:
        child = self._child
        if child is None:
            return
        self._strike()
        await child.wait()  # reaped: no zombie is left

    def _strike(self) -> None:
        """SIGKILL, which also ends a stopped process; asyncio reaps it."""
        child, self._child = self._child, None
        if child is not None:
            with contextlib.suppress(ProcessLookupError):
                child.kill()
            assert child.stdin is not None
            child.stdin.close()


def resolve(target: str) -> Decide:
    """The function that `module:name` names, or one of the class that it names."""
    module, _, name = target.partition(":")
    found: Any = getattr(importlib.import_module(module), name)
    decide: Decide = found() if isinstance(found, type) else found
    return decide


def serve(target: str, requests: BinaryIO, answers: BinaryIO) -> None:
    """The child: answer requests until stdin ends, even in the middle of one."""
    function = resolve(target)
    line: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def listen() -> None:
        while (head := requests.read(wire.HEADER.size)) and len(head) == wire.HEADER.size:
            line.put(wire.unpack(requests.read(wire.length_of(head))))
        os._exit(0)

    threading.Thread(target=listen, daemon=True).start()
    _send(answers, _READY)
    gc.disable()  # nobody waits for it between two answers
    snapshot: Any = None
    while True:
        number, now, seed, budget, told = line.get()
        try:
            snapshot = told.after(snapshot) if isinstance(told, Difference) else told
            answer: object = function(snapshot, now=now, seed=seed, budget=budget)
        except Exception as error:  # noqa: BLE001 - told to the parent, which counts it
            answer = f"{type(error).__name__}: {error}"
        _send(answers, (number, answer))
        gc.collect()


def _send(answers: BinaryIO, message: object) -> None:
    answers.write(wire.pack(message))
    answers.flush()


def main() -> None:
    """Entry of the child. What libraries print goes to stderr, so that it cannot pass for an answer."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    serve(sys.argv[1], sys.stdin.buffer, answers)


if __name__ == "__main__":
    main()
