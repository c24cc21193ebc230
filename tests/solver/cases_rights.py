"""The small worlds of `cases` with CPUs beside the GPUs, guaranteed to other queues than these, in which anybody may
take by priority from any queue: who may be reclaimed in one account may often be preempted in the other.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random

from queuer.domain.queue import Preempt, Queue, QueueTree
from queuer.domain.workload import PodSet
from queuer.solver.problem import Admitted, NodeState, Pending, Snapshot
from tests.solver.cases import seeded
from tests.solver.make import row

CPU = "cpu"


def twofold(seed: int) -> Snapshot:
    """The world of a seed, at `NOW`."""
    rng, snap = Random(f"rights {seed}"), seeded(seed)
    admitted = tuple(_running(rng, one) for one in snap.admitted)
    used = Counter[str]()
    for one in admitted:
        used.update({name: amounts[CPU] for name, amounts in one.bound.items()})
    return replace(
        snap,
        nodes=tuple(_node(rng, state, used[state.node.name]) for state in snap.nodes),
        tree=QueueTree.of(_queue(rng, one, leaf=snap.tree.is_leaf(one.path)) for one in snap.tree),
        admitted=admitted,
        pending=tuple(_waiting(rng, one) for one in snap.pending),
    )


def linked(seed: int) -> Snapshot:
    """The same, where most were once evicted for others, that wait, run or are gone."""
    rng, snap = Random(f"linked {seed}"), twofold(seed)
    uids = [*sorted(snap.workloads()), "gone"]

    def by() -> frozenset[str]:
        return frozenset(rng.sample(uids, rng.choice((0, 1, 1, 1))))

    return replace(
        snap,
        admitted=tuple(replace(one, displaced_by=by()) for one in snap.admitted),
        pending=tuple(replace(one, displaced_by=by()) for one in snap.pending),
    )


def _running(rng: Random, one: Admitted) -> Admitted:
    sets = tuple(_asking(rng, p) for p in one.workload.pod_sets)
    bound = {name: {**amounts, CPU: sets[0].requests[CPU]} for name, amounts in one.bound.items()}
    return replace(one, workload=replace(one.workload, pod_sets=sets), bound=bound)


def _node(rng: Random, state: NodeState, used: int) -> NodeState:
    there = {**state.node.allocatable, CPU: used + rng.randint(0, 3)}
    return replace(state, node=replace(state.node, allocatable=there), used={**state.used, CPU: used})


def _queue(rng: Random, one: Queue, *, leaf: bool) -> Queue:
    if one.path == "root":
        return replace(one, policy=replace(one.policy, preempt=Preempt.LOWER_PRIORITY))
    if not leaf:
        return one
    rows = one.quota or (row(guaranteed=rng.randint(2, 10)),)
    cpu = (row(CPU, guaranteed=rng.randint(1, 3)),) if rng.random() < 0.5 else ()
    return replace(one, quota=(*rows, *cpu))


def _waiting(rng: Random, one: Pending) -> Pending:
    sets = tuple(_asking(rng, p) for p in one.workload.pod_sets)
    return replace(one, workload=replace(one.workload, pod_sets=sets, priority=rng.randint(1, 3)))


def _asking(rng: Random, one: PodSet) -> PodSet:
    return replace(one, requests={**one.requests, CPU: rng.randint(0, 3)})
