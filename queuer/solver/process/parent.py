"""The controller's decision in a child process: a child that is late, dead or wrong costs a cycle its CP-SAT.

It is killed, and another takes its place. A child that refuses a contradictory snapshot is right, and stays.
"""

from __future__ import annotations

import asyncio
import contextlib
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
from queuer.solver.process.child import Child, ChildFailure, result_of
from queuer.solver.records import Budget, Plan, Snapshot
from queuer.solver.verify import verify

log = structlog.get_logger(part="solver")

DECIDE = "queuer.solver.decide:Following"
READY_WITHIN = 1.0
"""Seconds that a cycle waits for a child that still starts or takes a snapshot over."""
START_UP = 120.0
"""Seconds after which a child that is not ready yet is given up: more than a large snapshot takes."""
REST = 30.0
"""Seconds without a child after two that were lost without a plan in between."""


class SolverOutcome(StrEnum):
    """The end of a request to the child; all but the first two are failures of it."""

    SOLVED = "solved"
    INVALID = "invalid"  # what was asked cannot be decided on
    NOT_READY = "not-ready"
    LATE = "late"
    CRASHED = "crashed"  # it ended, met an error, or said what is no answer
    REFUSED = "refused"  # the verifier found a fault


class _Failure(Exception):
    """The process gave no plan that may be used."""

    def __init__(self, outcome: SolverOutcome, text: str) -> None:
        super().__init__(text)
        self.outcome = outcome


class SolverProcess:
    """`decide()` in a child process: `async with SolverProcess() as solver: plan = await solver.decide(…)`.

    `counts`: outcomes of all requests; `restarts`: children started after the first. It makes one decision at a time;
    more callers wait in line. `stats.phases` of a plan has seconds to `pack` the request (with the wait until
    the child is ready), to `solve`, and to `verify`. After a failure it has those `lost` on it too.
    """

    def __init__(self, *, target: str = DECIDE, ready_within: float = READY_WITHIN) -> None:
        """`target`: what the child decides with."""
        self.counts: Counter[SolverOutcome] = Counter()
        self.restarts = 0
        self._target, self._ready_within = target, ready_within
        self._child: Child | None = None
        self._taking: asyncio.Task[None] | None = None
        self._lost, self._rests_until = 0, 0.0  # children since the last plan
        self._turn = asyncio.Lock()

    async def __aenter__(self) -> Self:
        await self._usable()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._end()

    @property
    def pid(self) -> int | None:
        """Process id; None while there is no child that may still answer."""
        return self._child.pid if self._child is not None and self._child.usable else None

    async def decide(self, snapshot: Snapshot, *, now: float, seed: int, budget: Budget) -> Plan:
        """The child's plan, verified; in its place one without CP-SAT, with status FAILED and the reason.

        The child that replaces it makes that one or, until that is ready, a thread does. Raises QueuerError where the
        snapshot cannot be decided on: InvalidInput, UnsoundPlan. Any other fault in the thread is raised too.
        """
        async with self._turn:
            begin, without = time.perf_counter(), replace(budget, deterministic=0.0)
            try:
                return await self._ask(snapshot, now=now, seed=seed, budget=budget)
            except _Failure as error:
                failure = error
            lost = time.perf_counter() - begin
            if failure.outcome is not SolverOutcome.NOT_READY:
                with contextlib.suppress(_Failure):
                    plan = await self._ask(snapshot, now=now, seed=seed, budget=without)
                    return _instead(plan, failure, lost=lost)
            plan = await asyncio.to_thread(decide, snapshot, now=now, seed=seed, budget=without)
            return _instead(plan, failure, lost=lost)

    async def _ask(self, snapshot: Snapshot, *, now: float, seed: int, budget: Budget) -> Plan:
        """The child's plan. Raises _Failure; then there is no child any more, unless it is still starting.

        Raises the QueuerError by which the child refuses the snapshot.
        """
        try:
            plan = await self._plan(snapshot, now=now, seed=seed, budget=budget)
        except QueuerError:  # no fault of the child
            self.counts[SolverOutcome.INVALID] += 1
            raise
        except _Failure as error:
            failure = error
        except ChildFailure as error:
            failure = _Failure(SolverOutcome.LATE if error.late else SolverOutcome.CRASHED, str(error))
        except Exception as error:  # noqa: BLE001 - whatever goes wrong here costs a plan, never the parent
            failure = _Failure(SolverOutcome.CRASHED, f"{type(error).__name__}: {error}")
        else:
            self.counts[SolverOutcome.SOLVED] += 1
            return plan
        self.counts[failure.outcome] += 1
        log.warning("no plan from the solver process", outcome=failure.outcome.value, said=str(failure))
        if failure.outcome is not SolverOutcome.NOT_READY:
            await self._end()
        raise failure

    async def _plan(self, snapshot: Snapshot, *, now: float, seed: int, budget: Budget) -> Plan:
        begin, child = time.perf_counter(), await self._usable()
        await self._ready(child, snapshot)
        request = wire.SolveRequest(snapshot=snapshot, now=now, seed=seed, budget=budget)
        message = await asyncio.to_thread(wire.pack, request, known=child.known)
        packed = time.perf_counter()
        reply = await child.exchange(message, within=budget.wall)
        child.known, solved = snapshot, time.perf_counter()
        plan = await asyncio.to_thread(_checked, reply, snapshot, now=now)
        self._lost = 0
        phases = {"pack": packed - begin, "solve": solved - packed, "verify": time.perf_counter() - solved}
        return replace(plan, stats=replace(plan.stats, phases=phases))

    async def _usable(self) -> Child:
        """The child, or a new one for one that has died or could not take a snapshot over."""
        if self._child is not None and self._child.usable:
            return self._child
        await self._end()
        if self._lost > 1 and time.monotonic() < self._rests_until:
            raise _Failure(SolverOutcome.NOT_READY, f"{self._lost} were lost, the next starts after a rest")
        self.restarts += self._lost > 0
        self._child = Child(self._target)
        return self._child

    async def _ready(self, child: Child, snapshot: Snapshot) -> None:
        """Wait until it knows a snapshot, this one if none was. Raises _Failure, also where it is only starting."""
        if self._taking is None:
            self._taking = asyncio.create_task(_take_over(child, snapshot))
        await asyncio.wait({self._taking}, timeout=self._ready_within)
        if not self._taking.done():
            raise _Failure(SolverOutcome.NOT_READY, "it is still starting")
        self._taking.result()

    async def _end(self) -> None:
        """End the child, if there is one."""
        if self._child is not None:
            self._lost += 1
            self._rests_until = time.monotonic() + REST
            await self._child.end()
            if self._taking is not None:
                await asyncio.gather(self._taking, return_exceptions=True)
            self._child = self._taking = None


async def _take_over(child: Child, snapshot: Snapshot) -> None:
    """No deadline of a cycle runs before the child is asked about a snapshot that it knows."""
    message = await asyncio.to_thread(wire.pack, wire.SolveRequest(snapshot=snapshot))
    try:
        with contextlib.suppress(QueuerError):  # refused again when it is asked
            result_of(await child.exchange(message, within=START_UP))
    except ChildFailure:
        child.kill()  # also one that answers, but cannot follow
        raise
    child.known = snapshot


def _checked(reply: wire.Reply, snapshot: Snapshot, *, now: float) -> Plan:
    """The plan in a reply, if the verifier finds no fault."""
    plan = result_of(reply)
    if plan is None:
        raise _Failure(SolverOutcome.CRASHED, "an answer without a plan")
    if broken := verify(snapshot, plan, now=now):
        raise _Failure(SolverOutcome.REFUSED, f"{len(broken)} rules broken, first {broken[0]}")
    checked: Plan = plan
    return checked


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
