"""The transactions that make a decision or a change of capacity fact."""

from __future__ import annotations

from sqlalchemy.ext.asyncio import AsyncConnection

from queuer.controller.cycle.answer import Answered
from queuer.controller.cycle.forecast import compare
from queuer.controller.health.metrics import Metrics, queue_label
from queuer.controller.ledger.rows import bond_row, reservation_row
from queuer.controller.memory.state import ClusterState
from queuer.domain.workload import State
from queuer.solver.records import SolveStatus
from queuer.store import cycles
from queuer.store.cycles import Committed, CycleRecord

CAPACITY = "capacity"
"""Trigger of a record that only says that the cluster's capacity changed."""


async def write_answer(connection: AsyncConnection, found: Answered, *, epoch: int) -> Committed:
    """Commit what of a plan holds."""
    return await cycles.commit(
        connection,
        epoch=epoch,
        record=found.record,
        admissions=found.admissions,
        evictions=found.evictions,
        bonds=tuple(map(bond_row, found.bonds)),
        reservations=tuple(map(reservation_row, found.reservations)),
        explanations=found.explanations,
    )


async def write_capacity(
    connection: AsyncConnection, *, state: ClusterState, epoch: int, cycle: int, now: float
) -> None:
    """Say what the cluster can hold now. Readers take it from the newest record; while nobody waits none is made."""
    await cycles.commit(
        connection,
        epoch=epoch,
        record=CycleRecord(
            id=cycle, started_at=now, finished_at=now, trigger=CAPACITY, status=SolveStatus.GREEDY, waiting=0,
            capacity=state.capacity_by_flavor,
        ),
        bonds=tuple(map(bond_row, state.bonds)),
        reservations=tuple(map(reservation_row, state.reservations)),
    )  # fmt: skip


def remember(found: Answered, state: ClusterState, metrics: Metrics) -> None:
    """Take over into memory, and count, what was committed."""
    for live in found.after:
        before = state.live[live.uid]
        queue = queue_label(live.workload.queue, state.rules.tree)
        if live.state is State.ADMITTED:
            metrics.admissions.labels(queue).inc()
            compare(before.explanation, started=found.record.finished_at, metrics=metrics)
            if live.attempt == 1:
                metrics.waited.labels(queue).observe(found.record.finished_at - live.workload.submitted)
        elif live.state is State.EVICTING and before.state is not State.EVICTING:
            cause = next(e.cause for e in found.evictions if e.uid == live.uid)
            metrics.evictions.labels(queue, cause).inc()
        state.put(live)
    state.bonds, state.reservations = found.bonds, found.reservations
