"""What the API costs a large cluster, and how soon it answers: `python -m bench.api --help`.

Lists, the overview, what-ifs and 300 live views of the cluster of `bench.load`, while jobs end and come each second.
The API server, the controller and PostgreSQL are real processes; HTTP goes over loopback. One JSON object.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any

import aiohttp

from bench import arguments, load
from bench.api_server import ADMIN
from bench.instances import GPU
from bench.live_views import followed, percentile
from bench.load import Cluster, Size, filled
from bench.scene import Scene, scene, spent

SHOWN = ("/queues", "/overview", "/fair-share")
FILTERS = (
    "", "?limit=1000", "?state=Running", "?state=Queued&limit=500", "?state=Failed", "?reason=WaitingForQuota",
    "?reason=Misconfigured", "?queue=root.g03", "?name=nothing-like-it",
)  # fmt: skip


async def measured(size: Size, *, seed: int, seconds: float, clients: int) -> dict[str, Any]:
    """All figures. `seconds`: how long each part is watched for; `_cpu_s`: CPU of the API server and its child."""
    async with scene() as at:
        cluster = await filled(at, size, seed=seed)
        api = await at.start("api")
        await at.phase(api, "")
        base = f"http://127.0.0.1:{at.ports[api.pid]}/api/v1"
        states = "SELECT count(*) FROM workload WHERE state {} AND deleted_at IS NULL"
        found: dict[str, Any] = {
            "nodes": size.nodes, "queues": sum(1 for _ in cluster.tree),
            "running": await at.value(states.format("= 'Running'")),
            "pending": await at.value(states.format("= 'Queued'")),
        }  # fmt: skip
        async with churning(cluster), aiohttp.ClientSession() as session:
            parts = {
                "lists": lists(session, base, cluster),
                "whatifs": what_ifs(session, base, cluster, seconds=seconds),
                "streams": followed(base, _users(cluster), clients=clients, seconds=seconds),
            }
            for name, part in parts.items():
                before = spent(api)
                told = await part | {f"{name}_cpu_s": round(spent(api) - before, 1)}
                print(told, file=sys.stderr)
                found |= told
        return found


@asynccontextmanager
async def churning(cluster: Cluster) -> AsyncIterator[None]:
    """Jobs end and come meanwhile."""
    async with asyncio.TaskGroup() as group:
        task = group.create_task(cluster.churn())
        yield
        task.cancel()


async def lists(session: aiohttp.ClientSession, base: str, cluster: Cluster) -> dict[str, Any]:
    """Milliseconds of lists for who may see everything and for one tenant; bytes of the overview as a browser gets it.

    `cold`: the first list of a tenant of whom nothing is known yet.
    """
    leaves = [queue.path for queue in cluster.tree if cluster.tree.is_leaf(queue.path)]
    tenant = leaves[0].rpartition(".")[2]
    took: defaultdict[str, list[float]] = defaultdict(list)
    cold = [await timed(session, f"{base}/workloads", leaf.rpartition(".")[2]) for leaf in leaves[1:11]]
    for turn in range(12):
        pending = ("root", leaves[turn % len(leaves)], "root.g03")
        paths = [*SHOWN, *(f"/workloads{f}" for f in FILTERS), *(f"/queues/{q}/pending" for q in pending)]
        for path in paths:
            for user in (ADMIN, tenant):
                name = "/queues/{path}/pending" if path.endswith("/pending") else path
                took[name].append(await timed(session, f"{base}{path}", user))
    every = [
        each for path, found in took.items() if path not in ("/overview", "/fair-share") for each in found
    ]
    return {
        "lists": sum(len(each) for each in took.values()),
        "list_p95_ms": round(percentile(every, 0.95), 1),
        "list_p99_ms": round(percentile(every, 0.99), 1),
        "slowest_p95_ms": dict(
            sorted(((path, round(percentile(t, 0.95), 1)) for path, t in took.items()), key=lambda i: -i[1])[
                :6
            ]
        ),
        "cold_list_ms": round(percentile(cold, 0.95), 1),
        "overview_kb": round(await size_of(session, f"{base}/overview") / 1000, 1),
        "queues_kb": round(await size_of(session, f"{base}/queues") / 1000, 1),
    }


async def timed(session: aiohttp.ClientSession, url: str, user: str) -> float:
    """Milliseconds until an answer is there as a whole."""
    began = time.perf_counter()
    async with session.get(url, headers=_bearer(user)) as answer:
        await answer.read()
        answer.raise_for_status()
    return 1000 * (time.perf_counter() - began)


async def size_of(session: aiohttp.ClientSession, url: str) -> int:
    """Bytes of an answer on the wire, compressed."""
    headers = {**_bearer(ADMIN), "Accept-Encoding": "gzip"}
    async with (
        aiohttp.ClientSession(auto_decompress=False) as plain,
        plain.get(url, headers=headers) as answer,
    ):
        return len(await answer.read())


async def what_ifs(
    session: aiohttp.ClientSession, base: str, cluster: Cluster, *, seconds: float
) -> dict[str, Any]:
    """What-ifs one after the other for half of the time, in four parts by turns; what decisions took in each half."""
    without, beside = list[float](), list[float]()
    answers: list[tuple[float, str]] = []
    for _ in range(4):
        for into, asks in ((without, False), (beside, True)):
            begin = time.time()
            if asks:
                answers += await asked(session, base, cluster, seconds=seconds / 2)
            else:
                await asyncio.sleep(seconds / 2)
            into += decisions(cluster.scene, since=begin)
    took = [each for each, _ in answers]
    return {
        "whatif_p95_s": round(percentile(took, 0.95), 2),
        "whatif_p50_s": round(percentile(took, 0.5), 2),
        "whatifs": len(took),
        "answers": {
            word: sum(said == word for _, said in answers) for word in sorted({w for _, w in answers})
        },
        "decision_p99_rise": round(percentile(beside, 0.99) / percentile(without, 0.99) - 1, 3),
        "decision_p50_rise": round(percentile(beside, 0.5) / percentile(without, 0.5) - 1, 3),
        "decision_p99_s": round(percentile(without, 0.99), 3),
        "decisions": [len(without), len(beside)],
    }


async def asked(
    session: aiohttp.ClientSession, base: str, cluster: Cluster, *, seconds: float
) -> list[tuple[float, str]]:
    """What-ifs of many users, one after the other for so many seconds: what each took and said."""
    found, end = list[tuple[float, str]](), time.monotonic() + seconds
    while time.monotonic() < end:
        manifest = cluster.draw()
        body = {"job": manifest, "priority": cluster.rng.choice((0, 10, 100))}
        if cluster.rng.random() < 0.2:
            body["queueTree"] = _wider(manifest["metadata"]["labels"]["queuer.dev/queue"])
        began = time.perf_counter()
        headers = _bearer(manifest["metadata"]["namespace"])
        async with session.post(f"{base}/simulations", json=body, headers=headers) as answer:
            said = await answer.json()
        found.append((time.perf_counter() - began, said.get("answer", str(answer.status))))
    return found


def _wider(queue: str) -> dict[str, Any]:
    """A tree document that guarantees a queue more than it has."""
    row = {"resource": GPU, "guaranteed": 64, "limit": 512}
    return {"apiVersion": "queuer.dev/v1", "kind": "QueueTree", "queues": {queue: {"quota": [row]}}}


def decisions(at: Scene, *, since: float) -> list[float]:
    """Seconds that each decision took which the controller made since then and committed."""
    text = next(at.directory.glob("controller-*.log")).read_text()
    rows = [json.loads(line) for line in text.splitlines() if '"event": "cycle"' in line]
    return [row["effort"] for row in rows if datetime.fromisoformat(row["timestamp"]).timestamp() >= since]


def _users(cluster: Cluster) -> list[str]:
    """Who may see everything, then a tenant of each leaf."""
    leaves = (queue.path for queue in cluster.tree if cluster.tree.is_leaf(queue.path))
    return [ADMIN, *(leaf.rpartition(".")[2] for leaf in leaves)]


def _bearer(user: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {user}"}


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = load.parser("bench.api", __doc__, seconds=60.0, of="that each part is watched")
    made.add_argument("--clients", type=arguments.positive, default=300, help="live views")
    return made


def main() -> None:
    """Print the figures."""
    given = parser().parse_args()
    found = asyncio.run(
        measured(load.size_of(given), seed=given.first, seconds=given.seconds, clients=given.clients)
    )
    print(json.dumps(found, indent=None if given.json else 1))


if __name__ == "__main__":
    main()
