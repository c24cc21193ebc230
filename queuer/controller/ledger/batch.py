"""What one round of the loop writes to the database: gathered first, then written in one transaction."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sqlalchemy.ext.asyncio import AsyncConnection

from queuer.controller.memory.live import Live
from queuer.domain.reasons import Explanation
from queuer.domain.workload import Workload
from queuer.store import cycles, ledger, outbox, workloads
from queuer.store.cycles import NewEviction
from queuer.store.ledger import LedgerRow
from queuer.store.outbox import Done, Effect, Entry
from queuer.store.workloads import Intake, StateChange


@dataclass(slots=True)
class Batch:
    """Writes of one round, and what memory holds once they are done: `after`, where None = forgotten. `ran`: runs that
    ended by themselves, with their seconds.
    """

    now: float
    intakes: list[Intake] = field(default_factory=list)
    done: list[Done] = field(default_factory=list)
    changes: dict[str, StateChange] = field(default_factory=dict)
    evictions: list[NewEviction] = field(default_factory=list)
    effects: list[Effect] = field(default_factory=list)
    recharges: list[LedgerRow] = field(default_factory=list)
    release: list[str] = field(default_factory=list)
    forget: list[str] = field(default_factory=list)
    explanations: dict[str, Explanation | None] = field(default_factory=dict)
    after: dict[str, Live | None] = field(default_factory=dict)
    ran: list[tuple[Workload, float]] = field(default_factory=list)

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

    @property
    def writes(self) -> bool:
        """Whether there is anything for the database."""
        parts = (
            self.intakes, self.done, self.changes, self.evictions, self.effects, self.recharges, self.release,
            self.forget, self.explanations,
        )  # fmt: skip
        return any(parts)

    async def write(self, connection: AsyncConnection, epoch: int) -> tuple[Entry, ...]:
        """Write everything; returns the effects that must be sent once this is committed."""
        await outbox.done(connection, epoch, self.done)
        await workloads.update_states(connection, epoch, list(self.changes.values()))
        entries = await cycles.evict(connection, epoch, self.evictions, at=self.now)
        await ledger.recharge(connection, epoch, self.recharges)
        await ledger.close(connection, epoch, self.release, self.now)
        await workloads.forget(connection, epoch, self.forget, self.now)
        # After the steps: a job that goes back to its queue may have been edited while it was not there.
        await workloads.intake(connection, epoch, self.intakes, at=self.now)
        await workloads.explain(connection, epoch, self.explanations, at=self.now)
        return (*entries, *await outbox.put(connection, epoch, self.effects, at=self.now))
