"""Small worlds of gangs of one pod in one queue, where some of what runs may go for them: with few GPUs anywhere, whose
work is lost at one turn decides who has room at a later one.
"""

from __future__ import annotations

from random import Random

from queuer.domain.queue import Policy
from queuer.solver.problem import Snapshot
from tests.solver.cases import NOW
from tests.solver.make import gang, node, pod_set, queue, running, snapshot

QUEUES = (queue("root"), queue("root.a", policy=Policy(reservations=0)))


def single(seed: int) -> Snapshot:
    """The world of a seed, at `NOW`."""
    rng = Random(f"single {seed}")
    sizes = [rng.choice((4, 6, 8)) for _ in range(rng.randint(2, 4))]
    left, admitted = list(sizes), []
    for i in range(rng.randint(2, 6)):
        at, gpus = rng.randrange(len(sizes)), rng.randint(1, 4)
        if left[at] >= gpus:
            left[at] -= gpus
            work = gang(f"r{i}", pod_set(1, gpus), priority=rng.choice((0, 0, 1, 5)))
            admitted.append(running(work, {f"n{at}": 1}, since=NOW - rng.randint(100, 3000)))
    pending = [
        gang(f"g{i}", pod_set(1, rng.randint(1, 8)), priority=rng.randint(0, 2), submitted=float(i))
        for i in range(rng.randint(2, 5))
    ]
    nodes = [node(f"n{i}", gpu=gpus) for i, gpus in enumerate(sizes)]
    return snapshot(nodes, QUEUES, admitted=admitted, pending=pending)
