"""The solver in a process of its own, so that a late, dead or mad one costs a cycle its refinement, no more.

Beside it a second process, the stand-in, makes the greedy plan of every cycle at the same time: `decide()` with a
budget of 0. Where the first fails that plan is there, verified, or nearly so; only where both fail does the parent make
it itself. Every plan passes the verifier in the parent, which never imports ortools.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from dataclasses import replace
from enum import StrEnum
from types import TracebackType
from typing import Self

from queuer.domain.errors import QueuerError
from queuer.solver.child import Child, Failure, Outcome, Question, Verify, Watch
from queuer.solver.decide import decide
from queuer.solver.problem import Budget, Plan, Snapshot, SolveStatus
from queuer.solver.serving import Decide
from queuer.solver.verify import verify

DECIDE = "queuer.solver.following:Following"
PATIENCE = 60.0
"""Seconds that the stand-in has for a plan until it is replaced: more than a first plan for 20,000 nodes takes."""


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
    time; more callers wait in line. A plan's `stats.phases` say how long it took to `pack` the request, to `solve` (or
    `greedy`) and to `verify`, and where the first process failed, from then to the plan: `hand-over`.
    """

    def __init__(
        self,
        *,
        target: str = DECIDE,
        stand_in: str = DECIDE,
        greedy: Decide = decide,
        judge: Verify = verify,
        patience: float = PATIENCE,
    ) -> None:
        """`target`, `stand_in`: what the two processes call, see `Child`; `greedy`: what the parent does. The latter
        two are called with budget 0.
        """
        self.counts: Counter[tuple[Source, Outcome]] = Counter()
        self.solver = Child(target, judge=judge)
        self.stand_in = Child(stand_in, judge=judge)
        self._greedy = greedy
        self._judge = judge
        self._patience = patience
        self._numbers = itertools.count(1)
        self._turn = asyncio.Lock()
        self._standing = asyncio.Lock()
        self._group = asyncio.TaskGroup()
        self._tasks: dict[Question, asyncio.Task[Plan | Failure]] = {}

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        await asyncio.gather(self.solver.start(), self.stand_in.start())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
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
            try:
                if budget.deterministic <= 0 or budget.wall <= 0:
                    return await self._instead(question, standing, nothing)
                try:
                    plan = await self.solver.plan(question, budget=budget, within=budget.wall, phase="solve")
                except Failure as failure:
                    self.counts[Source.SOLVER, failure.outcome] += 1
                    self._group.create_task(self.solver.renew())
                    watch = Watch()
                    plan = await self._instead(question, standing, nothing)
                    watch.lap("hand-over")
                    return _standing_in(plan, failure, watch)
                self.counts[Source.SOLVER, Outcome.SOLVED] += 1
                return plan
            finally:
                self._over(question)

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
            try:
                plan = await self.stand_in.plan(
                    question, budget=budget, within=self._patience, phase="greedy"
                )
            except Failure as failure:
                self.counts[Source.STAND_IN, failure.outcome] += 1
                self._group.create_task(self.stand_in.renew())
                return failure
            self.counts[Source.STAND_IN, Outcome.GREEDY] += 1
            return plan

    def _over(self, question: Question) -> None:
        """Nobody waits for the stand-in's plan any more. What it has begun it ends, else it would start cold."""
        question.over = True
        task = self._tasks.get(question)
        if task is not None and not question.begun:
            task.cancel()

    async def _instead(
        self, question: Question, standing: asyncio.Task[Plan | Failure], budget: Budget
    ) -> Plan:
        await asyncio.wait({standing})
        plan = standing.result()
        return plan if isinstance(plan, Plan) else await self._alone(question, budget)

    async def _alone(self, question: Question, budget: Budget) -> Plan:
        watch = Watch()
        snapshot, now = question.snapshot, question.now
        plan = await asyncio.to_thread(self._greedy, snapshot, now=now, seed=question.seed, budget=budget)
        watch.lap("greedy")
        broken = await asyncio.to_thread(self._judge, snapshot, plan, now=now)
        watch.lap("verify")
        self.counts[Source.CONTROLLER, Outcome.UNSOUND if broken else Outcome.GREEDY] += 1
        if broken:
            raise UnsoundPlan(f"the greedy plan breaks {len(broken)} rules, first {broken[0]}")
        return replace(plan, stats=replace(plan.stats, phases=watch.laps))


def _standing_in(plan: Plan, failure: Failure, watch: Watch) -> Plan:
    """Greedy's plan, with why it stands in."""
    stats = replace(
        plan.stats,
        status=SolveStatus.FAILED,
        note=f"{failure.outcome}: {failure}",
        fallback=failure.outcome.value,
        phases={**plan.stats.phases, **watch.laps},
    )
    return replace(plan, stats=stats)
