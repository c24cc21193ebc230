"""The repair against trying every arrangement: what it answers holds, and it misses next to nothing."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest

from queuer.domain.nodes import Node, SchedulingTerms
from queuer.domain.reasons import Token
from queuer.domain.workload import Workload
from queuer.solver.cpsat import CpSat
from queuer.solver.records import Snapshot
from queuer.solver.repair import repair
from tests.solver.make import GPU, decided, gang, hosts, node, pod_set, queue, row, snapshot, started
from tests.solver.repair.arrangements import arranged, cluster, gangs
from tests.solver.repair.turns import contested, played

QUEUES = [queue("root"), queue("root.a"), queue("root.b", row(limit=8))]


def half(name: str, *, queue: str = "root.a") -> tuple[Sequence[Node], Sequence[Workload]]:
    """Three racks, with 4 and 4, 8, and 4 GPUs; and gangs of which the first two start and must move for the third."""
    only = SchedulingTerms(node_selector={"half": name})
    nodes = [
        node(f"{name}{rack}{i}", gpu=gpus, labels={"block": name, "rack": rack, "half": name})
        for rack, free in {"x": (4, 4), "y": (8,), "z": (4,)}.items()
        for i, gpus in enumerate(free)
    ]
    one = gang(f"{name}-one", pod_set(1, 4, terms=only), submitted=0.0)
    two = gang(f"{name}-two", pod_set(2, 4, terms=only), submitted=1.0, required="rack")
    three = gang(f"{name}-three", pod_set(1, 8, terms=only), queue=queue, submitted=2.0)
    return nodes, (one, two, three)


def halves(*, queue: str = "root.a") -> Snapshot:
    """Two such halves."""
    made = [half(name, queue=queue) for name in ("a", "b")]
    return snapshot(
        [n for nodes, _ in made for n in nodes], QUEUES, pending=[g for _, gs in made for g in gs]
    )


THREES = ("a-three", "b-three")


def test_it_finds_what_trying_all_finds() -> None:
    """All that started still starts, what starts could be arranged, and where more could, most often more do. Where
    somebody waits for others to land, that place is kept for it.
    """
    possible = found = 0
    for seed in range(200):
        rng = Random(seed)
        nodes, foreign = cluster(rng, racks=3)
        waiting = gangs(rng, 7)
        snap = snapshot(nodes, QUEUES, pending=waiting, foreign=foreign)
        greedy, after = decided(snap), started(decided(snap, solver=1.0))
        before, told = started(greedy), {why.primary.token for why in greedy.explanations.values()}
        assert before <= after
        assert arranged(nodes, foreign, [g for g in waiting if g.uid in after])
        if Token.BEHIND_IN_QUEUE in told:
            continue
        possible += any(
            arranged(nodes, foreign, [g for g in waiting if g.uid in {*before, one.uid}])
            for one in waiting
            if one.uid not in before
        )
        found += before < after
    assert possible >= 15
    assert found >= 0.94 * possible


def test_the_same_question_has_the_same_answer() -> None:
    answers = []
    for _ in range(2):
        state = played(halves())
        answer = repair(state, [contested(state, uid) for uid in THREES], solver=CpSat(1.0, seed=7))
        answers.append((answer, {uid: settled.spreads for uid, settled in state.settled.items()}))
    assert answers[0] == answers[1]
    assert answers[0][0].started == THREES
    assert answers[0][0].proven


def test_without_time_nothing_changes() -> None:
    state = played(halves())
    free, settled = state.free_now.copy(), dict(state.settled)
    solver = CpSat(0.0, seed=7)
    answer = repair(state, [contested(state, "a-three")], solver=solver)
    assert (answer.started, solver.spent, answer.proven) == ((), 0.0, False)
    assert (state.free_now == free).all()
    assert state.settled == settled


@pytest.mark.parametrize("order", [THREES, THREES[::-1]])
def test_contested_gangs_share_what_a_limit_leaves(order: Sequence[str]) -> None:
    """There is room for both, but their queue may use 8: the first of them starts."""
    state = played(halves(queue="root.b"))
    answer = repair(state, [contested(state, uid) for uid in order], solver=CpSat(1.0, seed=7))
    assert (answer.started, answer.proven) == ((order[0],), True)


def test_who_need_not_move_stays() -> None:
    """Nobody is contested in the other half."""
    state = played(halves())
    before = {uid: state.settled[uid].spreads for uid in ("b-one", "b-two")}
    assert repair(state, [contested(state, "a-three")], solver=CpSat(1.0, seed=7)).started == ("a-three",)
    assert {uid: state.settled[uid].spreads for uid in before} == before


def test_sizes_that_do_not_divide_each_other() -> None:
    """2 and 3 on each node instead of 2 and 2: pods are counted node by node."""
    waiting = [gang(f"g{i}", pod_set(1, size), submitted=float(i)) for i, size in enumerate((2, 2, 3, 3))]
    snap = snapshot([node("a", gpu=5), node("b", gpu=5)], QUEUES, pending=waiting)
    assert started(decided(snap)) == {"g0", "g1", "g2"}
    assert started(decided(snap, solver=1.0)) == {"g0", "g1", "g2", "g3"}


def test_a_gang_with_a_choice_gets_hosts_of_its_own() -> None:
    """Three pods of 4 on two hosts of 11 have both to themselves: the one that came onto one of them moves."""
    big = SchedulingTerms(node_selector={"big": "yes"})
    network = Node(name="c", labels={}, allocatable={GPU: 8, "pods": 20, "network": 1})  # used last
    small, spread = gang("small", pod_set(1, 8)), gang("spread", pod_set(3, 4, terms=big), submitted=1.0)
    made = [*(node(name, gpu=11, labels={"big": "yes"}) for name in ("a", "b")), network]
    snap = snapshot(made, QUEUES, pending=[small, spread])
    assert started(decided(snap)) == {"small"}
    plan = decided(snap, solver=1.0)
    assert hosts(plan, "small") == {"c": 1}
    assert hosts(plan, "spread").keys() == {"a", "b"}
