"""The small worlds of `cases` with declared ends, size ranges, releasing work, any number of reservations allowed, and
some that stand, possible or not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from random import Random

from queuer.domain.nodes import Node
from queuer.domain.quantity import add
from queuer.domain.queue import Preempt, Queue, QueueTree
from queuer.solver.problem import Admitted, Assignment, Pending, Reservation, Snapshot
from tests.solver import make
from tests.solver.cases import seeded
from tests.solver.make import GPU, gang, running


def reserving(seed: int, *, calmly: float = 0.6) -> Snapshot:
    """The world of a seed. `calmly`: how often nobody may be evicted in it."""
    rng, snap = Random(seed), seeded(seed)
    calm, most, wait = (
        rng.random() < calmly,
        rng.choice((1, 1, 1, 2, 2, 3)),
        rng.choice((None, None, 50.0, 97.0)),
    )
    snap = replace(
        snap,
        tree=QueueTree.of(_queue(rng, q, calm=calm, most=most, wait=wait) for q in snap.tree),
        admitted=tuple(_running(rng, a) for a in snap.admitted),
        pending=tuple(_waiting(rng, p) for p in snap.pending),
    )
    held: list[Reservation] = []
    if rng.random() < 0.5:
        owners = rng.sample(snap.pending, min(len(snap.pending), rng.randint(1, 2)))
        held = [_held(rng, snap, p) for p in owners]
    return replace(snap, reservations=tuple(held))


def sharing(seed: int) -> Snapshot:
    """The same on nodes that are mostly full, one of them with work that may be evicted and the rest of it reserved
    from the time at which that ends. Most of the others would still run by then.
    """
    rng, snap = Random(seed), reserving(seed, calmly=0.0)
    spot = rng.choice(snap.nodes).node
    snap = _filled(snap, list(_fillers(rng, snap, spot)))
    there = [a.workload.uid for a in snap.admitted if spot.name in a.bound]
    stays = {uid for uid in there if rng.random() < 0.6}
    ending = [a for a in snap.admitted if spot.name in a.bound and a.workload.uid not in stays]
    if not ending:
        return snap
    ends = {a.workload.uid for a in ending}
    owner, *others = rng.sample(snap.pending, len(snap.pending))
    sets = (make.pod_set(1, rng.randint(1, sum(a.bound[spot.name][GPU] for a in ending))),)
    large = replace(owner.workload, pod_sets=sets, required=None, priority=rng.choice((1, 2, 3)))
    place = Assignment(pod_set="main", flavor=spot.labels.get("f", "default"), nodes={spot.name: 1})
    longer = {p.workload.uid: _lasting(rng, p) for p in others}
    return replace(
        snap,
        admitted=tuple(
            replace(a, expected_end=100.0 if a.workload.uid in ends else None, releasing=False)
            if a.workload.uid in there
            else a
            for a in snap.admitted
        ),
        pending=tuple(longer.get(p.workload.uid, replace(p, workload=large)) for p in snap.pending),
        reservations=(Reservation(uid=large.uid, assignments=(place,), start=100.0, expires=500.0),),
    )


def lapsing(seed: int) -> Snapshot:
    """The same on nodes that are mostly full, where holds have expired. Nobody may be evicted in most of them."""
    rng, snap = Random(seed), reserving(seed, calmly=0.8)
    spot = rng.choice(snap.nodes).node
    snap = _filled(snap, list(_fillers(rng, snap, spot)))
    root = snap.tree["root"]
    patient = replace(root, policy=replace(root.policy, max_wait=rng.choice((50.0, 97.0))))
    tree = QueueTree.of(patient if q is root else q for q in snap.tree)
    owners = rng.sample(snap.pending, min(len(snap.pending), rng.randint(1, 2)))
    held = tuple(replace(_held(rng, snap, p), start=-50.0, expires=0.0) for p in owners)
    return replace(snap, tree=tree, reservations=held)


def _fillers(rng: Random, snap: Snapshot, spot: Node) -> Iterator[Admitted]:
    """Work that takes what is free on a node."""
    for node in (state.node for state in snap.nodes):
        left = node.allocatable[GPU] - sum(a.bound.get(node.name, {}).get(GPU, 0) for a in snap.admitted)
        if left > 0 and (node is spot or rng.random() < 0.8):
            queue = rng.choice([p.workload.queue for p in snap.pending])
            job = gang(f"f{node.name}", make.pod_set(1, left), queue=queue, preemptible=rng.random() < 0.4)
            yield running(job, {node.name: 1}, since=-60.0, flavor=node.labels.get("f", "default"))


def _filled(snap: Snapshot, fillers: Sequence[Admitted]) -> Snapshot:
    more = {name: amounts for one in fillers for name, amounts in one.bound.items()}
    nodes = tuple(replace(s, used=add(s.used, more.get(s.node.name, {}))) for s in snap.nodes)
    return replace(snap, nodes=nodes, admitted=(*snap.admitted, *fillers))


def _lasting(rng: Random, pending: Pending) -> Pending:
    if rng.random() < 0.2:
        return pending
    return replace(pending, workload=replace(pending.workload, estimate=None, max_runtime=None))


def _queue(rng: Random, queue: Queue, *, calm: bool, most: int, wait: float | None) -> Queue:
    policy = queue.policy
    if queue.path == "root":
        policy = replace(policy, reservations=most, max_wait=wait)
    elif rng.random() < 0.1:
        policy = replace(policy, reservations=rng.choice((0, 1, 2)))
    if calm:
        policy = replace(policy, preempt=Preempt.NEVER, reclaim=False)
    return replace(queue, policy=policy)


def _running(rng: Random, admitted: Admitted) -> Admitted:
    end = rng.choice((None, -20.0, 100.0, 100.0, 200.0, 300.0, 400.0))
    return replace(
        admitted,
        expected_end=None if end is None else max(end, admitted.since + 1),
        releasing=rng.random() < 0.07,
    )


def _waiting(rng: Random, pending: Pending) -> Pending:
    sets = tuple(
        replace(p, min_count=rng.randint(1, p.count) if rng.random() < 0.25 else None)
        for p in pending.workload.pod_sets
    )
    workload = replace(
        pending.workload,
        pod_sets=sets,
        estimate=rng.choice((None, 50.0, 150.0, 250.0, 1000.0)),
        max_runtime=rng.choice((None, None, None, 120.0)),
    )
    return replace(pending, workload=workload)


def _held(rng: Random, snap: Snapshot, pending: Pending) -> Reservation:
    """Any place of one flavor for each pod set, whether it can be or not."""
    rows = []
    for pod_set in pending.workload.pod_sets:
        picks = [rng.choice(snap.nodes).node for _ in range(pod_set.min_count or pod_set.count)]
        flavor = picks[0].labels.get("f", "default")
        there = [n.name for n in picks if n.labels.get("f", "default") == flavor]
        nodes = {name: there.count(name) for name in there}
        rows.append(Assignment(pod_set=pod_set.name, flavor=flavor, nodes=nodes))
    start = rng.choice((-50.0, 100.0, 200.0, 300.0, 450.0))
    expires = max(start, 0.0) + rng.choice((-100.0, 300.0, 500.0))
    return Reservation(uid=pending.workload.uid, assignments=tuple(rows), start=start, expires=expires)
