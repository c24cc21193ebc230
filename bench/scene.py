"""Real controllers and a real API server of ours on a real PostgreSQL; only Kubernetes is in memory.

A real kube-apiserver takes some 200 jobs a second, and would need the processors that are measured.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import socket
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web
from sqlalchemy import Row
from sqlalchemy.ext.asyncio import AsyncEngine

from bench.api_server import ADMIN, ApiServer
from queuer.domain.document import TreeDocument
from queuer.domain.queue import ManagedBy
from queuer.kube.objects import NAMESPACES
from queuer.local import postgres
from queuer.store import migrate, queues
from queuer.store.engine import begin, make_engine


@dataclass(slots=True, kw_only=True)
class Scene:
    """Kubernetes, a database, and processes of ours on them."""

    server: ApiServer
    directory: Path
    environment: dict[str, str]
    engine: AsyncEngine
    ports: dict[int, int] = field(default_factory=dict)
    processes: list[asyncio.subprocess.Process] = field(default_factory=list)

    async def start(self, part: str = "controller", *, port: int = 0) -> asyncio.subprocess.Process:
        """`queuer serve PART`; `port` 0: any that is free."""
        if not port:
            with socket.create_server(("127.0.0.1", 0)) as listener:
                port = listener.getsockname()[1]
        variable = "QUEUER_PORT" if part == "api" else "QUEUER_CONTROLLER_PORT"
        with self.log(part, port).open("wb") as log:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "queuer", "serve", part, stdout=log, stderr=log,
                env={**os.environ, **self.environment, variable: str(port)},
            )  # fmt: skip
        self.ports[process.pid] = port
        self.processes.append(process)
        return process

    def log(self, part: str, port: int) -> Path:
        """Where a process writes its log."""
        return self.directory / f"{part}-{port}.log"

    async def phase(self, process: asyncio.subprocess.Process, wanted: str) -> float:
        """Seconds until `/livez` of a process begins with this: a controller's phase, `ok` of an API."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        async with aiohttp.ClientSession() as session:
            while True:
                try:
                    async with session.get(f"http://127.0.0.1:{self.ports[process.pid]}/livez") as answer:
                        if (await answer.text()).startswith(wanted):
                            return loop.time() - began
                except (aiohttp.ClientError, OSError):
                    pass
                await asyncio.sleep(0.05)

    async def value(self, query: str) -> int:
        """A number from the database."""
        async with begin(self.engine) as connection:
            return int((await connection.exec_driver_sql(query)).scalar_one())

    async def rows(self, query: str) -> Sequence[Row[Any]]:
        """Rows from the database."""
        async with begin(self.engine) as connection:
            return (await connection.exec_driver_sql(query)).all()

    async def configure(self, document: TreeDocument) -> None:
        """Put the queues into the database, and the namespaces that they serve into Kubernetes."""
        async with begin(self.engine) as connection:
            changeset = await queues.plan(connection, document, writer=ManagedBy.API)
            await queues.apply(connection, changeset, actor="bench", source="bench", reason="bench")
        for name in sorted({name for queue in document.queues for name in queue.namespaces}):
            labels = {"queuer.dev/managed": "true"}
            self.server.put(NAMESPACES, {"metadata": {"name": name, "uid": name, "labels": labels}})


@asynccontextmanager
async def scene() -> AsyncIterator[Scene]:
    """A scene without nodes, queues and processes; those that are started end with it."""
    directory = _directory()
    database = postgres.start(directory / "pg", fsync=False)
    migrate.upgrade(database.url)
    engine = make_engine(database.url, name="bench")
    server = ApiServer()
    runner = web.AppRunner(_app(server), access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    kubeconfig = directory / "kubeconfig"
    kubeconfig.write_text(json.dumps(_kubeconfig(f"http://127.0.0.1:{runner.addresses[0][1]}")))
    made = Scene(
        server=server, directory=directory, engine=engine,
        environment={
            "KUBECONFIG": str(kubeconfig), "QUEUER_DATABASE_URL": database.url, "QUEUER_CONFIG_CRS": "false",
            "QUEUER_LANDING_DEADLINE": "3600", "QUEUER_LOG_LEVEL": "info",
        },
    )  # fmt: skip
    try:
        yield made
    finally:
        for process in made.processes:
            if process.returncode is None:
                process.kill()
                await process.wait()
        await runner.cleanup()
        await engine.dispose()
        database.stop()
        shutil.rmtree(directory)


def spent(process: asyncio.subprocess.Process) -> float:
    """Seconds of CPU that a process and its children have used."""
    at = Path(f"/proc/{process.pid}")
    alive = (at / f"task/{process.pid}/children").read_text().split()
    return _ticks(at, 11, 15) + sum(_ticks(Path(f"/proc/{child}"), 11, 13) for child in alive)


def _ticks(at: Path, first: int, end: int) -> float:
    """Fields of a `stat` file in seconds: own user and system time, then the same of children that have ended."""
    fields = (at / "stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[first:end])) / os.sysconf("SC_CLK_TCK")


async def until(holds: Callable[[], Any], *, seconds: float, what: str) -> None:
    """Wait until an awaitable condition holds. Raises TimeoutError saying what did not come."""
    try:
        async with asyncio.timeout(seconds):
            while not await holds():  # noqa: ASYNC110 - the database has no event
                await asyncio.sleep(0.2)
    except TimeoutError:
        raise TimeoutError(f"not after {seconds:g} s: {what}") from None


def _directory() -> Path:
    """In memory where there is a memory disk: the same for all that is compared."""
    memory = Path("/dev/shm")
    made = Path(tempfile.mkdtemp(prefix="queuer-bench-", dir=memory if memory.is_dir() else None))
    made.chmod(0o755)  # PostgreSQL's account must enter
    return made


def _app(server: ApiServer) -> web.Application:
    app = web.Application(client_max_size=2**24)
    app.router.add_route("*", "/{path:.*}", server.handle)
    return app


def _kubeconfig(url: str) -> dict[str, Any]:
    context = {"name": "bench", "context": {"cluster": "bench", "user": "bench"}}
    return {
        "apiVersion": "v1", "kind": "Config", "current-context": "bench", "contexts": [context],
        "clusters": [{"name": "bench", "cluster": {"server": url}}],
        "users": [{"name": "bench", "user": {"token": ADMIN}}],
    }  # fmt: skip
