"""Brings a database to the schema this program was written for, and says when it is not there.

The scripts are in `migrations/` at the top of the tree and travel in the wheel. A migration ends the present term of
office: a leader of another version writes nothing more. Calls are synchronous, but for `check_in`: run them before the
event loop or in a thread.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import cache
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import create_engine, exc, text
from sqlalchemy.engine import Connection
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

import queuer
from queuer.domain.errors import QueuerError, Unavailable
from queuer.store.engine import (
    DatabaseUnavailable,
    begin,
    check_version,
    normalise_url,
    sqlstate,
    unreachable_hint,
)

LOCK_TIMEOUT = 5.0
"""Seconds for which a migration waits for a table; everybody else waits behind it meanwhile."""
PATIENCE = 60.0
"""Seconds in which a migration that met a lock is tried again."""
_PAUSE = 1.0
_UNDEFINED_TABLE = "42P01"
_LOCKED = frozenset({"55P03", "40P01"})
_FORBIDDEN = "42501"
_AT = text("SELECT version_num FROM alembic_version")
_KEEP = text("SELECT version_num FROM alembic_version FOR SHARE")


class SchemaMismatchError(QueuerError):
    """The database is not at the revision that this program needs."""

    code = "schema_mismatch"


class TableLocked(Unavailable):
    """A migration did not get a table in time."""


def scripts() -> Path:
    """The folder of migration scripts: inside the installed package, else beside it in the source tree."""
    package = Path(queuer.__file__).parent
    for folder in (package / "_data" / "migrations", package.parent / "migrations"):
        if (folder / "env.py").is_file():
            return folder
    raise Unavailable("the migration scripts are not installed", hint="install queuer from its wheel")


def upgrade(url: str, revision: str = "head") -> None:
    """Apply what is missing. Safe to call at once from several processes: one migrates, the others wait.

    Raises SchemaMismatchError where no migration leads from the database's schema to this version's, and TableLocked
    where somebody holds a table for longer than PATIENCE. Where the role of `url` may not do it, it raises
    Unavailable.
    """
    _refuse_unknown(current(url))
    _run(url, lambda config: command.upgrade(config, revision))


def downgrade(url: str, revision: str) -> None:
    """Go back to `revision` (`base` = an empty database). Data of what is dropped is lost."""
    _run(url, lambda config: command.downgrade(config, revision))


def current(url: str) -> str | None:
    """The revision that the database is at; None for one that was never migrated."""
    with _connected(url) as connection:
        return MigrationContext.configure(connection).get_current_revision()


def server_time(url: str) -> float:
    """The database's clock, epoch seconds. Call it where `check` finds nothing wrong."""
    with _connected(url) as connection:
        return float(connection.scalar(text("SELECT extract(epoch FROM clock_timestamp())")))


def head() -> str:
    """The revision that this program needs."""
    return _revisions(scripts())[0]


@cache
def _revisions(folder: Path) -> tuple[str, ...]:
    """The revisions that this program knows, the newest first."""
    found = tuple(script.revision for script in ScriptDirectory(str(folder)).walk_revisions())
    if not found:
        raise Unavailable("there is no migration script", hint=f"look into {folder}")
    return found


def check(url: str) -> None:
    """Raise SchemaMismatchError unless the database is at `head()`."""
    _judge(current(url))


async def check_in(connection: AsyncConnection, *, keep: bool = False) -> None:
    """The same in a transaction: one small read. `keep`: no migration ends before the transaction does, which takes the
    right to UPDATE the table of the revision.
    """
    try:
        at = (await connection.execute(_KEEP if keep else _AT)).scalar()
    except exc.ProgrammingError as error:
        if sqlstate(error) != _UNDEFINED_TABLE:
            raise
        at = None
    _judge(at)


@asynccontextmanager
async def writing(engine: AsyncEngine) -> AsyncIterator[AsyncConnection]:
    """One transaction as `begin` makes it, for who writes without leading. Raises SchemaMismatchError, too."""
    async with begin(engine) as connection:
        await check_in(connection, keep=True)
        yield connection


def _judge(at: str | None) -> None:
    if at == head():
        return
    _refuse_unknown(at)
    raise SchemaMismatchError(
        f"the database is at schema {at or 'none'}, this version needs {head()}",
        hint="run `queuer db upgrade`",
    )


def _refuse_unknown(at: str | None) -> None:
    needed = head()
    if at is None or at in _revisions(scripts()):
        return
    raise SchemaMismatchError(
        f"the database is at schema {at}, which this version does not know; it needs {needed}",
        hint="this program is older than the schema: install the version that made it, "
        "or restore the backup from before",
    )


def _run(url: str, step: Callable[[Config], None]) -> None:
    """Take a step, and again where a table was locked: what waits behind the migration goes on in between."""
    end = time.monotonic() + PATIENCE
    while True:
        try:
            return _try(url, step)
        except TableLocked:
            if time.monotonic() > end:
                raise
        time.sleep(_PAUSE)


def _try(url: str, step: Callable[[Config], None]) -> None:
    with _connected(url) as connection:
        check_version(_server_version(connection))
        config = _config()
        config.attributes["connection"] = connection
        try:
            step(config)
        except exc.ProgrammingError as error:
            if sqlstate(error) != _FORBIDDEN:
                raise
            raise _forbidden(error, connection.engine.url.username) from error


def _forbidden(error: exc.ProgrammingError, role: str | None) -> Unavailable:
    """The role of the URL may not change the schema: since PostgreSQL 15 not everybody creates in `public`."""
    who = "ROLE" if role is None else f'"{role}"'
    return Unavailable(
        f"PostgreSQL: {str(error.orig).strip().splitlines()[0]}",
        hint=f"make {who} the owner of the database and its tables, or as its owner: "
        f"GRANT CREATE ON SCHEMA public TO {who}",
    )


@contextmanager
def _connected(url: str) -> Iterator[Connection]:
    """A connection of its own. Raises DatabaseUnavailable where the server does not answer."""
    arguments = {"application_name": "queuer-migrate", "connect_timeout": 5}
    engine = create_engine(normalise_url(url), connect_args=arguments)
    try:
        with engine.connect() as connection:
            yield connection
    except exc.OperationalError as error:
        if getattr(error.orig, "sqlstate", None) in _LOCKED:
            raise TableLocked(
                f"a table was locked for more than {PATIENCE:.0f} s",
                hint="end the transaction that holds it: see pg_stat_activity and pg_locks; then try again",
            ) from error
        said = str(error.orig).strip().splitlines()[0]
        raise DatabaseUnavailable(f"PostgreSQL: {said}", hint=unreachable_hint(said)) from error
    finally:
        engine.dispose()


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(scripts()).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config


def _server_version(connection: Connection) -> int:
    version: int = connection.connection.driver_connection.info.server_version  # type: ignore[union-attr]
    return version
