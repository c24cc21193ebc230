"""The small worlds of `cases` with declared ends, size ranges, releasing work, any number of reservations allowed, and
some that stand, possible or not.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

from queuer.domain.queue import Preempt, Queue, QueueTree
from queuer.solver.problem import Admitted, Assignment, Pending, Reservation, Snapshot
from tests.solver.cases import seeded


def reserving(seed: int) -> Snapshot:
    """The world of a seed."""
    rng, snap = Random(seed), seeded(seed)
    calm, most, wait = (
        rng.random() < 0.6,
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
