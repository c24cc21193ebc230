"""Gangs whose hosts overlap start together where each lands whatever kube-scheduler picks, in some order."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest

from queuer.domain.queue import Policy, Preempt
from queuer.domain.workload import PodSet, Workload
from queuer.solver.decide import decide
from queuer.solver.problem import Admission, Assignment, Budget, Plan, Snapshot
from queuer.solver.verify import verify
from tests.solver.make import GPU, gang, node, pod_set, queue, snapshot

QUIET = Policy(preempt=Preempt.NEVER, reservations=0)


def decided(snap: Snapshot) -> Plan:
    plan = decide(snap, now=100.0, seed=1, budget=Budget(deterministic=0.0))
    assert verify(snap, plan, now=100.0) == ()
    return plan


def world(sizes: Sequence[int], *waiting: Workload, racks: Sequence[str] = ()) -> Snapshot:
    """Nodes n0, n1, … with so many GPUs."""
    names = racks or ["r"] * len(sizes)
    nodes = [
        node(f"n{i}", gpu=size, labels={"block": "b", "rack": rack})
        for i, (size, rack) in enumerate(zip(sizes, names, strict=True))
    ]
    return snapshot(nodes, [queue("root.a", policy=QUIET)], pending=waiting)


def by_uid(plan: Plan) -> dict[str, Admission]:
    return {a.uid: a for a in plan.admissions}


def test_a_gang_that_shares_a_host_takes_what_the_others_leave() -> None:
    """Six slots for two gangs of three: whichever hosts the first takes, the second finds three."""
    found = by_uid(
        decided(world([4, 4, 4], gang("a", pod_set(3, 2)), gang("b", pod_set(3, 2), submitted=1.0)))
    )
    assert found["a"].wave < found["b"].wave
    hosts = found["b"].assignments[0].hosts
    assert hosts is not None
    assert set(hosts) == {"n0", "n1", "n2"}


def test_a_gang_is_opened_to_no_host_outside_its_rack() -> None:
    waiting = [gang("a", pod_set(3, 2)), gang("b", pod_set(3, 2), submitted=1.0, required="rack")]
    for admission in decided(world([4, 4, 4, 4], *waiting, racks="qqrr")).admissions:
        if admission.uid == "b":
            row = admission.assignments[0]
            assert row.hosts is None or set(row.hosts) <= {"n0", "n1"} or set(row.hosts) <= {"n2", "n3"}


def test_who_would_be_robbed_goes_first() -> None:
    """The leader of b finds its place on the host that a leaves half empty only if it comes before a."""
    leader = pod_set(1, 1, name="leader")
    waiting = [gang("a", pod_set(3, 4)), gang("b", leader, pod_set(2, 8), submitted=1.0)]
    found = by_uid(decided(world([8, 8, 8, 8], *waiting)))
    assert found["b"].wave < found["a"].wave


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


@pytest.mark.parametrize("seed", range(150))
def test_pods_land_in_any_order_on_any_host_of_their_pins(seed: int) -> None:
    snap, rng = drawn(seed), Random(seed)
    plan = decided(snap)
    for _ in range(40):
        assert left_over(snap, plan, rng) == []


def left_over(snap: Snapshot, plan: Plan, rng: Random) -> list[str]:
    """Gangs of which a pod finds no room, wave after wave, pods in random order, each on a host drawn or, in every
    second case, the emptiest or the fullest.
    """
    free = {s.node.name: s.node.allocatable[GPU] - s.used.get(GPU, 0) for s in snap.nodes}
    workloads = {p.workload.uid: p.workload for p in snap.pending}
    for wave in sorted({a.wave for a in plan.admissions}):
        coming = [
            (a.uid, row, next(p for p in workloads[a.uid].pod_sets if p.name == row.pod_set).requests[GPU])
            for a in plan.admissions
            if a.wave == wave
            for row in a.assignments
            for _ in range(row.count)
        ]
        rng.shuffle(coming)
        taste = rng.choice((None, None, 1, -1))
        for uid, row, size in coming:
            fitting = [name for name in pinned(snap, row) if free[name] >= size]
            if not fitting:
                return [uid]
            host = rng.choice(fitting) if taste is None else min(fitting, key=lambda n: taste * free[n])
            free[host] -= size
    return []


def pinned(snap: Snapshot, row: Assignment) -> list[str]:
    """The nodes that a pin leaves open."""
    return [
        s.node.name
        for s in snap.nodes
        if (row.hosts is None or s.node.name in row.hosts)
        and all(s.node.labels.get(key) == value for key, value in row.selector.items())
    ]
