"""Clusters as docs/decision.md tells of them: GPUs on nodes in racks, and jobs of whole nodes."""

from __future__ import annotations

from dataclasses import replace

from queuer.domain.nodes import HOSTNAME, Node, Topology
from queuer.domain.queue import Queue, QueueTree, QuotaRow
from queuer.domain.workload import PodSet, Workload
from queuer.solver.records import Admitted, NodeState, Pending, Snapshot


def job(uid: str, pods: int, gpus: int, *, queue: str = "root.a", **more: object) -> Workload:
    """A gang named after its uid."""
    made = Workload(
        uid=uid,
        kind="Job",
        namespace="default",
        name=uid,
        queue=queue,
        pod_sets=(PodSet(name="main", count=pods, requests={"gpu": gpus, "pods": 1}),),
        submitted=0.0,
    )
    return replace(made, **more)  # type: ignore[arg-type]


def runs(workload: Workload, *nodes: str, since: float = 0.0, ends: float | None = None) -> Admitted:
    """One pod on each of these nodes."""
    requests = workload.pod_sets[0].requests
    return Admitted(
        workload=workload,
        counts={"main": len(nodes)},
        flavors={"main": "default"},
        since=since,
        bound=dict.fromkeys(nodes, requests),
        expected_end=ends,
    )


def cluster(
    nodes: dict[str, str], gpus: int, queues: list[Queue], admitted: list[Admitted], waiting: list[Workload]
) -> Snapshot:
    """Nodes by name with their rack."""
    used: dict[str, dict[str, int]] = {name: {} for name in nodes}
    for one in admitted:
        for name, amounts in one.bound.items():
            used[name] = {r: used[name].get(r, 0) + n for r, n in amounts.items()}
    return Snapshot(
        nodes=tuple(
            NodeState(
                node=Node(
                    name=name, labels={HOSTNAME: name, "rack": rack}, allocatable={"gpu": gpus, "pods": 110}
                ),
                used=used[name],
            )
            for name, rack in nodes.items()
        ),
        tree=QueueTree.of(queues),
        topology=Topology(keys=("rack",)),
        admitted=tuple(admitted),
        pending=tuple(Pending(workload=w) for w in waiting),
    )


def guaranteed(path: str, amount: int) -> Queue:
    """A queue with so many GPUs of its own."""
    return Queue(path=path, quota=(QuotaRow(resource="gpu", guaranteed=amount),))
