"""Gangs as packs and nodes as leaves: what the counts of the model mean."""

from __future__ import annotations

from itertools import product
from random import Random

import numpy as np
import pytest

from queuer.domain.nodes import HOSTNAME, Node
from queuer.domain.workload import Workload
from queuer.solver.cpsat.solve import maximise
from queuer.solver.repair.model import Model
from queuer.solver.repair.packs import Question
from queuer.solver.state import State
from tests.solver.make import GPU, gang, node, pod_set, queue, snapshot, state_of
from tests.solver.repair.turns import contested

QUEUES = [queue("root"), queue("root.a")]


def described(state: State, uid: str) -> dict[int, int]:
    """GPUs of one pack and on how many nodes it may lie, by size of pack."""
    asked = contested(state, uid)
    question = Question(state.nodes)
    packing = question.packing(asked.gang, asked.choices[0][0], None)
    assert packing is not None
    (bundle,) = packing.bundles.values()
    return {size: int(question.kinds[kind].open.sum()) for size, kind in bundle.packs.items()}


def test_pods_that_share_hosts_come_in_packs_that_fill_them() -> None:
    """So that they have no choice of hosts: two on a host of 8, one on a host of 5, where two have no room."""
    waiting = [gang("single", pod_set(1, 4)), gang("three", pod_set(3, 4)), gang("pair", pod_set(2, 4))]
    state = state_of(snapshot([node("a"), node("b"), node("c", gpu=5)], QUEUES, pending=waiting))
    assert described(state, "single") == {1: 3}
    assert described(state, "three") == described(state, "pair") == {1: 1, 2: 3}


def test_pods_that_must_share_a_host_are_one_pack() -> None:
    """All pod sets together, on nodes that take each of them."""
    asks = gang("both", pod_set(1, 1, name="leader"), pod_set(2, 2, name="worker"), required="host")
    state = state_of(snapshot([node("a"), node("b", unschedulable=True)], QUEUES, pending=[asks]))
    question = Question(state.nodes)
    packing = question.packing(contested(state, "both").gang, contested(state, "both").choices[0][0], None)
    assert packing is not None
    assert packing.one_host
    ((_, bundle),) = packing.bundles.items()
    kind = question.kinds[bundle.packs[1]]
    assert dict(zip(state.nodes.resources, kind.row[:-1].tolist(), strict=True)) == {GPU: 5, "pods": 3}
    assert kind.open.tolist() == [True, False]


@pytest.mark.parametrize(
    "odd",
    [
        gang("odd", pod_set(2, 1, exclusive_host=True)),
        gang("odd", pod_set(2, 1, required="rack")),
    ],
)
def test_what_counts_do_not_describe_is_left_alone(odd: Workload) -> None:
    """Pods that keep off each other, pod sets with a level of their own."""
    state = state_of(snapshot([node("a", labels={"rack": "r"})], QUEUES, pending=[odd]))
    asked = contested(state, "odd")
    assert Question(state.nodes).packing(asked.gang, asked.choices[0][0], None) is None


def test_counts_are_exact_where_sizes_divide_each_other() -> None:
    """As many single pods as trying all says."""
    for seed in range(40):
        rng = Random(seed)
        sizes = rng.choices((1, 2, 4, 8), k=5)
        nodes = [node(f"n{i}", gpu=rng.choice((3, 5, 6, 8)), labels={HOSTNAME: f"n{i}"}) for i in range(3)]
        waiting = [gang(f"g{i}", pod_set(1, size)) for i, size in enumerate(sizes)]
        state = state_of(snapshot(nodes, QUEUES, pending=waiting))
        question = Question(state.nodes)
        for one in waiting:
            asked = contested(state, one.uid)
            assert question.enter(asked.gang, asked.choices, closed=None, key=one.uid)
        model = Model(question, state, state.room().free, np.arange(len(nodes)))
        counts = {column.gangs: 1 for column in model.columns.values()}
        most = maximise(model.rows, counts, seed=1, budget=1.0)
        assert most.proven
        assert sum(most.values[count] for count in counts) == tried(nodes, sizes)


def tried(nodes: list[Node], sizes: list[int]) -> int:
    """The most pods of these sizes that the nodes take."""
    best = 0
    for where in product(range(-1, len(nodes)), repeat=len(sizes)):
        taken = [sum(s for s, at in zip(sizes, where, strict=True) if at == n) for n in range(len(nodes))]
        if all(t <= n.allocatable[GPU] for t, n in zip(taken, nodes, strict=True)):
            best = max(best, sum(at >= 0 for at in where))
    return best
