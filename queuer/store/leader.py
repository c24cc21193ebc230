"""One controller decides at a time: a session advisory lock says who, an epoch row fences those who were.

The lock lives on a connection of its own, straight to PostgreSQL. The server ends the session of a holder
that has been silent for a lease. So a frozen process loses the lock like a dead one. A thread of its own
speaks for it, so that an event
loop that is busy keeps it. Winning it raises the epoch and draws a term id. Every write of a controller checks both in
its own transaction, so a leader that lost the lock without noticing changes nothing. An epoch repeats after a failover
to older data or a restore, a term id never does.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import psycopg
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from queuer.domain.errors import QueuerError, Unavailable
from queuer.store.codec import record_of
from queuer.store.engine import DatabaseUnavailable, check_version, conninfo, session_options
from queuer.store.tables import LEADER

_EPOCH = text("SELECT epoch, term FROM leader WHERE id = 1 FOR SHARE")
_OFFICE = text(f"""
    SELECT epoch, extract(epoch FROM since)::float8 AS since, EXISTS (
        SELECT FROM pg_locks WHERE locktype = 'advisory' AND granted AND objsubid = 1
            AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
            AND classid = {LEADER >> 32} AND objid = {LEADER & 0xFFFFFFFF}
    ) AS held FROM leader WHERE id = 1
""")
_LEASE = "SELECT set_config('idle_session_timeout', %s, false)"
_TRY = "SELECT pg_try_advisory_lock(%s)"
_TAKE_OFFICE = """
    UPDATE leader SET epoch = epoch + 1, term = gen_random_uuid(), holder = %s, since = now() WHERE id = 1
    RETURNING epoch, term
"""
_ASK = 0.25
"""Seconds between two tries for the lock. A wait inside the server could not be called off."""
_LEAVE = 10.0
"""Seconds that the end of a leadership waits for its thread at most."""


class LeadershipLost(QueuerError):
    """Another controller leads. Nothing of the transaction may be committed."""

    code = "leadership_lost"


class PoolerInBetween(Unavailable):
    """The connection is not a session of its own, so that a session lock would mean nothing."""

    code = "pooler_in_between"


@dataclass(frozen=True, slots=True, kw_only=True)
class Leadership:
    """The right to decide, under one epoch. `term`: its id. `lost` is set when the lock is gone or given up."""

    epoch: int
    term: UUID | None = None
    holder: str
    lost: asyncio.Event = field(default_factory=asyncio.Event)

    def engine_of(self, engine: AsyncEngine) -> AsyncEngine:
        """An engine on the same connections, whose transactions `check_epoch` takes for those of this term."""
        return engine.execution_options(term=self.term)


@dataclass(frozen=True, slots=True, kw_only=True)
class Office:
    """The last term that was begun, for readers. `since`: in seconds, None before the first; `held`: whether somebody
    holds the lock. PostgreSQL takes it from a process that is killed at once, from one that is silent after a lease.
    """

    epoch: int
    since: float | None
    held: bool


async def office(connection: AsyncConnection) -> Office:
    """The last term that was begun, whatever became of it."""
    return record_of(Office, (await connection.execute(_OFFICE)).one())


async def check_epoch(connection: AsyncConnection, epoch: int) -> None:
    """Raise LeadershipLost unless `epoch` and the engine's term are in office; no successor takes office before this
    transaction ends.
    """
    present = (await connection.execute(_EPOCH)).one()
    if present.epoch != epoch:
        raise LeadershipLost(f"epoch {epoch} is over, epoch {present.epoch} leads")
    if present.term != connection.sync_engine.get_execution_options().get("term"):
        raise LeadershipLost(f"epoch {epoch} is over, another term leads under the same epoch")


@asynccontextmanager
async def lead(
    url: str, *, holder: str, lease: float = 10.0, alive: Callable[[], bool] = lambda: True
) -> AsyncIterator[Leadership]:
    """Wait for the lock, take office, and hold it until the block ends.

    `holder`: who leads, for people. `lease`: seconds of silence after which the server gives the lock away; the
    holder speaks five times as often. `alive`: asked as often, in another thread; where it says no the lock is given
    up. Raises DatabaseUnavailable when PostgreSQL does not answer, PoolerInBetween.
    """
    keeper = _Keeper(url, holder=holder, lease=lease, alive=alive)
    thread = threading.Thread(target=keeper.run, name="leadership", daemon=True)
    thread.start()
    try:
        leadership = await keeper.office
        watch = asyncio.create_task(keeper.watch(leadership), name="leadership")
        try:
            yield leadership
        finally:
            watch.cancel()
            await asyncio.wait([watch])
    finally:
        keeper.done.set()
        await asyncio.to_thread(thread.join, _LEAVE)


class _Keeper:
    """Keeps the lock in a thread. `office`: the leadership once it is won, or why it cannot be."""

    def __init__(self, url: str, *, holder: str, lease: float, alive: Callable[[], bool]) -> None:
        self._url, self._holder, self._lease, self._alive = url, holder, lease, alive
        self._loop = asyncio.get_running_loop()
        self._lost = asyncio.Event()
        self._spoke = time.monotonic()
        self.office: asyncio.Future[Leadership] = self._loop.create_future()
        self.done = threading.Event()

    def run(self) -> None:
        """Take the lock and keep it until `done`, in a thread. The loop is told of faults."""
        try:
            with _connect(self._url, holder=self._holder) as session:
                if (won := self._take_office(session)) is not None:
                    self._tell(self._won, *won)
                    self._speak(session)
        except psycopg.Error as error:
            self._tell(self._failed, DatabaseUnavailable(f"PostgreSQL: {error}"))
        except QueuerError as error:
            self._tell(self._failed, error)
        finally:
            self._tell(
                self._failed, DatabaseUnavailable("the thread that waits for the leader lock has ended")
            )
            self._tell(self._lost.set)

    async def watch(self, leadership: Leadership) -> None:
        """Say that it is lost where the server does not answer the thread."""
        while (left := self._spoke + 2 * self._lease - time.monotonic()) > 0:  # noqa: ASYNC110
            await asyncio.sleep(left)
        leadership.lost.set()

    def _take_office(self, session: psycopg.Connection[Any]) -> tuple[int, UUID] | None:
        """Wait for the lock; the epoch and the term that it gives, None where it is wanted no more."""
        _refuse_pooler(session)
        while not _value(session, _TRY, LEADER):
            if self.done.wait(_ASK):
                return None
        session.execute(_LEASE, [f"{round(self._lease * 1000)}ms"])
        won = session.execute(_TAKE_OFFICE, [self._holder]).fetchone()
        if won is None:
            raise Unavailable("the leader table is empty", hint="run `queuer db upgrade`")
        return won[0], won[1]

    def _speak(self, session: psycopg.Connection[Any]) -> None:
        while self._alive():
            session.execute("SELECT 1")
            self._spoke = time.monotonic()
            if self.done.wait(self._lease / 5):
                return

    def _tell(self, what: Callable[..., None], *about: Any) -> None:
        with suppress(RuntimeError):  # the loop is closed: nobody is left to be told
            self._loop.call_soon_threadsafe(what, *about)

    def _won(self, epoch: int, term: UUID) -> None:
        self._spoke = time.monotonic()
        if not self.office.done():
            self.office.set_result(Leadership(epoch=epoch, term=term, holder=self._holder, lost=self._lost))

    def _failed(self, error: Exception) -> None:
        if not self.office.done():
            self.office.set_exception(error)


def _value(session: psycopg.Connection[Any], query: str, *values: object) -> Any:
    row = session.execute(query, values).fetchone()
    return None if row is None else row[0]


def _connect(url: str, *, holder: str) -> psycopg.Connection[Any]:
    """A direct session without statement timeout, which notices a dead peer in seconds."""
    session = psycopg.connect(
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
    check_version(session.info.server_version)
    return session


def _refuse_pooler(session: psycopg.Connection[Any]) -> None:
    """A pooler makes up its own backend id for the client, and may give each transaction another backend."""
    announced = session.info.backend_pid
    for _ in range(3):
        found = _value(session, "SELECT pg_backend_pid()")
        if found != announced:
            raise PoolerInBetween(
                f"a connection pooler answers at {session.info.host}:{session.info.port}: the session announced "
                f"backend {announced}, the query ran in {found}",
                hint="give the controller a direct URL of PostgreSQL; its leader lock belongs to one session",
            )
