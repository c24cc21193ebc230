"""The solver process as its parent sees it: a late, dead or wrong one costs a cycle its CP-SAT, no more.

It is killed and replaced at once. Both exchange messages over its stdin and stdout; it leads its own session, so that
an interrupt for the parent's process group does not reach it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections import Counter
from dataclasses import replace
from enum import StrEnum
from typing import Self

import structlog

from queuer.solver.decide import decide
from queuer.solver.process import wire
from queuer.solver.process.difference import Difference
from queuer.solver.records import Budget, Plan, Snapshot, SolveStatus
from queuer.solver.verify import verify

log = structlog.get_logger(part="solver")

DECIDE = "queuer.solver.following:Following"
READY_WITHIN = 1.0
"""Seconds that a cycle waits for a process that still starts or takes a snapshot over."""
START_UP = 120.0
"""Seconds after which a process that is not ready yet is replaced: more than a large snapshot takes."""
UNREAD = 2**16
"""Bytes of what an ended process has left to read that are thrown away at once."""


class Outcome(StrEnum):
    """What came of a request to the process; all but the first are failures."""

    SOLVED = "solved"
    NOT_READY = "not-ready"
    LATE = "late"
    CRASHED = "crashed"
    GARBAGE = "garbage"
    REFUSED = "refused"


class Failure(Exception):
    """The process gave no plan that may be used."""

    def __init__(self, outcome: Outcome, text: str) -> None:
        super().__init__(text)
        self.outcome = outcome


class Stopwatch:
    """Seconds by phase."""

    def __init__(self) -> None:
        self.phases: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, phase: str) -> None:
        """What has passed since the last lap belongs to this phase."""
        now = time.perf_counter()
        self.phases[phase] = round(self.phases.get(phase, 0.0) + now - self._last, 6)
        self._last = now


class SolverProcess:
    """`decide()` in a child process: `async with SolverProcess() as solver: plan = await solver.decide(…)`.

    `counts`: what came of all requests; `restarts`: processes started after the first. One decision at a time; more
    callers wait in line. A plan's `stats.phases`: seconds to `pack` the request, the wait until the process is ready
    included, to `solve` and to `verify`; after a failure also what was `lost` on it.
    """

    def __init__(self, *, target: str = DECIDE, ready_within: float = READY_WITHIN) -> None:
        """`target`: `module:function` that the process calls, or a class of which it makes one to call."""
        self.counts: Counter[Outcome] = Counter()
        self.restarts = 0
        self._target, self._ready_within = target, ready_within
        self._process: asyncio.subprocess.Process | None = None
        self._struck = False
        self._taking_over: asyncio.Task[None] | None = None
        self._has: Snapshot | None = None
        self._turn = asyncio.Lock()

    async def __aenter__(self) -> Self:
        await self._start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._end()

    @property
    def pid(self) -> int | None:
        """Process id, None when there is none that may still answer."""
        process = self._process
        return None if process is None or self._struck or process.returncode is not None else process.pid

    async def decide(self, snapshot: Snapshot, *, now: float, seed: int, budget: Budget) -> Plan:
        """The process's plan, verified; in its place one without CP-SAT, with status FAILED and the reason.

        That one is made by the process that replaces it or, until that is ready, in a thread, whose errors are raised.
        """
        async with self._turn:
            watch, failure = Stopwatch(), None
            without = replace(budget, deterministic=0.0)
            for bounds in (budget, without):
                try:
                    plan = await self._ask(snapshot, now=now, seed=seed, budget=bounds)
                except Failure as error:
                    failure = failure or error
                    watch.lap("lost")
                    if error.outcome is Outcome.NOT_READY:
                        break
                else:
                    return plan if failure is None else _instead(plan, failure, watch)
            assert failure is not None
            plan = await asyncio.to_thread(decide, snapshot, now=now, seed=seed, budget=without)
            watch.lap("solve")
            return _instead(plan, failure, watch)

    async def _ask(self, snapshot: Snapshot, *, now: float, seed: int, budget: Budget) -> Plan:
        """The process's plan. Raises Failure; then another has taken its place, unless it is still starting."""
        try:
            plan = await self._plan(snapshot, now=now, seed=seed, budget=budget)
        except Failure as error:
            failure = error
        except Exception as error:  # noqa: BLE001 - whatever goes wrong here costs a plan, never the parent
            failure = Failure(Outcome.CRASHED, f"{type(error).__name__}: {error}")
        except BaseException:  # cancelled: it still works on what nobody waits for
            self._strike()
            raise
        else:
            self.counts[Outcome.SOLVED] += 1
            return plan
        self.counts[failure.outcome] += 1
        log.warning("no plan from the solver process", outcome=failure.outcome.value, said=str(failure))
        if failure.outcome is not Outcome.NOT_READY:
            await self._renew(snapshot)
        raise failure

    async def _plan(self, snapshot: Snapshot, *, now: float, seed: int, budget: Budget) -> Plan:
        watch = Stopwatch()
        process = await self._ready(snapshot)
        assert self._has is not None
        told = await asyncio.to_thread(Difference.between, self._has, snapshot)
        request = wire.Request(told=told, now=now, seed=seed, budget=budget)
        message = await asyncio.to_thread(wire.pack, request)
        watch.lap("pack")
        answer = await _exchange(process, message, within=budget.wall)
        watch.lap("solve")
        plan = await asyncio.to_thread(_checked, answer, snapshot, now=now)
        watch.lap("verify")
        self._has = snapshot
        return replace(plan, stats=replace(plan.stats, phases=watch.phases))

    async def _ready(self, snapshot: Snapshot) -> asyncio.subprocess.Process:
        """A process that can be asked. One that has no snapshot is given this one."""
        if self.pid is None:
            await self._renew(snapshot)
        if self._process is None:
            raise Failure(Outcome.NOT_READY, "it cannot be started")
        if self._taking_over is None:
            self._taking_over = asyncio.create_task(self._hand_over(self._process, snapshot))
        await asyncio.wait({self._taking_over}, timeout=self._ready_within)
        if not self._taking_over.done():
            raise Failure(Outcome.NOT_READY, "it is still starting")
        self._taking_over.result()
        return self._process

    async def _hand_over(self, process: asyncio.subprocess.Process, snapshot: Snapshot) -> None:
        """Have a snapshot taken over: no deadline of a cycle runs before it is asked about a known one."""
        message = await asyncio.to_thread(wire.pack, wire.Request(told=snapshot))
        _answer(await _exchange(process, message, within=START_UP))
        self._has = snapshot

    async def _renew(self, snapshot: Snapshot) -> None:
        await self._end()
        self.restarts += 1
        await self._start()
        if self._process is not None:
            self._taking_over = asyncio.create_task(self._hand_over(self._process, snapshot))

    async def _start(self) -> None:
        self._struck, self._has = False, None
        with contextlib.suppress(OSError):  # no memory, too many processes: tried again at the next request
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "queuer.solver.process.serving",
                self._target,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                start_new_session=True,
            )

    async def _end(self) -> None:
        """End the process, if there is one."""
        self._strike()
        if self._taking_over is not None:
            self._taking_over.cancel()
            await asyncio.gather(self._taking_over, return_exceptions=True)
            self._taking_over = None
        if self._process is not None:
            assert self._process.stdout is not None
            while await self._process.stdout.read(UNREAD):  # else asyncio never sees its end
                pass
            await self._process.wait()  # reaped: no zombie is left
            self._process = None

    def _strike(self) -> None:
        """SIGKILL to all of its session: whoever it started would keep its stdout open. Not by `process.kill()`: that
        reaps one that has just died, and asyncio, which waits for it, never learns how it ended.
        """
        process = self._process
        if process is not None and not self._struck:
            self._struck = True
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
            assert process.stdin is not None
            process.stdin.close()


async def _exchange(process: asyncio.subprocess.Process, message: bytes, *, within: float) -> bytes:
    """The body of the answer. Raises Failure; what the process says after that is nobody's answer."""
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        async with asyncio.timeout(within):
            process.stdin.write(message)
            await process.stdin.drain()
            head = await process.stdout.readexactly(wire.HEADER.size)
            return await process.stdout.readexactly(wire.length_of(head))
    except TimeoutError:
        raise Failure(Outcome.LATE, f"no answer within {within:g} s") from None
    except (EOFError, ConnectionError) as error:
        raise Failure(Outcome.CRASHED, f"it ended ({type(error).__name__})") from error
    except ValueError as error:
        raise Failure(Outcome.GARBAGE, str(error)) from error


def _answer(body: bytes) -> Plan | None:
    try:
        plan, told = wire.unpack_answer(body)
    except Exception as error:  # garbage can raise anything
        raise Failure(Outcome.GARBAGE, f"no answer ({type(error).__name__}: {error})") from error
    if told:
        raise Failure(Outcome.CRASHED, told)
    return plan


def _checked(body: bytes, snapshot: Snapshot, *, now: float) -> Plan:
    """The plan in an answer, if the verifier finds no fault."""
    plan = _answer(body)
    if plan is None:
        raise Failure(Outcome.GARBAGE, "an answer without a plan")
    try:
        broken = verify(snapshot, plan, now=now)
    except Exception as error:  # a plan that cannot be judged is none to be used
        raise Failure(Outcome.REFUSED, f"no verdict ({type(error).__name__}: {error})") from error
    if broken:
        raise Failure(Outcome.REFUSED, f"{len(broken)} rules broken, first {broken[0]}")
    return plan


def _instead(plan: Plan, failure: Failure, watch: Stopwatch) -> Plan:
    """The plan made without CP-SAT, with why."""
    stats = replace(
        plan.stats,
        status=SolveStatus.FAILED,
        fallback=failure.outcome.value,
        note=f"{failure.outcome}: {failure}",
        phases={**plan.stats.phases, **watch.phases},
    )
    return replace(plan, stats=stats)
