"""How to reach PostgreSQL: one URL form, one way to make an engine, one floor version.

Sessions carry timeouts, so that neither a lock nor a forgotten transaction can stop a decision for long.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from psycopg.conninfo import make_conninfo
from sqlalchemy import event, exc
from sqlalchemy.engine import URL, make_url
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine
from sqlalchemy.pool import NullPool

from queuer.domain.errors import InvalidInput, Unavailable
from queuer.domain.variables import OLDEST_POSTGRES
from queuer.store import events
from queuer.store.codec import to_json

_SCHEME = re.compile(r"^postgres(ql)?(\+\w+)?://")
_SEVERAL = re.compile(
    r"(?P<before>[^:]+://(?:[^@]*@)?)(?P<hosts>[^@/?]+,[^@/?]+)(?P<path>/[^?@]*)?(?:\?(?P<query>[^@]*))?"
)
_HOST = re.compile(r"(?P<name>[\w.-]+|\[[\da-fA-F:.]+\])(?::(?P<port>\d+))?")
"""One of several hosts: a name or an IPv6 address in brackets, and a port."""
_PRIMARY = "target_session_attrs"
_SESSION = {
    "lock_timeout": "2s",
    "statement_timeout": "15s",
    "idle_in_transaction_session_timeout": "30s",
    "timezone": "UTC",
    # Batches look up their rows by key. Right after a table was emptied or filled its statistics would have the
    # planner scan it once per row instead, checks of foreign keys included. Tables without a fit index are
    # scanned all the same, but at a nominal cost that must not set off compilation.
    "enable_seqscan": "off",
    "jit": "off",
}
_AWAY = ("08", "40", "53", "57", "25006", "25P03", "55P03")
"""SQLSTATEs, or their classes, of a server that serves nobody: connection, rollback, resources, operator, read-only
transaction, idle for too long, lock not available. Others that psycopg calls OperationalError are about one value.
"""


class DatabaseUnavailable(Unavailable):
    """PostgreSQL does not answer, takes no writes, or the connection broke in the middle."""

    code = "database_unavailable"


class PostgresTooOld(Unavailable):
    """The server is older than what the schema needs."""

    code = "postgres_too_old"


def normalise_url(text: str) -> str:
    """`postgres://`, `postgresql://` and other drivers' forms as `postgresql+psycopg://`. Several hosts, which libpq
    takes in their usual place, become parameters, as SQLAlchemy wants them. Among several hosts the one that takes
    writes is chosen, unless the URL says otherwise.

    Raises InvalidInput, which does not repeat the text: it may hold a password.
    """
    found = _several_hosts(_SCHEME.sub("postgresql+psycopg://", text.strip(), count=1))
    try:
        read = make_url(found) if _SCHEME.match(text.strip()) else None
    except (exc.ArgumentError, ValueError):
        read = None
    if read is None or "@" in (read.host or ""):
        hint = "write postgresql://user:password@host:5432/database, and @ in a password as %40"
        raise _invalid("not a PostgreSQL URL", hint)
    several = "," in _connect_arguments(read).get("host", "")
    return f"{found}&{_PRIMARY}=read-write" if several and _PRIMARY not in read.query else found


def _invalid(message: str, hint: str) -> InvalidInput:
    return InvalidInput.at("QUEUER_DATABASE_URL", message, hint)


def _connect_arguments(url: URL) -> dict[str, Any]:
    """The arguments that SQLAlchemy hands to psycopg. Raises InvalidInput, which does not repeat the URL."""
    try:
        _, arguments = url.get_dialect()().create_connect_args(url)
    except exc.ArgumentError:
        hint = "name each host with its port, in one place: postgresql://user:password@db1:5432,db2:5432/database"
        raise _invalid("its hosts and ports do not match", hint) from None
    return dict(arguments)


def _several_hosts(url: str) -> str:
    several = _SEVERAL.fullmatch(url)
    hosts = [_HOST.fullmatch(host) for host in several["hosts"].split(",")] if several else []
    read = [(host["name"].strip("[]"), host["port"] or "5432") for host in hosts if host is not None]
    if several is None or len(read) < len(hosts):
        return url
    names, ports = map(",".join, zip(*read, strict=True))
    query = f"host={names}&port={ports}" + (f"&{several['query']}" if several["query"] else "")
    return f"{several['before']}{several['path'] or '/'}?{query}"


def conninfo(url: str) -> str:
    """The libpq form of a database URL, as SQLAlchemy reads it for the pool. libpq refuses a bare `%`, and repeats the
    password that it refuses.
    """
    return make_conninfo(**_connect_arguments(make_url(normalise_url(url))))


def session_options(**overrides: str) -> str:
    """libpq `options` that set the session's timeouts; `overrides` by setting name."""
    return " ".join(f"-c {name}={value}" for name, value in (_SESSION | overrides).items())


def make_engine(url: str, *, name: str, pool_size: int = 5) -> AsyncEngine:
    """An engine whose sessions are called `name` in pg_stat_activity. `pool_size` 0: each use has a session of its own.

    The first connection refuses a server older than OLDEST_POSTGRES.
    """
    kept = {"pool_size": pool_size, "max_overflow": pool_size, "pool_timeout": 10, "pool_pre_ping": True}
    pool: dict[str, Any] = kept if pool_size else {"poolclass": NullPool}
    engine = create_async_engine(
        make_url(normalise_url(url)),
        **pool,
        json_serializer=to_json,
        json_deserializer=msgspec.json.decode,
        connect_args={
            "application_name": name,
            "connect_timeout": 5,
            "options": session_options(),
            "keepalives_idle": 5,
            "keepalives_interval": 2,
            "keepalives_count": 3,
        },
    )
    event.listen(engine.sync_engine, "connect", _refuse_old)
    return engine


@asynccontextmanager
async def begin(engine: AsyncEngine) -> AsyncIterator[AsyncConnection]:
    """One transaction: committed at the end, rolled back by an exception. Raises DatabaseUnavailable where PostgreSQL
    takes no transaction from anybody, judged by SQLSTATE.

    Events that were appended inside are written last. A task that is cancelled ends as cancelled, also where its
    rollback fails: else it would go on, and whoever waits for its end would wait for ever.
    """
    try:
        async with engine.begin() as connection, events.written_last(connection):
            yield connection
    except exc.SQLAlchemyError as error:
        if (task := asyncio.current_task()) is not None and task.cancelling():
            raise asyncio.CancelledError from error
        if _nobody_is_served(error):
            raise _unavailable(error) from error
        raise


def sqlstate(error: BaseException) -> str | None:
    """The SQLSTATE that PostgreSQL gave for this error; None where it gave none."""
    return getattr(getattr(error, "orig", error), "sqlstate", None)


def unreachable_hint(said: str) -> str:
    """The cure for a connection that was not made, from libpq's words."""
    if "does not match host name" in said:
        return "write a name of the server's certificate into QUEUER_DATABASE_URL; sslmode=verify-full compares them"
    if "certificate" in said:
        return "give the authority that signed the server's certificate: sslrootcert, PGSSLROOTCERT or `database.ca`"
    return "check QUEUER_DATABASE_URL and the server"


def _nobody_is_served(error: exc.SQLAlchemyError) -> bool:
    """Whether the server or the session is at fault, and not what the transaction said."""
    state = sqlstate(error)
    if state is None:
        return isinstance(error, exc.OperationalError | exc.InterfaceError | exc.TimeoutError)
    return state.startswith(_AWAY)


def _unavailable(error: exc.SQLAlchemyError) -> DatabaseUnavailable:
    origin = getattr(error, "orig", None) or error
    lines = str(origin).strip().splitlines()
    return DatabaseUnavailable(f"PostgreSQL: {lines[0] if lines else type(origin).__name__}")


def _refuse_old(connection: Any, _record: object) -> None:
    check_version(connection.driver_connection.info.server_version)


def check_version(number: int) -> None:
    """Raise PostgresTooOld unless `number` (libpq's form, 150018 = 15.18) is new enough."""
    if number < OLDEST_POSTGRES * 10_000:
        raise PostgresTooOld(
            f"PostgreSQL {number // 10_000} is too old, {OLDEST_POSTGRES} or newer is needed",
            hint="point QUEUER_DATABASE_URL to a newer server",
        )
