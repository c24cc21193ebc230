"""Bounds open the victims of every bound gang as they were at its turn: what brute force finds is not called proven."""

from __future__ import annotations

from dataclasses import replace

from queuer.domain.queue import Policy, Preempt, Queue
from queuer.domain.workload import PodSet, Workload
from queuer.solver.decide import decide
from queuer.solver.problem import Admitted, Budget, Snapshot
from queuer.solver.verify import verify
from tests.solver import make
from tests.solver.examples import cluster, guaranteed, job, runs
from tests.solver.oracle import answer

NOW = 1000.0


def gpus(snap: Snapshot, *amounts: int) -> Snapshot:
    """The nodes with these GPUs and 8 CPUs each."""
    there = [{"gpu": n, "cpu": 8, "pods": 110} for n in amounts]
    nodes = [replace(s, node=replace(s.node, allocatable=a)) for s, a in zip(snap.nodes, there, strict=True)]
    return replace(snap, nodes=tuple(nodes))


def small(uid: str, on: str) -> Admitted:
    """A job of root.v that holds no GPU, so that nothing else runs on its node."""
    only = PodSet(name="main", count=1, requests={"cpu": 1, "pods": 1})
    return runs(replace(job(uid, 1, 0, queue="root.v"), pod_sets=(only,)), on, since=100.0)


def agrees(snap: Snapshot) -> None:
    plan = decide(snap, now=NOW, seed=1, budget=Budget())
    assert verify(snap, plan, now=NOW) == ()
    started, bound = {a.uid for a in plan.admissions}, {b.uid for b in plan.bonds}
    order, flags = answer(snap, now=NOW)
    assert plan.order == order
    assert tuple(2 if uid in started else 1 if uid in bound else 0 for uid in order) == flags


def later(workload: Workload, submitted: float) -> Workload:
    return replace(workload, submitted=submitted)


def test_a_gang_that_fills_its_guarantee_may_still_take_another_victim() -> None:
    """A takes v1 first; G may preempt only v1, so A has to take v2."""
    v1 = runs(job("v1", 1, 8, queue="root.v", priority=0), "n1", since=900.0)
    v2 = runs(job("v2", 1, 8, queue="root.v", priority=9), "n2", since=100.0)
    waiting = [job("A", 1, 8, queue="root.b", priority=0), job("G", 1, 8, queue="root.v", priority=5)]
    tree = [Queue(path="root"), guaranteed("root.b", 8), Queue(path="root.v")]
    nodes = {"n1": "r0", "n2": "r1", "n3": "r2"}
    agrees(gpus(cluster(nodes, 8, tree, [v1, v2, small("v3", "n3")], waiting), 8, 8, 0))


def test_a_gang_bound_to_what_others_leave_may_take_victims_of_its_own() -> None:
    """A is bound to what X's victim leaves but may evict v2 instead."""
    v1 = runs(job("v1", 1, 16, queue="root.v", priority=0), "n1", since=900.0)
    v2 = runs(job("v2", 1, 8, queue="root.b", priority=0), "n2", since=100.0)
    waiting = [
        later(job("X", 1, 8, queue="root.d"), 1.0),
        later(job("A", 1, 8, queue="root.b", priority=9), 2.0),
        later(job("G", 1, 8, queue="root.v", priority=5), 3.0),
    ]
    tree = [Queue(path="root"), guaranteed("root.b", 8), guaranteed("root.d", 8), Queue(path="root.v")]
    nodes = {"n1": "r0", "n2": "r1", "n3": "r2"}
    agrees(gpus(cluster(nodes, 8, tree, [v1, v2, small("v3", "n3")], waiting), 16, 8, 0))


def test_what_was_refused_beside_one_bound_gang_may_be_possible_beside_two() -> None:
    """X's victims are not enough. H, of the same queue, comes when G1's are open too, and fits with all three."""
    never = Policy(preempt=Preempt.NEVER, reservations=0)
    kept = Policy(reclaim=False)
    tree = [
        make.queue("root", policy=Policy(reservations=0)),
        make.queue("root.a", make.row(guaranteed=12), policy=kept),
        make.queue("root.b", policy=never),
        make.queue("root.c", make.row(guaranteed=24), policy=kept),
        make.queue("root.d", make.row(guaranteed=4), policy=never),
    ]
    there = [
        make.running(make.gang("v0", make.pod_set(1, 8), queue="root.a"), {"n0": 1}, since=900.0),
        make.running(make.gang("v1", make.pod_set(1, 4), queue="root.b"), {"n1": 1}, since=100.0),
        make.running(make.gang("v2", make.pod_set(1, 4), queue="root.c"), {"n2": 1}, since=900.0),
    ]
    waiting = [
        make.gang("G0", make.pod_set(1, 4), queue="root.a", priority=8, submitted=1.0),
        make.gang("X", make.pod_set(4, 4), queue="root.c", priority=8, submitted=2.0),
        make.gang("G1", make.pod_set(1, 4), queue="root.d", priority=8, submitted=3.0),
        make.gang("H", make.pod_set(2, 4), queue="root.c", priority=8, submitted=4.0),
    ]
    nodes = [make.node(f"n{i}", gpu=gpu) for i, gpu in enumerate((8, 4, 4))]
    agrees(make.snapshot(nodes, tree, admitted=there, pending=waiting))
