"""Gangs as packs and nodes as a tree: what the counts of the model mean."""

from __future__ import annotations

from itertools import product
from random import Random

import numpy as np
import pytest

from queuer.domain.nodes import HOSTNAME, Node
from queuer.domain.workload import Workload
from queuer.solver.repair.model import Model
from queuer.solver.repair.solve import maximise
from queuer.solver.repair.tree import Question, Tree, ruling
from queuer.solver.state import State
from tests.solver.make import GPU, gang, node, pod_set, queue, snapshot, state_of
from tests.solver.repair.turns import contested

QUEUES = [queue("root"), queue("root.a")]


def rows(*amounts: tuple[int, ...]) -> list[np.ndarray[tuple[int], np.dtype[np.int64]]]:
    """Requests of pods."""
    return [np.array(row, dtype=np.int64) for row in amounts]


@pytest.mark.parametrize(
    ("free", "asked", "column"),
    [
        ([[8, 96]], [(8, 64), (1, 8), (4, 32)], 0),  # the first runs out first, whoever comes
        (
            [[8, 60]],
            [(8, 60), (1, 9)],
            None,
        ),  # the second does, where small ones come, but 9 does not divide 60
        ([[8, 64], [4, 20]], [(4, 32), (1, 8)], 1),  # on each node, as sizes divide there, too
        ([[8, 96]], [(3, 8), (2, 8)], None),  # sizes do not divide each other
        ([[8, 2**40]], [(8, 2**39), (1, 2**36)], 0),  # products exceed int64
    ],
)
def test_a_resource_rules_where_it_runs_out_first(
    free: list[list[int]], asked: list[tuple[int, ...]], column: int | None
) -> None:
    assert ruling(np.array(free), rows(*asked)) == column


def described(state: State, uid: str) -> dict[int, int]:
    """GPUs of one pack and on how many nodes it may lie, by size of pack."""
    asked = contested(state, uid)
    question = Question(state.nodes)
    form = question.form(asked.gang, asked.variant, None)
    assert form is not None
    (bundle,) = form.bundles.values()
    return {size: int(question.kinds[kind].open.sum()) for size, kind in bundle.packs.items()}


def test_pods_that_share_hosts_come_in_packs_that_fill_them() -> None:
    """So that they have no choice of hosts: two on a host of 8, one on a host of 5."""
    waiting = [gang("single", pod_set(1, 4)), gang("three", pod_set(3, 4)), gang("pair", pod_set(2, 4))]
    state = state_of(snapshot([node("a"), node("b"), node("c", gpu=5)], QUEUES, pending=waiting))
    assert described(state, "single") == {1: 3}
    assert described(state, "three") == {1: 1, 2: 2}
    assert described(state, "pair") == {1: 1, 2: 3}  # both on one host: anywhere


@pytest.mark.parametrize(
    "odd",
    [
        gang("odd", pod_set(2, 1), required="host"),
        gang("odd", pod_set(2, 1, exclusive_host=True)),
        gang("odd", pod_set(2, 1, required="rack")),
    ],
)
def test_what_counts_do_not_describe_is_left_alone(odd: Workload) -> None:
    """Several pods on one host, pods that keep off each other, pod sets with a level of their own."""
    state = state_of(snapshot([node("a", labels={"rack": "r"})], QUEUES, pending=[odd]))
    asked = contested(state, "odd")
    assert Question(state.nodes).form(asked.gang, asked.variant, None) is None


def test_counts_are_exact_where_sizes_divide_and_where_they_do_not() -> None:
    """As many single pods as trying all says, for sizes that divide each other and for any."""
    for seed in range(40):
        rng = Random(seed)
        sizes = rng.choices((1, 2, 4, 8) if seed % 2 else (2, 3, 5), k=5)
        nodes = [node(f"n{i}", gpu=rng.choice((3, 5, 6, 8)), labels={HOSTNAME: f"n{i}"}) for i in range(3)]
        waiting = [gang(f"g{i}", pod_set(1, size)) for i, size in enumerate(sizes)]
        state = state_of(snapshot(nodes, QUEUES, pending=waiting))
        question = Question(state.nodes)
        for one in waiting:
            asked = contested(state, one.uid)
            form = question.form(asked.gang, asked.variant, None)
            assert form is not None
            question.enter(asked.gang, [(form, asked.variant, asked.charge)], key=one.uid, settled=False)
        tree = Tree(question, state.room().free, np.arange(len(nodes)))
        for option in question.options:
            tree.open(option, tree.slots, 2)
        model = Model(tree)
        most = maximise(model.rows, {c.gangs: 1 for c in model.columns}, seed=1, budget=1.0)
        assert most.proven
        assert sum(most.values[c.gangs] for c in model.columns) == tried(nodes, sizes)


def tried(nodes: list[Node], sizes: list[int]) -> int:
    """The most pods of these sizes that the nodes take."""
    best = 0
    for where in product(range(-1, len(nodes)), repeat=len(sizes)):
        taken = [sum(s for s, at in zip(sizes, where, strict=True) if at == n) for n in range(len(nodes))]
        if all(t <= n.allocatable[GPU] for t, n in zip(taken, nodes, strict=True)):
            best = max(best, sum(at >= 0 for at in where))
    return best
