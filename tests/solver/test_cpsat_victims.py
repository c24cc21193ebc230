"""Whom the exact solver evicts, and when it proves that nobody's leaving would help (DESIGN 3.3)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from queuer.solver.contested import Arrangement, Proof
from queuer.solver.cpsat import CpSat
from queuer.solver.problem import EvictionRule, Snapshot
from tests.solver.asking import judged, place, question, settled
from tests.solver.make import GPU, gang, node, pod_set, queue, row, running, snapshot


def full_of_low_work(*, sizes: Sequence[int], ages: Sequence[float]) -> Snapshot:
    """Each node full with one preemptible job of lower priority; a gang of one whole node waits."""
    low = [
        running(gang(f"v{i}", pod_set(1, size)), {f"n{i}": 1}, since=-age)
        for i, (size, age) in enumerate(zip(sizes, ages, strict=True))
    ]
    return snapshot(
        [node(f"n{i}") for i in range(len(sizes))],
        [queue("root.a")],
        admitted=low,
        pending=[gang("g", pod_set(1, 8), priority=5)],
    )


def test_least_lost_work_is_evicted() -> None:
    snap = full_of_low_work(sizes=[8, 8, 4], ages=[900.0, 100.0, 5000.0])
    found = CpSat().settle(question(snap, "g", evict=True))
    assert isinstance(found, Arrangement)
    assert [e.uid for e in found.evictions] == ["v1"]
    assert judged(snap, found, bound=["g"]) == ()


def test_no_victims_no_place() -> None:
    snap = full_of_low_work(sizes=[8, 8], ages=[10.0, 10.0])
    equal = tuple(replace(p, workload=replace(p.workload, priority=0)) for p in snap.pending)
    assert isinstance(CpSat().settle(question(replace(snap, pending=equal), "g", evict=True)), Proof)


def borrowers(*, rows: tuple[int, int] = (8, 8)) -> Snapshot:
    """b runs four jobs of 4 GPUs on two hosts, a is entitled to 8."""
    victims = [
        running(gang(f"v{i}", pod_set(1, 4), queue="root.b"), {f"n{i // 2}": 1}, since=-100.0 * (i + 1))
        for i in range(4)
    ]
    return snapshot(
        [node("n0"), node("n1")],
        [queue("root.a", row(guaranteed=rows[0])), queue("root.b", row(guaranteed=rows[1]))],
        admitted=victims,
        pending=[gang("g", pod_set(1, 8), queue="root.a")],
    )


def test_reclaim_takes_whole_hosts_and_stops_at_the_guarantee() -> None:
    snap = borrowers()
    found = CpSat().settle(question(snap, "g", evict=True))
    assert isinstance(found, Arrangement)
    assert {e.uid for e in found.evictions} == {"v0", "v1"}  # the younger pair of one host
    assert judged(snap, found, bound=["g"]) == ()


def test_reclaim_that_would_need_more_than_was_borrowed_is_refuted() -> None:
    snap = borrowers(rows=(8, 12))  # b is 4 above: the last victim may cross, a second may not
    assert isinstance(CpSat().settle(question(snap, "g", evict=True)), Proof)


def test_last_victim_may_cross_the_line() -> None:
    snap = borrowers(rows=(8, 11))  # b is 5 above: v0 leaves it 1 above, v1 crosses
    found = CpSat().settle(question(snap, "g", evict=True))
    assert isinstance(found, Arrangement)
    assert judged(snap, found, bound=["g"]) == ()


def test_what_is_not_lent_is_freed_by_victims() -> None:
    """c keeps 8 unlent; the limit of 16 on root.x then leaves 8: both jobs of b on a host must go."""
    victims = [running(gang(f"v{i}", pod_set(1, 4), queue="root.x.b"), {f"n{i}": 1}) for i in range(2)]
    queues = [
        queue("root.x", row(limit=16)),
        queue("root.x.a", row(guaranteed=8)),
        queue("root.x.b"),
        queue("root.x.c", row(guaranteed=8, lend=0)),
    ]
    snap = snapshot(
        [node(f"n{i}") for i in range(3)],
        queues,
        admitted=victims,
        pending=[gang("g", pod_set(1, 8), queue="root.x.a")],
    )
    assert isinstance(CpSat().settle(question(snap, "g")), Proof)
    found = CpSat().settle(question(snap, "g", evict=True))
    assert isinstance(found, Arrangement)
    assert {e.uid for e in found.evictions} == {"v0", "v1"}
    assert judged(snap, found, bound=["g"]) == ()


def test_inner_queue_bounds_what_its_children_lose() -> None:
    """Both children of b are far above their own guarantee, b itself by 4 only: one victim, not two."""
    victims = [
        running(gang(f"v{i}", pod_set(1, 4), queue=f"root.b.{'xy'[i % 2]}"), {"n0": 1}) for i in range(2)
    ]
    for wanted, kind in ((4, Arrangement), (8, Proof)):
        snap = snapshot(
            [node("n0")],
            [
                queue("root.a", row(guaranteed=8)),
                queue("root.b", row(guaranteed=4)),
                queue("root.b.x"),
                queue("root.b.y"),
            ],
            admitted=victims,
            pending=[gang("g", pod_set(1, wanted), queue="root.a")],
        )
        found = CpSat().settle(question(snap, "g", evict=True))
        assert isinstance(found, kind)
        if isinstance(found, Arrangement):
            assert len(found.evictions) == 1
            assert judged(snap, found, bound=["g"]) == ()


def test_overfull_foreign_node_forces_nobody_out() -> None:
    snap = full_of_low_work(sizes=[8, 8], ages=[10.0, 20.0])
    crowded = tuple(replace(s, used={GPU: 12, "pods": 2}) if s.node.name == "n0" else s for s in snap.nodes)
    found = CpSat().settle(question(replace(snap, nodes=crowded), "g", evict=True))
    assert isinstance(found, Arrangement)
    assert [e.uid for e in found.evictions] == ["v1"]


def test_same_question_same_answer() -> None:
    snap = borrowers()
    first, second = (CpSat().settle(question(snap, "g", evict=True)) for _ in range(2))
    assert first == second


def test_for_whom_settled_victims_go_is_open_in_a_question_for_a_gang_that_evicts_nobody() -> None:
    """Protects: settled victims may change hands, and only they. n0 leaves 6, n1 4 beside what stays: `small` fits
    where `narrow` and `wide` have each other's victims.
    """
    low = [running(gang(f"v{i}", pod_set(1, 4)), {f"n{i}": 1}) for i in range(2)]
    stays = running(gang("stays", pod_set(1, 2), priority=5), {"n1": 1})
    waiting = [
        gang("narrow", pod_set(1, 4), priority=2),
        gang("wide", pod_set(1, 3), priority=1),
        gang("small", pod_set(1, 3)),
    ]
    nodes = [node(f"n{i}", gpu=6) for i in range(2)]
    snap = snapshot(nodes, [queue("root.a")], admitted=[*low, stays], pending=waiting)
    before = [
        settled(snap, "narrow", place({"n0": 1}), victims=[("v0", EvictionRule.PREEMPT)]),
        settled(snap, "wide", place({"n1": 1}), victims=[("v1", EvictionRule.PREEMPT)]),
    ]
    found = CpSat().settle(question(snap, "small", before=before, evict=True))
    assert isinstance(found, Arrangement)
    assert {uid: [*rows[0].nodes] for uid, rows in found.assignments.items()} == {
        "narrow": ["n1"],
        "wide": ["n0"],
        "small": ["n0"],
    }
    assert {(e.uid, e.beneficiary) for e in found.evictions} == {("v1", "narrow"), ("v0", "wide")}


def crowd(*, nodes: int, reclaimable: Sequence[tuple[int, int]]) -> Snapshot:
    """Nodes of 8 full of one-GPU jobs; those of b at (node, how many) may be reclaimed, the rest may not."""
    free = dict(reclaimable)
    admitted = []
    for n in range(nodes):
        for i in range(8):
            loose = i < free.get(n, 0)
            job = gang(f"j{n}-{i}", pod_set(1, 1), queue="root.b", preemptible=loose)
            admitted.append(running(job, {f"n{n}": 1}, since=-100.0 - n - i))
    return snapshot(
        [node(f"n{n}") for n in range(nodes)],
        [queue("root.a", row(guaranteed=80)), queue("root.b")],
        admitted=admitted,
        pending=[gang("g", pod_set(10, 8), queue="root.a")],
    )


@pytest.mark.parametrize(
    "reclaimable",
    [
        [(n, 8) for n in range(9)] + [(9, 7)],  # 79 in all: one GPU short
        [(n, 8) for n in range(9)] + [(n, 7) for n in range(9, 60)],  # 429 in all, yet only nine whole nodes
    ],
    ids=["sums", "slots"],
)
def test_large_full_cluster_is_refuted_at_once(reclaimable: list[tuple[int, int]]) -> None:
    snap = crowd(nodes=500, reclaimable=reclaimable)
    answer = CpSat().settle(question(snap, "g", evict=True))
    assert isinstance(answer, Proof)
    assert answer.spent < 0.05  # deterministic: what a model of these nodes costs before it is solved


def test_ten_nodes_that_can_be_emptied_are_found() -> None:
    snap = crowd(nodes=100, reclaimable=[(n, 8) for n in range(10)] + [(n, 7) for n in range(10, 60)])
    found = CpSat().settle(question(snap, "g", evict=True))
    assert isinstance(found, Arrangement)
    assert len(found.evictions) == 80
    assert judged(snap, found, bound=["g"]) == ()
