"""The one loop that changes anything: results of PATCHes, new jobs, landing, decisions, each written before it counts.

Watches and PATCHes run beside it and only leave word. A decision is made beside it too, in a process of its own:
landing and release go on meanwhile. Its plan is committed here. A round takes one slice of what is new, and everything
else is heard between two rounds. A workload that cannot be handled is quarantined. Only the loss of the leadership or
of the database ends the loop.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable

from sqlalchemy.ext.asyncio import AsyncEngine

from queuer.controller.apply.applier import Applier
from queuer.controller.apply.jobs import ClusterJobs
from queuer.controller.apply.notes import Notes, What
from queuer.controller.apply.refusals import Refusals
from queuer.controller.commands.take_up import carry_out, take_up
from queuer.controller.cycle.decisions import Decider, Decisions
from queuer.controller.cycle.timers import Timers
from queuer.controller.health.metrics import Metrics
from queuer.controller.health.probes import Health
from queuer.controller.intake.adoption import Adopter
from queuer.controller.intake.read import take_in
from queuer.controller.intake.restored import recognise
from queuer.controller.landing.confirm import Confirmer
from queuer.controller.landing.writes import settle_touched, stuck, take_results, tells_refusal
from queuer.controller.ledger.round import Round
from queuer.controller.memory.state import ClusterState
from queuer.controller.settings import Settings
from queuer.controller.term import Term
from queuer.domain.reasons.job_sentences import refused_write
from queuer.store.engine import begin
from queuer.store.leader import check_epoch
from queuer.store.outbox import Entry, Result
from queuer.store.tables import EntryKind, EntryOutcome

_LONGEST_WINDOW = 0.5
_READING = 0.5
"""Seconds of a round in which jobs are read, about: nothing else happens meanwhile."""
_IDLE = 5.0
SLICE = 250
"""Jobs that are read, reasons that are written, and waiting workloads that are looked at, in one round at most."""


def _next_slice(slice_: int, *, took: float) -> int:
    """How many jobs are read in the next round, after so many took so long."""
    return max(1, min(SLICE, int(2 * slice_ if took < _READING / 2 else slice_ * _READING / took)))


class Loop:
    """One leadership, from the first round to its end. Not reusable."""

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
        self._settings, self._health, self._clock, self._wake = settings, health, clock, wake
        self._more, self._unread = False, SLICE
        applier = Applier(
            jobs,
            confirm_epoch=self._confirm_epoch,
            on_result=self._heard,
            on_refused=self._refused,
            failpoints=settings.failpoints,
            metrics=metrics,
            at_once=settings.patches,
        )
        self.term = Term(
            state=state, jobs=jobs, engine=engine, settings=settings, metrics=metrics, applier=applier,
            notes=Notes(state=state, jobs=jobs, clock=clock), refusals=Refusals(jobs, state),
            epoch=epoch, cycle=last_cycle, clock=clock, new_id=new_id,
        )  # fmt: skip
        self._timers = Timers(state, limits=self._settings)
        self._confirmer = Confirmer(jobs, state, lost_after=settings.lost_node, clock=clock)
        self._adopter = Adopter(self.term)
        self.decisions = Decisions(
            self.term, decider=decider, timers=self._timers, health=health, wake=wake.set
        )

    async def recognise(self) -> None:
        """Charge what runs and is stored otherwise, before `run`."""
        await recognise(self.term, self._adopter, progress=self._health.beat)

    async def run(self, undone: tuple[Entry, ...] = ()) -> None:
        """Go round until cancelled. `undone`: effects of earlier leaders, to be finished or taken back."""
        self.term.send(undone)
        async with asyncio.TaskGroup() as group:
            group.create_task(self.term.applier.run(), name="applier")
            group.create_task(self._confirmer.run(), name="confirmer")
            while True:
                await self.round(group)
                self._health.beat()
                await self._awaken()

    async def round(self, group: asyncio.TaskGroup) -> None:
        """One round: write what follows from all that was heard, then think about what may start."""
        state, jobs = self.term.state, self.term.jobs
        changes = Round(state.live, now=self._clock())
        retried = state.try_again(now=changes.now)
        take_results(changes, self.term.take_results(), state=state, jobs=jobs, limits=self._settings)
        touched = state.take_touched(SLICE)
        settle_touched(
            changes, touched, state=state, jobs=jobs, confirmer=self._confirmer, limits=self._settings
        )
        asked = await take_up(self.term)
        commanded = carry_out(changes, asked, state=state, jobs=jobs)
        unread = dict.fromkeys(
            [*retried, *commanded, *state.take_unread(self._unread), *changes.back_in_queue()]
        )
        began = self._clock()
        take_in(changes, unread, state=state, jobs=jobs, anew=retried)
        self._unread = _next_slice(self._unread, took=self._clock() - began)
        changes.tell(state.take_untold(SLICE))
        self._more = bool(state.unread or state.untold)
        await self.term.commit_each(changes)
        await self._adopter.look(touched)
        await self.decisions.follow(group)

    # -- effects

    def _heard(self, result: Result) -> None:
        self.term.results.append(result)
        if result.outcome is EntryOutcome.APPLIED:
            self.term.notes.budget.earn()
        self._wake.set()

    def _refused(self, entry: Entry, said: str, seconds: float) -> None:
        """The API server has refused a write for so long, in its words. It is tried on, and told once."""
        state, notes = self.term.state, self.term.notes
        live = state.live.get(entry.uid)
        if live is None or live.placement is None or live.placement.id != entry.admission_id:
            return
        if not tells_refusal(live):
            since = self._clock() - seconds
            text = refused_write(said, starts=entry.kind is EntryKind.ADMIT, since=since)
            state.tell(live, stuck(live, text, refusal=said))
            notes.warn(live.uid, What.REFUSED, text)
            self._wake.set()

    async def _confirm_epoch(self) -> None:
        async with begin(self.term.engine) as connection:
            await check_epoch(connection, self.term.epoch)

    # -- time

    async def _awaken(self) -> None:
        """Wait until something is heard or due, then a moment longer, so that what comes together is done
        together. Not at all where the last round's slice left something.
        """
        if self._more:
            await asyncio.sleep(0)
            self._timers.touch_due(self._clock())
            return
        due = self._timers.next(deciding=self.decisions.under_way)
        timeout = max(0.0, min(due - self._clock(), _IDLE))
        try:
            async with asyncio.timeout(timeout):
                await self._wake.wait()
        except TimeoutError:
            self._timers.touch_due(self._clock())
            return
        await asyncio.sleep(min(max(self._settings.window, self.decisions.effort / 2), _LONGEST_WINDOW))
        self._wake.clear()
        self._timers.touch_due(self._clock())
