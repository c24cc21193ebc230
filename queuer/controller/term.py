"""One leadership: what its parts share, and the one way from a round to the database, to memory and to the cluster.

A round is handed to `Term.commit`: one transaction, then memory and metrics, then the effects. A workload that cannot
be handled is quarantined, and everybody else goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from sqlalchemy.ext.asyncio import AsyncEngine

from queuer.controller.apply.applier import Applier
from queuer.controller.apply.jobs import ClusterJobs
from queuer.controller.apply.notes import Notes
from queuer.controller.apply.refusals import Refusals
from queuer.controller.failpoints import Point
from queuer.controller.health.metrics import Metrics, queue_label
from queuer.controller.ledger.commit import commit
from queuer.controller.ledger.round import Change, Isolated, Round
from queuer.controller.logs import logger
from queuer.controller.memory.live import matters
from queuer.controller.memory.state import ClusterState
from queuer.controller.settings import Settings
from queuer.store.outbox import Entry, Result
from queuer.store.tables import EntryKind

log = logger("term")

ADOPTED = "adopted"
"""Trigger of a cycle that charges what runs beside the queues."""


@dataclass(slots=True, kw_only=True)
class Term:
    """One leadership. `cycle`: number of the last one. `results`: how PATCHes ended, until a round says so."""

    state: ClusterState
    jobs: ClusterJobs
    engine: AsyncEngine
    settings: Settings
    metrics: Metrics
    notes: Notes
    refusals: Refusals
    applier: Applier
    epoch: int
    cycle: int
    clock: Callable[[], float]
    new_id: Callable[[], str]
    results: list[Result] = field(default_factory=list)

    def next_cycle(self) -> int:
        """The number of a new cycle."""
        self.cycle += 1
        return self.cycle

    def send(self, entries: Iterable[Entry]) -> None:
        """Have effects applied that are committed."""
        for entry in entries:
            self.applier.send(entry)

    def take_results(self) -> list[Result]:
        """How PATCHes ended, but for those of quarantined workloads: they are kept until the next try."""
        kept = self.state.quarantine
        taken = [result for result in self.results if result.entry.uid not in kept]
        self.results = [result for result in self.results if result.entry.uid in kept]
        return taken

    def quarantine(self, failed: Mapping[str, Exception]) -> None:
        """Leave these workloads alone for a while, each for what it failed with."""
        for uid, error in failed.items():
            log.error("quarantined", workload=uid, said=str(error), exc_info=error)
            self.metrics.quarantined.inc()
            self.state.quarantine_one(uid, error, now=self.clock())

    async def commit_each(self, changes: Round) -> None:
        """Commit a round without the workloads that fail. Raises as `commit` does, but for Isolated."""
        failed: Mapping[str, Exception] = changes.failed
        while True:
            self.quarantine(failed)
            for uid in failed:
                if uid in changes:
                    self.results += changes[uid].results
                    del changes[uid]
            if not changes:
                return None
            try:
                return await self.commit(changes)
            except Isolated as error:
                failed = error.found

    async def commit(self, changes: Round) -> None:
        """One transaction, then memory, then the effects.

        Raises Isolated where changes fail that can be named, and nothing is done then; LeadershipLost or
        DatabaseUnavailable; and what is nobody's fault.
        """
        for point in _before(changes):
            await self.settings.failpoints.at(point)
        entries = await commit(self.engine, changes, epoch=self.epoch) if changes.writes else ()
        for point in _after(changes):
            await self.settings.failpoints.at(point)
        self.remember(changes)
        self.send(entries)

    def remember(self, changes: Round) -> None:
        """Take a committed round over into memory, and count it."""
        state, moved = self.state, [c for c in changes.values() if c.after is not c.before]
        for change in moved:
            self._count(change, changes)
        for change in moved:
            if change.ends:
                state.drop(change.uid)
            elif change.after is not None:
                state.put(change.after)
                if change.later and change.after.explanation is not None:
                    state.untold[change.uid] = change.after.explanation
            if change.ran is not None and change.before is not None:
                state.learn(change.before.workload, change.ran)
        if changes.bonds is not None:
            state.hold(changes.bonds, changes.reservations or ())
        elif any(matters(c.before, None if c.ends else c.after) for c in moved):
            state.reconsider()
        self.notes.look((c.uid, None if c.ends else c.after) for c in moved)
        evicted = [change for change in moved if change.evicts]
        self.notes.evicted(evicted)
        self.refusals.look(evicted)
        self.refusals.follow(moved)

    def _count(self, change: Change, changes: Round) -> None:
        before, after, metrics = change.before, change.after, self.metrics
        if before is None or after is None:
            return
        queue = queue_label(after.workload.queue, self.state.rules.tree)
        if change.leaves:
            metrics.evictions.labels(queue, change.cause).inc()
        if before.landed is None and after.landed is not None and after.placement and after.placement.patched:
            metrics.placing.observe(after.landed - after.placement.patched)
        if change.admits and changes.cycle is not None:
            if changes.cycle.trigger == ADOPTED:
                log.warning("adopted", workload=change.uid, queue=after.workload.queue)
                metrics.adopted.labels(queue).inc()
                return
            metrics.admissions.labels(queue).inc()
            if after.attempt == 1:
                metrics.waited.labels(queue).observe(changes.now - after.workload.submitted)


def _before(changes: Round) -> Iterator[Point]:
    """Points that a round passes before its commit."""
    if changes.bonds is not None:
        yield Point.DECIDED
    if any(map(_releases, changes.values())):
        yield Point.BEFORE_RELEASE


def _after(changes: Round) -> Iterator[Point]:
    """Points that a round passes after its commit."""
    if changes.bonds is not None:
        yield Point.COMMITTED
        return
    if changes.cycle is not None and changes.cycle.trigger == ADOPTED:
        yield Point.ADOPTED
    sure: dict[Point, Callable[[Change], object]] = {
        Point.RELEASED: _releases,
        Point.REQUEUED: lambda c: c.returns,
        Point.RECHARGED: lambda c: c.recharges(at=changes.now),
        Point.ROLLED_BACK: lambda c: c.evicts,
        Point.WITHDRAWING: lambda c: any(effect.kind is EntryKind.WITHDRAW for effect in c.effects),
        Point.TAKEN_IN: lambda c: c.reread,
    }
    for point, test in sure.items():
        if any(map(test, changes.values())):
            yield point


def _releases(change: Change) -> bool:
    return change.ends and change.before is not None and change.before.charged
