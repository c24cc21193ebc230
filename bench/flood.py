"""A flood of one tenant's jobs: how soon another's start, whether the leader stays, how long a handover takes.

The controller is the real process on a real PostgreSQL. The API server is `bench.api_server`: a real one takes some 200
jobs a second.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import signal
import socket
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

import aiohttp
from aiohttp import web

from bench import arguments
from bench.api_server import ApiServer
from queuer.domain.document import parse
from queuer.domain.queue import ManagedBy
from queuer.kube.objects import JOBS, NAMESPACES, NODES
from queuer.store import localpg, migrate, queues
from queuer.store.engine import begin, make_engine

GPU = "nvidia.com/gpu"
HOSTS, PER_HOST = 100, 8
FLOOD, OTHER = "flood", "other"
TREE = {
    "apiVersion": "queuer.dev/v1",
    "kind": "QueueTree",
    "queues": {
        f"root.{name}": {"namespaces": [name], "quota": [{"resource": GPU, "limit": limit}]}
        for name, limit in ((FLOOD, 600), (OTHER, 200))
    },
}


@dataclass(slots=True, kw_only=True)
class Scene:
    """An API server, a database, and controllers on them."""

    server: ApiServer
    directory: Path
    environment: dict[str, str]
    engine: Any
    ports: dict[int, int] = field(default_factory=dict)
    processes: list[asyncio.subprocess.Process] = field(default_factory=list)
    made: int = 0

    def job(self, namespace: str) -> str:
        """A job of one pod with one GPU."""
        self.made += 1
        name = f"{namespace}-{self.made}"
        pod = {
            "containers": [{"name": "main", "resources": {"requests": {"cpu": "1"}, "limits": {GPU: "1"}}}]
        }
        self.server.put(
            JOBS,
            {
                "metadata": {
                    "name": name, "namespace": namespace, "uid": f"uid-{name}", "annotations": {},
                    "labels": {"queuer.dev/queue": f"root.{namespace}"},
                    "creationTimestamp": datetime.now(UTC).isoformat(),
                },
                "spec": {"suspend": True, "parallelism": 1, "template": {"spec": pod}},
                "status": {},
            },
        )  # fmt: skip
        return name

    async def start(self) -> asyncio.subprocess.Process:
        """A controller."""
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]
        log = (self.directory / f"controller-{port}.log").open("wb")
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "queuer", "serve", "controller", stdout=log, stderr=log,
            env={**os.environ, **self.environment, "QUEUER_CONTROLLER_PORT": str(port)},
        )  # fmt: skip
        log.close()
        self.ports[process.pid] = port
        self.processes.append(process)
        return process

    async def phase(self, process: asyncio.subprocess.Process, wanted: str) -> float:
        """Seconds until a controller is in this phase."""
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

    async def latency(self, *, most: float = 120.0) -> float:
        """Seconds from the creation of a job of the other tenant until it is started; `most` = it was not."""
        loop = asyncio.get_running_loop()
        began, name = loop.time(), self.job(OTHER)
        with suppress(TimeoutError):
            async with asyncio.timeout(most):
                await self.server.starts(name)
        return self.server.started.get(name, began + most) - began

    async def value(self, query: str) -> int:
        """A number from the database."""
        async with begin(self.engine) as connection:
            return int((await connection.exec_driver_sql(query)).scalar_one())

    async def epoch(self) -> int:
        """The epoch in office: one more for each term."""
        return await self.value("SELECT epoch FROM leader")

    async def stored(self) -> int:
        """Jobs that are in the database."""
        return await self.value("SELECT count(*) FROM workload")


@asynccontextmanager
async def scene() -> AsyncIterator[Scene]:
    """Everything but a controller."""
    directory = _directory()
    database = localpg.start(directory / "pg", fsync=False)
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
        await _furnish(made)
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
        "users": [{"name": "bench", "user": {"token": "bench"}}],
    }  # fmt: skip


async def _furnish(made: Scene) -> None:
    """Namespaces, nodes and queues."""
    async with begin(made.engine) as connection:
        changeset = await queues.plan(connection, parse(TREE), writer=ManagedBy.API)
        await queues.apply(connection, changeset, actor="bench", source="bench", reason="bench")
    for name in (FLOOD, OTHER):
        labels = {"queuer.dev/managed": "true"}
        made.server.put(NAMESPACES, {"metadata": {"name": name, "uid": name, "labels": labels}})
    for number in range(HOSTS):
        name = f"n{number:03}"
        made.server.put(
            NODES,
            {
                "metadata": {"name": name, "uid": name, "labels": {"kubernetes.io/hostname": name}},
                "spec": {},
                "status": {
                    "allocatable": {GPU: str(PER_HOST), "cpu": "64", "pods": "110"},
                    "conditions": [{"type": "Ready", "status": "True"}],
                },
            },
        )


async def flood(jobs: int, *, rate: int, handover: bool) -> dict[str, Any]:
    """The figures. Seconds; `epochs`: terms that were begun in each part, one for each controller that led."""
    loop = asyncio.get_running_loop()
    async with scene() as at:
        leader = await at.start()
        await at.phase(leader, "leading")
        began, epoch = loop.time(), await at.epoch()
        pours = asyncio.create_task(_pour(at, jobs, rate=rate))
        while_poured = await _latencies(at, jobs)
        await pours
        figures: dict[str, Any] = {
            "jobs": jobs,
            "stored_s": round(loop.time() - began, 1),
            "while_it_comes": _summed(while_poured),
            "once_it_waits": _summed([await at.latency() for _ in range(10)]),
            "epochs": await at.epoch() - epoch,
        }
        leader.send_signal(signal.SIGKILL)
        await leader.wait()
        began, epoch = loop.time(), await at.epoch()
        leader = await at.start()
        await at.phase(leader, "leading")
        figures["restart"] = {
            "leads_s": round(loop.time() - began, 1),
            **_summed([await at.latency() for _ in range(10)]),
            "epochs": await at.epoch() - epoch,
        }
        if handover:
            second = await at.start()
            await at.phase(second, "standby")
            epoch = await at.epoch()
            leader.send_signal(signal.SIGKILL)
            leads = await at.phase(second, "leading")
            figures["handover"] = {
                "leads_s": round(leads, 1),
                **_summed([await at.latency() for _ in range(3)]),
            }
            figures["handover"]["epochs"] = await at.epoch() - epoch
        return figures


async def _pour(at: Scene, jobs: int, *, rate: int) -> None:
    for number in range(jobs):
        at.job(FLOOD)
        if number % (rate // 20) == 0:
            await asyncio.sleep(0.05)


async def _latencies(at: Scene, jobs: int) -> list[float]:
    """Of one job of the other tenant after the other, until all of the flood are stored."""
    found = []
    while await at.stored() < jobs:
        found.append(await at.latency())
        await asyncio.sleep(0.5)
    return found


def _summed(latencies: list[float]) -> dict[str, float]:
    return {
        "others": len(latencies),
        "median_s": round(median(latencies), 2),
        "max_s": round(max(latencies), 2),
    }


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(prog="python -m bench.flood", description=__doc__)
    made.add_argument(
        "--jobs", type=arguments.positive, default=60_000, help="jobs of the tenant that floods"
    )
    made.add_argument(
        "--rate", type=arguments.whole(20, arguments.MOST), default=5_000, help="created a second"
    )
    made.add_argument("--no-handover", action="store_true", help="not to a second controller that stands by")
    return made


def main() -> None:
    """Print the figures."""
    given = parser().parse_args()
    print(json.dumps(asyncio.run(flood(given.jobs, rate=given.rate, handover=not given.no_handover))))


if __name__ == "__main__":
    main()
