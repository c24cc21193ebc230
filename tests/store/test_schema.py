"""Every step of the schema can be taken back, and the server knows the words of the program."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from unittest.mock import Mock

import psycopg
import pytest
from alembic.script import ScriptDirectory
from psycopg.conninfo import conninfo_to_dict
from sqlalchemy import create_engine, text
from sqlalchemy.engine import make_url
from sqlalchemy.exc import IntegrityError, ProgrammingError
from sqlalchemy.ext.asyncio import AsyncEngine
from typer.testing import CliRunner

from queuer.cli import db
from queuer.domain.assignments import SolveStatus
from queuer.domain.errors import InvalidInput, Unavailable
from queuer.domain.queue import ManagedBy, QueueState
from queuer.domain.workload import State
from queuer.store import migrate
from queuer.store.engine import PostgresTooOld, begin, check_version, conninfo, normalise_url
from queuer.store.leader import LeadershipLost, check_epoch, lead
from queuer.store.tables import (
    MIGRATION,
    CommandOutcome,
    CommandVerb,
    DraftState,
    Effect,
    EntryKind,
    EntryOutcome,
    NotAsked,
)
from tests import newer as newer_version
from tests.conftest import DatabaseServer

PRIMARY = "target_session_attrs=read-write"
_CATALOGUE = {
    "columns": """
        SELECT c.relname, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attidentity,
            pg_get_expr(d.adbin, d.adrelid)
        FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid LEFT JOIN pg_attrdef d
            ON d.adrelid = a.attrelid AND d.adnum = a.attnum
        WHERE c.relnamespace = 'public'::regnamespace AND c.relkind = 'r' AND a.attnum > 0 AND NOT a.attisdropped""",
    "constraints": """
        SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid) FROM pg_constraint
        WHERE connamespace = 'public'::regnamespace""",
    "indexes": "SELECT tablename, indexname, indexdef FROM pg_indexes WHERE schemaname = 'public'",
    "comments": """
        SELECT relname, obj_description(oid) FROM pg_class
        WHERE relnamespace = 'public'::regnamespace AND relkind = 'r'""",
}

_LIST = re.compile(r"CHECK \(\(\w+ = ANY \(ARRAY\['")
_WORDS: dict[str, type[StrEnum]] = {
    "changeset_writer": ManagedBy,
    "command_outcome": CommandOutcome,
    "command_verb": CommandVerb,
    "cycle_status": SolveStatus,
    "draft_effect": Effect,
    "draft_state": DraftState,
    "draft_writer": ManagedBy,
    "flavor_managed_by": ManagedBy,
    "heartbeat_status": SolveStatus,
    "outbox_kind": EntryKind,
    "outbox_outcome": EntryOutcome,
    "queue_managed_by": ManagedBy,
    "queue_state": QueueState,
    "topology_managed_by": ManagedBy,
    "workload_not_asked": NotAsked,
    "workload_state": State,
}


@pytest.fixture
def empty_url(database_server: DatabaseServer, request: pytest.FixtureRequest) -> Iterator[str]:
    """A database without any table."""
    name = f"queuer_empty_{abs(hash(request.node.nodeid)) % 10**10}"
    database_server.create(name, template="template0")
    yield database_server.url_of(name)
    database_server.drop(name)


def _schema(url: str) -> dict[str, list[tuple[object, ...]]]:
    engine = create_engine(url)
    with engine.connect() as connection:
        found = {
            what: sorted((tuple(row) for row in connection.execute(text(query))), key=repr)
            for what, query in _CATALOGUE.items()
        }
    engine.dispose()
    return {what: [row for row in rows if "alembic_version" not in row] for what, rows in found.items()}


def test_the_server_takes_the_words_of_the_program_and_no_others(database_url: str) -> None:
    """A new word without its migration would end the first transaction that writes it."""
    checks = {name: str(said) for _, name, said in _schema(database_url)["constraints"]}
    words = {
        name: set(re.findall(r"'(.+?)'::text", said)) for name, said in checks.items() if _LIST.match(said)
    }
    assert words == {f"ck_{column}": set(kind) for column, kind in _WORDS.items()}


def test_stairway(empty_url: str) -> None:
    """Each migration goes up, down to the schema before it, and up again to the same schema."""
    steps = [script.revision for script in reversed(list(_scripts().walk_revisions()))]
    below = "base"
    for step in steps:
        before = _schema(empty_url)
        migrate.upgrade(empty_url, step)
        after = _schema(empty_url)
        migrate.downgrade(empty_url, below)
        assert _schema(empty_url) == before
        migrate.upgrade(empty_url, step)
        assert _schema(empty_url) == after
        below = step
    assert migrate.current(empty_url) == migrate.head()


def _scripts() -> ScriptDirectory:
    return ScriptDirectory(str(migrate.scripts()))


@pytest.mark.parametrize("newer_schema", ["0002", "9999"])
def test_behind_and_ahead_are_said(empty_url: str, newer_schema: str) -> None:
    """A database that is behind names the command. One that is ahead names the cure, and none that deletes data."""
    with pytest.raises(migrate.SchemaMismatchError, match="run `queuer db upgrade`"):
        migrate.check(empty_url)
    migrate.upgrade(empty_url)
    migrate.check(empty_url)
    _pretend(empty_url, newer_schema)
    for verb in (migrate.check, migrate.upgrade):
        with pytest.raises(migrate.SchemaMismatchError, match="which this version does not know") as caught:
            verb(empty_url)
        assert caught.value.hint == (
            "this program is older than the schema: install the version that made it, or restore the backup from before"
        )


def test_a_role_that_may_not_create_tables_is_told_the_grant(
    database_server: DatabaseServer, empty_url: str
) -> None:
    """PostgreSQL 15 lets the owner of a database alone create in `public`."""
    guest = make_url(empty_url).set(username="guest", password="guest").render_as_string(hide_password=False)
    with psycopg.connect(conninfo(empty_url), autocommit=True) as connection:
        connection.execute("CREATE ROLE guest LOGIN PASSWORD 'guest'")
        try:
            with pytest.raises(Unavailable, match="permission denied for schema public") as caught:
                migrate.upgrade(guest)
        finally:
            connection.execute("DROP ROLE guest")
    assert 'GRANT CREATE ON SCHEMA public TO "guest"' in caught.value.hint


def _pretend(url: str, revision: str) -> None:
    engine = create_engine(url)
    with engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = :at"), {"at": revision})
    engine.dispose()


def test_replicas_that_start_together_migrate_once(empty_url: str) -> None:
    """Three upgrades at once: one works, the others wait and find nothing to do."""
    command = [sys.executable, "-m", "queuer", "db", "upgrade", "--database-url", empty_url]
    replicas = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    outputs = [replica.communicate(timeout=120)[0] for replica in replicas]
    assert [replica.returncode for replica in replicas] == [0, 0, 0], outputs
    migrate.check(empty_url)


def test_queuer_db(empty_url: str) -> None:
    """The command line upgrades, reports and checks."""
    runner = CliRunner()
    outputs = [
        runner.invoke(db.app, [verb, "--database-url", empty_url]).stdout.strip()
        for verb in ("current", "upgrade", "upgrade", "current", "check")
    ]
    head = migrate.head()
    assert outputs == ["none", f"schema none -> {head}", f"schema {head}, as before", head, f"schema {head}"]


def test_scripts_name_one_head() -> None:
    """Two heads would make the order of migrations a matter of luck."""
    assert len(_scripts().get_heads()) == 1


async def test_words_are_checked_by_the_server(engine: AsyncEngine) -> None:
    """A state or status that nobody knows cannot be stored, whoever writes it."""
    wrong = (
        "INSERT INTO queue (path, parent_id, weight, state, policy, namespaces, managed_by, revision) "
        "SELECT 'root.a', id, 1, 'opn', '{}', '{}', 'api', 1 FROM queue",
        "INSERT INTO queue (path, parent_id, weight, state, policy, namespaces, managed_by, revision) "
        "SELECT 'root.a', id, 0, 'open', '{}', '{}', 'api', 1 FROM queue",
        "INSERT INTO ledger (uid, attempt, queue, pod_set, flavor, count, amounts, opened, closed) "
        "VALUES ('w', 1, 'root.a', 'main', 'f', 1, '{}', now(), now() - interval '1 s')",
        "INSERT INTO cycle (id, epoch, started_at, finished_at, trigger, status, admitted, evicted, waiting) "
        "VALUES (1, 1, now(), now(), 't', 'UNKNOWN', 0, 0, 0)",
        "INSERT INTO leader (id) VALUES (2)",
    )
    for statement in wrong:
        with pytest.raises(IntegrityError):
            async with begin(engine) as connection:
                await connection.execute(text(statement))


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ("postgres://u:p@h/d", "postgresql+psycopg://u:p@h/d"),
        ("postgresql://u@h:1/d?sslmode=require", "postgresql+psycopg://u@h:1/d?sslmode=require"),
        ("postgresql+asyncpg://h/d", "postgresql+psycopg://h/d"),
        (" postgresql+psycopg://h/d ", "postgresql+psycopg://h/d"),
        ("postgres://u:p@a,b:2/d?x=1", f"postgresql+psycopg://u:p@/d?host=a,b&port=5432,2&x=1&{PRIMARY}"),
        (
            "postgres://u:p,q@[::1]:2,[fd00::2]",
            f"postgresql+psycopg://u:p,q@/?host=::1,fd00::2&port=2,5432&{PRIMARY}",
        ),
        (
            "postgres://h,i/d?target_session_attrs=any",
            "postgresql+psycopg:///d?host=h,i&port=5432,5432&target_session_attrs=any",
        ),
        ("postgres://u@/d?host=a&host=b", f"postgresql+psycopg://u@/d?host=a&host=b&{PRIMARY}"),
        ("postgres://u:p,q@h/d", "postgresql+psycopg://u:p,q@h/d"),
    ],
)
def test_url_forms(given: str, wanted: str) -> None:
    """The forms that platforms hand out become the one driver's form."""
    assert normalise_url(given) == wanted


def test_what_is_no_url_of_postgresql() -> None:
    """Another database is refused by name of the setting, and the text is not repeated: it may hold a password."""
    with pytest.raises(InvalidInput, match="QUEUER_DATABASE_URL: not a PostgreSQL URL") as caught:
        normalise_url("mysql://root:secret@h/d")
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://u:s3@cret@h/d",
        "postgresql://u:s3cret@h:no/d",
        "postgresql://u:s3@c,cret@h/d",
        "postgresql://u:s3cret@h:no,b/d",
    ],
)
def test_a_url_that_cannot_be_read_is_not_repeated(url: str) -> None:
    """The part behind an @ in a password would be taken for the host and told in the log."""
    with pytest.raises(InvalidInput, match="%40") as caught:
        normalise_url(url)
    assert "cret" not in str(caught.value)


@pytest.mark.parametrize("query", ["port=7000", "host=c"])
def test_hosts_and_ports_that_do_not_match_are_refused_by_name_of_the_setting(query: str) -> None:
    with pytest.raises(InvalidInput, match="QUEUER_DATABASE_URL: its hosts and ports do not match") as caught:
        normalise_url(f"postgresql://u:s3cret@a,b/d?{query}")
    assert "cret" not in str(caught.value)


@pytest.mark.parametrize("password", ["s3cret%ss", "a b", "%41", "x/y?z", "p:q", "+#é"])
def test_the_leader_and_the_pool_read_one_password(password: str) -> None:
    url = f"postgres://u:{password}@h:1/d?sslmode=require"
    pool = make_url(normalise_url(url))
    libpq = conninfo_to_dict(conninfo(url))
    assert (libpq["user"], libpq["password"]) == (pool.username, pool.password)
    assert (libpq["host"], libpq["port"], libpq["sslmode"]) == ("h", "1", "require")


def test_old_servers_are_refused() -> None:
    """PostgreSQL 14 lacks what the schema uses; the sentence says so."""
    check_version(150_000)
    with pytest.raises(PostgresTooOld, match="14 is too old"):
        check_version(140_013)


@pytest.fixture
def newer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """This program knows one more migration, which adds a column to the largest table; its revision."""
    folder = newer_version.write(tmp_path / "migrations")
    monkeypatch.setattr(migrate, "scripts", lambda: folder)
    return newer_version.REVISION


async def test_a_migration_ends_the_term(database_url: str, newer: str, engine: AsyncEngine) -> None:
    """M1: a leader of the older version writes nothing more, and finds the schema changed."""
    async with lead(database_url, holder="older") as leadership:
        own = leadership.engine_of(engine)
        async with begin(own) as connection:
            await check_epoch(connection, leadership.epoch)
        await asyncio.to_thread(migrate.upgrade, database_url)
        with pytest.raises(LeadershipLost):
            async with begin(own) as connection:
                await check_epoch(connection, leadership.epoch)
    assert migrate.current(database_url) == newer


async def test_a_right_that_is_missing_is_told_as_such_and_not_as_a_schema_that_is_missing(
    engine: AsyncEngine,
) -> None:
    async def check(setting: str) -> None:
        async with begin(engine) as connection:
            await connection.execute(text(f"SET LOCAL {setting}"))
            await migrate.check_in(connection, keep=True)

    with pytest.raises(ProgrammingError, match="permission denied for table alembic_version"):
        await check("ROLE pg_read_all_data")
    with pytest.raises(migrate.SchemaMismatchError, match="at schema none"):
        await check("search_path TO pg_temp")


def test_a_migration_waits_a_little_for_a_table_and_is_tried_again(
    database_url: str, newer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """M2: whoever came after it goes on in between; somebody who never lets go is named."""
    monkeypatch.setattr(migrate, "LOCK_TIMEOUT", 0.3)
    monkeypatch.setattr(migrate, "PATIENCE", 0.0)
    engine = create_engine(database_url)
    with engine.connect() as reader:
        reader.execute(text("SELECT FROM event"))
        with pytest.raises(migrate.TableLocked, match="locked for more than"):
            migrate.upgrade(database_url)
        monkeypatch.setattr(migrate, "PATIENCE", 60.0)
        between = Mock(side_effect=lambda _: reader.rollback())  # two tries: the reader lets go
        monkeypatch.setattr(time, "sleep", between)
        migrate.upgrade(database_url)
        between.assert_called_once()
    engine.dispose()
    assert migrate.current(database_url) == newer


def test_a_migration_waits_for_another_however_long_that_takes(
    database_url: str, newer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An index that is built concurrently for minutes is no locked table, and waits for nobody who waits for it."""
    monkeypatch.setattr(migrate, "LOCK_TIMEOUT", 0.3)
    monkeypatch.setattr(migrate, "PATIENCE", 0.0)
    engine = create_engine(database_url, isolation_level="AUTOCOMMIT")
    with engine.connect() as other:
        other.execute(text("SELECT pg_advisory_lock(:key)"), {"key": MIGRATION})
        works = [
            lambda: other.execute(text("CREATE INDEX CONCURRENTLY many ON event (at)")),
            lambda: other.execute(text("DROP INDEX many")),
            lambda: other.execute(text("SELECT pg_advisory_unlock(:key)"), {"key": MIGRATION}),
        ]
        monkeypatch.setattr(time, "sleep", lambda _: works.pop(0)())
        migrate.upgrade(database_url)
    engine.dispose()
    assert (migrate.current(database_url), works) == (newer, [])
