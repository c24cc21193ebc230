"""The primary of PostgreSQL is lost, and a replica that lagged is promoted: nothing is admitted twice."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest

from queuer.local import postgres
from queuer.store import migrate
from tests.e2e.controller import GPU, tree
from tests.e2e.scene import Scene
from tests.e2e.support import wait_until

_TERM = "SELECT epoch, term::text FROM leader"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Two servers of which one streams from the other."""

    primary: postgres.Server
    replica: postgres.Server

    @property
    def url(self) -> str:
        """As it is written into the Secret: both hosts, and who of them is wanted."""
        both = f"127.0.0.1:{self.primary.port},127.0.0.1:{self.replica.port}"
        one = f"127.0.0.1:{self.primary.port}"
        return self.primary.conninfo_of("queuer").replace(one, both) + "?target_session_attrs=read-write"

    def ask(self, server: postgres.Server, statement: str) -> Any:
        """The one value that a statement answers."""
        with psycopg.connect(server.conninfo_of("queuer"), autocommit=True) as connection:
            answer = connection.execute(statement)
            row = answer.fetchone() if answer.description else None
            return None if row is None else row[0]

    def wait_level(self) -> None:
        """Wait until the replica has all that the primary has committed."""
        now = self.ask(self.primary, "SELECT pg_current_wal_flush_lsn()")
        behind = f"SELECT pg_last_wal_replay_lsn() >= '{now}'"
        wait_until(lambda: self.ask(self.replica, behind), timeout=20, describe="the replica is level")

    def part(self) -> None:
        """From now on the replica hears nothing more: what is committed is not copied."""
        self.ask(self.replica, "ALTER SYSTEM SET primary_conninfo = ''")
        self.ask(self.replica, "SELECT pg_reload_conf()")
        streams = "SELECT count(*) FROM pg_stat_replication"
        wait_until(lambda: self.ask(self.primary, streams) == 0, timeout=20, describe="nothing is streamed")


@pytest.fixture
def pair() -> Iterator[Pair]:
    """A primary with a schema, and its replica made by pg_basebackup."""
    memory = Path("/dev/shm")
    home = Path(tempfile.mkdtemp(prefix="queuer-pair-", dir=memory if memory.is_dir() else None))
    home.chmod(0o755)  # the account of PostgreSQL must enter it
    started = list[postgres.Server]()
    try:
        started.append(postgres.start(home / "primary"))
        migrate.upgrade(started[0].url)
        started.append(_replica(started[0], home / "replica"))
        yield Pair(primary=started[0], replica=started[1])
    finally:
        for server in started:
            server.stop()
        shutil.rmtree(home)


def _replica(primary: postgres.Server, home: Path) -> postgres.Server:
    home.mkdir()
    home.chmod(0o755)
    copy = [
        str(primary.binaries / "pg_basebackup"), f"--pgdata={home / 'data'}", "--write-recovery-conf",
        "--checkpoint=fast", f"--dbname={primary.conninfo_of('postgres')}",
    ]  # fmt: skip
    ran = subprocess.run(copy, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    for name in ("password", "log"):
        shutil.copy2(primary.directory / name, home / name)
    if primary.account is not None:
        for path in (home / "log", home / "password", *(home / "data").rglob("*"), home / "data"):
            os.chown(path, primary.account.uid, primary.account.gid)
    return postgres.start(home)


@pytest.fixture
def database_url(pair: Pair) -> str:
    """Of the scene."""
    return pair.url


@pytest.mark.timeout(240)
def test_a_replica_that_lagged_takes_over(scene: Scene, pair: Pair) -> None:
    scene.database.apply(tree(scene.namespace, team_a={"quota": [{"resource": GPU, "limit": 24}]}))
    process = scene.start()
    scene.job("kept", pods=2, gpus=8)
    scene.wait_state("kept", "Running")
    pair.wait_level()
    [first] = scene.database.rows(_TERM)
    [kept] = scene.database.rows("SELECT id::text FROM admission")
    pair.part()
    scene.job("lost", gpus=8)
    scene.wait_state("lost", "Running")
    pods = {name: {p["metadata"]["uid"] for p in scene.pods(name)} for name in ("kept", "lost")}

    os.kill(pair.primary.pid, signal.SIGQUIT)  # at once, as a machine that is lost
    wait_until(lambda: not process.leads(), timeout=30, describe="its term ends")
    scene.job("waits", gpus=8)
    assert scene.read("waits")["spec"]["suspend"]
    pair.ask(pair.replica, "SELECT pg_promote()")
    process.wait_leading(timeout=60)
    [second] = scene.database.rows(_TERM)
    assert (second["epoch"], second["term"] != first["term"]) == (first["epoch"] + 1, True)

    scene.wait_state("lost", "Running")
    scene.wait_state("kept", "Running")
    assert {name: {p["metadata"]["uid"] for p in scene.pods(name)} for name in pods} == pods
    [row] = scene.database.rows("SELECT admission_id::text AS id FROM workload WHERE name = 'kept'")
    assert row["id"] == kept["id"], "what the replica had stands as it was acknowledged"
    assert scene.database.used() == 24, "what it had not is charged as it runs"
    scene.wait_reason("waits", "WaitingForQuota")
    scene.delete("lost")
    scene.wait_state("waits", "Running")
    assert process.running, "it is the same process all the time"
