"""What one cycle writes, whether it carries out a decision or only says what is held and what there is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from sqlalchemy.ext.asyncio import AsyncConnection

from queuer.controller.ledger.rows import bond_row, reservation_row
from queuer.controller.memory.live import Live
from queuer.controller.memory.out_of_use import out_of_use
from queuer.controller.memory.state import ClusterState
from queuer.domain.assignments import Bond, Reservation, SolveStatus
from queuer.domain.reasons import Explanation
from queuer.store import cycles
from queuer.store.cycles import Committed, CycleRecord, NewAdmission, NewEviction


@dataclass(frozen=True, slots=True, kw_only=True)
class NewCycle:
    """Rows for the store, and `after`: the workloads as they are once these are committed. Bonds and reservations are
    all that stand from then on.
    """

    record: CycleRecord
    bonds: tuple[Bond, ...]
    reservations: tuple[Reservation, ...]
    admissions: tuple[NewAdmission, ...] = ()
    evictions: tuple[NewEviction, ...] = ()
    explanations: Mapping[str, Explanation] = field(default_factory=lambda: MappingProxyType({}))
    after: tuple[Live, ...] = ()

    @property
    def uids(self) -> frozenset[str]:
        """All workloads that it is about."""
        parts = (self.admissions, self.evictions, self.bonds, self.reservations)
        return frozenset(row.uid for part in parts for row in part).union(self.explanations)

    def of(self, uid: str) -> NewCycle:
        """What is about one workload."""
        return replace(
            self,
            admissions=tuple(row for row in self.admissions if row.uid == uid),
            evictions=tuple(row for row in self.evictions if row.uid == uid),
            bonds=tuple(row for row in self.bonds if row.uid == uid),
            reservations=tuple(row for row in self.reservations if row.uid == uid),
            explanations={u: why for u, why in self.explanations.items() if u == uid},
        )

    async def write(self, connection: AsyncConnection, epoch: int) -> Committed:
        """Write everything; returns the effects that must be sent once this is committed."""
        return await cycles.commit(
            connection,
            epoch=epoch,
            record=self.record,
            admissions=self.admissions,
            evictions=self.evictions,
            bonds=tuple(map(bond_row, self.bonds)),
            reservations=tuple(map(reservation_row, self.reservations)),
            explanations=self.explanations,
        )


def undecided(state: ClusterState, *, cycle: int, now: float, trigger: str) -> NewCycle:
    """A cycle that asked no decision: what is held stays held."""
    record = CycleRecord(
        id=cycle, started_at=now, finished_at=now, trigger=trigger, status=SolveStatus.GREEDY, waiting=0,
        stats={"out": out_of_use(state)}, capacity=state.capacity_by_flavor,
    )  # fmt: skip
    return NewCycle(record=record, bonds=state.bonds, reservations=state.reservations)
