"""Clusters of a few nodes on which gangs are in each other's way: by their places, or as they land."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from queuer.domain.queue import Policy, Preempt
from queuer.domain.workload import PodSet, Workload
from queuer.solver.problem import Pending, Snapshot
from tests.solver.make import gang, node, pod_set, queue, snapshot

QUIET = Policy(preempt=Preempt.NEVER, reservations=0)


def world(sizes: Sequence[int], *waiting: Workload | Pending, racks: Sequence[str] = ()) -> Snapshot:
    """Nodes n0, n1, … with so many GPUs."""
    names = racks or ["r"] * len(sizes)
    nodes = [
        node(f"n{i}", gpu=size, labels={"block": "b", "rack": rack})
        for i, (size, rack) in enumerate(zip(sizes, names, strict=True))
    ]
    return snapshot(nodes, [queue("root.a", policy=QUIET)], pending=waiting)


def drawn(seed: int) -> Snapshot:
    """Three to seven nodes in racks of three, gangs of two and more pods, some with a leader."""
    rng = Random(seed)
    nodes = rng.randint(3, 7)

    def sets() -> list[PodSet]:
        workers = pod_set(rng.choice((1, 2, 2, 3, 3, 4)), rng.choice((1, 2, 2, 3, 4, 4)))
        return [pod_set(1, 1, name="leader"), workers] if rng.random() < 0.3 else [workers]

    waiting = [
        gang(f"w{i}", *sets(), submitted=float(i), required=rng.choice((None, None, "rack")))
        for i in range(rng.randint(2, 7))
    ]
    sizes = [rng.choice((2, 4, 4, 5, 8, 8)) for _ in range(nodes)]
    return world(sizes, *waiting, racks=[f"r{i // 3}" for i in range(nodes)])


def crowded(seed: int) -> Snapshot:
    """Gangs of few shapes that fill the nodes nearly, some with their pods in one rack or apart: contested ones."""
    random = Random(seed)
    nodes = [node(f"n{i}", gpu=random.randint(4, 8), labels={"rack": f"r{i // 2}"}) for i in range(4)]
    jobs = [
        gang(
            f"g{i}",
            pod_set(random.randint(1, 3), random.choice((2, 3, 4)), exclusive_host=random.random() < 0.4),
            required=random.choice((None, "rack")),
            submitted=float(i),
        )
        for i in range(8)
    ]
    return snapshot(nodes, [queue("root"), queue("root.a")], pending=jobs)
