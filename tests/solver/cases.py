"""Random small worlds for comparisons with brute force: a few nodes, queues and gangs, with victims, levels, flavors
and guarantees that are not lent.

`pick(low, high)` is any source of integers, so hypothesis can shrink them and a seeded generator can replay them.
Submit times differ, so that no order is left to chance.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from queuer.domain.nodes import Flavor, Node, Topology
from queuer.domain.queue import Policy, Preempt, Queue, QuotaRow, Sharing
from queuer.domain.workload import PodSet, Workload
from queuer.solver.problem import Admitted, Snapshot
from tests.solver.make import GPU, gang, node, pod_set, queue, running, snapshot

Pick = Callable[[int, int], int]
NOW = 0.0
MOST_NODES, MOST_GANGS, MOST_QUEUES = 6, 6, 5


def seeded(seed: int) -> Snapshot:
    """The world of a seed."""
    return world(Random(seed).randint)


def world(pick: Pick) -> Snapshot:
    """Any small world."""
    flavors = (Flavor(name="x", node_labels={"f": "x"}), Flavor(name="y", node_labels={"f": "y"}))
    several = pick(0, 2) == 0
    nodes = [_node(i, pick, several) for i in range(pick(1, MOST_NODES))]
    queues = _queues(pick, several)
    leaves = [q.path for q in queues if not any(o.parent == q.path for o in queues) and q.path != "root"]
    admitted = _running(nodes, leaves, pick, several)
    pending = [_gang(i, leaves, pick) for i in range(pick(1, MOST_GANGS))]
    return snapshot(
        nodes,
        queues,
        admitted=admitted,
        pending=pending,
        flavors=flavors if several else (),
        topology=Topology(keys=("rack",)),
    )


def _node(i: int, pick: Pick, several: bool) -> Node:
    labels = {"rack": f"r{pick(0, 1)}"} if pick(0, 7) else {}
    if several:
        labels["f"] = "xy"[pick(0, 1)]
    return node(f"n{i}", gpu=pick(1, 6), labels=labels, unschedulable=pick(0, 15) == 0)


def _queues(pick: Pick, several: bool) -> list[Queue]:
    paths = [
        ["root.a"],
        ["root.a", "root.b"],
        ["root.a", "root.b", "root.c"],
        ["root.a", "root.b", "root.b.x", "root.b.y"],
    ][pick(0, 3)]
    inner = {p for p in paths if any(o.startswith(f"{p}.") for o in paths)}
    found = [_queue(path, pick, several, stated=path not in inner) for path in paths]
    root = Policy(
        preempt=[Preempt.WITHIN_QUEUE, Preempt.NEVER, Preempt.LOWER_PRIORITY][pick(0, 2)],
        sharing=[Sharing.FAIR, Sharing.PRIORITY][pick(0, 3) == 0],
    )
    return [queue("root", policy=root), *found]


def _queue(path: str, pick: Pick, several: bool, *, stated: bool) -> Queue:
    rows = []
    if pick(0, 3) and stated:
        flavor = "xy"[pick(0, 1)] if several and pick(0, 1) else None
        guaranteed = pick(1, 8)
        lend = pick(0, guaranteed) if pick(0, 2) == 0 else None
        limit = guaranteed + pick(0, 6) if pick(0, 2) == 0 else None
        rows.append(QuotaRow(resource=GPU, flavor=flavor, guaranteed=guaranteed, limit=limit, lend=lend))
    elif pick(0, 2) == 0:
        rows.append(QuotaRow(resource=GPU, limit=pick(3, 12)))
    return queue(path, *rows, weight=float(pick(1, 3)), policy=Policy(reclaim=bool(pick(0, 7))))


def _running(nodes: list[Node], leaves: list[str], pick: Pick, several: bool) -> list[Admitted]:
    found: list[Admitted] = []
    for n in nodes:
        left = n.allocatable[GPU]
        while left and pick(0, 2):
            size = pick(1, left)
            left -= size
            number = len(found)
            job = gang(
                f"v{number}",
                pod_set(1, size),
                queue=leaves[pick(0, len(leaves) - 1)],
                submitted=-200.0 + number,
                priority=pick(0, 1),
                preemptible=bool(pick(0, 5)),
            )
            flavor = n.labels["f"] if several else "default"
            found.append(running(job, {n.name: 1}, since=-float(pick(1, 50)), flavor=flavor))
    return found


def _gang(i: int, leaves: list[str], pick: Pick) -> Workload:
    sets: list[PodSet] = [pod_set(pick(1, 3), pick(1, 4), exclusive_host=pick(0, 5) == 0)]
    if pick(0, 4) == 0:
        sets.append(pod_set(1, pick(1, 3), name="second"))
    level = [None, None, "rack", "host"][pick(0, 3)]
    return gang(
        f"g{i}",
        *sets,
        queue=leaves[pick(0, len(leaves) - 1)],
        submitted=-100.0 + i,
        priority=pick(0, 2),
        required=level,
        preemptible=bool(pick(0, 6)),
    )
