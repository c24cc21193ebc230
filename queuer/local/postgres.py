"""Starts a private PostgreSQL on loopback, so that tests and `queuer local` need no database of their own.

Its directory holds everything: `data/`, `log`, `password`, and the `port`, which is kept from start to start so that
URLs stay valid. A server that somebody else started is never touched.
"""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import psycopg
from psycopg import sql

from queuer.local.postgres_programs import (
    Account,
    PostgresUnavailable,
    find_binaries,
    major,
    make_reachable,
    number,
    unprivileged,
)
from queuer.local.processes import locked

SUPERUSER = "queuer"
DATABASE = "queuer"
_START_ATTEMPTS = 3  # the free port that was found may be taken by another program before the server binds it
_TIMEOUT_SECONDS = 60
_REAP_SECONDS = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A running server. `directory` holds `data/`, `log`, `password`; `binaries` is the bin directory."""

    directory: Path
    binaries: Path
    port: int
    password: str
    account: Account | None

    @property
    def url(self) -> str:
        """SQLAlchemy URL of the database made for Queuer, by TCP on loopback."""
        return self.url_of(DATABASE)

    @property
    def log(self) -> Path:
        return self.directory / "log"

    @property
    def pid(self) -> int:
        return int((self.directory / "data" / "postmaster.pid").read_text().split("\n", 1)[0])

    def url_of(self, database: str) -> str:
        """SQLAlchemy URL of any database of this server."""
        return self.conninfo_of(database).replace("postgresql:", "postgresql+psycopg:", 1)

    def conninfo_of(self, database: str) -> str:
        """The libpq form of `url_of`."""
        return f"postgresql://{SUPERUSER}:{self.password}@127.0.0.1:{self.port}/{database}"

    def answers(self) -> bool:
        """True when the server accepts a connection now."""
        try:
            _connect(self, "postgres").close()
        except psycopg.OperationalError:
            return False
        return True

    def stop(self) -> None:
        """Stop by a fast shutdown: open transactions are rolled back, everything committed is on disk."""
        with locked(self.directory / "lock"):
            _run(self, "pg_ctl", "stop", "-D", str(self.directory / "data"), "-m", "fast", "-w", allow=(0, 1))


def start(directory: Path, *, fsync: bool = True) -> Server:
    """Start the server of `directory` (made if missing) and return it; one that runs is returned as it is.

    `fsync=False` trades durability for speed and is meant for tests. Raises `PostgresUnavailable`.
    """
    directory = directory.expanduser().resolve()
    account = unprivileged()
    make_reachable(directory, account)
    binaries = find_binaries(account)
    with locked(directory / "lock"):
        data = directory / "data"
        if not (data / "PG_VERSION").exists():
            _initialise(directory, binaries=binaries, account=account)
        _check_major(data, binaries)
        password = (directory / "password").read_text().strip()
        existing = _server(directory, binaries=binaries, account=account, password=password)
        if existing is not None and existing.answers():
            return existing
        server = _launch(directory, binaries=binaries, account=account, password=password, fsync=fsync)
        _create_database(server)
        return server


def running(directory: Path) -> Server | None:
    """The server of `directory` when it runs and answers, else None."""
    directory = directory.expanduser().resolve()
    if not (directory / "password").exists():
        return None
    account = unprivileged()
    password = (directory / "password").read_text().strip()
    server = _server(directory, binaries=find_binaries(account), account=account, password=password)
    return server if server is not None and server.answers() else None


def _initialise(directory: Path, *, binaries: Path, account: Account | None) -> None:
    """initdb into a fresh `data/`. The password file appears before it and is what TCP logins need."""
    data, password_file = directory / "data", directory / "password"
    if data.exists():
        shutil.rmtree(data)  # an initdb that was interrupted: PG_VERSION is among the last files it writes
    data.mkdir(mode=0o700)
    password_file.touch(mode=0o600)
    password_file.write_text(secrets.token_urlsafe(24) + "\n")
    (directory / "log").touch(mode=0o600)
    if account is not None:
        for path in (data, password_file, directory / "log"):
            os.chown(path, account.uid, account.gid)
    command = [
        str(binaries / "initdb"), "-D", str(data), "-U", SUPERUSER, f"--pwfile={password_file}",
        "--auth-local=trust", "--auth-host=scram-sha-256", "--locale=C", "-E", "UTF8", "--no-sync",
    ]  # fmt: skip
    result = _execute(command, directory=directory, account=account)
    if result.returncode:
        raise PostgresUnavailable(
            f"initdb failed in {data}: {result.stderr.strip() or result.stdout.strip()}"
        )


def _check_major(data: Path, binaries: Path) -> None:
    made_by, present = number((data / "PG_VERSION").read_text()), major(binaries)
    if made_by != present:
        raise PostgresUnavailable(
            f"{data} was made by PostgreSQL {made_by}, but {binaries} is version {present}",
            hint=f"point QUEUER_PG_BIN to a PostgreSQL {made_by}, or remove the directory to start empty",
        )


def _launch(
    directory: Path, *, binaries: Path, account: Account | None, password: str, fsync: bool
) -> Server:
    data, log = directory / "data", directory / "log"
    _clear_crashed(data)
    for attempt in range(_START_ATTEMPTS):
        port = _port(directory, fresh=attempt > 0)
        server = Server(directory=directory, binaries=binaries, port=port, password=password, account=account)
        options = [
            f"-p {port}", "-c listen_addresses=127.0.0.1", "-c max_connections=200",
            # The socket lives in the data directory, which nobody else may enter; a long path would not fit.
            f"-k '{data}'" if len(str(data)) < 80 else "-c unix_socket_directories=",
        ]  # fmt: skip
        if not fsync:
            options += ["-c fsync=off", "-c synchronous_commit=off", "-c full_page_writes=off"]
        # -w waits for the server's own word that it is ready; a connection is the proof.
        started = _run(
            server, "pg_ctl", "start", "-D", str(data), "-l", str(log), "-w", "-t", str(_TIMEOUT_SECONDS),
            "-o", " ".join(options), allow=(0, 1),
        )  # fmt: skip
        if started.returncode == 0 and server.answers():
            (directory / "port").write_text(f"{port}\n")
            return server
    tail = " | ".join(log.read_text(errors="replace").splitlines()[-5:])
    raise PostgresUnavailable(f"PostgreSQL did not start; its log is at {log}, last lines: {tail}")


def _clear_crashed(data: Path) -> None:
    """Wait for a killed server to be reaped: PostgreSQL takes a zombie for alive and would refuse to start.

    In a container whose first process reaps nothing, the lock file is removed after a while.
    """
    lock_file = data / "postmaster.pid"
    deadline = time.monotonic() + _REAP_SECONDS
    while lock_file.exists() and time.monotonic() < deadline:
        try:
            process = psutil.Process(number(lock_file.read_text().split("\n", 1)[0]))
            if process.status() != psutil.STATUS_ZOMBIE:
                return  # alive, or another program by now: PostgreSQL's own check decides
        except psutil.NoSuchProcess:
            return
        time.sleep(0.05)
    lock_file.unlink(missing_ok=True)


def _port(directory: Path, *, fresh: bool) -> int:
    """The port of the last start when it is still free, so that URLs stay valid; else any free one."""
    recorded = directory / "port"
    if not fresh and recorded.exists():
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", number(recorded.read_text())))
            except OSError:
                pass  # taken by another program meanwhile
            else:
                return int(probe.getsockname()[1])
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _server(directory: Path, *, binaries: Path, account: Account | None, password: str) -> Server | None:
    """The server as postmaster.pid describes it (4th line: the port), alive or not."""
    try:
        lines = (directory / "data" / "postmaster.pid").read_text().splitlines()
    except FileNotFoundError:
        return None
    if len(lines) < 4 or not lines[3].strip().isdigit():
        return None
    return Server(
        directory=directory, binaries=binaries, port=int(lines[3]), password=password, account=account
    )


def _create_database(server: Server) -> None:
    with _connect(server, "postgres") as connection:
        found = connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [DATABASE]).fetchone()
        if found is None:
            connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(DATABASE)))


def _connect(server: Server, database: str) -> psycopg.Connection[tuple[Any, ...]]:
    return psycopg.connect(server.conninfo_of(database), autocommit=True, connect_timeout=5)


def _run(
    server: Server, program: str, *arguments: str, allow: Sequence[int] = (0,)
) -> subprocess.CompletedProcess[str]:
    command = [str(server.binaries / program), *arguments]
    result = _execute(command, directory=server.directory, account=server.account)
    if result.returncode not in allow:
        raise PostgresUnavailable(
            f"{program} {arguments[0]} failed: {result.stderr.strip() or result.stdout.strip()}"
        )
    return result


def _execute(
    command: Sequence[str], *, directory: Path, account: Account | None
) -> subprocess.CompletedProcess[str]:
    identity: dict[str, Any] = {}
    if account is not None:
        identity = {"user": account.uid, "group": account.gid, "extra_groups": []}
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PG")}
    environment |= {"LC_ALL": "C", "HOME": str(directory)}
    with (directory / "command.log").open("w+") as output:
        # A file, not a pipe: the server inherits the descriptors, and a pipe would never see its end.
        result = subprocess.run(
            command, cwd=directory, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
            text=True, check=False, start_new_session=True, **identity,
        )  # fmt: skip
        output.seek(0)
        return subprocess.CompletedProcess(command, result.returncode, stdout=output.read(), stderr="")
