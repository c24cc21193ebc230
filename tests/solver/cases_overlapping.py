"""Small worlds in which two reservations stand on the same node, and work comes that outranks none, one or both."""

from __future__ import annotations

from random import Random

from queuer.domain.queue import Policy, Preempt
from queuer.solver.problem import Assignment, Reservation, Snapshot
from tests.solver.make import gang, node, pod_set, queue, running, snapshot

NODES = ("n0", "n1", "n2")


def overlapping(seed: int) -> Snapshot:
    """The world of a seed: three nodes of 4 GPUs at 100, the first of them named by both reservations."""
    rng = Random(seed)
    policy = Policy(preempt=Preempt.NEVER, reservations=3, max_wait=rng.choice((None, None, 50.0)))
    busy = [
        running(
            gang(f"r{name}", pod_set(1, rng.randint(0 if name == "n0" else 2, 2 if name == "n0" else 4))),
            {name: 1},
            since=0.0,
            expected_end=rng.choice((None, 150.0, 200.0, 300.0)),
        )
        for name in NODES
    ]
    one = pod_set(2, rng.randint(1, 2), exclusive_host=True)
    owners = [
        gang(uid, one, submitted=at, priority=rng.randint(0, 1)) for uid, at in (("A", 0.0), ("B", 1.0))
    ]
    others = [
        gang(
            f"g{i}",
            pod_set(1, rng.randint(1, 2)),
            submitted=10.0 + i,
            priority=rng.randint(0, 2),
            estimate=rng.choice((None, None, 50.0, 150.0)),
        )
        for i in range(rng.randint(1, 2))
    ]
    held = [
        Reservation(
            uid=uid,
            assignments=(Assignment(pod_set="main", flavor="default", nodes={"n0": 1, other: 1}),),
            start=rng.choice((150.0, 200.0, 300.0)),
            expires=900.0,
        )
        for uid, other in (("A", "n1"), ("B", rng.choice(("n1", "n2"))))
    ]
    nodes = [node(name, gpu=4) for name in NODES]
    queues = [queue("root", policy=policy), queue("root.a")]
    return snapshot(nodes, queues, admitted=busy, pending=[*owners, *others], reservations=tuple(held))
