"""A flood of one tenant's jobs: how soon another's start, whether the leader stays, how long a handover takes.

The controller is the real process on a real PostgreSQL. The API server is `bench.api_server`: a real one takes some 200
jobs a second.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
from contextlib import suppress
from datetime import UTC, datetime
from statistics import median
from typing import Any

from bench import arguments
from bench.api_server import ApiServer
from bench.scene import Scene, scene
from queuer.domain.document import parse
from queuer.kube.objects import JOBS, NODES

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


class Tenants:
    """Who create jobs of one pod with one GPU in a scene."""

    def __init__(self, scene: Scene) -> None:
        self._server = scene.server
        self._made = 0

    def job(self, namespace: str) -> str:
        """Create a job."""
        self._made += 1
        name = f"{namespace}-{self._made}"
        pod = {
            "containers": [{"name": "main", "resources": {"requests": {"cpu": "1"}, "limits": {GPU: "1"}}}]
        }
        self._server.put(
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

    async def latency(self, *, most: float = 120.0) -> float:
        """Seconds from the creation of a job of the other tenant until it is started; `most` = it was not."""
        loop = asyncio.get_running_loop()
        began, name = loop.time(), self.job(OTHER)
        with suppress(TimeoutError):
            async with asyncio.timeout(most):
                await self._server.starts(name)
        return self._server.started.get(name, began + most) - began


def _nodes(server: ApiServer) -> None:
    for number in range(HOSTS):
        name = f"n{number:03}"
        server.put(
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


async def _epoch(at: Scene) -> int:
    """The epoch in office: one more for each term."""
    return await at.value("SELECT epoch FROM leader")


async def flood(jobs: int, *, rate: int, handover: bool) -> dict[str, Any]:
    """The figures. Seconds; `epochs`: terms that were begun in each part, one for each controller that led."""
    loop = asyncio.get_running_loop()
    async with scene() as at:
        await at.configure(parse(TREE))
        _nodes(at.server)
        tenants = Tenants(at)
        leader = await at.start()
        await at.phase(leader, "leading")
        began, epoch = loop.time(), await _epoch(at)
        pours = asyncio.create_task(_pour(tenants, jobs, rate=rate))
        while_poured = await _latencies(at, tenants, jobs)
        await pours
        figures: dict[str, Any] = {
            "jobs": jobs,
            "stored_s": round(loop.time() - began, 1),
            "while_it_comes": _summed(while_poured),
            "once_it_waits": _summed([await tenants.latency() for _ in range(10)]),
            "epochs": await _epoch(at) - epoch,
        }
        leader.send_signal(signal.SIGKILL)
        await leader.wait()
        began, epoch = loop.time(), await _epoch(at)
        leader = await at.start()
        await at.phase(leader, "leading")
        figures["restart"] = {
            "leads_s": round(loop.time() - began, 1),
            **_summed([await tenants.latency() for _ in range(10)]),
            "epochs": await _epoch(at) - epoch,
        }
        if handover:
            second = await at.start()
            await at.phase(second, "standby")
            epoch = await _epoch(at)
            leader.send_signal(signal.SIGKILL)
            leads = await at.phase(second, "leading")
            figures["handover"] = {
                "leads_s": round(leads, 1),
                **_summed([await tenants.latency() for _ in range(3)]),
            }
            figures["handover"]["epochs"] = await _epoch(at) - epoch
        return figures


async def _pour(tenants: Tenants, jobs: int, *, rate: int) -> None:
    for number in range(jobs):
        tenants.job(FLOOD)
        if number % (rate // 20) == 0:
            await asyncio.sleep(0.05)


async def _latencies(at: Scene, tenants: Tenants, jobs: int) -> list[float]:
    """Of one job of the other tenant after the other, until all of the flood are stored."""
    found = []
    while await at.value("SELECT count(*) FROM workload") < jobs:
        found.append(await tenants.latency())
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
