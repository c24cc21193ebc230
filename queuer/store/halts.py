"""Halts: the queues that a changeset holds, drains or opens, with what runs and what waits there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from queuer.domain.quantity import add
from queuer.domain.queue import QueueState
from queuer.store.changeset import JudgedChangeset
from queuer.store.codec import record_of
from queuer.store.holdings import Holding, holdings
from queuer.store.waiting import UNSTARTABLE

_WAITING = text(f"""
    SELECT uid, kind, namespace, name, queue, pod_sets FROM workload
    WHERE state = 'Queued' AND deleted_at IS NULL AND NOT {UNSTARTABLE} ORDER BY submitted, uid
""")


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingJob:
    """A job that waits. `demand`: what it asks for, base units."""

    uid: str
    kind: str
    namespace: str
    name: str
    queue: str
    demand: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Halt:
    """A queue that gets another state, with what `running` and `waiting` there is in its subtree: neither on its way
    out, nor on hold, nor unstartable.
    """

    queue: str
    state: QueueState
    running: tuple[Holding, ...]
    waiting: tuple[WaitingJob, ...]


async def halts(connection: AsyncConnection, changeset: JudgedChangeset) -> tuple[Halt, ...]:
    """Queues that are there before and after, by path."""
    before, after = changeset.before.tree, changeset.after.tree
    moved = sorted(
        change.name
        for change in changeset.queues
        if change.action == "update" and before[change.name].state is not after[change.name].state
    )
    if not moved:
        return ()
    held, jobs = await holdings(connection), await _waiting(connection)
    return tuple(
        Halt(
            queue=path,
            state=after[path].state,
            running=tuple(h for h in held if not h.leaving and path in after.lineage(h.queue)),
            waiting=tuple(job for job in jobs if path in after.lineage(job.queue)),
        )
        for path in moved
    )


async def _waiting(connection: AsyncConnection) -> list[WaitingJob]:
    """The oldest first."""
    found = []
    for row in await connection.execute(_WAITING):
        demand: dict[str, int] = {}
        for pod_set in row.pod_sets:
            demand = add(demand, pod_set["requests"], times=pod_set["count"])
        found.append(record_of(WaitingJob, row, demand=demand))
    return found
