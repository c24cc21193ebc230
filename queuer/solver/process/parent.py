"""The solver process as its parent sees it: a late, dead or wrong one costs a cycle its CP-SAT.

It is killed, and another takes its place. One that refuses a contradictory snapshot is right, and stays. It leads its
own session, so that an interrupt for the parent's process group does not reach it.
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

from queuer.domain.assignments import SolveStatus
from queuer.domain.errors import QueuerError
from queuer.solver.decide import decide
from queuer.solver.process import wire
from queuer.solver.records import Budget, Plan, Snapshot
from queuer.solver.verify import verify

log = structlog.get_logger(part="solver")

DECIDE = "queuer.solver.decide:Following"
READY_WITHIN = 1.0
"""Seconds that a cycle waits for a process that still starts or takes a snapshot over."""
START_UP = 120.0
"""Seconds after which a process that is not ready yet is given up: more than a large snapshot takes."""
REST = 30.0
"""Seconds without a process after two that were lost without a plan in between."""
UNREAD = 2**16
"""Bytes of what an ended process has left to read that are thrown away at once."""


class Outcome(StrEnum):
    """What came of a request to the process; all but the first two are failures of it."""

    SOLVED = "solved"
    INVALID = "invalid"  # what was asked cannot be decided on
    NOT_READY = "not-ready"
    LATE = "late"
    CRASHED = "crashed"  # it ended, met an error, or said what is no answer
    REFUSED = "refused"  # the verifier found a fault


class _Failure(Exception):
    """The process gave no plan that may be used."""

    def __init__(self, outcome: Outcome, text: str) -> None:
        super().__init__(text)
        self.outcome = outcome


class SolverProcess:
    """`decide()` in a child process: `async with SolverProcess() as solver: plan = await solver.decide(…)`.

    `counts`: what came of all requests; `restarts`: processes started after the first. One decision at a time; more
    callers wait in line. A plan's `stats.phases`: seconds to `pack` the request, the wait until the process is ready
    included, to `solve` and to `verify`; after a failure what was `lost` on it.
    """

    def __init__(self, *, target: str = DECIDE, ready_within: float = READY_WITHIN) -> None:
        """`target`: `module:function` that the process calls, or a class of which it makes one to call."""
        self.counts: Counter[Outcome] = Counter()
        self.restarts = 0
        self._target, self._ready_within = target, ready_within
        self._child: _Child | None = None
        self._lost, self._rests_until = 0, 0.0  # processes since the last plan
        self._turn = asyncio.Lock()

    async def __aenter__(self) -> Self:
        await self._usable()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._end()

    @property
    def pid(self) -> int | None:
        """Process id, None when there is none that may still answer."""
        return self._child.process.pid if self._child is not None and self._child.usable else None

    async def decide(self, snapshot: Snapshot, *, now: float, seed: int, budget: Budget) -> Plan:
        """The process's plan, verified; in its place one without CP-SAT, with status FAILED and the reason.

        That one is made by the process that replaces it or, until that is ready, in a thread. Raises QueuerError where
        the snapshot cannot be decided on: InvalidInput, UnsoundPlan. Whatever else goes wrong in the thread is raised.
        """
        async with self._turn:
            begin, without = time.perf_counter(), replace(budget, deterministic=0.0)
            try:
                return await self._ask(snapshot, now=now, seed=seed, budget=budget)
            except _Failure as error:
                failure = error
            lost = time.perf_counter() - begin
            if failure.outcome is not Outcome.NOT_READY:
                with contextlib.suppress(_Failure):
                    plan = await self._ask(snapshot, now=now, seed=seed, budget=without)
                    return _instead(plan, failure, lost=lost)
            plan = await asyncio.to_thread(decide, snapshot, now=now, seed=seed, budget=without)
            return _instead(plan, failure, lost=lost)

    async def _ask(self, snapshot: Snapshot, *, now: float, seed: int, budget: Budget) -> Plan:
        """The process's plan. Raises _Failure; then there is no process any more, unless it is still starting. Raises
        what the process refuses to decide on.
        """
        try:
            plan = await self._plan(snapshot, now=now, seed=seed, budget=budget)
        except QueuerError:  # no fault of the process
            self.counts[Outcome.INVALID] += 1
            raise
        except _Failure as error:
            failure = error
        except Exception as error:  # noqa: BLE001 - whatever goes wrong here costs a plan, never the parent
            failure = _Failure(Outcome.CRASHED, f"{type(error).__name__}: {error}")
        except BaseException:  # cancelled: it still works on what nobody waits for
            if self._child is not None:
                self._child.strike()
            raise
        else:
            self.counts[Outcome.SOLVED] += 1
            return plan
        self.counts[failure.outcome] += 1
        log.warning("no plan from the solver process", outcome=failure.outcome.value, said=str(failure))
        if failure.outcome is not Outcome.NOT_READY:
            await self._end()
        raise failure

    async def _plan(self, snapshot: Snapshot, *, now: float, seed: int, budget: Budget) -> Plan:
        begin, child = time.perf_counter(), await self._usable()
        known = await child.ready(snapshot, within=self._ready_within)
        request = wire.Request(snapshot=snapshot, now=now, seed=seed, budget=budget)
        message = await asyncio.to_thread(wire.pack, request, known=known)
        packed = time.perf_counter()
        answer = await child.answer(message, within=budget.wall)
        child.known, solved = snapshot, time.perf_counter()
        plan = await asyncio.to_thread(_checked, answer, snapshot, now=now)
        self._lost = 0
        phases = {"pack": packed - begin, "solve": solved - packed, "verify": time.perf_counter() - solved}
        return replace(plan, stats=replace(plan.stats, phases=phases))

    async def _usable(self) -> _Child:
        """The process, or a new one for one that has died or could not take a snapshot over."""
        if self._child is not None and self._child.usable:
            return self._child
        await self._end()
        if self._lost > 1 and time.monotonic() < self._rests_until:
            raise _Failure(Outcome.NOT_READY, f"{self._lost} were lost, the next starts after a rest")
        self.restarts += self._lost > 0
        pipe, program = asyncio.subprocess.PIPE, ("-m", "queuer.solver.process.serving", self._target)
        process = await asyncio.create_subprocess_exec(
            sys.executable, *program, stdin=pipe, stdout=pipe, start_new_session=True
        )
        self._child = _Child(process)
        return self._child

    async def _end(self) -> None:
        """End the process, if there is one."""
        if self._child is not None:
            self._lost += 1
            self._rests_until = time.monotonic() + REST
            await self._child.end()
            self._child = None


class _Child:
    """One process. `known`: the last snapshot that it was told."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.known: Snapshot | None = None
        self._taking: asyncio.Task[None] | None = None
        self._struck = False

    @property
    def usable(self) -> bool:
        """Whether it may still answer."""
        taking = self._taking
        failed = taking is not None and taking.done() and taking.exception() is not None
        return not (self._struck or failed) and self.process.returncode is None

    async def ready(self, snapshot: Snapshot, *, within: float) -> Snapshot:
        """The snapshot that it knows, this one if none was. Raises _Failure, also where it is only still starting."""
        if self._taking is None:
            self._taking = asyncio.create_task(self._take_over(snapshot))
        await asyncio.wait({self._taking}, timeout=within)
        if not self._taking.done():
            raise _Failure(Outcome.NOT_READY, "it is still starting")
        self._taking.result()
        assert self.known is not None
        return self.known

    async def _take_over(self, snapshot: Snapshot) -> None:
        """No deadline of a cycle runs before it is asked about a snapshot that it knows."""
        message = await asyncio.to_thread(wire.pack, wire.Request(snapshot=snapshot))
        with contextlib.suppress(QueuerError):  # refused again when it is asked
            _read(await self.answer(message, within=START_UP))
        self.known = snapshot

    async def answer(self, message: bytes, *, within: float) -> bytes:
        """The body of the answer. An error leaves it in the middle of its words: no more is read of it."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        try:
            async with asyncio.timeout(within):
                self.process.stdin.write(message)
                await self.process.stdin.drain()
                head = await self.process.stdout.readexactly(wire.HEADER.size)
                return await self.process.stdout.readexactly(wire.length_of(head))
        except TimeoutError:
            raise _Failure(Outcome.LATE, f"no answer within {within:g} s") from None

    async def end(self) -> None:
        """End it, whatever it is at."""
        self.strike()
        if self._taking is not None:
            self._taking.cancel()
            await asyncio.gather(self._taking, return_exceptions=True)
        assert self.process.stdout is not None
        while await self.process.stdout.read(UNREAD):  # else asyncio never sees its end
            pass
        await self.process.wait()  # reaped: no zombie is left

    def strike(self) -> None:
        """SIGKILL to all of its session: whoever it started would keep its stdout open. Not by `process.kill()`: that
        reaps one that has just died, and asyncio, which waits for it, never learns how it ended.
        """
        if not self._struck:
            self._struck = True
            if self.process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self.process.pid, signal.SIGKILL)
            assert self.process.stdin is not None
            self.process.stdin.close()


def _read(body: bytes) -> Plan | None:
    answer: wire.Answer = wire.unpack(body)
    if answer.refused is not None:
        raise answer.refused
    if answer.error:
        raise _Failure(Outcome.CRASHED, answer.error)
    return answer.plan


def _checked(body: bytes, snapshot: Snapshot, *, now: float) -> Plan:
    """The plan in an answer, if the verifier finds no fault."""
    plan = _read(body)
    if plan is None:
        raise _Failure(Outcome.CRASHED, "an answer without a plan")
    if broken := verify(snapshot, plan, now=now):
        raise _Failure(Outcome.REFUSED, f"{len(broken)} rules broken, first {broken[0]}")
    return plan


def _instead(plan: Plan, failure: _Failure, *, lost: float) -> Plan:
    """The plan made without CP-SAT, with why, and the seconds that it came later."""
    stats = replace(
        plan.stats,
        status=SolveStatus.FAILED,
        fallback=failure.outcome.value,
        note=f"{failure.outcome}: {failure}",
        phases={**plan.stats.phases, "lost": lost},
    )
    return replace(plan, stats=stats)
