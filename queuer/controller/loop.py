"""The one loop that changes anything: results of PATCHes, new jobs, landing, decisions, each written before
it counts.

Watches and PATCHes run beside it and only leave word. A decision is made beside it too, in a process of its
own, so that landing and release go on meanwhile; its plan is committed here. A round takes one slice of what is new:
others are heard between two. Whose handling fails is set aside; only the loss of the leadership or of the database
ends this one.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Protocol

from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from queuer.controller.apply.applier import Applier, Result
from queuer.controller.apply.jobs import ClusterJobs
from queuer.controller.apply.notes import Notes
from queuer.controller.cycle.answer import Answered, Asked, answer
from queuer.controller.cycle.commit import remember, write_adoption, write_answer, write_capacity
from queuer.controller.cycle.due import Due, matters
from queuer.controller.cycle.forecast import Forecaster
from queuer.controller.cycle.newest import Keeper
from queuer.controller.cycle.recorder import Recorder
from queuer.controller.cycle.snapshot import offered, take
from queuer.controller.failpoints import Point
from queuer.controller.health.metrics import Metrics, queue_label
from queuer.controller.health.probes import Health
from queuer.controller.intake.adoption import Found
from queuer.controller.intake.read import take_in
from queuer.controller.landing.confirm import Confirmer
from queuer.controller.landing.settle import Limits
from queuer.controller.landing.writes import settle_touched, take_results
from queuer.controller.ledger.batch import Batch
from queuer.controller.ledger.culprits import Mishandled, culprits
from queuer.controller.logs import logger
from queuer.controller.memory.state import ClusterState
from queuer.controller.settings import Settings
from queuer.solver.records import Budget, Plan, Snapshot
from queuer.solver.stored import StoredCycle
from queuer.store.engine import begin
from queuer.store.heartbeat import LastCycle
from queuer.store.leader import check_epoch
from queuer.store.outbox import Entry
from queuer.store.tables import Outcome

log = logger("loop")

_LONGEST_WINDOW = 0.5
_IDLE = 5.0
SLICE = 250
"""Jobs that are read, reasons that are written, and waiting workloads that are looked at, in one round at most."""


class Decider(Protocol):
    """`queuer.solver.process.SolverProcess`, or anything that decides."""

    async def decide(self, snapshot: Snapshot, *, now: float, seed: int, budget: Budget) -> Plan:
        """A verified plan, whatever became of the solver process.

        Raises where not even a plan that starts nobody is sound.
        """


class Loop:
    """One leadership, from the first round to its end. Not reusable. `recorder`, `keeper`, `forecaster`, `notes`: told
    of what is decided, run by who runs the loop: their failure must not end it.
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
        self._found = Found(state, metrics)
        self._results: list[Result] = []
        self._asked: Asked | None = None
        self._decision: asyncio.Task[Plan | None] | None = None
        self._effort = 0.0
        self._more = False
        self._capacity: Mapping[str, Mapping[str, int]] = {}
        self._noted = float("-inf")
        self._budget = Budget(
            deterministic=settings.solver_time, wall=settings.solver_deadline, bond=settings.bond
        )
        self._due = Due(state, landing_deadline=settings.landing_deadline)
        self.recorder: Recorder | None = None
        if settings.cycles_dir is not None:
            self.recorder = Recorder(
                settings.cycles_dir, kept=settings.cycles_kept, slow=settings.solver_deadline / 2
            )
        self.notes = Notes(state=state, jobs=jobs, clock=clock)
        self.keeper = Keeper(engine, epoch=epoch)
        self.confirmer = Confirmer(jobs, state, lost_after=settings.lost_node, clock=clock)
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
            group.create_task(self.confirmer.run(), name="confirmer")
            while True:
                await self.round(group)
                self.health.beat()
                await self._awaken()

    async def round(self, group: asyncio.TaskGroup) -> None:
        """One round: write what follows from all that was heard, then think about what may start."""
        batch = Batch(now=self.clock())
        self.state.try_again(now=batch.now)
        take_results(batch, self._take_results(), state=self.state, jobs=self.jobs, limits=self.limits)
        touched = self.state.take_touched(SLICE)
        settle_touched(
            batch, touched, state=self.state, jobs=self.jobs, confirmer=self.confirmer, limits=self.limits,
            metrics=self.metrics,
        )  # fmt: skip
        unread = dict.fromkeys([*self.state.take_unread(SLICE), *batch.back_in_queue(self.state.live)])
        take_in(batch, unread, state=self.state, jobs=self.jobs)
        batch.tell(self.state.take_untold(SLICE))
        self._more = self.state.more
        await self._write(batch)
        await self._adopt(touched)
        if self._decision is not None and self._decision.done():
            await self._conclude(self._decision.result())
        self._begin_decision(group)
        await self._note_capacity()

    async def _write(self, batch: Batch) -> None:
        """One transaction, then memory, then the effects. Whose part fails is set aside."""
        if batch.release:
            await self.settings.failpoints.at(Point.BEFORE_RELEASE)
        batch, entries = self._without(batch, batch.failed), tuple[Entry, ...]()
        while batch.writes:
            try:
                async with begin(self.engine) as connection:
                    entries = await batch.write(connection, self.epoch)
                break
            except Exception as error:  # noqa: BLE001 -- raised again where it is nobody's
                failed = await culprits(self.engine, error, batch.uids, batch.try_one(self.epoch))
                batch = self._without(batch, failed)
        for point in _written(batch):
            await self.settings.failpoints.at(point)
        for entry in entries:
            self._applier.send(entry)
        batch = self._without(batch, batch.number())
        freed = False
        for uid, live in batch.after.items():
            before = self.state.live.get(uid)
            freed = freed or matters(before, live)
            if live is None:
                self.state.drop(uid)
            else:
                self.state.put(live)
        for workload, seconds in batch.ran:
            self.state.learn(workload, seconds)
        if freed:
            self.state.reconsider()
        self.notes.look(batch.after.items())
        self.notes.evicted(batch.evictions)

    def _take_results(self) -> list[Result]:
        """How PATCHes ended, but for those of workloads that are set aside."""
        aside = self.state.quarantine
        results, self._results = self._results, [r for r in self._results if r.entry.uid in aside]
        return [result for result in results if result.entry.uid not in aside]

    def _without(self, batch: Batch, failed: Mapping[str, Exception]) -> Batch:
        """Set these aside. How their PATCHes ended is kept for when they are tried again."""
        if not failed:
            return batch
        self._results += batch.part(failed.__contains__).results
        self._set_aside(failed)
        return batch.part(lambda uid: uid not in failed)

    def _set_aside(self, failed: Mapping[str, Exception]) -> None:
        for uid, error in failed.items():
            log.error("set aside", workload=uid, said=str(error), exc_info=error)
            self.metrics.set_aside.inc()
            self.state.set_aside(uid, error, now=self.clock())

    # -- decisions

    def _begin_decision(self, group: asyncio.TaskGroup) -> None:
        now = self.clock()
        due = self.state.stale or self._due.calls_for_decision(now)
        if self._decision is not None or not due:
            return
        waiting = [live for live in self.state.lives() if offered(live, self.state, now=now)]
        trigger = "change" if self.state.take_stale() else "time"
        if not waiting and not self.state.bonds and not self.state.reservations:
            self._due.decided = now
            return
        self._cycle += 1
        with self.metrics.phase("snapshot", cycle=self._cycle):
            barred = self.jobs.reckoning().barred(waiting)
            snapshot = take(self.state, now=now, barred=barred)
        self._asked = Asked(snapshot=snapshot, cycle=self._cycle, at=now, trigger=trigger, barred=barred)
        self._decision = group.create_task(self._decide(self._asked), name=f"cycle {self._cycle}")

    async def _decide(self, asked: Asked) -> Plan | None:
        """A plan; None where there is none that may be committed: then everybody waits for the next cycle."""
        began = time.perf_counter()
        plan = None
        try:
            with self.metrics.phase("decide", cycle=asked.cycle):
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
        if plan is None or (moved := await self._carry_out(asked, plan, now=now)) is None:
            return
        self.metrics.cycles.labels(plan.stats.status.value).inc()
        self.metrics.last_cycle.set(now)
        self.health.cycle = LastCycle(
            id=asked.cycle,
            at=now,
            took=self._effort,
            waiting=len(plan.explanations),
            status=plan.stats.status.value,
        )
        if moved and plan.stats.more:  # had nothing moved the next would be asked the same
            self.state.reconsider()
        self.keeper.offer(asked.cycle, self._stored(asked, plan))

    async def _carry_out(self, asked: Asked, plan: Plan, *, now: float) -> bool | None:
        """Commit what of the plan holds, without those whose part fails. Whether anything moved; None = no commit."""
        while True:
            try:
                with self.metrics.phase("answer", cycle=asked.cycle):
                    found = self._answer(asked, plan, now=now)
                if found is None:
                    return None
                moved = bool(found.admissions or found.evictions) or found.bonds != self.state.bonds
                told = found.explanations or found.reservations != self.state.reservations
                if moved or told or found.record.capacity != self._capacity:
                    await self._commit(asked, plan, found)
                return moved
            except Mishandled as error:
                self._set_aside(error.found)

    async def _commit(self, asked: Asked, plan: Plan, found: Answered) -> None:
        """One transaction, then memory, then the effects. Raises Mishandled where somebody's part fails."""
        await self.settings.failpoints.at(Point.DECIDED)
        now_told = dict(islice(found.explanations.items(), SLICE))
        try:
            with self.metrics.phase("commit", cycle=asked.cycle):
                async with begin(self.engine) as connection:
                    at_once = replace(found, explanations=now_told)
                    committed = await write_answer(connection, at_once, epoch=self.epoch)
        except Exception as error:
            alone = partial(_write_of, found, epoch=self.epoch)
            raise Mishandled(await culprits(self.engine, error, found.uids, alone)) from error
        self._capacity = found.record.capacity
        self.state.untold |= {u: why for u, why in found.explanations.items() if u not in now_told}
        await self.settings.failpoints.at(Point.COMMITTED)
        remember(found, self.state, self.metrics)
        self.notes.look((live.uid, live) for live in found.after)
        self.notes.evicted(found.evictions)
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
        except Mishandled:
            raise
        except Exception:
            log.exception("no commit", cycle=asked.cycle)
            self.metrics.refused_plans.inc()
            return None

    async def _note_capacity(self) -> None:
        """Write down that the cluster's capacity changed, where no decision is under way that would."""
        now, capacity = self.clock(), self.state.capacity_by_flavor
        if self._decision is not None or capacity == self._capacity or now < self._noted + _IDLE:
            return
        self._cycle += 1
        self._capacity, self._noted = capacity, now
        async with begin(self.engine) as connection:
            await write_capacity(connection, state=self.state, epoch=self.epoch, cycle=self._cycle, now=now)

    async def _adopt(self, touched: Sequence[str]) -> None:
        """Charge what runs without having been admitted, and report it."""
        lives = {live.uid: live for live in self._found.among(touched)}
        if not lives:
            return
        self._cycle += 1
        write = partial(
            write_adoption, state=self.state, jobs=self.jobs, epoch=self.epoch,
            cycle=self._cycle, now=self.clock(), new_id=self.new_id,
        )  # fmt: skip
        try:
            async with begin(self.engine) as connection:
                adopted, committed = await write(connection, tuple(lives.values()))
        except Exception as error:  # noqa: BLE001 -- raised again where it is nobody's
            failed = await culprits(self.engine, error, lives, lambda c, uid: write(c, (lives[uid],)))
            self._set_aside(failed)
            self.state.touched.update(lives)
            return
        for live in adopted.after:
            log.warning("adopted", workload=live.uid, queue=live.workload.queue)
            self.metrics.adopted.labels(queue_label(live.workload.queue, self.state.rules.tree)).inc()
            self.state.put(live)
        self.state.reconsider()
        await self.settings.failpoints.at(Point.ADOPTED)
        for entry in committed.entries:
            self._applier.send(entry)

    # -- effects

    def _heard(self, result: Result) -> None:
        self._results.append(result)
        if result.outcome is Outcome.APPLIED:
            self.notes.budget.earn()
        self.wake.set()

    async def _confirm_epoch(self) -> None:
        async with begin(self.engine) as connection:
            await check_epoch(connection, self.epoch)

    # -- time

    async def _awaken(self) -> None:
        """Wait until something is heard or due, then a moment longer, so that what comes together is done
        together. Not at all where the last round's slice left something.
        """
        if self._more:
            await asyncio.sleep(0)
            self._due.touch_due(self.clock())
            return
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


async def _write_of(found: Answered, connection: AsyncConnection, uid: str, *, epoch: int) -> None:
    await write_answer(connection, found.of(uid), epoch=epoch)


def _written(batch: Batch) -> Iterator[Point]:
    """What a batch has just committed."""
    parts: dict[Point, object] = {
        Point.RELEASED: batch.release,
        Point.REQUEUED: any(change.state.waiting for change in batch.changes.values()),
        Point.RECHARGED: batch.recharges,
        Point.ROLLED_BACK: batch.evictions,
        Point.WITHDRAWING: batch.effects,
        Point.TAKEN_IN: batch.intakes,
    }
    return (point for point, part in parts.items() if part)
