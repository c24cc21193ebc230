"""What happened, numbered so that a reader can resume: a greater id was committed later.

Sequences alone do not give that: of two transactions the one with the smaller number may commit last. So the ids are
taken under an advisory lock that the transaction keeps until it has committed. Whoever else has events waits
meanwhile; therefore `append` only collects, and `begin` writes what was collected as the transaction's last statement.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from queuer.store.codec import slices
from queuer.store.locks import EVENTS

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


@asynccontextmanager
async def written_last(connection: AsyncConnection) -> AsyncIterator[None]:
    """Write what the block appends, after all else that it does. An exception leaves nothing behind."""
    collected: list[Event] = []
    connection.info[_COLLECTED] = collected
    yield
    if collected:
        parts = list(slices(collected))  # before the lock: encoding takes a while
        await connection.execute(_RING, {"channel": CHANNEL})
        await connection.execute(_LOCK, {"key": EVENTS})
        for part in parts:
            await connection.execute(_APPEND, {"rows": part})


async def read(connection: AsyncConnection, *, after: int, count: int = 500) -> list[tuple[int, Event]]:
    """Up to `count` events with ids above `after`, oldest first, each with its id."""
    found = await connection.execute(_READ, {"after": after, "count": count})
    return [
        (
            row.id,
            Event(at=row.at.timestamp(), type=row.type, uid=row.uid, queue=row.queue, data=row.data),
        )
        for row in found
    ]
