"""The decisions of one leadership, one at a time: begun when one is due, made beside the loop, committed in it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from typing import Protocol

from queuer.controller.cycle.answer import Asked, answer
from queuer.controller.cycle.due import Due
from queuer.controller.cycle.forecast import Forecaster
from queuer.controller.cycle.namespace_quota import Reckoning
from queuer.controller.cycle.per_user import over_user_limit
from queuer.controller.cycle.recorder import Recorder
from queuer.controller.cycle.remember import remember
from queuer.controller.cycle.snapshot import offered, take
from queuer.controller.failpoints import Point
from queuer.controller.health.probes import Health
from queuer.controller.ledger.commit import Mishandled, commit
from queuer.controller.ledger.new_cycle import NewCycle, undecided
from queuer.controller.logs import logger
from queuer.controller.memory.out_of_use import out_of_use
from queuer.controller.term import Term
from queuer.solver.records import Budget, Plan, Snapshot
from queuer.solver.stored import StoredCycle
from queuer.store.cycles import CycleRecord
from queuer.store.engine import begin
from queuer.store.heartbeat import LastCycle

log = logger("decisions")

TOLD = 250
"""Reasons that are written with a decision; the others follow."""
CAPACITY = "capacity"
"""Trigger of a record that only says that the cluster's capacity changed: readers take it from the newest record, and
while nobody waits none is made."""
NOTED = 5.0
"""Seconds between two notes of the capacity alone."""


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
        self, term: Term, *, decider: Decider, due: Due, health: Health, wake: Callable[[], None]
    ) -> None:
        settings = term.settings
        self._term, self._decider, self._due, self._health, self._wake = term, decider, due, health, wake
        self.effort = 0.0
        self._asked: Asked | None = None
        self._made: asyncio.Task[Plan | None] | None = None
        self._nodes: tuple[object, object] = {}, out_of_use(term.state)
        """Capacity and nodes out of use as last written; no capacity at first."""
        self._noted = float("-inf")
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
            sound=term.state.estimates.is_sound,
        )

    @property
    def under_way(self) -> bool:
        """Whether one is being made, or is still to be committed."""
        return self._made is not None

    async def follow(self, group: asyncio.TaskGroup) -> None:
        """Commit the decision that is made, then begin the next if it is due."""
        if self._made is not None and self._made.done():
            await self._conclude(self._made.result())
        if self._made is None:
            self._begin(group)
        if self._made is None:
            await self._note_capacity()

    def _begin(self, group: asyncio.TaskGroup) -> None:
        state, now = self._term.state, self._term.clock()
        if not (state.stale or self._due.calls_for_decision(now)):
            return
        trigger = "change" if state.take_stale() else "time"
        asked = self._ask(trigger, now=now)
        if asked is None:
            self._due.decided = now
            return
        self._asked = asked
        self._made = group.create_task(self._decide(asked), name=f"cycle {asked.cycle}")

    def _ask(self, trigger: str, *, now: float) -> Asked | None:
        """What the next decision is asked; None where nobody waits for one. Whose part fails is set aside."""
        state = self._term.state
        while True:
            waiting = [live for live in state.lives() if offered(live, state, now=now)]
            if not waiting and not state.bonds and not state.reservations:
                return None
            cycle = self._term.next_cycle()
            try:
                with self._term.metrics.phase("snapshot", cycle=cycle):
                    barred = Reckoning(state, self._term.jobs.resource_quotas()).barred(waiting)
                    limited = over_user_limit((live for live in waiting if live.uid not in barred), state)
                    snapshot = take(state, now=now, barred=barred, beyond=limited)
            except Mishandled as error:
                self._term.set_aside(error.found)
            else:
                return Asked(snapshot=snapshot, cycle=cycle, at=now, trigger=trigger, barred=barred | limited)

    async def _decide(self, asked: Asked) -> Plan | None:
        """A plan; None where there is none that may be committed: then everybody waits for the next cycle."""
        term, began, plan = self._term, time.perf_counter(), None
        try:
            with term.metrics.phase("decide", cycle=asked.cycle):
                plan = await self._decider.decide(
                    asked.snapshot, now=asked.at, seed=term.settings.seed, budget=self._budget
                )
            term.metrics.count_stats(plan.stats)
        except Exception:
            plan = None
            log.exception("no plan", cycle=asked.cycle)
            term.metrics.refused_plans.inc()
        finally:
            self.effort = time.perf_counter() - began
            self._wake()
        return plan

    def _stored(self, asked: Asked, plan: Plan | None) -> StoredCycle:
        facts = self._term.jobs.known()
        return StoredCycle(
            snapshot=asked.snapshot, now=asked.at, seed=self._term.settings.seed, budget=self._budget, plan=plan,
            priorities=facts.values(), unseen=facts.unseen(),
        )  # fmt: skip

    async def _conclude(self, plan: Plan | None) -> None:
        """Commit what changes by a plan, and keep the decision for whoever asks why."""
        asked, self._asked, self._made = self._asked, None, None
        assert asked is not None
        term, now = self._term, self._term.clock()
        self._due.decided = asked.at  # what came due while it was made is still due
        self.forecaster.offer(asked.snapshot, now=asked.at)
        moved = None if plan is None else await self._carry_out(asked, plan, now=now)
        self.recorder.offer(
            asked.cycle, self._stored(asked, plan), took=self.effort, committed=moved is not None
        )
        if plan is None or moved is None:
            return
        status, waiting = plan.stats.status.value, len(plan.explanations)
        term.metrics.cycles.labels(status).inc()
        term.metrics.last_cycle.set(now)
        self._health.cycle = LastCycle(
            id=asked.cycle, at=now, took=self.effort, waiting=waiting, status=status
        )
        if moved and plan.stats.more:  # had nothing moved the next would be asked the same
            term.state.reconsider()

    async def _carry_out(self, asked: Asked, plan: Plan, *, now: float) -> bool | None:
        """Commit what of the plan holds, without those whose part fails. Whether anything moved; None = no commit."""
        state = self._term.state
        while True:
            try:
                with self._term.metrics.phase("answer", cycle=asked.cycle):
                    found = self._answer(asked, plan, now=now)
                if found is None:
                    return None
                moved = bool(found.admissions or found.evictions) or found.bonds != state.bonds
                told = found.explanations or found.reservations != state.reservations
                if moved or told or _nodes(found.record) != self._nodes:
                    await self._commit(asked, plan, found)
                return moved
            except Mishandled as error:
                self._term.set_aside(error.found)

    def _answer(self, asked: Asked, plan: Plan, *, now: float) -> NewCycle | None:
        """The commit of a plan; None where the plan is none that can be committed: nothing is changed by it yet."""
        term = self._term
        try:
            return answer(
                asked, plan, term.state, patches=term.jobs, epoch=term.epoch, now=now, new_id=term.new_id,
                retell=term.settings.retell, ranges=self.forecaster.ranges,
            )  # fmt: skip
        except Mishandled:
            raise
        except Exception:
            log.exception("no commit", cycle=asked.cycle)
            term.metrics.refused_plans.inc()
            return None

    async def _commit(self, asked: Asked, plan: Plan, found: NewCycle) -> None:
        """One transaction, then memory, then the effects. Raises Mishandled where somebody's part fails."""
        term = self._term
        await term.settings.failpoints.at(Point.DECIDED)
        now_told = dict(islice(found.explanations.items(), TOLD))
        with term.metrics.phase("commit", cycle=asked.cycle):
            at_once = replace(found, explanations=now_told)
            committed = await commit(term.engine, at_once, epoch=term.epoch)
        self._nodes = _nodes(found.record)
        term.state.untold |= {u: why for u, why in found.explanations.items() if u not in now_told}
        await term.settings.failpoints.at(Point.COMMITTED)
        remember(found, term.state, term.metrics)
        term.notes.look((live.uid, live) for live in found.after)
        term.notes.evicted(found.evictions)
        term.send(committed.entries)
        log.info(
            "cycle", cycle=asked.cycle, status=plan.stats.status, admitted=len(found.admissions),
            evicted=len(found.evictions), waiting=len(plan.explanations), effort=round(self.effort, 3),
        )  # fmt: skip

    async def _note_capacity(self) -> None:
        """Write down that capacity, or what is out of use, changed, where no decision is under way that would."""
        term, now = self._term, self._term.clock()
        nodes = term.state.capacity_by_flavor, out_of_use(term.state)
        if nodes == self._nodes or now < self._noted + NOTED:
            return
        self._nodes, self._noted = nodes, now
        found = undecided(term.state, cycle=term.next_cycle(), now=now, trigger=CAPACITY)
        async with begin(term.engine) as connection:
            await found.write(connection, term.epoch)


def _nodes(record: CycleRecord) -> tuple[object, object]:
    return record.capacity, record.stats["out"]
