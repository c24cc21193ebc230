"""A running Queuer to look at: our own processes on a real PostgreSQL; Kubernetes is in memory.

Tests are plain functions, since the browser's driver has a loop of its own. What is theirs to await runs in another thread.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from bench.load import Cluster, Size, filled
from bench.scene import scene

T = TypeVar("T")


@dataclass(slots=True)
class Site:
    """An API server with a controller behind it. `url`: where browsers go."""

    loop: asyncio.AbstractEventLoop
    cluster: Cluster
    api: asyncio.subprocess.Process

    @property
    def url(self) -> str:
        """`http://127.0.0.1:PORT`."""
        return f"http://127.0.0.1:{self.cluster.scene.ports[self.api.pid]}"

    def run(self, work: Coroutine[Any, Any, T], *, seconds: float = 60) -> T:
        """What a coroutine answers that runs beside the site."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(seconds)


@contextmanager
def site(size: Size, *, seed: int) -> Iterator[Site]:
    """A full cluster of this size, once every job runs or knows why not."""
    ready: Future[Site] = Future()
    stop = asyncio.Event()
    thread = threading.Thread(target=lambda: asyncio.run(_open(size, seed, ready, stop)), name="site", daemon=True)
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
            ready.set_result(Site(loop=asyncio.get_running_loop(), cluster=cluster, api=api))
            await stop.wait()
    except BaseException as error:
        if not ready.done():
            ready.set_exception(error)
        raise
