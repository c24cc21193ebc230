"""The decisions of one leadership, one at a time: begun when one is due, made beside the loop, committed in it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Protocol

from opentelemetry import trace

from queuer.controller.config import catch_up
from queuer.controller.cycle.build import Builder
from queuer.controller.cycle.forecast import Forecaster, compare
from queuer.controller.cycle.judge import DecisionRequest, judge
from queuer.controller.cycle.namespace_quota import Reckoning
from queuer.controller.cycle.recorder import Recorder
from queuer.controller.cycle.snapshot import is_candidate, over_user_limit, take
from queuer.controller.cycle.timers import Timers
from queuer.controller.health.probes import Health
from queuer.controller.ledger.record import seen, undecided
from queuer.controller.ledger.round import Isolated, Round
from queuer.controller.logs import logger
from queuer.controller.term import Term
from queuer.controller.tracing import TRACER
from queuer.solver.records import Budget, Plan, Snapshot
from queuer.solver.stored import StoredCycle
from queuer.store.config import RulesMoved
from queuer.store.cycles import CycleRecord
from queuer.store.heartbeat import LastCycle

log = logger("decisions")

CAPACITY = "capacity"
"""Trigger of a record that only says that the cluster's capacity changed: readers take it from the newest record, and
while nobody waits none is made. A decision follows, which is kept: a change of the tree is held against its nodes."""
NOTED = 5.0
"""Seconds between two looks whether the capacity alone is to be noted. A look goes through all pods of charged work
while a node has more in use than it has.
"""
OUTSIDE = 60.0
"""Seconds from one record to one that only says what pods outside the queues hold, or what is free of a reserved place:
both change all the time."""
_TRIES = 3
"""Times that a plan is judged by newer rules, on the loop's thread. The next cycle decides by the rules of then."""
_SEEN = ("out", "outside", "unmanaged", "reserved")
_RESTLESS = frozenset({"outside", "reserved"})


class Decider(Protocol):
    """`queuer.solver.process.SolverProcess`, or anything that decides."""

    async def decide(self, snapshot: Snapshot, *, now: float, seed: int, budget: Budget) -> Plan:
        """A verified plan, whatever became of the solver process.

        Raises where not even a plan that starts nobody is sound.
        """


class Decisions:
    """`recorder` and `forecaster` take what is decided; the term runs them, and their failure must not end the loop.

    `effort`: seconds that the last decision took. `wake` is called when one is made.
    """

    def __init__(
        self, term: Term, *, decider: Decider, timers: Timers, health: Health, wake: Callable[[], None]
    ) -> None:
        settings = term.settings
        self._term, self._decider, self._timers = term, decider, timers
        self._health, self._wake = health, wake
        self.effort = 0.0
        self._request: DecisionRequest | None = None
        self._made: asyncio.Task[Plan | None] | None = None
        self._span: trace.Span = trace.INVALID_SPAN
        self._written: Mapping[str, object] = {"capacity": {}, **seen(term.state)}
        """Capacity and what was seen beside it as last written; no capacity at first."""
        self._written_at = self._looked = float("-inf")
        self._budget = Budget(
            deterministic=settings.solver_time, wall=settings.solver_deadline, bond=settings.bond
        )
        self.recorder = Recorder(
            term.engine,
            epoch=term.epoch,
            slow=settings.solver_deadline / 2,
            directory=settings.cycles_dir,
            kept=settings.cycles_kept,
        )
        self.forecaster = Forecaster(
            every=settings.forecast,
            seed=settings.seed,
            told=term.state.reconsider,
        )

    @property
    def under_way(self) -> bool:
        """Whether one is being made, or is still to be committed."""
        return self._made is not None

    async def follow(self, group: asyncio.TaskGroup) -> None:
        """Commit the decision that is made, then begin the next if it is due."""
        if self._made is not None and self._made.done():
            with trace.use_span(self._span, end_on_exit=True):
                await self._conclude(self._made.result())
        if self._made is None:
            self._begin(group)
        if self._made is None:
            await self._note_capacity(group)

    def _begin(self, group: asyncio.TaskGroup) -> None:
        state, now = self._term.state, self._term.clock()
        if not (state.stale or self._timers.calls_for_decision(now)):
            return
        if self._health.unguarded is not None:  # the guard is part of admission; what is due stays due
            self._timers.decided = now
            return
        self._start("change" if state.take_stale() else "time", group, now=now)

    def _start(self, trigger: str, group: asyncio.TaskGroup, *, now: float, idle: bool = False) -> None:
        """Begin a decision where somebody waits for one, or `idle`."""
        span = TRACER.start_span("queuer.cycle", attributes={"queuer.trigger": trigger})
        with trace.use_span(span):
            request = self._ask(trigger, now=now, idle=idle)
            if request is None:  # the span is never ended, so nobody sees it
                self._timers.decided = now
                self._term.metrics.last_cycle.set(now)
                self._health.failing = False
                return
            span.set_attribute("queuer.cycle", request.cycle)
            self._request, self._span = request, span
            self._health.deciding_since = self._health.clock()
            self._made = group.create_task(self._decide(request), name=f"cycle {request.cycle}")

    def _ask(self, trigger: str, *, now: float, idle: bool) -> DecisionRequest | None:
        """The next request; None where nobody waits for a decision, unless `idle`. A workload that fails is
        quarantined.
        """
        state = self._term.state
        while True:
            waiting = [live for live in state.live.values() if is_candidate(live, state, now=now)]
            if not (idle or waiting or state.bonds or state.reservations):
                return None
            cycle = self._term.next_cycle()
            try:
                with self._term.metrics.phase("snapshot", cycle=cycle):
                    reckoning = Reckoning(state, self._term.jobs.resource_quotas())
                    over_quota = reckoning.over_quota(waiting)
                    left = [live for live in waiting if live.uid not in over_quota]
                    over_limit, smaller = over_user_limit(left, state), reckoning.smaller(left)
                    snapshot = take(
                        state, now=now, over_quota=over_quota, over_limit=over_limit, smaller=smaller
                    )
            except Isolated as error:
                self._term.quarantine(error.found)
            else:
                return DecisionRequest(
                    snapshot=snapshot, cycle=cycle, at=now, trigger=trigger, not_asked=over_quota | over_limit,
                    whole={uid: state.live[uid].workload for uid in smaller},
                )  # fmt: skip

    async def _decide(self, request: DecisionRequest) -> Plan | None:
        """A plan; None where there is none that may be committed: then everybody waits for the next cycle."""
        term, began, plan = self._term, time.perf_counter(), None
        try:
            with term.metrics.phase("decide", cycle=request.cycle):
                plan = await self._decider.decide(
                    request.snapshot, now=request.at, seed=term.settings.seed, budget=self._budget
                )
            term.metrics.count_stats(plan.stats)
        except Exception:
            plan = None
            log.exception("no plan", cycle=request.cycle)
            self._refuse()
        finally:
            self.effort = time.perf_counter() - began
            self._health.deciding_since = None
            self._wake()
        return plan

    def _stored(self, request: DecisionRequest, plan: Plan | None) -> StoredCycle:
        facts = self._term.jobs.known()
        return StoredCycle(
            snapshot=request.snapshot, now=request.at, seed=self._term.settings.seed, budget=self._budget, plan=plan,
            priorities=facts.values(), unseen=facts.unseen(),
        )  # fmt: skip

    async def _conclude(self, plan: Plan | None) -> None:
        """Commit what changes by a plan, and keep the decision for whoever asks why."""
        request, self._request, self._made = self._request, None, None
        assert request is not None
        term, now = self._term, self._term.clock()
        self._timers.decided = request.at  # what came due while it was made is still due
        self.forecaster.offer(request.snapshot, now=request.at)
        stored, moved = self._stored(request, plan), None
        try:
            off = plan is None or self._health.unguarded is not None
            moved = None if plan is None or off else await self._carry_out(request, plan, now=now)
        finally:  # a commit that ends the term is the one to look at again
            self.recorder.offer(request.cycle, stored, took=self.effort, committed=moved is not None)
        if plan is None or moved is None:
            return
        status, waiting = plan.stats.status.value, len(plan.explanations)
        term.metrics.cycles.labels(status).inc()
        term.metrics.last_cycle.set(now)
        self._health.failing = False
        self._health.cycle = LastCycle(
            id=request.cycle, at=now, took=self.effort, waiting=waiting, status=status
        )
        if moved and plan.stats.more:  # had nothing moved the next would be asked the same
            term.state.reconsider()

    async def _carry_out(self, request: DecisionRequest, plan: Plan, *, now: float) -> bool | None:
        """Commit what of the plan holds, without the workloads that fail. Whether anything moved; None = no commit."""
        term, tries = self._term, 0
        while tries < _TRIES:
            try:
                with term.metrics.phase("answer", cycle=request.cycle):
                    changes = self._round(request, plan, now=now)
                if changes is None:
                    return None
                moved = any(c.effects for c in changes.values()) or changes.bonds != term.state.bonds
                told = bool(changes) or changes.reservations != term.state.reservations
                if moved or told or self._news(_seen_by(changes.cycle), now=now):
                    await self._commit(request, plan, changes)
                return moved
            except Isolated as error:
                term.quarantine(error.found)
            except RulesMoved as error:
                tries += 1
                log.info("judged again", cycle=request.cycle, said=str(error))
                await catch_up(term.engine, term.state)
        term.state.reconsider()
        return None

    def _round(self, request: DecisionRequest, plan: Plan, *, now: float) -> Round | None:
        """The round of a plan; None where there is none, and nothing is changed by the plan yet."""
        term = self._term
        builder = Builder(
            state=term.state, patches=term.jobs, epoch=term.epoch, new_id=term.new_id,
            retell=term.settings.retell, ranges=self.forecaster.ranges,
        )  # fmt: skip
        try:
            judged = judge(request, plan, term.state, jobs=term.jobs, now=now)
            return builder.build(request, plan, judged, now=now)
        except Isolated:
            raise
        except Exception:
            log.exception("no commit", cycle=request.cycle)
            self._refuse()
            return None

    def _refuse(self) -> None:
        """Tell that there is no plan: whoever waits does so until a decision holds."""
        self._term.metrics.refused_plans.inc()
        self._health.failing = True

    async def _commit(self, request: DecisionRequest, plan: Plan, changes: Round) -> None:
        with self._term.metrics.phase("commit", cycle=request.cycle):
            await self._term.commit(changes)
        self._written, self._written_at = _seen_by(changes.cycle), changes.now
        admits = [change for change in changes.values() if change.admits]
        for change in admits:
            assert change.before is not None
            compare(change.before.explanation, started=changes.now, metrics=self._term.metrics)
        log.info(
            "cycle", cycle=request.cycle, status=plan.stats.status, admitted=len(admits),
            evicted=sum(change.evicts for change in changes.values()), waiting=len(plan.explanations),
            effort=round(self.effort, 3),
        )  # fmt: skip

    async def _note_capacity(self, group: asyncio.TaskGroup) -> None:
        """Write down that capacity, or what is seen beside it, changed, where no decision is under way that would."""
        term, now = self._term, self._term.clock()
        if now < self._looked + NOTED:
            return
        self._looked, current = now, {"capacity": term.state.capacity_by_flavor, **seen(term.state)}
        news = self._news(current, now=now)
        if not news:
            return
        self._written, self._written_at = current, now
        await term.commit(undecided(term.state, cycle=term.next_cycle(), now=now, trigger=CAPACITY))
        if self._health.unguarded is None and news & {"capacity", "out"}:
            self._start(CAPACITY, group, now=now, idle=True)

    def _news(self, current: Mapping[str, object], *, now: float) -> set[str]:
        """Names of what is to be written because it changed since it was."""
        news = {name for name, value in current.items() if value != self._written[name]}
        return news if now >= self._written_at + OUTSIDE else news - _RESTLESS


def _seen_by(record: CycleRecord | None) -> dict[str, object]:
    assert record is not None
    return {"capacity": record.capacity, **{name: record.stats[name] for name in _SEEN}}
