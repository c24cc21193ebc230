"""A controller process against the test cluster, with settings of its own, that a test can kill, freeze and
restart.

It runs as `queuer serve controller` under its own identity, never as admin. Tests read its deeds from
PostgreSQL and the API server, never from its memory.
"""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import nan
from typing import Any
from uuid import uuid4

import httpx2
import psycopg
from psycopg.conninfo import conninfo_to_dict
from psycopg.rows import dict_row

from queuer.local.cluster import CONTROLLER_PART, Cluster
from queuer.local.processes import ProcessState
from queuer.store.engine import conninfo
from tests.e2e import nursery
from tests.e2e.support import wait_until
from tests.waiting import PATIENCE

SETTINGS = {
    "QUEUER_LANDING_DEADLINE": "15",
    "QUEUER_CONFIG_CRS": "false",
    "QUEUER_LOG_LEVEL": "info",
}
GPU = "nvidia.com/gpu"


@dataclass(slots=True, kw_only=True)
class Controller:
    """One controller process, by a name of its own. Started by `start`, ended by `kill` or `stop`.

    `module`: what Python runs, with the arguments of `queuer`.
    """

    cluster: Cluster
    database_url: str
    settings: Mapping[str, str] = field(default_factory=dict)
    module: str = "queuer"
    name: str = field(default_factory=lambda: f"controller-{uuid4().hex[:6]}")
    port: int = 0

    def start(self, **extra: str) -> Controller:
        """Start it and wait until it leads or stands by. `extra`: further settings for this run only."""
        with socket.create_server(("127.0.0.1", 0)) as listener:
            self.port = listener.getsockname()[1]
        nursery.launch(self.cluster, self._command(**extra))
        return self

    def start_without_waiting(self, **extra: str) -> Controller:
        """Start a process that may not live long enough to become ready."""
        with socket.create_server(("127.0.0.1", 0)) as listener:
            self.port = listener.getsockname()[1]
        nursery.launch(self.cluster, self._command(**extra), wait=False)
        return self

    def _command(self, **extra: str) -> Any:
        from dataclasses import replace

        environment = {
            "QUEUER_DATABASE_URL": self.database_url,
            "QUEUER_CONTROLLER_PORT": str(self.port),
            "QUEUER_IDENTITY": self.name,
            **SETTINGS,
            **self.settings,
            **extra,
        }
        command = self.cluster.command(CONTROLLER_PART, environment=environment)
        python, flag, _, *arguments = command.arguments
        return replace(command, name=self.name, arguments=[python, flag, self.module, *arguments])

    @property
    def pid(self) -> int:
        """The PID; fails if the process does not run."""
        pid = self.cluster.pid(self.name)
        assert pid is not None, f"{self.name} does not run; its log ends:\n{self.log_tail()}"
        return pid

    @property
    def running(self) -> bool:
        """Whether the process is there (a frozen one is)."""
        return self.cluster.pid(self.name) is not None

    def wait_gone(self, *, timeout: float = 20.0) -> None:
        """Wait until the process has ended by itself."""
        wait_until(lambda: not self.running, timeout=timeout, describe=f"{self.name} ends")

    @property
    def frozen(self) -> bool:
        """Whether the process is stopped."""
        return self.cluster.status(self.name).state is ProcessState.FROZEN

    def wait_frozen(self, *, timeout: float = 30.0) -> None:
        """Wait until the process has stopped itself."""
        wait_until(
            lambda: self.frozen, timeout=timeout,
            describe=lambda: f"{self.name} freezes; its log ends:\n{self.log_tail()}",
        )  # fmt: skip

    def kill(self) -> None:
        """SIGKILL: no clean-up of any kind."""
        os.kill(self.pid, signal.SIGKILL)
        self.wait_gone()

    def freeze(self) -> None:
        """SIGSTOP: alive for the kernel, dead for everyone else."""
        os.kill(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """SIGCONT."""
        os.kill(self.pid, signal.SIGCONT)

    def stop(self) -> None:
        """SIGTERM, and wait; nothing where it does not run."""
        if self.running:
            self.thaw()
        self.cluster.stop([self.name])

    def log_tail(self, lines: int = 30) -> str:
        """The end of its log."""
        path = self.cluster.log(self.name)
        return "\n".join(path.read_text().splitlines()[-lines:]) if path.exists() else "(no log)"

    def log_has(self, text: str) -> bool:
        """Whether the log says something."""
        path = self.cluster.log(self.name)
        return path.exists() and text in path.read_text()

    def leads(self) -> bool:
        """Whether it is the one that decides."""
        return self._get("/readyz").strip() == "leading"

    def wait_leading(self, *, timeout: float = 30.0) -> Controller:
        """Wait until it decides."""
        wait_until(self.leads, timeout=timeout, describe=lambda: f"{self.name} leads:\n{self.log_tail()}")
        return self

    def metric(self, name: str) -> float:
        """Sum of a metric over its labels; NaN, which is like no number, where it is not told at all."""
        text = self.scraped()
        rows = [row for row in text.splitlines() if row.split("{")[0].split(" ")[0] == name]
        return sum(float(row.rsplit(" ", 1)[1]) for row in rows) if f"# TYPE {name} " in text else nan

    def scraped(self) -> str:
        """`/metrics` as Prometheus would read it; "" = it does not answer."""
        return self._get("/metrics")

    def _get(self, path: str) -> str:
        try:
            return httpx2.get(f"http://127.0.0.1:{self.port}{path}", timeout=PATIENCE, trust_env=False).text
        except httpx2.HTTPError:
            return ""


@contextmanager
def controller(cluster: Cluster, database_url: str, **settings: str) -> Iterator[Controller]:
    """A controller that leads, stopped at the end of the block."""
    process = Controller(cluster=cluster, database_url=database_url, settings=settings)
    try:
        yield process.start().wait_leading()
    finally:
        process.stop()


@dataclass(frozen=True, slots=True, kw_only=True)
class Database:
    """The controller's records, read as anybody could."""

    url: str

    def rows(self, query: str, *values: Any) -> list[dict[str, Any]]:
        """Rows of a query as mappings."""
        with psycopg.connect(conninfo(self.url), autocommit=True, row_factory=dict_row) as connection:
            return connection.execute(query, values).fetchall()

    def execute(self, statement: str) -> None:
        """Do something to the database behind the controller's back."""
        with psycopg.connect(conninfo(self.url), autocommit=True) as connection:
            connection.execute(statement)

    @contextmanager
    def shut(self) -> Iterator[None]:
        """Nobody gets in, and who was in is thrown out."""
        name = conninfo_to_dict(conninfo(self.url))["dbname"]
        with psycopg.connect(conninfo(self.url), dbname="postgres", autocommit=True) as connection:
            connection.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS false')
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", [name]
            )
            yield
            connection.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS true')

    def workload(self, name: str, namespace: str) -> dict[str, Any]:
        """The newest workload of a job; {} if it was not taken in."""
        found = self.rows(
            "SELECT * FROM workload WHERE name = %s AND namespace = %s ORDER BY submitted DESC, uid LIMIT 1",
            name, namespace,
        )  # fmt: skip
        return found[0] if found else {}

    def state(self, name: str, namespace: str) -> str:
        """Its state, "" if it was not taken in."""
        return str(self.workload(name, namespace).get("state", ""))

    def reason(self, name: str, namespace: str) -> dict[str, Any]:
        """Its primary reason `{token, text, params}`; {} if it has none."""
        explanation = self.workload(name, namespace).get("explanation") or {}
        return dict(explanation.get("primary", {}))

    def used(self, resource: str = GPU) -> int:
        """The sum of all open ledger rows for a resource, base units."""
        rows = self.rows(
            "SELECT coalesce(sum((amounts->>%s)::bigint), 0) AS held FROM ledger WHERE closed IS NULL",
            resource,
        )
        return int(rows[0]["held"])

    def open_rows(self) -> list[dict[str, Any]]:
        """Ledger rows that are not closed."""
        return self.rows("SELECT * FROM ledger WHERE closed IS NULL ORDER BY id")

    def apply(self, document: Mapping[str, Any]) -> None:
        """Apply a QueueTree document as an administrator would over REST."""
        import asyncio

        asyncio.run(_apply(self.url, document))


async def _apply(url: str, document: Mapping[str, Any]) -> None:
    from queuer.domain.document import parse
    from queuer.domain.queue import ManagedBy
    from queuer.store import queues
    from queuer.store.engine import begin, make_engine

    engine = make_engine(url, name="test")
    try:
        async with begin(engine) as connection:
            changeset = await queues.plan(connection, parse(document), writer=ManagedBy.API)
            await queues.apply(connection, changeset, actor="test", source="test", reason="test")
    finally:
        await engine.dispose()


def tree(namespace: str, **queues: Any) -> dict[str, Any]:
    """A QueueTree document: root.research.team-a and team-b for `namespace`, with a rack and block topology.

    `queues`: bodies by path with `_` for dots left out of Python names, e.g. `team_a={"quota": [...]}`.
    """
    bodies: dict[str, Any] = {"root": {"namespaces": [namespace]}, "root.research": {}}
    bodies |= {"root.research.team-a": {}, "root.research.team-b": {}}
    for name, body in queues.items():
        path = {"root": "root", "research": "root.research"}.get(
            name, f"root.research.{name.replace('_', '-')}"
        )
        bodies[path] = {**bodies.get(path, {}), **body}
    return {
        "apiVersion": "queuer.dev/v1",
        "kind": "QueueTree",
        "topology": {"levels": ["topology.kubernetes.io/block", "topology.kubernetes.io/rack"]},
        "queues": bodies,
    }
