"""Events, numbered so that a reader can resume: a greater id was committed later.

Sequences alone do not give that: of two transactions the one with the smaller number may commit last. So the ids are
taken under an advisory lock that the transaction keeps until it has committed. Other writers of events wait
meanwhile. So `append` only collects, and `begin` writes the collected events as the transaction's last
statement.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from types import MappingProxyType
from typing import Any

from sqlalchemy import Row, TextClause, text
from sqlalchemy.ext.asyncio import AsyncConnection

from queuer.store.codec import slices
from queuer.store.tables import EVENTS

CHANNEL = "queuer_event"
"""NOTIFY channel: a doorbell without payload, at most one per transaction. Readers also poll."""
_COLLECTED = "queuer_events"
"""Where a connection keeps the events of its transaction (`AsyncConnection.info`)."""

_LOCK = text("SELECT pg_advisory_xact_lock(:key)")
_APPEND = text("""
    INSERT INTO event (at, type, uid, queue, data)
    SELECT to_timestamp(r.at), r.type, r.uid, r.queue, coalesce(r.data, '{}')
    FROM ROWS FROM (jsonb_to_recordset(CAST(:rows AS jsonb))
        AS (at double precision, type text, uid text, queue text, data jsonb)) WITH ORDINALITY
        AS r(at, type, uid, queue, data, number)
    ORDER BY r.number
""")
_RING = text("SELECT pg_notify(:channel, '')")
_READ = text("""
    SELECT id, at, type, uid, queue, data FROM event
    WHERE id > :after ORDER BY id LIMIT :count
""")
_LAST = 2**63 - 1
_NEWEST = text("SELECT coalesce(max(id), 0) FROM event")
REASONS = "reasons.changed"
"""An event that tells which rows of reason_transition a transaction wrote, as `from` and `to`: their own ids do not
rise in commit order. Live views go by it; lists leave it out.
"""
SCAN = 10_000
"""Rows that one page looks at, at most: a reader to whom few of them are shown gets short pages, not a slow one."""


def _page(order: str, uid: str) -> TextClause:
    """Rows before or after an id. Of a job only who reads its namespace is told, and who it had to go for likewise.

    The job of an event may be pruned already; then only who reads everything is told of it.
    """
    sign, last = (">", "max") if order == "ASC" else ("<", "min")
    return text(f"""
        WITH seen AS MATERIALIZED (
            SELECT * FROM event WHERE id {sign} :id AND type <> '{REASONS}' {uid} ORDER BY id {order} LIMIT :scan
        ), told AS (
            SELECT s.id, s.at, s.type, s.uid, s.queue, CASE
                WHEN CAST(:namespaces AS text[]) IS NULL OR s.data->>'beneficiary' IS NULL THEN s.data
                WHEN EXISTS (SELECT FROM workload b WHERE b.uid = s.data->>'beneficiary'
                    AND b.namespace = ANY(:namespaces)) THEN s.data
                ELSE s.data - 'beneficiary' END AS data
            FROM seen s
            WHERE (CAST(:namespaces AS text[]) IS NULL OR s.uid IS NULL
                    OR EXISTS (SELECT FROM workload w WHERE w.uid = s.uid AND w.namespace = ANY(:namespaces)))
              AND (CAST(:namespace AS text) IS NULL
                    OR EXISTS (SELECT FROM workload w WHERE w.uid = s.uid AND w.namespace = :namespace))
              AND (CAST(:type AS text) IS NULL OR s.type = :type OR starts_with(s.type, :type || '.'))
              AND (CAST(:queue AS text) IS NULL OR s.queue = :queue OR starts_with(s.queue, :queue || '.'))
              AND s.at >= coalesce(CAST(:since AS timestamptz), '-infinity')
              AND s.at < coalesce(CAST(:until AS timestamptz), 'infinity')
            ORDER BY s.id {order} LIMIT :count
        ), looked AS (SELECT count(*) AS rows, {last}(id) AS last FROM seen)
        SELECT looked.rows, looked.last, told.*, w.kind, w.namespace, w.name
        FROM looked LEFT JOIN told ON true LEFT JOIN workload w USING (uid) ORDER BY told.id {order}
    """)


_PAGES = {
    (forward, one): _page("ASC" if forward else "DESC", "AND uid = :uid" if one else "")
    for forward in (True, False)
    for one in (True, False)
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """`type` is `workload.<what>`, `queue.<what>` or `cycle.<what>`; `data` holds JSON values."""

    at: float
    type: str
    uid: str | None = None
    queue: str | None = None
    data: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))


def append(connection: AsyncConnection, rows: Sequence[Event]) -> None:
    """Have these events written, in this order, when the transaction of `begin` ends. Nobody reads them before."""
    connection.info[_COLLECTED].extend(rows)


async def put(connection: AsyncConnection) -> None:
    """Write what was appended. From here on no other transaction with events commits before this one."""
    collected: list[Event] = connection.info[_COLLECTED]
    if collected:
        parts = list(slices(collected))  # before the lock: encoding takes a while
        collected.clear()
        await ring(connection)
        await connection.execute(_LOCK, {"key": EVENTS})
        for part in parts:
            await connection.execute(_APPEND, {"rows": part})


async def ring(connection: AsyncConnection) -> None:
    """Have live views look once this transaction has committed."""
    await connection.execute(_RING, {"channel": CHANNEL})


@asynccontextmanager
async def written_last(connection: AsyncConnection) -> AsyncIterator[None]:
    """Write what the block appends, after all else that it does. An exception leaves nothing behind."""
    connection.info[_COLLECTED] = []
    yield
    await put(connection)


async def read(connection: AsyncConnection, *, after: int, count: int = 500) -> list[tuple[int, Event]]:
    """Up to `count` events with ids above `after`, oldest first, each with its id."""
    found = await connection.execute(_READ, {"after": after, "count": count})
    return [(row.id, _event(row)) for row in found]


@dataclass(frozen=True, slots=True, kw_only=True)
class EventJob:
    """The name of a job."""

    kind: str
    namespace: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EventPage:
    """Events with their ids, and the jobs that they are about by uid, while these are kept. `next`: the id to go on
    from; None = there is nothing more.
    """

    rows: tuple[tuple[int, Event], ...]
    jobs: Mapping[str, EventJob]
    next: int | None


async def newest(connection: AsyncConnection) -> int:
    """The id of the newest event, 0 before the first."""
    return int((await connection.execute(_NEWEST)).scalar_one())


async def page(
    connection: AsyncConnection,
    *,
    after: int | None = None,
    before: int | None = None,
    type: str | None = None,
    queue: str | None = None,
    uid: str | None = None,
    namespace: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    namespaces: Collection[str] | None = None,
    count: int = 100,
) -> EventPage:
    """After an id the oldest first, else the newest first. `namespaces`: whose jobs are shown, None = all.

    `namespace`: only what is about its jobs; `type`, `queue`: this one and all below it. A page may be short although
    `next` says that there is more.
    """
    edge = after if after is not None else _LAST if before is None else before
    narrow = any(given is not None for given in (type, queue, namespace, since, until, namespaces))
    values = {
        "id": min(edge, _LAST),
        "uid": uid,
        "type": type,
        "queue": queue,
        "namespace": namespace,
        "since": since,
        "until": until,
        "namespaces": None if namespaces is None else sorted(namespaces),
        "scan": max(SCAN, count + 1) if narrow else count + 1,
        "count": count + 1,
    }
    found = (await connection.execute(_PAGES[after is not None, uid is not None], values)).all()
    rows = [(row.id, _event(row)) for row in found if row.id is not None]
    jobs = {
        row.uid: EventJob(kind=row.kind, namespace=row.namespace, name=row.name) for row in found if row.name
    }
    if len(rows) > count:
        return EventPage(rows=tuple(rows[:count]), jobs=jobs, next=rows[count - 1][0])
    exhausted = found[0].rows < values["scan"]
    return EventPage(rows=tuple(rows), jobs=jobs, next=None if exhausted else found[0].last)


def _event(row: Row[Any]) -> Event:
    return Event(at=row.at.timestamp(), type=row.type, uid=row.uid, queue=row.queue, data=row.data)
