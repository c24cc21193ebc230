"""A running Queuer to look at: our own processes on a real PostgreSQL; Kubernetes is in memory.

Tests are plain functions, since the browser's driver has a loop of its own. Their coroutines run in another
thread.
"""

from __future__ import annotations

import asyncio
import threading
import urllib.request
from collections.abc import Coroutine, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from bench.instances import Form
from bench.load import Cluster, Size, filled, manifest_of
from bench.scene import scene, until

T = TypeVar("T")


@dataclass(slots=True)
class Site:
    """An API server with a controller behind it. `url`: where browsers go."""

    loop: asyncio.AbstractEventLoop
    cluster: Cluster
    api: asyncio.subprocess.Process
    port: int

    @property
    def url(self) -> str:
        """`http://127.0.0.1:PORT`."""
        return f"http://127.0.0.1:{self.port}"

    def run(self, work: Coroutine[Any, Any, T], *, seconds: float = 120) -> T:
        """The result of a coroutine that runs beside the site."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(seconds)

    def metric(self, name: str) -> float:
        """The value of a metric of the API server."""
        with urllib.request.urlopen(f"{self.url}/metrics") as answer:
            lines = answer.read().decode().splitlines()
        return next(float(line.split()[-1]) for line in lines if line.startswith(f"{name} "))

    async def submit(self) -> str:
        """A small job comes; answers its uid once it is recorded."""
        form = Form(pods=1, gpus=1)
        path = next(queue.path for queue in self.cluster.tree if self.cluster.tree.is_leaf(queue.path))
        uid = self.cluster.submit(manifest_of(form, queue=path, priority=0))
        await self.seen(f"SELECT count(*) FROM workload WHERE uid = '{uid}'")
        return uid

    async def seen(self, query: str) -> None:
        """Wait until a query answers anything but 0."""

        async def some() -> bool:
            return await self.cluster.scene.value(query) > 0

        await until(some, seconds=90, what=query)

    async def pause(self) -> None:
        """The API server goes away."""
        self.api.kill()
        await self.api.wait()

    async def resume(self) -> None:
        """It comes back at the same address."""
        self.api = await self.cluster.scene.start("api", port=self.port)
        await self.cluster.scene.phase(self.api, "ok")


@contextmanager
def site(size: Size, *, seed: int) -> Iterator[Site]:
    """A full cluster of this size, once every job runs or knows why not."""
    ready: Future[Site] = Future()
    stop = asyncio.Event()
    thread = threading.Thread(
        target=lambda: asyncio.run(_open(size, seed, ready, stop)), name="site", daemon=True
    )
    thread.start()
    made = ready.result(600)
    try:
        yield made
    finally:
        made.loop.call_soon_threadsafe(stop.set)
        thread.join(60)


async def _open(size: Size, seed: int, ready: Future[Site], stop: asyncio.Event) -> None:
    try:
        async with scene() as made:
            made.environment |= {"QUEUER_AUTH": "none"}
            cluster = await filled(made, size, seed=seed)
            api = await made.start("api")
            await made.phase(api, "ok")
            ready.set_result(
                Site(loop=asyncio.get_running_loop(), cluster=cluster, api=api, port=made.ports[api.pid])
            )
            await stop.wait()
    except BaseException as error:
        if not ready.done():
            ready.set_exception(error)
        raise
