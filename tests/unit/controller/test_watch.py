"""Jobs of a kind whose operator is installed later are followed without a restart."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from aiohttp import web

from queuer.controller.apply.jobs import MANAGED, OPTED_IN, Facts
from queuer.controller.health.metrics import Metrics
from queuer.controller.memory.state import ClusterState
from queuer.controller.watch.watches import Watches, served
from queuer.kube.objects import NAMESPACES, PYTORCHJOBS
from tests.kube.stub import Stub, serving, until

JOB = {"metadata": {"name": "late", "namespace": "ns", "uid": "u", "resourceVersion": "1"}}
NAMESPACE = {"metadata": {"name": "ns", "uid": "n", "labels": {MANAGED: next(iter(OPTED_IN))}}}


class Server:
    """Knows PyTorchJobs from when it is told to; first it is out of order for once."""

    def __init__(self) -> None:
        self.installed = False
        self.asked = 0

    async def handle(self, request: web.Request) -> web.StreamResponse:
        items: list[dict[str, Any]] = []
        if request.path == PYTORCHJOBS.collection:
            self.asked += 1
            if not self.installed:
                return web.Response(status=500 if self.asked == 2 else 404, text="404 page not found")
            items = [JOB]
        elif request.path == NAMESPACES.collection:
            items = [NAMESPACE]
        if "watch" in request.query:
            return web.Response()
        return web.json_response({"metadata": {"resourceVersion": "1"}, "items": items})


async def test_a_kind_that_comes_later_is_followed() -> None:
    server, state = Server(), ClusterState()
    async with serving(cast(Stub, server)) as client:
        kinds = await served(client)
        assert "PyTorchJob" not in {kind.name for kind in kinds}
        watches = Watches(client, state, Facts(), kinds=kinds, look=0.01)
        task = asyncio.create_task(watches.run(Metrics()))
        try:
            await watches.synced()
            await until(lambda: server.asked > 3)
            assert not state.jobs
            server.installed = True
            await until(lambda: "u" in state.jobs)
        finally:
            task.cancel()
            await asyncio.wait([task])
