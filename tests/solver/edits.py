"""Edits that people and machines make to a cluster between two cycles: nodes, flavors, levels, queues, jobs, what runs.

Whatever an edit does to what stands from the last cycle, the next one must have a plan.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

from queuer.domain.errors import InvalidInput
from queuer.domain.nodes import Flavor, Node, Taint, Topology
from queuer.domain.quantity import add
from queuer.domain.queue import Order, Preempt, Queue, QueueState, QueueTree, QuotaRow
from queuer.domain.workload import PodSet, Workload
from queuer.solver.problem import Admitted, NodeState, Pending, Snapshot
from queuer.solver.sound import faults_of
from tests.solver.make import GPU

TRIES = 20
"""Edits drawn until one gives a snapshot that can be decided on."""


def edited(rng: Random, snap: Snapshot, *, now: float) -> tuple[Snapshot, list[str]]:
    """The snapshot after one to three edits, and their names."""
    names: list[str] = []
    for _ in range(rng.choice((1, 1, 2, 3))):
        for _ in range(TRIES):
            edit = rng.choice(EDITS)
            try:
                made = edit(rng, snap, now)
            except InvalidInput:  # no such tree of queues is written
                continue
            if made != snap and not any(faults_of(made)):
                snap = made
                names.append(edit.__name__)
                break
    return snap, names


# Nodes, flavors, levels


def _nodes(rng: Random, snap: Snapshot, change: Callable[[Node], Node]) -> Snapshot:
    """A change of one node, of those of one rack, or of all."""
    at = rng.choice(snap.nodes).node
    alike = rng.choice(("name", "rack", "all"))

    def hit(node: Node) -> bool:
        return alike == "all" or (
            node.name == at.name if alike == "name" else node.labels.get("rack") == at.labels.get("rack")
        )

    return replace(
        snap, nodes=tuple(replace(s, node=change(s.node)) if hit(s.node) else s for s in snap.nodes)
    )


def relabelled(rng: Random, snap: Snapshot, now: float) -> Snapshot:
    """A label has another value or is gone."""
    key = rng.choice(sorted({key for s in snap.nodes for key in s.node.labels}) or ["rack"])
    known = sorted({s.node.labels[key] for s in snap.nodes if key in s.node.labels} | {"else"})
    value = rng.choice((None, *known))

    def change(node: Node) -> Node:
        labels = {k: v for k, v in node.labels.items() if k != key}
        return replace(node, labels=labels if value is None else {**labels, key: value})

    return _nodes(rng, snap, change)


def renamed_racks(rng: Random, snap: Snapshot, now: float) -> Snapshot:
    """Every rack has another name, and the same nodes."""

    def change(node: Node) -> Node:
        labels = {k: f"{v}-new" if k == "rack" else v for k, v in node.labels.items()}
        return replace(node, labels=labels)

    return replace(snap, nodes=tuple(replace(s, node=change(s.node)) for s in snap.nodes))


def closed(rng: Random, snap: Snapshot, now: float) -> Snapshot:
    """Cordoned, not ready, tainted, or open again."""
    what = rng.choice(
        (
            {"unschedulable": True},
            {"ready": False},
            {"taints": (Taint(key="x"),)},
            {"unschedulable": False, "ready": True, "taints": ()},
        )
    )
    return _nodes(rng, snap, lambda node: replace(node, **what))


def resized(rng: Random, snap: Snapshot, now: float) -> Snapshot:
    """Nodes with more or less of a resource, or none."""
    resource, times = rng.choice((GPU, "pods", "cpu")), rng.choice((0.0, 0.5, 1.5))

    def change(node: Node) -> Node:
        there = {r: int(n * times) if r == resource else n for r, n in node.allocatable.items()}
        return replace(node, allocatable=there)

    return _nodes(rng, snap, change)


def lost_nodes(rng: Random, snap: Snapshot, now: float) -> Snapshot:
    """Nodes that are no more."""
    least = rng.randint(1, len(snap.nodes))
    return replace(snap, nodes=tuple(sorted(rng.sample(snap.nodes, least), key=snap.nodes.index)))


def foreign(rng: Random, snap: Snapshot, now: float) -> Snapshot:
    """Pods of others come."""
    at = rng.randrange(len(snap.nodes))
    used = add(snap.nodes[at].used, {GPU: rng.randint(1, 4), "pods": 1})
    nodes = [replace(s, used=used) if i == at else s for i, s in enumerate(snap.nodes)]
    return replace(snap, nodes=tuple(nodes))


def reflavored(rng: Random, snap: Snapshot, now: float) -> Snapshot:
    """A flavor more, less, renamed, with other labels, or before others."""
    found = list(snap.flavors)
    key, value = rng.choice([*[label for s in snap.nodes for label in s.node.labels.items()], ("no", "one")])
    what = rng.randrange(5)
    if what == 0 or not found:
        found.insert(rng.randint(0, len(found)), Flavor(name="z", node_labels={key: value}))
    elif what == 1:
        found.remove(rng.choice(found))
    elif what == 2:
        rng.shuffle(found)
    else:
        at = rng.randrange(len(found))
        labels = {**found[at].node_labels, key: value}
        found[at] = replace(found[at], name="w") if what == 3 else replace(found[at], node_labels=labels)
    return replace(snap, flavors=tuple(found))


def relevelled(rng: Random, snap: Snapshot, now: float) -> Snapshot:
    """Levels more, fewer, renamed, or in another order."""
    keys = list(snap.topology.keys[:-1])
    what = rng.randrange(4)
    if what == 0 or not keys:
        keys.insert(rng.randint(0, len(keys)), rng.choice(("block", "rack", "f", "pool", "zone")))
    elif what == 1:
        keys.remove(rng.choice(keys))
    elif what == 2:
        rng.shuffle(keys)
    else:
        keys[rng.randrange(len(keys))] = "zone"
    return replace(snap, topology=Topology(keys=tuple(keys)))


# Queues


def _queues(snap: Snapshot, at: str, change: Callable[[Queue], Queue]) -> Snapshot:
    return replace(snap, tree=QueueTree.of(change(q) if q.path == at else q for q in snap.tree))


def requota(rng: Random, snap: Snapshot, now: float) -> Snapshot:
    """Another row in a queue, or none."""
    at = rng.choice([*snap.tree.queues])
    flavor = rng.choice((None, None, *[f.name for f in snap.flavors], "none-such"))
    guaranteed = rng.choice((None, 0, rng.randint(1, 8)))
    row = QuotaRow(
        resource=rng.choice((GPU, GPU, "cpu", "pods")),
        flavor=flavor,
        guaranteed=guaranteed,
        limit=rng.choice((None, (guaranteed or 0) + rng.randint(0, 8))),
        lend=rng.choice((None, rng.randint(0, guaranteed) if guaranteed else None)),
    )
    rows = rng.choice(((), (row,), (row,)))
    return _queues(snap, at, lambda q: replace(q, quota=rows))


def repolicy(rng: Random, snap: Snapshot, now: float) -> Snapshot:
    """Other rules."""
    what = rng.choice(
        (
            {"order": rng.choice((Order.STRICT, Order.PACKED))},
            {"preempt": rng.choice((Preempt.NEVER, Preempt.LOWER_PRIORITY))},
            {"reclaim": rng.random() < 0.5},
            {"min_runtime": rng.choice((0.0, 600.0))},
            {"reservations": rng.choice((0, 1, 3))},
            {"max_wait": rng.choice((0.0, 60.0))},
        )
    )
    at = rng.choice([*snap.tree.queues])
    return _queues(snap, at, lambda q: replace(q, policy=replace(q.policy, **what)))


def restated(rng: Random, snap: Snapshot, now: float) -> Snapshot:
    """A queue is held, draining or open."""
    at, state = rng.choice([*snap.tree.queues]), rng.choice([*QueueState])
    return _queues(snap, at, lambda q: replace(q, state=state))


def regrown(rng: Random, snap: Snapshot, now: float) -> Snapshot:
    """A leaf is gone, or becomes an inner queue."""
    leaf = rng.choice(snap.tree.leaves)
    if rng.random() < 0.5:
        return replace(snap, tree=QueueTree.of([*snap.tree, Queue(path=f"{leaf}.new")]))
    return replace(snap, tree=QueueTree.of(q for q in snap.tree if q.path != leaf or leaf == "root"))


# Jobs


def _pending(rng: Random, snap: Snapshot, change: Callable[[Pending], Pending]) -> Snapshot:
    """Of one that waits, bound or with a reservation if there is any."""
    stand = {b.uid for b in snap.bonds} | {r.uid for r in snap.reservations}
    uids = [p.workload.uid for p in snap.pending]
    if not uids:
        return snap
    at = rng.choice([u for u in uids if u in stand] or uids)
    return replace(snap, pending=tuple(change(p) if p.workload.uid == at else p for p in snap.pending))


def reasked(rng: Random, snap: Snapshot, now: float) -> Snapshot:
    """A job asks for something else."""

    def sized(p: PodSet) -> PodSet:
        return replace(p, count=rng.randint(1, p.count + 1), min_count=rng.choice((None, 1)))

    def heavier(p: PodSet) -> PodSet:
        return replace(p, requests=add(p.requests, {rng.choice((GPU, "cpu")): 1}))

    def change(pending: Pending) -> Pending:
        job = pending.workload
        sets = job.pod_sets
        edits: list[dict[str, Any]] = [
            {"pod_sets": tuple(map(sized, sets))},
            {"pod_sets": tuple(map(heavier, sets))},
            {"pod_sets": tuple(replace(p, exclusive_host=not p.exclusive_host) for p in sets)},
            {"pod_sets": tuple(replace(p, required=rng.choice((None, "rack", "host"))) for p in sets)},
            {"pod_sets": tuple(replace(p, name=f"{p.name}-new") for p in sets)},
            {"required": rng.choice((None, "rack", "host", "block")), "preferred": None},
            {"priority": job.priority + rng.choice((-3, 3))},
            {"queue": rng.choice((*snap.tree.leaves, "root.none"))},
            {"hold": not job.hold},
            {"preemptible": not job.preemptible},
            {"estimate": rng.choice((None, 10.0, 10_000.0))},
        ]
        return replace(pending, workload=replace(job, **rng.choice(edits)))

    return _pending(rng, snap, change)


def avoided(rng: Random, snap: Snapshot, now: float) -> Snapshot:
    """A job keeps off a node."""
    name = rng.choice(snap.nodes).node.name
    return _pending(rng, snap, lambda p: replace(p, avoid=p.avoid | {name}))


def deleted(rng: Random, snap: Snapshot, now: float) -> Snapshot:
    """A waiting job is no more."""
    gone = rng.choice(snap.pending).workload.uid if snap.pending else ""
    return replace(
        snap,
        pending=tuple(p for p in snap.pending if p.workload.uid != gone),
        bonds=tuple(b for b in snap.bonds if b.uid != gone),
        reservations=tuple(r for r in snap.reservations if r.uid != gone),
    )


# What runs


def back(rng: Random, snap: Snapshot, now: float) -> Snapshot:
    """Work on its way out has started anew in its place."""
    stay = rng.random()
    return replace(
        snap,
        admitted=tuple(
            replace(a, releasing=False, gone_by=None, since=now - 1.0)
            if a.releasing and rng.random() < stay
            else a
            for a in snap.admitted
        ),
    )


def gone(rng: Random, snap: Snapshot, now: float) -> Snapshot:
    """Some work has ended, leaving or not; perhaps it waits again."""
    left = [a for a in snap.admitted if a.bound and rng.random() < 0.4]
    freed: dict[str, dict[str, int]] = {}
    for one in left:
        for name, amounts in one.bound.items():
            freed[name] = add(freed.get(name, {}), amounts)

    def emptied(state: NodeState) -> NodeState:
        out = freed.get(state.node.name, {})
        return replace(state, used={r: max(0, n - out.get(r, 0)) for r, n in state.used.items()})

    again = [Pending(workload=a.workload) for a in left if a.releasing and rng.random() < 0.5]
    return replace(
        snap,
        nodes=tuple(map(emptied, snap.nodes)),
        admitted=tuple(a for a in snap.admitted if a not in left),
        pending=(*snap.pending, *again),
    )


def leaving(rng: Random, snap: Snapshot, now: float) -> Snapshot:
    """Work is told to stop by others."""

    def out(one: Admitted) -> Admitted:
        if rng.random() >= 0.3:
            return one
        return replace(one, releasing=True, unbound=(), gone_by=rng.choice((None, now + 1.0, now + 600.0)))

    return replace(snap, admitted=tuple(map(out, snap.admitted)))


def moved(rng: Random, snap: Snapshot, now: float) -> Snapshot:
    """Running work belongs to another queue, has another priority or may not be evicted."""
    if not snap.admitted:
        return snap
    at = rng.randrange(len(snap.admitted))

    def change(job: Workload) -> Workload:
        what = rng.choice(
            (
                {"queue": rng.choice(snap.tree.leaves)},
                {"priority": job.priority + rng.choice((-3, 3))},
                {"preemptible": not job.preemptible},
            )
        )
        return replace(job, **what)

    return replace(
        snap,
        admitted=tuple(
            replace(a, workload=change(a.workload)) if i == at else a for i, a in enumerate(snap.admitted)
        ),
    )


EDITS = (
    relabelled,
    renamed_racks,
    closed,
    resized,
    lost_nodes,
    foreign,
    reflavored,
    relevelled,
    requota,
    repolicy,
    restated,
    regrown,
    reasked,
    reasked,
    avoided,
    deleted,
    back,
    back,
    back,
    gone,
    leaving,
    moved,
)
