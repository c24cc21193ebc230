"""Reads about one workload and its history, for the API. Reads only, bounded by a count.

Lists are in `queuer.store.listing`, the tree with its amounts is in `queuer.store.usage`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from queuer.domain.errors import NotFound
from queuer.store.codec import record_of
from queuer.store.listing import steps
from queuer.store.waiting import OUT_OF_TURN
from queuer.store.workloads import StoredWorkload, stored_of

_ONE = text("SELECT * FROM workload WHERE uid = :uid")
_BY_REFERENCE = text("""
    SELECT * FROM workload
    WHERE namespace = :namespace AND name = :name AND (CAST(:kind AS text) IS NULL OR lower(kind) = lower(:kind))
    ORDER BY submitted DESC, uid DESC LIMIT 1
""")
_LINE = text(f"""
    SELECT count(*) FILTER (WHERE (w.first, w.priority) > (me.first, me.priority)
               OR ((w.first, w.priority) = (me.first, me.priority)
                   AND (w.submitted, w.uid COLLATE "C") < (me.submitted, me.uid COLLATE "C"))) AS before,
           count(w.uid) AS waiting
    FROM workload me LEFT JOIN (
        SELECT uid, queue, first, priority, submitted FROM workload
        WHERE state = 'Queued' AND deleted_at IS NULL AND NOT {OUT_OF_TURN}
    ) w ON w.queue = me.queue
    WHERE me.uid = :uid
""")
_REASONS = text("""
    SELECT * FROM (
        SELECT id, at, token, text, params, cycle FROM reason_transition WHERE uid = :uid ORDER BY id DESC LIMIT :count
    ) AS newest ORDER BY id
""")
_STEPS = text("""
    SELECT * FROM (
        SELECT id, at, type, data FROM event WHERE uid = :uid ORDER BY id DESC LIMIT :count
    ) AS newest ORDER BY id
""")
_NAMESPACES = text(steps("namespace"))
_ADMISSIONS = text("""
    SELECT id, attempt, cycle, assignments, domains, hosts, at, landed_at, ended_at, end_cause
    FROM admission WHERE uid = :uid ORDER BY attempt
""")


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """One line of a workload's history. `what`: an event type, or `reason`; `data`: JSON values."""

    at: float
    what: str
    data: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class PastAdmission:
    """One attempt of a workload, the present one included. Times in seconds. `assignments`: the plan; `hosts`: where
    its pods ran once all did, by pod set and node.
    """

    id: str
    attempt: int
    cycle: int
    assignments: tuple[Mapping[str, Any], ...]
    domains: tuple[str, ...]
    hosts: Mapping[str, Mapping[str, int]] | None
    at: float
    landed_at: float | None
    ended_at: float | None
    end_cause: str | None


async def namespaces(connection: AsyncConnection) -> list[str]:
    """All namespaces that have or had a workload."""
    return list((await connection.execute(_NAMESPACES)).scalars())


async def workload(connection: AsyncConnection, uid: str) -> StoredWorkload:
    """One workload by the uid of its job. Raises NotFound."""
    found = await find(connection, uid)
    if found is None:
        raise no_workload(uid)
    return found


async def find(connection: AsyncConnection, uid: str) -> StoredWorkload | None:
    """The same; None where there is none (any more)."""
    row = (await connection.execute(_ONE, {"uid": uid})).one_or_none()
    return None if row is None else stored_of(row)


def no_workload(uid: str) -> NotFound:
    """There is no such workload."""
    return NotFound(f"no workload has uid {uid}")


async def by_reference(
    connection: AsyncConnection, *, namespace: str, name: str, kind: str | None = None
) -> StoredWorkload:
    """The newest workload of that name, of any kind if none is given. Raises NotFound."""
    values = {"namespace": namespace, "name": name, "kind": kind}
    row = (await connection.execute(_BY_REFERENCE, values)).one_or_none()
    if row is None:
        raise NotFound(
            f"no {kind or 'job'} {name} was seen in namespace {namespace}",
            hint="does it carry the label queuer.dev/queue, and is the namespace managed?",
        )
    return stored_of(row)


async def line(connection: AsyncConnection, uid: str) -> tuple[int, int]:
    """How many waiting workloads of its queue come before this one, and how many wait there at all.
    Interrupted ones come first, then priority, submit time and uid count. In one second fewer choices of
    flavor may come first. Jobs that can never start are left out.
    """
    row = (await connection.execute(_LINE, {"uid": uid})).one()
    return row.before, row.waiting


async def timeline(connection: AsyncConnection, uid: str, *, count: int = 1000) -> list[Moment]:
    """The history of a workload, oldest first: the newest `count` steps, and as many changes of its reason."""
    steps = await connection.execute(_STEPS, {"uid": uid, "count": count})
    moments = [Moment(at=row.at.timestamp(), what=row.type, data=row.data) for row in steps]
    for row in await connection.execute(_REASONS, {"uid": uid, "count": count}):
        data = {"token": row.token, "text": row.text, "params": row.params, "cycle": row.cycle}
        moments.append(Moment(at=row.at.timestamp(), what="reason", data=data))
    return sorted(moments, key=lambda moment: moment.at)


async def admissions(connection: AsyncConnection, uid: str) -> list[PastAdmission]:
    """All attempts of a workload, first to last."""
    return [record_of(PastAdmission, row) for row in await connection.execute(_ADMISSIONS, {"uid": uid})]
