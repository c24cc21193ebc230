"""The one loop that changes anything: results of PATCHes, new jobs, landing, decisions, each written before
it counts.

Watches and PATCHes run beside it and only leave word. A decision is made beside it too, in a process of its
own, so that landing and release go on meanwhile; its plan is committed here. Whatever fails here ends this
leadership: the next one reads everything again.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable, Iterable
from typing import Protocol

from sqlalchemy.ext.asyncio import AsyncEngine

from queuer.controller.apply.applier import Applier, Result
from queuer.controller.apply.jobs import ClusterJobs
from queuer.controller.cycle.answer import Answered, Asked, answer
from queuer.controller.cycle.due import Due
from queuer.controller.cycle.forecast import Forecaster, compare
from queuer.controller.cycle.newest import Keeper
from queuer.controller.cycle.recorder import Recorder
from queuer.controller.cycle.snapshot import offered, take
from queuer.controller.failpoints import Point
from queuer.controller.health.metrics import Metrics, queue_label
from queuer.controller.health.probes import Health
from queuer.controller.intake import adoption
from queuer.controller.intake.read import take_in
from queuer.controller.landing.settle import Limits
from queuer.controller.landing.writes import settle_touched, take_results
from queuer.controller.ledger.batch import Batch
from queuer.controller.ledger.rows import bond_row, reservation_row
from queuer.controller.logs import logger
from queuer.controller.memory.live import Live
from queuer.controller.memory.state import ClusterState
from queuer.controller.settings import Settings
from queuer.domain.reasons import Verdict
from queuer.domain.workload import State
from queuer.solver.records import Budget, Plan, Snapshot
from queuer.solver.stored import StoredCycle
from queuer.store import cycles
from queuer.store.engine import begin
from queuer.store.leader import check_epoch
from queuer.store.outbox import Entry

log = logger("loop")

_LONGEST_WINDOW = 0.5
_IDLE = 5.0


class Decider(Protocol):
    """`queuer.solver.process.worker.SolverProcess`, or anything that decides."""

    async def decide(self, snapshot: Snapshot, *, now: float, seed: int, budget: Budget) -> Plan:
        """A verified plan, whatever became of the solver process.

        Raises where not even a plan that starts nobody is sound.
        """


class Loop:
    """One leadership, from the first round to its end. Not reusable. `recorder`, `keeper`, `forecaster`: told of the
    decisions, run by who runs the loop: their failure must not end it.
    """

    def __init__(
        self,
        *,
        state: ClusterState,
        jobs: ClusterJobs,
        engine: AsyncEngine,
        decider: Decider,
        settings: Settings,
        metrics: Metrics,
        health: Health,
        epoch: int,
        last_cycle: int,
        wake: asyncio.Event,
        clock: Callable[[], float] = time.time,
        new_id: Callable[[], str] = lambda: str(uuid.uuid4()),
    ) -> None:
        self.state, self.jobs, self.engine, self.decider = state, jobs, engine, decider
        self.settings, self.metrics, self.health, self.epoch = settings, metrics, health, epoch
        self.clock, self.new_id, self.wake = clock, new_id, wake
        self.limits = Limits(
            landing_deadline=settings.landing_deadline,
            avoid=settings.avoid,
            avoid_limit=settings.avoid_limit,
            lost_node=settings.lost_node,
        )
        self._cycle = last_cycle
        self._results: list[Result] = []
        self._asked: Asked | None = None
        self._decision: asyncio.Task[Plan | None] | None = None
        self._effort = 0.0
        self._budget = Budget(
            deterministic=settings.solver_time, wall=settings.solver_deadline, bond=settings.bond
        )
        self._due = Due(state, landing_deadline=settings.landing_deadline)
        self.recorder: Recorder | None = None
        if settings.cycles_dir is not None:
            self.recorder = Recorder(
                settings.cycles_dir, kept=settings.cycles_kept, slow=settings.solver_deadline / 2
            )
        self.keeper = Keeper(engine, epoch=epoch)
        self.forecaster = Forecaster(every=settings.forecast, seed=settings.seed, told=state.reconsider)
        self._applier = Applier(
            jobs,
            confirm_epoch=self._confirm_epoch,
            on_result=self._heard,
            failpoints=settings.failpoints,
            metrics=metrics,
            at_once=settings.patches,
        )

    async def run(self, undone: tuple[Entry, ...] = ()) -> None:
        """Go round until cancelled. `undone`: effects of earlier leaders, to be finished or taken back."""
        for entry in undone:
            self._applier.send(entry)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._applier.run(), name="applier")
            while True:
                await self.round(group)
                self.health.beat()
                await self._awaken()

    async def round(self, group: asyncio.TaskGroup) -> None:
        """One round: write what follows from all that was heard, then think about what may start."""
        batch = Batch(now=self.clock())
        results, self._results = self._results, []
        take_results(batch, results, state=self.state, jobs=self.jobs)
        touched = self.state.take_touched()
        await settle_touched(
            batch, touched, state=self.state, jobs=self.jobs, limits=self.limits, metrics=self.metrics
        )
        unread = dict.fromkeys([*self.state.take_new(), *batch.back_in_queue(self.state.live)])
        take_in(batch, unread, state=self.state, jobs=self.jobs)
        await self._write(batch)
        await self._adopt(touched)
        if self._decision is not None and self._decision.done():
            await self._conclude(self._decision.result())
        self._begin_decision(group)

    async def _write(self, batch: Batch) -> None:
        if batch.writes:
            if batch.release:
                await self.settings.failpoints.at(Point.BEFORE_RELEASE)
            async with begin(self.engine) as connection:
                entries = await batch.write(connection, self.epoch)
            if batch.release:
                await self.settings.failpoints.at(Point.RELEASED)
            if batch.intakes:
                await self.settings.failpoints.at(Point.TAKEN_IN)
            for entry in entries:
                self._applier.send(entry)
        freed = False
        for uid, live in batch.after.items():
            before = self.state.live.get(uid)
            freed = freed or _matters(before, live)
            if live is None:
                self.state.drop(uid)
            else:
                self.state.put(live)
        for workload, seconds in batch.ran:
            self.state.learn(workload, seconds)
        if freed:
            self.state.reconsider()
        self._tell(batch.after)

    # -- decisions

    def _begin_decision(self, group: asyncio.TaskGroup) -> None:
        now = self.clock()
        due = self.state.stale or self._due.calls_for_decision(now)
        if self._decision is not None or not due:
            return
        waiting = [live for live in self.state.lives() if offered(live, now=now)]
        trigger = "change" if self.state.take_stale() else "time"
        if not waiting and not self.state.bonds and not self.state.reservations:
            self._due.decided = now
            return
        self._cycle += 1
        barred = self.jobs.reckoning().barred(waiting)
        self._asked = Asked(
            snapshot=take(self.state, now=now, barred=barred),
            cycle=self._cycle,
            at=now,
            trigger=trigger,
            barred=barred,
        )
        self._decision = group.create_task(self._decide(self._asked), name=f"cycle {self._cycle}")

    async def _decide(self, asked: Asked) -> Plan | None:
        """A plan; None where there is none that may be committed: then everybody waits for the next cycle."""
        began = time.perf_counter()
        plan = None
        try:
            plan = await self.decider.decide(
                asked.snapshot, now=asked.at, seed=self.settings.seed, budget=self._budget
            )
            self.metrics.count_stats(plan.stats)
        except Exception:
            plan = None
            log.exception("no plan", cycle=asked.cycle)
            self.metrics.refused_plans.inc()
        finally:
            self._effort = time.perf_counter() - began
            self.metrics.cycle_seconds.labels("decide").observe(self._effort)
            self.wake.set()
        if self.recorder is not None:
            self.recorder.offer(self._stored(asked, plan), number=asked.cycle, took=self._effort)
        return plan

    def _stored(self, asked: Asked, plan: Plan | None) -> StoredCycle:
        return StoredCycle(
            snapshot=asked.snapshot, now=asked.at, seed=self.settings.seed, budget=self._budget, plan=plan
        )

    async def _conclude(self, plan: Plan | None) -> None:
        """Commit what changes by a plan, and keep the decision for whoever asks why."""
        asked, self._asked, self._decision = self._asked, None, None
        assert asked is not None
        now = self.clock()
        self._due.decided = asked.at  # what came due while it was made is still due
        self.forecaster.offer(asked.snapshot, now=asked.at)
        found = None if plan is None else self._answer(asked, plan, now=now)
        if plan is None or found is None:
            return
        self.metrics.cycles.labels(plan.stats.status.value).inc()
        self.metrics.last_cycle.set(now)
        moved = bool(found.admissions or found.evictions) or found.bonds != self.state.bonds
        if moved or found.explanations or found.reservations != self.state.reservations:
            await self._commit(asked, plan, found)
        if moved and plan.stats.more:  # had nothing moved the next would be asked the same
            self.state.reconsider()
        self.keeper.offer(asked.cycle, self._stored(asked, plan))

    async def _commit(self, asked: Asked, plan: Plan, found: Answered) -> None:
        """One transaction, then memory, then the effects."""
        await self.settings.failpoints.at(Point.DECIDED)
        began = time.perf_counter()
        async with begin(self.engine) as connection:
            committed = await cycles.commit(
                connection,
                epoch=self.epoch,
                record=found.record,
                admissions=found.admissions,
                evictions=found.evictions,
                bonds=tuple(map(bond_row, found.bonds)),
                reservations=tuple(map(reservation_row, found.reservations)),
                explanations=found.explanations,
            )
        self.metrics.cycle_seconds.labels("commit").observe(time.perf_counter() - began)
        await self.settings.failpoints.at(Point.COMMITTED)
        self._remember(found)
        self.state.bonds, self.state.reservations = found.bonds, found.reservations
        for entry in committed.entries:
            self._applier.send(entry)
        log.info(
            "cycle", cycle=asked.cycle, status=plan.stats.status, admitted=len(found.admissions),
            evicted=len(found.evictions), waiting=len(plan.explanations), effort=round(self._effort, 3),
        )  # fmt: skip

    def _answer(self, asked: Asked, plan: Plan, *, now: float) -> Answered | None:
        """The commit of a plan; None where the plan is none that can be committed: nothing is changed by it yet."""
        try:
            return answer(
                asked, plan, self.state, patches=self.jobs, epoch=self.epoch, now=now, new_id=self.new_id,
                retell=self.settings.retell, ranges=self.forecaster.ranges,
            )  # fmt: skip
        except Exception:
            log.exception("no commit", cycle=asked.cycle)
            self.metrics.refused_plans.inc()
            return None

    async def _adopt(self, touched: Iterable[str]) -> None:
        """Charge what runs without having been admitted, and report it."""
        lives = adoption.found(self.state, touched)
        if not lives:
            return
        now = self.clock()
        self._cycle += 1
        adopted = adoption.adopt(
            lives, state=self.state, jobs=self.jobs, epoch=self.epoch,
            cycle=self._cycle, now=now, new_id=self.new_id,
        )  # fmt: skip
        async with begin(self.engine) as connection:
            committed = await cycles.commit(
                connection,
                epoch=self.epoch,
                record=adopted.record,
                admissions=adopted.admissions,
                bonds=tuple(map(bond_row, self.state.bonds)),
                reservations=tuple(map(reservation_row, self.state.reservations)),
            )
        for live in adopted.after:
            log.warning("adopted", workload=live.uid, queue=live.workload.queue)
            self.metrics.adopted.labels(queue_label(live.workload.queue, self.state.rules.tree)).inc()
            self.state.put(live)
        self.state.reconsider()
        for entry in committed.entries:
            self._applier.send(entry)

    def _remember(self, found: Answered) -> None:
        for live in found.after:
            before = self.state.live[live.uid]
            queue = queue_label(live.workload.queue, self.state.rules.tree)
            if live.state is State.ADMITTED:
                self.metrics.admissions.labels(queue).inc()
                compare(before.explanation, started=found.record.finished_at, metrics=self.metrics)
                if live.attempt == 1:
                    self.metrics.waited.labels(queue).observe(
                        found.record.finished_at - live.workload.submitted
                    )
            elif live.state is State.EVICTING and before.state is not State.EVICTING:
                cause = next(e.cause for e in found.evictions if e.uid == live.uid)
                self.metrics.evictions.labels(queue, cause).inc()
            self.state.put(live)
        self._tell({live.uid: live for live in found.after})

    # -- effects

    def _heard(self, result: Result) -> None:
        self._results.append(result)
        self.wake.set()

    async def _confirm_epoch(self) -> None:
        async with begin(self.engine) as connection:
            await check_epoch(connection, self.epoch)

    def _tell(self, after: dict[str, Live | None]) -> None:
        """Jobs that their owner must change say so themselves, in one write."""
        for uid, live in after.items():
            if live is None:
                self._applier.forget(uid)
            if live is None or live.explanation is None or not live.state.waiting:
                continue
            if live.explanation.verdict is Verdict.CHANGE:
                self._applier.tell(uid, live.explanation.primary)

    # -- time

    async def _awaken(self) -> None:
        """Wait until something is heard or due, then a moment longer, so that what comes together is done
        together.
        """
        due = self._due.next(deciding=self._decision is not None)
        timeout = max(0.0, min(due - self.clock(), _IDLE))
        try:
            async with asyncio.timeout(timeout):
                await self.wake.wait()
        except TimeoutError:
            self._due.touch_due(self.clock())
            return
        await asyncio.sleep(min(max(self.settings.window, self._effort / 2), _LONGEST_WINDOW))
        self.wake.clear()
        self._due.touch_due(self.clock())


def _matters(before: Live | None, after: Live | None) -> bool:
    """Whether a decision may come out differently because of this step."""
    if before is None or after is None:
        return True
    landed = before.landed is None and after.landed is not None
    whole = before.unplaced is not None and after.unplaced is None  # its hosts are others' again
    waits = (before.workload, before.state, before.explanation) != (
        after.workload,
        after.state,
        after.explanation,
    )
    return landed or whole or before.charged != after.charged or (after.state.waiting and waits)
