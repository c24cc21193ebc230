"""One controller decides at a time: a session advisory lock says who, an epoch row fences those who were.

The lock lives on a connection of its own, straight to PostgreSQL, which ends the session of a holder that has been
silent for a lease: a frozen process loses the lock like a dead one. Winning it raises the epoch; every write of a
controller checks its epoch in its own transaction, so a leader that lost the lock without noticing changes nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import psycopg
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from queuer.domain.errors import QueuerError, Unavailable
from queuer.store.engine import DatabaseUnavailable, check_version, conninfo, session_options
from queuer.store.locks import LEADER

_EPOCH = text("SELECT epoch FROM leader WHERE id = 1 FOR SHARE")
_LEASE = "SELECT set_config('idle_session_timeout', %s, false)"
_TAKE_OFFICE = "UPDATE leader SET epoch = epoch + 1, holder = %s, since = now() WHERE id = 1 RETURNING epoch"


class LeadershipLost(QueuerError):
    """Another controller leads. Nothing of the transaction may be committed."""

    code = "leadership_lost"


class PoolerInBetween(Unavailable):
    """The connection is not a session of its own, so that a session lock would mean nothing."""

    code = "pooler_in_between"


@dataclass(frozen=True, slots=True, kw_only=True)
class Leadership:
    """The right to decide, under one epoch. `lost` is set when the lock's connection is gone."""

    epoch: int
    holder: str
    lost: asyncio.Event = field(default_factory=asyncio.Event)


async def check_epoch(connection: AsyncConnection, epoch: int) -> None:
    """Raise LeadershipLost unless `epoch` is in office; no successor takes office before this transaction ends."""
    present = (await connection.execute(_EPOCH)).scalar_one()
    if present != epoch:
        raise LeadershipLost(f"epoch {epoch} is over, epoch {present} leads")


@asynccontextmanager
async def lead(url: str, *, holder: str, lease: float = 10.0) -> AsyncIterator[Leadership]:
    """Wait for the lock, take office, and hold it until the block ends.

    `holder`: who leads, for people. `lease`: seconds of silence after which the server gives the lock away; the
    holder speaks five times as often. Raises DatabaseUnavailable when PostgreSQL does not answer, PoolerInBetween.
    """
    session = await _connect(url, holder=holder)
    try:
        epoch = await _take_office(session, holder=holder, lease=lease)
        leadership = Leadership(epoch=epoch, holder=holder)
        watch = asyncio.create_task(_watch(session, leadership, lease=lease), name="leadership")
        try:
            yield leadership
        finally:
            watch.cancel()
            await asyncio.wait([watch])
    finally:
        await session.close()


async def _take_office(session: psycopg.AsyncConnection[Any], *, holder: str, lease: float) -> int:
    try:
        await _refuse_pooler(session)
        await session.execute("SELECT pg_advisory_lock(%s)", [LEADER])
        await session.execute(_LEASE, [f"{round(lease * 1000)}ms"])
        row = await (await session.execute(_TAKE_OFFICE, [holder])).fetchone()
    except psycopg.OperationalError as error:
        raise DatabaseUnavailable(f"PostgreSQL: {error}") from error
    if row is None:
        raise Unavailable("the leader table is empty", hint="run `queuer db upgrade`")
    return int(row[0])


async def _connect(url: str, *, holder: str) -> psycopg.AsyncConnection[Any]:
    """A direct session without statement timeout (it waits for the lock), which notices a dead peer in seconds."""
    try:
        session = await psycopg.AsyncConnection.connect(
            conninfo(url),
            autocommit=True,
            application_name=f"queuer-leader {holder}"[:63],
            connect_timeout=5,
            keepalives_idle=5,
            keepalives_interval=2,
            keepalives_count=3,
            tcp_user_timeout=10_000,
            options=session_options(lock_timeout="0", statement_timeout="0", idle_session_timeout="0"),
        )
    except psycopg.OperationalError as error:
        raise DatabaseUnavailable(f"PostgreSQL: {error}") from error
    check_version(session.info.server_version)
    return session


async def _refuse_pooler(session: psycopg.AsyncConnection[Any]) -> None:
    """A pooler makes up its own backend id for the client, and may give each transaction another backend."""
    announced = session.info.backend_pid
    for _ in range(3):
        row = await (await session.execute("SELECT pg_backend_pid()")).fetchone()
        if row is None or row[0] != announced:
            raise PoolerInBetween(
                f"a connection pooler answers at {session.info.host}:{session.info.port}: the session announced "
                f"backend {announced}, the query ran in {row[0] if row else 'none'}",
                hint="give the controller a direct URL of PostgreSQL; its leader lock belongs to one session",
            )


async def _watch(session: psycopg.AsyncConnection[Any], leadership: Leadership, *, lease: float) -> None:
    """Speak often enough, and say so when the session is gone."""
    try:
        while True:
            await asyncio.sleep(lease / 5)
            async with asyncio.timeout(lease):
                await session.execute("SELECT 1")
    except (psycopg.Error, TimeoutError):
        leadership.lost.set()
