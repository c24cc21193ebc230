"""Random small worlds for property tests: nodes, topology, queues with quota, running and waiting work.

Everything that `decide()` must cope with occurs: flavors, levels, lend, limits, foreign pods, cordons, elastic gangs,
several pod sets, bonds and landing gangs. A world is drawn from one seed.
"""

from __future__ import annotations

import random
from dataclasses import replace
from random import Random

from queuer.domain.nodes import HOSTNAME, Flavor, Node, SchedulingTerms, Topology
from queuer.domain.quantity import add
from queuer.domain.queue import Order, Policy, Preempt, Queue, QueueTree, QuotaRow, Sharing
from queuer.domain.workload import PodSet, Workload, demand_of
from queuer.solver.records import Admitted, NodeState, Pending, Snapshot, Unbound

GPU = "example.com/gpu"
NOW = 10_000.0


def world(seed: int, *, nodes: int = 8, pending: int = 10, running: int = 8) -> Snapshot:
    """A random snapshot at time NOW."""
    rng = random.Random(seed)
    flavors = _flavors(rng)
    made = _nodes(rng, rng.randint(2, nodes), flavors)
    tree = _tree(rng, made, flavors)
    used: dict[str, dict[str, int]] = {n.name: {} for n in made}
    for node in made:
        if rng.random() < 0.2:
            used[node.name] = {"cpu": 1000 * rng.randint(1, 3), "pods": 1}
    admitted = []
    room: list[tuple[str, dict[str, int]]] = []
    for i in range(rng.randint(0, running)):
        got = _run(rng, i, tree, made, flavors, used, room)
        if got is not None:
            admitted.append(got)
    for name, amounts in room:  # kept while the others were drawn: landing pods do have a place
        used[name] = add(used[name], amounts, times=-1)
    return Snapshot(
        nodes=tuple(NodeState(node=n, used=used[n.name]) for n in made),
        tree=tree,
        topology=Topology(keys=("block", "rack")),
        flavors=flavors,
        admitted=tuple(admitted),
        pending=tuple(_pending(rng, i, tree, made) for i in range(rng.randint(1, pending))),
    )


def packed(snapshot: Snapshot, seed: int) -> Snapshot:
    """The same world with a packed subtree: everything, or all below one child of root."""
    root = Random(seed).choice(("root", *snapshot.tree.children["root"]))
    queues = [
        replace(q, policy=replace(q.policy, order=Order.PACKED))
        if root in snapshot.tree.lineage(q.path)
        else q
        for q in snapshot.tree
    ]
    return replace(snapshot, tree=QueueTree.of(queues))


def _flavors(rng: random.Random) -> tuple[Flavor, ...]:
    if rng.random() < 0.5:
        return ()
    return (Flavor(name="f1", node_labels={"pool": "f1"}), Flavor(name="f2", node_labels={"pool": "f2"}))


def _nodes(rng: random.Random, count: int, flavors: tuple[Flavor, ...]) -> list[Node]:
    made = []
    for i in range(count):
        labels = {"block": f"b{i // 4}", "rack": f"r{i // 2}", HOSTNAME: f"n{i}"}
        if rng.random() < 0.05:
            del labels["rack"]
        if flavors:
            labels["pool"] = rng.choice(("f1", "f2"))
        there = {
            GPU: rng.choice((2, 4, 4)),
            "cpu": 1000 * rng.choice((4, 8, 16)),
            "pods": rng.choice((4, 110)),
        }
        made.append(Node(name=f"n{i}", labels=labels, allocatable=there, unschedulable=rng.random() < 0.05))
    return made


def _tree(rng: random.Random, nodes: list[Node], flavors: tuple[Flavor, ...]) -> QueueTree:
    total = sum(n.allocatable[GPU] for n in nodes)
    left = total
    queues = [Queue(path="root", policy=_policy(rng))]
    leaves = ["root.a", "root.b", "root.c.x", "root.c.y"][: rng.randint(1, 4)]
    if any(path.startswith("root.c.") for path in leaves):
        queues.append(Queue(path="root.c", policy=_policy(rng)))
    for path in leaves:
        rows = []
        if rng.random() < 0.7:
            guaranteed = rng.randint(0, max(0, left // 2))
            left -= guaranteed
            limit = rng.choice((None, guaranteed + rng.randint(0, 4)))
            lend = rng.choice((None, None, rng.randint(0, guaranteed)))
            if flavors and rng.random() < 0.5:
                order = rng.sample(("f1", "f2"), rng.randint(1, 2))
                rows.append(
                    QuotaRow(resource=GPU, flavor=order[0], guaranteed=guaranteed, limit=limit, lend=lend)
                )
                rows += [
                    QuotaRow(resource=GPU, flavor=name, limit=rng.choice((None, 6))) for name in order[1:]
                ]
            else:
                rows.append(QuotaRow(resource=GPU, guaranteed=guaranteed, limit=limit, lend=lend))
        queues.append(
            Queue(path=path, weight=float(rng.randint(1, 3)), quota=tuple(rows), policy=_policy(rng))
        )
    return QueueTree.of(queues)


def _policy(rng: random.Random) -> Policy:
    return Policy(
        order=rng.choice((None, None, None, Order.STRICT)),
        sharing=rng.choice((None, None, Sharing.PRIORITY)),
        preempt=rng.choice((None, None, Preempt.NEVER, Preempt.LOWER_PRIORITY)),
        reclaim=rng.choice((None, None, False)),
        min_runtime=rng.choice((None, None, 600.0)),
    )


def _pod_sets(rng: random.Random) -> tuple[PodSet, ...]:
    names = ("main",) if rng.random() < 0.7 else ("master", "worker")
    made = []
    for name in names:
        count = rng.choice((1, 1, 2, 3, 4)) if name != "master" else 1
        requests = {GPU: rng.choice((0, 1, 1, 2, 4)), "cpu": 1000 * rng.randint(1, 4), "pods": 1}
        least = rng.randint(1, count) if rng.random() < 0.2 else None
        made.append(
            PodSet(
                name=name, count=count, min_count=least, requests=requests, exclusive_host=rng.random() < 0.1
            )
        )
    return tuple(made)


def _workload(
    rng: random.Random, uid: str, queue: str, pod_sets: tuple[PodSet, ...], submitted: float
) -> Workload:
    return Workload(
        uid=uid,
        kind="Job",
        namespace="d",
        name=uid,
        queue=queue,
        pod_sets=pod_sets,
        submitted=submitted,
        priority=rng.choice((0, 0, 1, 5)),
        preemptible=rng.random() < 0.85,
        estimate=rng.choice((None, 300.0, 3_000.0)),
    )


def _pending(rng: random.Random, i: int, tree: QueueTree, nodes: list[Node]) -> Pending:
    pod_sets = _pod_sets(rng)
    if rng.random() < 0.1:
        selector = SchedulingTerms(node_selector={"pool": "f1"})
        pod_sets = tuple(replace(p, terms=selector) for p in pod_sets)
    workload = _workload(rng, f"p{i}", rng.choice(tree.leaves), pod_sets, NOW - rng.randint(0, 500))
    level = rng.choice((None, None, "rack", "block", "host"))
    if level is not None:
        required = rng.random() < 0.5
        workload = replace(workload, required=level) if required else replace(workload, preferred=level)
    workload = replace(workload, hold=rng.random() < 0.05)
    avoid = frozenset({rng.choice(nodes).name}) if rng.random() < 0.05 else frozenset()
    return Pending(workload=workload, avoid=avoid, first=rng.random() < 0.05)


def _run(
    rng: random.Random,
    i: int,
    tree: QueueTree,
    nodes: list[Node],
    flavors: tuple[Flavor, ...],
    used: dict[str, dict[str, int]],
    room: list[tuple[str, dict[str, int]]],
) -> Admitted | None:
    """A running gang put where there is room, quota aside: over-use is legal."""
    flavor = rng.choice([f.name for f in flavors]) if flavors else "default"
    inside = [n for n in nodes if not flavors or n.labels.get("pool") == flavor]
    pod_sets = _pod_sets(rng)
    bound: dict[str, dict[str, int]] = {}
    for pod_set in pod_sets:
        for _ in range(pod_set.count):
            taken = {n.name: add(used[n.name], bound.get(n.name, {})) for n in inside}
            fits = [
                n
                for n in inside
                if all(
                    taken[n.name].get(r, 0) + a <= n.allocatable.get(r, 0)
                    for r, a in pod_set.requests.items()
                )
            ]
            if not fits:
                return None
            name = rng.choice(fits).name
            bound[name] = add(bound.get(name, {}), pod_set.requests)
    landing = rng.random() < 0.15 and len(pod_sets) == 1
    for name, amounts in bound.items():
        used[name] = add(used[name], amounts)
        if landing:
            room.append((name, amounts))
    workload = _workload(rng, f"r{i}", rng.choice(tree.leaves), pod_sets, NOW - 5_000)
    counts = {p.name: p.count for p in pod_sets}
    since = NOW - rng.choice((10, 300, 4_000))
    assert demand_of(pod_sets, counts)
    return Admitted(
        workload=workload,
        counts=counts,
        flavors={p.name: flavor for p in pod_sets},
        since=since,
        bound={} if landing else bound,
        unbound=(Unbound(pod_set="main", count=pod_sets[0].count, hosts=tuple(sorted(bound))),)
        if landing
        else (),
        releasing=rng.random() < 0.1 and not landing,
        expected_end=None if workload.estimate is None else since + workload.estimate,
    )
