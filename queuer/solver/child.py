"""A process that decides, as its parent sees it: asked one question at a time, replaced when it fails.

Both exchange length-prefixed pickles over its stdin and stdout; what runs in it is `queuer.solver.serving`. It leads
its own session, so that an interrupt for the parent's process group does not reach it, and leaves when its stdin ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from enum import StrEnum
from typing import Protocol

from queuer.solver import wire
from queuer.solver.difference import Difference
from queuer.solver.problem import Budget, Plan, Snapshot
from queuer.solver.verify import Violation
from queuer.solver.wellformed import misfits

START_UP = 120.0
"""Seconds after which a process that has neither started nor taken a snapshot over is replaced: more than a large one
takes on a busy machine. No cycle waits as long.
"""


UNREAD = 2**16
"""Bytes of what an ended process has left to read that are thrown away at once."""


class Verify(Protocol):
    """The judge of plans."""

    def __call__(self, snapshot: Snapshot, plan: Plan, *, now: float) -> tuple[Violation, ...]:
        """Broken rules."""


class Outcome(StrEnum):
    """What came of a question; all but the first two are failures. Who is `WORSE` was `SOLVED` before."""

    SOLVED = "solved"
    GREEDY = "greedy"  # asked for: a budget of 0
    STALE = "stale"  # came when the cycle had its plan
    NOT_READY = "not-ready"
    LATE = "late"
    CRASHED = "crashed"
    GARBAGE = "garbage"
    UNSOUND = "unsound"
    WORSE = "worse"  # than greedy's, which was there
    RESTING = "resting"  # left out, as it failed again and again
    NOT_ASKED = "not-asked"  # the parent could not


class Failure(Exception):
    """The process gave no plan that may be used."""

    def __init__(self, outcome: Outcome, text: str) -> None:
        super().__init__(text)
        self.outcome = outcome


class Stopwatch:
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

    async def asked(self, before: Snapshot, budget: Budget) -> bytes:
        """The question as bytes for a process that has `before`: what is asked, then what differs."""
        return wire.pack((self.number, self.now, self.seed, budget)) + await self._snapshot(before)

    async def taken_over(self) -> bytes:
        """As bytes for a process that has nothing yet: nothing is asked, then the snapshot."""
        return wire.pack(None) + await self._snapshot(None)

    async def _snapshot(self, before: Snapshot | None) -> bytes:
        """It, or what differs, packed once for all who have the same."""
        async with self._packing:
            told = next((packed for there, packed in self._told if there is before), None)
            if told is None:
                told = await asyncio.to_thread(_told, before, self.snapshot)
                self._told.append((before, told))
        return told


class Child:
    """One process and its successors. `restarts`: how many these are; `took`: seconds from when it was last asked to
    its answer. One caller at a time.

    A process that has just started takes a snapshot over before it is asked anything, and has `start_up` seconds for
    that: were it asked at once, a deadline that it keeps every day could kill it again and again.
    """

    def __init__(self, target: str, *, judge: Verify, start_up: float = START_UP) -> None:
        """`target`: `module:function` that the process calls, or a class of which it makes one to call."""
        self.restarts = 0
        self.took = 0.0
        self._target = target
        self._judge = judge
        self._start_up = start_up
        self._process: asyncio.subprocess.Process | None = None
        self._reading: asyncio.Task[object] | None = None
        self._ready = self._struck = False
        self._since = 0.0
        self._renewing = asyncio.Lock()
        self._has: Snapshot | None = None
        self._given: Snapshot | None = None  # not taken over yet

    @property
    def pid(self) -> int | None:
        """Process id, None when there is none that may still answer."""
        process = self._process
        gone = process is None or self._struck or process.returncode is not None
        return None if process is None or gone else process.pid

    async def plan(self, question: Question, *, budget: Budget, within: float, phase: str) -> Plan:
        """A sound plan, there `within` seconds from when the process was asked, for which it must be ready in as many;
        its `stats.phases` have the time it took as `phase`, what judging took, and all that came before as `pack`.

        Raises Failure; then the process is at its end, unless its plan was unsound, stale, or it is still starting.
        """
        watch = Stopwatch()
        process = await self._alive()
        has = await self._prepared(process, question, within=within)
        request = await question.asked(has, budget)
        watch.lap("pack")
        try:
            async with asyncio.timeout(within):
                plan = await self._exchange(process, request, question.number)
        except TimeoutError:
            self._strike()
            raise Failure(Outcome.LATE, f"no plan within {within:g} s") from None
        except BaseException:  # a failure; or cancelled: it still works on what nobody waits for
            self._strike()
            raise
        self._has = question.snapshot
        watch.lap(phase)
        self.took = watch.laps[phase]
        if question.over:
            raise Failure(Outcome.STALE, "another plan was taken")
        await self._check(question, plan)
        watch.lap("verify")
        return replace(plan, stats=replace(plan.stats, phases={**plan.stats.phases, **watch.laps}))

    async def _check(self, question: Question, plan: Plan) -> None:
        try:
            broken = await asyncio.to_thread(self._judge, question.snapshot, plan, now=question.now)
        except Exception as error:  # a plan that it cannot judge is none to be used
            raise Failure(Outcome.UNSOUND, f"no plan ({type(error).__name__}: {error})") from error
        if broken:
            raise Failure(Outcome.UNSOUND, f"{len(broken)} rules broken, first {broken[0]}")

    async def _prepared(
        self, process: asyncio.subprocess.Process, question: Question, *, within: float
    ) -> Snapshot:
        """The snapshot that the process has; that of the question is given to one that has none."""
        try:
            if self._has is None and self._given is None:
                await self._give(process, question)
            async with asyncio.timeout(within):
                if not self._ready:
                    await self._hear(process)
                    self._ready = True
                if self._has is None:
                    await self._hear(process)
                    self._has, self._given = self._given, None
        except TimeoutError:
            if asyncio.get_running_loop().time() - self._since > self._start_up:
                self._strike()
            raise Failure(Outcome.NOT_READY, "the solver process is still starting") from None
        except BaseException:
            self._strike()
            raise
        assert self._has is not None
        return self._has

    async def _give(self, process: asyncio.subprocess.Process, question: Question) -> None:
        """Have a snapshot taken over, which nobody waits for here."""
        told = await question.taken_over()
        assert process.stdin is not None
        process.stdin.write(told)
        self._given = question.snapshot
        self._since = asyncio.get_running_loop().time()

    async def _exchange(self, process: asyncio.subprocess.Process, request: bytes, number: int) -> Plan:
        assert process.stdin is not None
        with _ends():
            process.stdin.write(request)
            await process.stdin.drain()
        match await self._receive(process):
            case (int(got), Plan() as plan) if got == number:
                return plan
            case (int(got), str(text)) if got == number:
                raise Failure(Outcome.CRASHED, text)
            case answer:
                raise Failure(Outcome.GARBAGE, f"an answer of type {type(answer).__name__}")

    async def _hear(self, process: asyncio.subprocess.Process) -> None:
        """Wait until it says that it is ready."""
        match await self._receive(process):
            case wire.READY:
                return
            case str(text):
                raise Failure(Outcome.CRASHED, text)
        raise Failure(Outcome.GARBAGE, "a first word that is none")

    async def _receive(self, process: asyncio.subprocess.Process) -> object:
        """The next message. Where the wait for it is cut short it is left, however far it was read, to the next."""
        reading = self._reading = self._reading or asyncio.create_task(_message(process))
        await asyncio.wait({reading})
        self._reading = None
        if reading.cancelled():
            raise Failure(Outcome.CRASHED, "the solver process was replaced")
        return reading.result()

    # The process

    async def _alive(self) -> asyncio.subprocess.Process:
        await self.renew()
        if self._process is None:
            raise Failure(Outcome.CRASHED, "the solver process cannot be started")
        return self._process

    async def renew(self, question: Question | None = None) -> None:
        """Put another in its place where there is none that may still answer; it takes over the question's snapshot."""
        async with self._renewing:
            if self.pid is None:
                await self.kill()
                self.restarts += 1
                await self.start()
                if question is not None and self._process is not None:
                    await self._give(self._process, question)

    async def start(self) -> None:
        """Start it; there is none yet."""
        self._ready = self._struck = False
        self._has = self._given = None
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
        reading, self._reading = self._reading, None
        if reading is not None:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
        if process is not None:
            assert process.stdout is not None
            while await process.stdout.read(
                UNREAD
            ):  # else asyncio, which reads no further, never sees its end
                pass
            await process.wait()  # reaped: no zombie is left

    def _strike(self) -> None:
        """SIGKILL, which also ends a stopped process, to all of its session: whoever it started would keep its stdout
        open. Not by `process.kill()`: that reaps one that has just died, and asyncio, which waits for it, never learns
        how it ended.
        """
        process = self._process
        if process is not None and not self._struck:
            self._struck = True
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
            assert process.stdin is not None
            process.stdin.close()


def _told(before: Snapshot | None, snapshot: Snapshot) -> bytes:
    return wire.pack(snapshot if before is None else Difference.between(before, snapshot))


async def _message(process: asyncio.subprocess.Process) -> object:
    assert process.stdout is not None
    with _ends():
        head = await process.stdout.readexactly(wire.HEADER.size)
        try:
            length = wire.length_of(head)
        except ValueError as error:
            raise _garbage(error) from error
        body = await process.stdout.readexactly(length)
    return await asyncio.to_thread(_read, body)


def _read(body: bytes) -> object:
    """A message; the plan in it, if any, is one through and through, which the verifier relies on."""
    wrong: Sequence[str] = ()
    try:
        message = wire.unpack(body)
        match message:
            case (_, Plan() as plan):
                wrong = misfits(plan)
    except BaseException as error:  # garbage can raise anything, what ends a program too
        raise _garbage(error) from error
    if wrong:
        raise Failure(Outcome.GARBAGE, f"a plan in which these are none: {', '.join(wrong)}")
    return message


@contextlib.contextmanager
def _ends() -> Iterator[None]:
    """The end of the process as a failure."""
    try:
        yield
    except (asyncio.IncompleteReadError, ConnectionError) as error:
        raise Failure(Outcome.CRASHED, f"the solver process ended ({type(error).__name__})") from error


def _garbage(error: BaseException) -> Failure:
    return Failure(Outcome.GARBAGE, f"no message ({type(error).__name__}: {error})")
