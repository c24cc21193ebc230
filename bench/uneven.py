"""Seconds of a decision on small clusters whose nodes are shared unevenly: `python -m bench.uneven --help`.

GPUs, CPU and memory of pods are in no proportion there, nearly every gang has a leader, and much is to be taken back at
once (`bench/instances.md`, *Uneven*). Prints what `bench.decide` prints, and `p90_cpu_s`.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass
from importlib import import_module
from random import Random

from bench import arguments
from bench.decide import Run, run, summary
from bench.instances import CHANCES, GPU, KEYS, NOW, PER_NODE, PRIORITIES, node_at
from queuer.domain.nodes import Topology
from queuer.domain.queue import Queue, QueueTree, QuotaRow
from queuer.domain.workload import PodSet, Workload
from queuer.sim.report import quantile
from queuer.solver.arrays import Arrays
from queuer.solver.records import Admitted, Budget, NodeState, Pending, Snapshot

NODES, WAITING = (12, 16, 24, 32, 40, 64, 80), (10, 20, 40, 60)
FILLS, LEVELS = (0.5, 0.8, 0.9, 0.97), (0.0, 0.2, 0.6)
BUSY, QUEUES = "root.busy", ("root.t0", "root.t1", "root.t2")
GIB = 2**30


@dataclass(slots=True)
class _Node:
    state: NodeState
    free: dict[str, int]


def uneven(seed: int) -> Snapshot:
    """A cluster at time NOW, its size drawn, too."""
    rng = Random(seed)
    nodes, waiting = rng.choice(NODES), rng.choice(WAITING)
    fill, levels = rng.choice(FILLS), rng.choice(LEVELS)
    cluster = [
        _Node(state, dict(state.node.allocatable)) for state in (node_at(i, used=0) for i in range(nodes))
    ]
    running, asked = list[Admitted](), 0
    while asked < fill * nodes * PER_NODE:
        one = _running(rng, cluster, number=len(running))
        asked += 1 if one is None else one.workload.pod_sets[0].count * one.workload.pod_sets[0].requests[GPU]
        running += [] if one is None else [one]
    guaranteed = QuotaRow(resource=GPU, guaranteed=nodes * PER_NODE // len(QUEUES))
    return Snapshot(
        nodes=tuple(NodeState(node=n.state.node, used=_used(n)) for n in cluster),
        tree=QueueTree.of(
            [Queue(path="root"), Queue(path=BUSY), *(Queue(path=q, quota=(guaranteed,)) for q in QUEUES)]
        ),
        topology=Topology(keys=KEYS),
        admitted=tuple(running),
        pending=tuple(_waiting(rng, number, levels) for number in range(waiting)),
    )


def _used(node: _Node) -> dict[str, int]:
    return {resource: whole - node.free[resource] for resource, whole in node.state.node.allocatable.items()}


def _running(rng: Random, cluster: list[_Node], *, number: int) -> Admitted | None:
    """On the first of the nodes in random order that have room; None = there is not enough."""
    count, gpus = rng.choice((1, 1, 1, 2, 4)), rng.choice((1, 1, 2, 3))
    requests = _requests(gpus, cpu=rng.choice((4, 8, 12)) * gpus, memory=rng.choice((32, 64)) * gpus)
    spread = list[_Node]()
    for node in rng.sample(cluster, len(cluster)):
        while len(spread) < count and all(node.free[r] >= n for r, n in requests.items()):
            _take(node, requests)
            spread.append(node)
    if len(spread) < count:
        for node in spread:
            _take(node, requests, times=-1)
        return None
    bound: dict[str, dict[str, int]] = {}
    for node in spread:
        there = bound.setdefault(node.state.node.name, dict.fromkeys(requests, 0))
        for resource, amount in requests.items():
            there[resource] += amount
    since = NOW - 60.0 * round(60 * rng.lognormvariate(0, 1))
    workload = _workload(
        rng,
        f"r{number:04}",
        BUSY,
        (PodSet(name="main", count=count, requests=requests),),
        submitted=since - 600,
    )
    return Admitted(
        workload=workload, counts={"main": count}, flavors={"main": "default"}, since=since, bound=bound
    )


def _waiting(rng: Random, number: int, levels: float) -> Pending:
    count, gpus = rng.choice((2, 4, 6, 8, 12, 16, 20, 24)), rng.choices((1, 2, 3), weights=(5, 3, 1))[0]
    requests = _requests(gpus, cpu=rng.choice((6, 8, 10, 12)) * gpus, memory=rng.choice((32, 64, 100)) * gpus)
    sets = [PodSet(name="worker", count=count, requests=requests)]
    if rng.random() < 0.85:
        own = rng.choice((1, gpus)) if rng.random() < 0.7 else 0
        sets.insert(
            0, PodSet(name="master", count=1, requests=_requests(own, cpu=rng.choice((4, 8, 16)), memory=32))
        )
    asks = rng.random() < levels and count * gpus <= 48
    level = rng.choice(("rack", "block")) if asks else None
    return Pending(
        workload=_workload(
            rng,
            f"w{number:04}",
            rng.choice(QUEUES),
            tuple(sets),
            submitted=NOW - round(rng.uniform(0, 86_400)),
            level=level,
        )
    )


def _requests(gpus: int, *, cpu: int, memory: int) -> dict[str, int]:
    """Of one pod. `cpu`: cores; `memory`: GiB."""
    return {**({GPU: gpus} if gpus else {}), "cpu": 1_000 * cpu, "memory": memory * GIB, "pods": 1}


def _workload(
    rng: Random,
    uid: str,
    queue: str,
    sets: tuple[PodSet, ...],
    *,
    submitted: float,
    level: str | None = None,
) -> Workload:
    return Workload(
        uid=uid,
        kind="PyTorchJob",
        namespace="bench",
        name=uid,
        queue=queue,
        pod_sets=sets,
        submitted=submitted,
        priority=rng.choices(PRIORITIES, CHANCES)[0],
        required=level,
    )


def _take(node: _Node, requests: dict[str, int], *, times: int = 1) -> None:
    for resource, amount in requests.items():
        node.free[resource] -= amount * times


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(prog="python -m bench.uneven", description=__doc__)
    made.add_argument("--first", type=arguments.seed, default=1, help="the first seed")
    made.add_argument("--seeds", type=arguments.positive, default=40, help="instances")
    made.add_argument("--budget", type=arguments.amount, default=2.0, help="deterministic time of CP-SAT")
    made.add_argument("--json", action="store_true", help="the figures alone, without a line per seed")
    return made


def main() -> None:
    """Print the figures; exit 1 where a plan is unsound, or worse than without CP-SAT."""
    given = parser().parse_args()
    import_module("ortools.sat.python.cp_model")  # as in the solver process, which has it loaded
    runs = list[Run]()
    for seed in range(given.first, given.first + given.seeds):
        snapshot = uneven(seed)
        done = run(
            Arrays.of(snapshot), snapshot, now=NOW, seed=seed, budget=Budget(deterministic=given.budget)
        )
        runs.append(done)
        if not given.json:
            plan, stats = done.plan, done.plan.stats
            print(
                f"seed {seed}: {done.cpu:.2f} s, {len(snapshot.nodes)} nodes, {len(snapshot.pending)} waiting, "
                f"{len(plan.admissions)} start, {len(plan.bonds)} bound, {len(plan.evictions)} evicted, "
                f"{stats.repaired} of {stats.contested} contested",
                file=sys.stderr,
            )
    figures = {"p90_cpu_s": round(quantile([r.cpu for r in runs], 0.9), 4), **summary(runs)}
    print(json.dumps(figures))
    sys.exit(1 if figures["violations"] or figures["worse_than_greedy"] else 0)


if __name__ == "__main__":
    main()
