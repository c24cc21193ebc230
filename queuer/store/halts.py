"""Halts: the queues that a changeset holds, drains or opens, with what runs and what waits there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from queuer.domain.quantity import add
from queuer.domain.queue import QueueState, QueueTree
from queuer.store.changeset import JudgedChangeset
from queuer.store.codec import record_of
from queuer.store.ledger import Holding, holdings
from queuer.store.tables import NotAsked
from queuer.store.waiting import OUT_OF_TURN

_WAITING = text(f"""
    SELECT uid, kind, namespace, name, queue, pod_sets, (not_asked = '{NotAsked.DRAINING}') IS TRUE AS late
    FROM workload
    WHERE state = 'Queued' AND deleted_at IS NULL AND NOT {OUT_OF_TURN} ORDER BY submitted, uid
""")


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingJob:
    """A job that waits. `demand`: what it asks for, base units. `late`: it came while its queue drained."""

    uid: str
    kind: str
    namespace: str
    name: str
    queue: str
    demand: Mapping[str, int]
    late: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Halt:
    """A queue that gets another state, with what `running` and `waiting` there is in its subtree. Work on its way out,
    on hold or unstartable does not count. Of a queue that is opened, `kept` more wait on in queues that `closed` ones
    keep closed.
    """

    queue: str
    state: QueueState
    running: tuple[Holding, ...]
    waiting: tuple[WaitingJob, ...]
    kept: int
    closed: tuple[str, ...]


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
    return tuple(_halt(path, after, held, jobs) for path in moved)


def _halt(path: str, tree: QueueTree, held: Iterable[Holding], jobs: Iterable[WaitingJob]) -> Halt:
    state = tree[path].state
    waiting = [job for job in jobs if path in tree.lineage(job.queue)]
    closed = {
        queue: [
            each for each in tree.lineage(queue) if each in tree and tree[each].state is not QueueState.OPEN
        ]
        for queue in ({job.queue for job in waiting} if state is QueueState.OPEN else ())
    }
    concerned = [job for job in waiting if not closed.get(job.queue)]
    return Halt(
        queue=path,
        state=state,
        running=tuple(h for h in held if not h.leaving and path in tree.lineage(h.queue)),
        waiting=tuple(concerned),
        kept=len(waiting) - len(concerned),
        closed=tuple(sorted({each for paths in closed.values() for each in paths})),
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
