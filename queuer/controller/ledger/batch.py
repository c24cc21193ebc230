"""What one round of the loop writes to the database: gathered first, then written in one transaction.

It can be cut by workload, so that one whose part fails is left out of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from sqlalchemy.ext.asyncio import AsyncConnection

from queuer.controller.memory.live import Live
from queuer.domain.errors import Conflict
from queuer.domain.reasons import Explanation
from queuer.domain.workload import Workload
from queuer.store import commands, cycles, ledger, outbox, workloads
from queuer.store.commands import Answer, NewOverride
from queuer.store.cycles import NewEviction
from queuer.store.ledger import LedgerRow
from queuer.store.outbox import Effect, Entry, Result
from queuer.store.workloads import Intake, Setback, StateChange


@dataclass(slots=True)
class Batch:
    """Writes of one round, and what memory holds once they are done: `after`, where None = forgotten. `ran`: runs that
    ended by themselves, with their seconds. `results`: how PATCHes ended; `answers`: how commands did. `failed`: of
    whom nothing could be made, and why. `taken`: once it is written, the attempt of each job that was taken in.
    """

    now: float
    intakes: list[Intake] = field(default_factory=list)
    results: list[Result] = field(default_factory=list)
    changes: dict[str, StateChange] = field(default_factory=dict)
    evictions: list[NewEviction] = field(default_factory=list)
    effects: list[Effect] = field(default_factory=list)
    recharges: list[LedgerRow] = field(default_factory=list)
    release: list[str] = field(default_factory=list)
    forget: list[str] = field(default_factory=list)
    overrides: list[NewOverride] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)
    explanations: dict[str, Explanation | None] = field(default_factory=dict)
    setbacks: list[Setback] = field(default_factory=list)
    after: dict[str, Live | None] = field(default_factory=dict)
    ran: list[tuple[Workload, float]] = field(default_factory=list)
    failed: dict[str, Exception] = field(default_factory=dict)
    taken: dict[str, int] = field(default_factory=dict)

    def view(self, uid: str, lives: Mapping[str, Live]) -> Live | None:
        """The workload as it is after what was gathered so far."""
        return self.after[uid] if uid in self.after else lives.get(uid)

    def back_in_queue(self, lives: Mapping[str, Live]) -> list[str]:
        """Workloads that return to their queue in this round: their jobs must be read again."""
        return [
            uid
            for uid, live in self.after.items()
            if live is not None and live.state.waiting and uid in lives and not lives[uid].state.waiting
        ]

    @contextmanager
    def apart(self, uid: str) -> Iterator[None]:
        """What fails inside is the fault of this workload alone."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 -- whatever it is, it is told
            self.failed[uid] = error

    @property
    def uids(self) -> frozenset[str]:
        """All workloads that it is about."""
        return frozenset(uid for part in self._parts().values() for uid in map(_uid, part))

    def set_back(self, lives: Mapping[str, Live]) -> None:
        """Write what earlier admissions left with the workloads, where that is not what memory has yet."""
        for uid, live in self.after.items():
            before = lives[uid].setback if uid in lives else Setback(uid=uid)
            if live is not None and live.setback != before:
                self.setbacks.append(live.setback)

    def tell(self, reasons: Mapping[str, Explanation]) -> None:
        """Write these reasons too, where they still stand after what happens to the workload in this round."""
        for uid, why in reasons.items():
            after = self.after.get(uid)
            if uid not in self.after or (after is not None and after.explanation == why):
                self.explanations[uid] = why

    def number(self) -> dict[str, Exception]:
        """Once it is written: give jobs that were taken in the attempt that they have there. Returns those that the
        database does not have waiting, though memory has.
        """
        lost = dict[str, Exception]()
        for uid in {row.workload.uid for row in self.intakes}:
            live, attempt = self.after[uid], self.taken.get(uid)
            if attempt is None:
                lost[uid] = Conflict("the database does not have it waiting", uids=[uid])
            elif live is not None and live.attempt != attempt:
                self.after[uid] = replace(live, attempt=attempt)
        return lost

    def of(self, uid: str) -> Batch:
        """What is about one workload."""
        return self.part(uid.__eq__)

    def part(self, within: Callable[[str], bool]) -> Batch:
        """What is about the workloads for which `within` says so."""
        kept: dict[str, Any] = {
            name: {uid: value for uid, value in part.items() if within(uid)}
            if isinstance(part, dict)
            else [item for item in part if within(_uid(item))]
            for name, part in self._parts().items()
        }
        return Batch(now=self.now, **kept)

    def _parts(self) -> dict[str, Any]:
        names = (
            "intakes", "results", "changes", "evictions", "effects", "recharges", "release", "forget", "overrides",
            "answers", "explanations", "setbacks", "after", "ran",
        )  # fmt: skip
        return {name: getattr(self, name) for name in names}

    @property
    def writes(self) -> bool:
        """Whether there is anything for the database."""
        parts = (
            self.intakes, self.results, self.changes, self.evictions, self.effects, self.recharges, self.release,
            self.forget, self.overrides, self.answers, self.explanations, self.setbacks,
        )  # fmt: skip
        return any(parts)

    async def write(self, connection: AsyncConnection, epoch: int) -> tuple[Entry, ...]:
        """Write everything; returns the effects that must be sent once this is committed."""
        await outbox.done(connection, epoch, self.results, at=self.now)
        await workloads.update_states(connection, epoch, list(self.changes.values()))
        entries = await cycles.evict(connection, epoch, self.evictions, at=self.now)
        await ledger.recharge(connection, epoch, self.recharges)
        await ledger.close(connection, epoch, self.release, self.now)
        await workloads.forget(connection, epoch, self.forget, self.now)
        await commands.put_overrides(connection, epoch, self.overrides)
        await commands.answer(connection, epoch, self.answers, at=self.now)
        # After the steps: a job that goes back to its queue may have been edited while it was not there.
        self.taken = await workloads.intake(connection, epoch, self.intakes, at=self.now)
        await workloads.set_back(connection, epoch, self.setbacks)
        await workloads.explain(connection, epoch, self.explanations, at=self.now)
        return (*entries, *await outbox.put(connection, epoch, self.effects, at=self.now))


def _uid(item: Any) -> str:
    """The workload that a part of a batch is about."""
    match item:
        case str():
            return item
        case Result():
            return item.entry.uid
        case Intake():
            return item.workload.uid
        case (Workload() as workload, _):
            return workload.uid
        case _:
            return str(item.uid)
