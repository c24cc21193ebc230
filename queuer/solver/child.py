"""A process that decides, as its parent sees it: asked one question at a time, replaced when it fails.

Both exchange length-prefixed pickles over its stdin and stdout; what runs in it is `queuer.solver.serving`. It leads
its own session, so that an interrupt for the parent's process group does not reach it, and leaves when its stdin ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from dataclasses import replace
from enum import StrEnum
from typing import Protocol

from queuer.solver import wire
from queuer.solver.difference import Difference
from queuer.solver.problem import Budget, Plan, Snapshot
from queuer.solver.verify import Violation

START_UP = 30.0
"""Seconds after which a process that has not said it is ready is replaced."""


class Verify(Protocol):
    """The judge of plans."""

    def __call__(self, snapshot: Snapshot, plan: Plan, *, now: float) -> tuple[Violation, ...]:
        """Broken rules."""


class Outcome(StrEnum):
    """What came of a question; all but the first two are failures."""

    SOLVED = "solved"
    GREEDY = "greedy"  # asked for: a budget of 0
    STALE = "stale"  # came when the cycle had its plan
    NOT_READY = "not-ready"
    LATE = "late"
    CRASHED = "crashed"
    GARBAGE = "garbage"
    UNSOUND = "unsound"
    NOT_ASKED = "not-asked"  # the parent could not


class Failure(Exception):
    """The process gave no plan that may be used."""

    def __init__(self, outcome: Outcome, text: str) -> None:
        super().__init__(text)
        self.outcome = outcome


class Watch:
    """Seconds between laps, by name."""

    def __init__(self) -> None:
        self.laps: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, name: str) -> None:
        """What has passed since the last lap was `name`."""
        now = time.perf_counter()
        self.laps[name] = round(now - self._last, 6)
        self._last = now


class Question:
    """What one decision is asked. `begun`: by the stand-in. `over`: it has its plan, or nobody waits for one."""

    def __init__(self, number: int, snapshot: Snapshot, *, now: float, seed: int) -> None:
        self.number, self.snapshot, self.now, self.seed = number, snapshot, now, seed
        self.begun = self.over = False
        self._told: list[tuple[Snapshot | None, bytes]] = []
        self._packing = asyncio.Lock()

    async def request(self, before: Snapshot | None, budget: Budget) -> bytes:
        """The question as bytes for a process that has `before`, or nothing yet.

        What is asked, then the snapshot or what differs: that is packed once for all who have the same.
        """
        async with self._packing:
            told = next((packed for there, packed in self._told if there is before), None)
            if told is None:
                told = await asyncio.to_thread(_told, before, self.snapshot)
                self._told.append((before, told))
        return wire.pack((self.number, self.now, self.seed, budget)) + told


class Child:
    """One process and its successors. `restarts`: how many these are. One caller at a time."""

    def __init__(self, target: str, *, judge: Verify) -> None:
        """`target`: `module:function` that the process calls, or a class of which it makes one to call."""
        self.restarts = 0
        self._target = target
        self._judge = judge
        self._process: asyncio.subprocess.Process | None = None
        self._ready = self._struck = False
        self._since = 0.0
        self._renewing = asyncio.Lock()
        self._has: Snapshot | None = None

    @property
    def pid(self) -> int | None:
        """Process id, None when there is none that may still answer."""
        process = self._process
        gone = process is None or self._struck or process.returncode is not None
        return None if process is None or gone else process.pid

    async def plan(self, question: Question, *, budget: Budget, within: float, phase: str) -> Plan:
        """A sound plan, asked for now and there `within` seconds; its `stats.phases` have the time it took as `phase`,
        and what packing and judging took.

        Raises Failure; then the process is at its end, unless its plan was unsound, stale, or it is still starting.
        """
        watch = Watch()
        process = await self._alive()
        request = await question.request(self._has, budget)
        watch.lap("pack")
        try:
            async with asyncio.timeout(within):
                plan = await self._exchange(process, request, question.number)
        except TimeoutError:
            raise self._late(within) from None
        except BaseException:  # a failure; or cancelled: it still works on what nobody waits for
            self._strike()
            raise
        self._has = question.snapshot
        watch.lap(phase)
        if question.over:
            raise Failure(Outcome.STALE, "another plan was taken")
        await self._check(question, plan)
        watch.lap("verify")
        return replace(plan, stats=replace(plan.stats, phases={**plan.stats.phases, **watch.laps}))

    async def _check(self, question: Question, plan: Plan) -> None:
        try:
            broken = await asyncio.to_thread(self._judge, question.snapshot, plan, now=question.now)
        except Exception as error:  # a plan of wrong parts can make it raise anything
            raise Failure(Outcome.UNSOUND, f"no plan ({type(error).__name__}: {error})") from error
        if broken:
            raise Failure(Outcome.UNSOUND, f"{len(broken)} rules broken, first {broken[0]}")

    def _late(self, within: float) -> Failure:
        asked = self._ready
        if asked or asyncio.get_running_loop().time() - self._since > START_UP:
            self._strike()
        if asked:
            return Failure(Outcome.LATE, f"no plan within {within:g} s")
        return Failure(Outcome.NOT_READY, "the solver process is still starting")

    async def _exchange(self, process: asyncio.subprocess.Process, request: bytes, number: int) -> Plan:
        assert process.stdin is not None
        try:
            if not self._ready:
                if await _receive(process) != wire.READY:
                    raise Failure(Outcome.GARBAGE, "a first word that is none")
                self._ready = True
            process.stdin.write(request)
            await process.stdin.drain()
            answer = await _receive(process)
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            raise Failure(Outcome.CRASHED, f"the solver process ended ({type(error).__name__})") from error
        match answer:
            case (got, Plan() as plan) if got == number:
                return plan
            case (got, str(text)) if got == number:
                raise Failure(Outcome.CRASHED, text)
        raise Failure(Outcome.GARBAGE, f"an answer of type {type(answer).__name__}")

    # The process

    async def _alive(self) -> asyncio.subprocess.Process:
        await self.renew()
        if self._process is None:
            raise Failure(Outcome.CRASHED, "the solver process cannot be started")
        return self._process

    async def renew(self) -> None:
        """Put another in its place where there is none that may still answer."""
        async with self._renewing:
            if self.pid is None:
                await self.kill()
                self.restarts += 1
                await self.start()

    async def start(self) -> None:
        """Start it; there is none yet."""
        self._ready = self._struck = False
        self._has = None
        self._since = asyncio.get_running_loop().time()
        with contextlib.suppress(OSError):  # no memory, too many processes: tried again at the next question
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "queuer.solver.serving",
                self._target,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                start_new_session=True,
            )

    async def kill(self) -> None:
        """End it, if there is one."""
        self._strike()
        process, self._process = self._process, None
        if process is not None:
            await process.wait()  # reaped: no zombie is left

    def _strike(self) -> None:
        """SIGKILL, which also ends a stopped process."""
        process = self._process
        if process is not None and not self._struck:
            self._struck = True
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            assert process.stdin is not None
            process.stdin.close()


def _told(before: Snapshot | None, snapshot: Snapshot) -> bytes:
    return wire.pack(snapshot if before is None else Difference.between(before, snapshot))


async def _receive(process: asyncio.subprocess.Process) -> object:
    assert process.stdout is not None
    head = await process.stdout.readexactly(wire.HEADER.size)
    try:
        body = await process.stdout.readexactly(wire.length_of(head))
        return await asyncio.to_thread(wire.unpack, body)
    except (asyncio.IncompleteReadError, ConnectionError):
        raise
    except Exception as error:  # unpickling garbage can raise anything
        raise Failure(Outcome.GARBAGE, f"no message ({type(error).__name__}: {error})") from error
