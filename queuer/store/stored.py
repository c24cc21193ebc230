"""The newest decision as it was asked and answered: written by the leader, read by whoever explains it.

The store keeps the bytes and does not look into them.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from queuer.store.codec import instant, record_of
from queuer.store.events import ring
from queuer.store.leader import check_epoch

_PUT = text("""
    INSERT INTO stored_cycle (id, cycle, at, seed, body) VALUES (1, :cycle, :at, :seed, :body)
    ON CONFLICT (id) DO UPDATE SET cycle = excluded.cycle, at = excluded.at, seed = excluded.seed,
        body = excluded.body
""")
_NEWEST = text("SELECT cycle, at, seed, body FROM stored_cycle WHERE id = 1")
_NUMBER = text("SELECT cycle FROM stored_cycle WHERE id = 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRow:
    """A decision. `cycle`: its number; `at`: the moment that it is about, in seconds; `body`: a `StoredCycle`, encoded
    by `queuer.solver.stored`.
    """

    cycle: int
    at: float
    seed: int
    body: bytes


async def put(connection: AsyncConnection, epoch: int, row: StoredRow) -> None:
    """Put this decision in the place of the last one. Raises LeadershipLost."""
    await check_epoch(connection, epoch)
    values = {"cycle": row.cycle, "at": instant(row.at), "seed": row.seed, "body": row.body}
    await connection.execute(_PUT, values)
    await ring(connection)


async def newest(connection: AsyncConnection) -> StoredRow | None:
    """The decision that is kept; None before the first."""
    row = (await connection.execute(_NEWEST)).one_or_none()
    return None if row is None else record_of(StoredRow, row)


async def newest_number(connection: AsyncConnection) -> int | None:
    """Its number alone, for who has read it before and may have its body still."""
    return (await connection.execute(_NUMBER)).scalar_one_or_none()
