"""The cluster that lists, what-ifs and live views are measured on: 2,000 nodes, 300 queues, 10,000 jobs that wait.

`bench/instances.md` says how gangs, priorities and guarantees are drawn. The controller fills the cluster itself.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from random import Random
from typing import Any

from bench import arguments
from bench.instances import CHANCES, GPU, KEYS, PRIORITIES, Form, Mix, draw_form, instance, node_at
from bench.kubelet import Kubelet
from bench.scene import Scene, until
from queuer.domain.document import TreeDocument
from queuer.domain.keys import USER
from queuer.domain.nodes import HOSTNAME, Topology
from queuer.domain.quantity import format_resources
from queuer.domain.queue import Access, PerUser, Queue, QueueTree
from queuer.kube.objects import JOBS, NODES, PRIORITY_CLASSES


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How large it is. `jobs`: all, those that will run included.

    `limit`: of a leaf, as a part of its drawn guarantee, and then what it is guaranteed, too. `per_user`: of that, what
    a user of every second leaf may have.
    """

    nodes: int
    queues: int
    jobs: int
    limit: float | None = None
    per_user: float | None = None


LOAD = Size(nodes=2000, queues=300, jobs=12_200)


def parser(name: str, told: str | None, *, seconds: float, of: str) -> argparse.ArgumentParser:
    """The command line of a bench on this cluster. `of`: what takes so many `seconds`."""
    made = argparse.ArgumentParser(prog=f"python -m {name}", description=told)
    made.add_argument("--nodes", type=arguments.positive, default=LOAD.nodes, help="nodes with 8 GPUs each")
    made.add_argument("--queues", type=arguments.positive, default=LOAD.queues, help="leaves of the tree")
    made.add_argument(
        "--jobs", type=arguments.positive, default=LOAD.jobs, help="jobs, running ones included"
    )
    made.add_argument("--seconds", type=arguments.above_zero, default=seconds, help=of)
    made.add_argument("--first", type=arguments.seed, default=1, help="seed")
    made.add_argument("--json", action="store_true", help="on one line")
    return made


def size_of(given: argparse.Namespace) -> Size:
    """What was given."""
    return Size(nodes=given.nodes, queues=given.queues, jobs=given.jobs)


@dataclass(slots=True)
class Cluster:
    """A full cluster in a scene. Each leaf serves the namespace of its last name."""

    scene: Scene
    tree: QueueTree
    kubelet: Kubelet
    rng: Random
    jobs: dict[str, dict[str, Any]] = field(default_factory=dict)

    def submit(self, manifest: Mapping[str, Any] | None = None) -> str:
        """Create a job, one that is drawn if none is given; answers its uid."""
        number = len(self.jobs)
        job = dict(manifest or self.draw())
        meta = job["metadata"]
        uid = f"j{number:06}"
        made = {
            "name": uid,
            "uid": uid,
            "annotations": {},
            "creationTimestamp": datetime.now(UTC).isoformat(),
        }
        job |= {"metadata": {**made, **meta}, "status": {}}
        job["spec"] = {**job["spec"], "suspend": True}
        self.jobs[uid] = job
        self.scene.server.put(JOBS, job)
        return uid

    def draw(self) -> dict[str, Any]:
        """A job of some queue, by their guarantees, as its user writes it."""
        leaves = [queue for queue in self.tree if self.tree.is_leaf(queue.path)]
        weights = [queue.quota[0].guaranteed or 1 for queue in leaves]
        path = self.rng.choices(leaves, weights)[0].path
        made = manifest_of(
            draw_form(self.rng, Mix.MIXED), queue=path, priority=self.rng.choices(PRIORITIES, CHANCES)[0]
        )
        made["metadata"]["annotations"][USER] = f"{path.rpartition('.')[2]}-{len(self.jobs) % 2}"
        return made

    def end(self, count: int) -> None:
        """So many jobs succeed."""
        for uid in self.rng.sample(self.kubelet.running, min(count, len(self.kubelet.running))):
            self.kubelet.finish(self.now(uid))

    def now(self, uid: str) -> dict[str, Any]:
        """The job as it is in Kubernetes."""
        meta = self.jobs[uid]["metadata"]
        return self.scene.server.one(JOBS, meta["name"], namespace=meta["namespace"])

    async def churn(self, *, every: float = 1.0, jobs: int = 8) -> None:
        """Until cancelled: so many jobs end, and as many come."""
        while True:
            self.end(jobs)
            for _ in range(jobs):
                self.submit()
            await asyncio.sleep(every)


def manifest_of(form: Form, *, queue: str, priority: int) -> dict[str, Any]:
    """A Job of one pod set as its user writes it."""
    requests = {GPU: form.gpus, "cpu": 8_000 * form.gpus, "memory": form.gpus * 64 * 2**30}
    amounts = format_resources(requests)
    pod = {
        "containers": [{"name": "main", "image": "x", "resources": {"requests": amounts, "limits": amounts}}]
    }
    notes = {"queuer.dev/topology-required": form.required} if form.required else {}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "namespace": queue.rpartition(".")[2],
            "labels": {"queuer.dev/queue": queue, "queuer.dev/priority-class": f"p{priority}"},
            "annotations": notes,
        },
        "spec": {"parallelism": form.pods, "completions": form.pods, "template": {"spec": pod}},
    }


async def filled(scene: Scene, size: Size, *, seed: int) -> Cluster:
    """The cluster, once the controller has looked at every job. A few may still move."""
    drawn = instance(nodes=size.nodes, pending=0, queues=size.queues, mix=Mix.MIXED, fill=1.0, seed=seed).tree
    queues = tuple(_serving(queue, size) if drawn.is_leaf(queue.path) else queue for queue in drawn)
    await scene.configure(TreeDocument(queues=queues, topology=Topology(keys=(*KEYS, HOSTNAME))))
    for number in range(size.nodes):
        scene.server.put(NODES, _node(number))
    for value in PRIORITIES:
        name = f"p{value}"
        scene.server.put(PRIORITY_CLASSES, {"metadata": {"name": name, "uid": name}, "value": value})
    made = Cluster(scene=scene, tree=QueueTree.of(queues), kubelet=Kubelet(scene.server), rng=Random(seed))
    for _ in range(size.jobs):
        made.submit()
    await scene.phase(await scene.start(), "leading")
    await until(lambda: _all_told(scene, size.jobs), seconds=300, what="every job runs or knows why not")
    return made


def _serving(leaf: Queue, size: Size) -> Queue:
    name = leaf.path.rpartition(".")[2]
    rows, access = leaf.quota, leaf.access
    if size.limit is not None:
        amounts = [int(size.limit * (row.guaranteed or 0)) + 1 for row in rows]
        rows = tuple(replace(row, guaranteed=n, limit=n) for row, n in zip(rows, amounts, strict=True))
    if size.per_user is not None and int(name[1:]) % 2:
        gpus = next(row.guaranteed or 0 for row in rows if row.resource == GPU)
        access = Access(per_user=PerUser(limits={GPU: int(size.per_user * gpus) + 1}))
    return replace(leaf, namespaces=(name,), quota=rows, access=access)


async def _all_told(scene: Scene, jobs: int) -> bool:
    return (
        await scene.value("SELECT count(*) FROM workload WHERE token IS NOT NULL OR state = 'Running'")
        >= jobs - 100
    )


def _node(number: int) -> dict[str, Any]:
    node = node_at(number, used=0).node
    return {
        "metadata": {"name": node.name, "uid": node.name, "labels": dict(node.labels)},
        "spec": {},
        "status": {
            "allocatable": dict(format_resources(node.allocatable)),
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }
