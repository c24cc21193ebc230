"""The solver in a process of its own, so that a late, dead or mad one costs a cycle its refinement, no more.

Beside it a second process, the stand-in, makes the greedy plan of every cycle at the same time: `decide()` with a
budget of 0. Where the first fails that plan is there, verified, or nearly so; only where both fail does the parent make
it itself. A first process that fails again and again is left out of more and more cycles (see `Rest`). Every plan
passes the verifier in the parent, which never imports ortools.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from dataclasses import replace
from enum import StrEnum
from types import TracebackType
from typing import Self

import structlog

from queuer.domain.errors import QueuerError
from queuer.solver.child import Child, Failure, Outcome, Question, Stopwatch, Verify
from queuer.solver.decide import decide
from queuer.solver.problem import Budget, Plan, Snapshot, SolveStatus
from queuer.solver.rest import Rest
from queuer.solver.score import score
from queuer.solver.serving import Decide
from queuer.solver.verify import verify

log = structlog.get_logger(part="solver")

DECIDE = "queuer.solver.following:Following"
PATIENCE = 180.0
"""Seconds that the stand-in has for a plan until it is replaced: more than one for 20,000 nodes takes on a busy
machine. No cycle waits longer for it.
"""
HAND_OVER = 1.0
"""Seconds beyond the solver's deadline that a cycle waits for the stand-in, which was asked when the solver was."""
USUAL = 2.0
"""As often as the stand-in took for its last plan it has at least: the parent would take longer."""
BROKEN = frozenset({Outcome.LATE, Outcome.CRASHED, Outcome.GARBAGE, Outcome.UNSOUND})
"""Failures of the solver itself: not that it still starts, nor what the parent could not do."""


class Source(StrEnum):
    """Who makes plans."""

    SOLVER = "solver"
    STAND_IN = "stand-in"
    CONTROLLER = "controller"


class UnsoundPlan(QueuerError):
    """Even the greedy plan breaks a rule; nothing may be committed."""

    code = "unsound_plan"


class SolverProcess:
    """`decide()` in a child process: `async with SolverProcess() as solver: plan = await solver.decide(…)`.

    `counts`: what came of all that was asked, by who was asked. `solver`, `stand_in`: the processes. One decision at a
    time; more callers wait in line. A plan's `stats.phases` say how long it took until the request was packed and the
    process ready for it (`pack`), to `solve` (or `greedy`) and to `verify`, and where the first process failed or was
    left out, from then to the plan: `hand-over`.
    """

    def __init__(
        self,
        *,
        target: str = DECIDE,
        stand_in: str = DECIDE,
        greedy: Decide = decide,
        judge: Verify = verify,
        patience: float = PATIENCE,
        hand_over: float = HAND_OVER,
    ) -> None:
        """`target`, `stand_in`: what the two processes call, see `Child`; `greedy`: what the parent does. The latter
        two are called with budget 0. After a failure a cycle waits for the stand-in until `hand_over` seconds after the
        solver's deadline, or until it has had `USUAL` times what it took last, whichever is later, up to `patience`.
        """
        self.counts: Counter[tuple[Source, Outcome]] = Counter()
        self.solver = Child(target, judge=judge)
        self.stand_in = Child(stand_in, judge=judge)
        self._greedy = greedy
        self._judge = judge
        self._patience = patience
        self._hand_over = hand_over
        self._rest = Rest()
        self._numbers = itertools.count(1)
        self._turn = asyncio.Lock()
        self._standing = asyncio.Lock()
        self._group = asyncio.TaskGroup()
        self._tasks: dict[Question, asyncio.Task[Plan | Failure]] = {}

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(self.solver.start())
                both.create_task(self.stand_in.start())
        except BaseException:  # cancelled: nobody leaves what was not entered
            await self._end()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._end()

    async def _end(self) -> None:
        for task in self._tasks.values():
            task.cancel()
        try:
            await self._group.__aexit__(None, None, None)  # an error of the body stays what it is
        finally:
            await asyncio.gather(self.solver.kill(), self.stand_in.kill())

    @property
    def restarts(self) -> dict[Source, int]:
        """Processes started after the first."""
        return {Source.SOLVER: self.solver.restarts, Source.STAND_IN: self.stand_in.restarts}

    async def decide(self, snapshot: Snapshot, *, now: float, seed: int, budget: Budget) -> Plan:
        """A verified plan: the solver's, or in its place the greedy one with status FAILED and the reason.

        Raises UnsoundPlan where even that one breaks a rule.
        """
        async with self._turn:
            question = Question(next(self._numbers), snapshot, now=now, seed=seed)
            nothing = replace(budget, deterministic=0.0)
            standing = self._stand_in_for(question, nothing)
            within = max(budget.wall, 0.0) + self._hand_over
            until = asyncio.get_running_loop().time() + min(
                max(within, USUAL * self.stand_in.took), self._patience
            )
            try:
                if budget.deterministic <= 0 or budget.wall <= 0:
                    return await self._instead(question, standing, nothing, until)
                plan = await self._solved(question, budget)
                if isinstance(plan, Plan):
                    plan = await self._unless_worse(plan, question, standing)
                if isinstance(plan, Plan):
                    return plan
                watch = Stopwatch()
                greedy = await self._instead(question, standing, nothing, until)
                watch.lap("hand-over")
                return _standing_in(greedy, plan, watch)
            finally:
                self._over(question)

    async def _solved(self, question: Question, budget: Budget) -> Plan | Failure:
        """What came of asking the solver, unless it rests."""
        if self._rest.goes_on():
            self.counts[Source.SOLVER, Outcome.RESTING] += 1
            return Failure(Outcome.RESTING, f"it failed {self._rest.failures} times in a row")
        answer = await self._asked(Source.SOLVER, question, budget=budget, within=budget.wall, phase="solve")
        if isinstance(answer, Plan):
            self._rest.answered()
        elif answer.outcome in BROKEN:
            self._rest.failed()
            if self._rest.left:
                log.warning(
                    "the solver rests",
                    failures=self._rest.failures,
                    last=f"{answer.outcome}: {answer}",
                    cycles=self._rest.left,
                )
        return answer

    async def _unless_worse(
        self, plan: Plan, question: Question, standing: asyncio.Task[Plan | Failure]
    ) -> Plan | Failure:
        """The solver's plan, unless greedy's is there already and scores more (DESIGN 3.4)."""
        if not standing.done() or not isinstance(greedy := standing.result(), Plan):
            return plan
        mine, least = await asyncio.to_thread(
            lambda: [score(question.snapshot, one, now=question.now) for one in (plan, greedy)]
        )
        if mine >= least:
            return plan
        self.counts[Source.SOLVER, Outcome.WORSE] += 1
        log.warning("the solver's plan scores less than greedy's")
        return Failure(Outcome.WORSE, "it scores less than greedy's")

    async def _asked(
        self, source: Source, question: Question, *, budget: Budget, within: float, phase: str
    ) -> Plan | Failure:
        """What came of a question to one of the processes, counted; after a failure the process is renewed.

        Whatever goes wrong here costs a plan, never the parent.
        """
        child = self.solver if source is Source.SOLVER else self.stand_in
        try:
            plan = await child.plan(question, budget=budget, within=within, phase=phase)
        except Exception as error:  # noqa: BLE001 - counted; what is no Failure is logged
            failure = _failure(error, source)
            self.counts[source, failure.outcome] += 1
            self._group.create_task(self._renew(child, source, question))
            return failure
        self.counts[source, Outcome.SOLVED if source is Source.SOLVER else Outcome.GREEDY] += 1
        return plan

    async def _renew(self, child: Child, source: Source, question: Question) -> None:
        try:
            await child.renew(question)
        except Exception:
            log.exception("process not renewed, to be tried again at the next question", process=source.value)

    # Greedy's plan

    def _stand_in_for(self, question: Question, budget: Budget) -> asyncio.Task[Plan | Failure]:
        task = self._group.create_task(self._stand_in(question, budget), name=f"stand-in {question.number}")
        self._tasks[question] = task
        task.add_done_callback(lambda _: self._tasks.pop(question))
        return task

    async def _stand_in(self, question: Question, budget: Budget) -> Plan | Failure:
        """Greedy's plan by the stand-in, as soon as it has done with an earlier question."""
        async with self._standing:
            question.begun = True
            return await self._asked(
                Source.STAND_IN, question, budget=budget, within=self._patience, phase="greedy"
            )

    def _over(self, question: Question) -> None:
        """Nobody waits for the stand-in's plan any more. What it has begun it ends, else it would start cold."""
        question.over = True
        task = self._tasks.get(question)
        if task is not None and not question.begun:
            task.cancel()

    async def _instead(
        self, question: Question, standing: asyncio.Task[Plan | Failure], budget: Budget, until: float
    ) -> Plan:
        """The stand-in's plan if it is there by then, whatever it is at; else the parent makes one, and what is there
        first counts: a stand-in that has just started has most behind it.
        """
        left = until - asyncio.get_running_loop().time()
        await asyncio.wait({standing}, timeout=max(left, 0.0))
        if standing.done() and isinstance(plan := standing.result(), Plan):
            return plan
        alone = asyncio.create_task(self._alone(question, budget))
        try:
            await asyncio.wait({standing, alone}, return_when=asyncio.FIRST_COMPLETED)
            if not alone.done() and isinstance(plan := standing.result(), Plan):
                return plan
            return await alone
        finally:
            alone.cancel()  # its thread ends unheeded
            await asyncio.wait({alone})

    async def _alone(self, question: Question, budget: Budget) -> Plan:
        watch = Stopwatch()
        snapshot, now = question.snapshot, question.now
        plan = await asyncio.to_thread(self._greedy, snapshot, now=now, seed=question.seed, budget=budget)
        watch.lap("greedy")
        broken = await asyncio.to_thread(self._judge, snapshot, plan, now=now)
        watch.lap("verify")
        self.counts[Source.CONTROLLER, Outcome.UNSOUND if broken else Outcome.GREEDY] += 1
        if broken:
            raise UnsoundPlan(f"the greedy plan breaks {len(broken)} rules, first {broken[0]}")
        return replace(plan, stats=replace(plan.stats, phases=watch.laps))


def _failure(error: Exception, source: Source) -> Failure:
    if isinstance(error, Failure):
        return error
    log.error("process not asked", process=source.value, exc_info=error)
    return Failure(Outcome.NOT_ASKED, f"{type(error).__name__}: {error}")


def _standing_in(plan: Plan, failure: Failure, watch: Stopwatch) -> Plan:
    """Greedy's plan, with why it stands in."""
    stats = replace(
        plan.stats,
        status=SolveStatus.FAILED,
        note=f"{failure.outcome}: {failure}",
        fallback=failure.outcome.value,
        phases={**plan.stats.phases, **watch.laps},
    )
    return replace(plan, stats=stats)
