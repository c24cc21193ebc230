"""Writes a round's batch: one transaction, then memory, then the effects. Whose part fails is set aside."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from queuer.controller.cycle.due import matters
from queuer.controller.failpoints import Point
from queuer.controller.ledger.batch import Batch
from queuer.controller.ledger.commit import Mishandled, commit
from queuer.controller.term import Term
from queuer.store.outbox import Entry, Result


class Writer:
    """Also keeps how PATCHes ended until a batch says so; for who is set aside, until it is tried again."""

    def __init__(self, term: Term) -> None:
        self._term = term
        self._results: list[Result] = []

    def hear(self, result: Result) -> None:
        """A PATCH has ended."""
        self._results.append(result)

    def take_results(self) -> list[Result]:
        """How PATCHes ended, but for those of workloads that are set aside."""
        aside = self._term.state.quarantine
        results, self._results = self._results, [r for r in self._results if r.entry.uid in aside]
        return [result for result in results if result.entry.uid not in aside]

    async def write(self, batch: Batch) -> None:
        """Raises LeadershipLost or DatabaseUnavailable, and what is nobody's fault."""
        term = self._term
        if batch.release:
            await term.settings.failpoints.at(Point.BEFORE_RELEASE)
        batch.set_back(term.state.live)
        batch, entries = self._without(batch, batch.failed), tuple[Entry, ...]()
        while batch.writes:
            try:
                entries = await commit(term.engine, batch, epoch=term.epoch)
                break
            except Mishandled as error:
                batch = self._without(batch, error.found)
        for point in _written(batch):
            await term.settings.failpoints.at(point)
        term.send(entries)
        self._remember(self._without(batch, batch.number()))

    def _without(self, batch: Batch, failed: Mapping[str, Exception]) -> Batch:
        """Set these aside. How their PATCHes ended is kept for when they are tried again."""
        if not failed:
            return batch
        self._results += batch.part(failed.__contains__).results
        self._term.set_aside(failed)
        return batch.part(lambda uid: uid not in failed)

    def _remember(self, batch: Batch) -> None:
        state, notes, freed = self._term.state, self._term.notes, False
        for uid, live in batch.after.items():
            freed = freed or matters(state.live.get(uid), live)
            if live is None:
                state.drop(uid)
            else:
                state.put(live)
        for workload, seconds in batch.ran:
            state.learn(workload, seconds)
        if freed:
            state.reconsider()
        notes.look(batch.after.items())
        notes.evicted(batch.evictions)
        self._term.refusals.look(batch.evictions)


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
