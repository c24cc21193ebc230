"""Gangs that are packed together, and a gang's weight in the sum."""

from __future__ import annotations

from bench.score import Score, score
from queuer.domain.assignments import Admission, Assignment
from queuer.domain.queue import Order, Policy, QueueTree
from queuer.solver.packed import Worth, packed_subtrees
from queuer.solver.records import Pending
from tests.solver.make import GPU, gang, node, plan_of, pod_set, queue, snapshot

PACKED, BY_TIME = Policy(order=Order.PACKED), Policy(order=Order.PRIORITY)
CAPACITY = {GPU: 100, "pods": 1000}


def test_leaves_are_packed_with_their_topmost_packed_queue() -> None:
    """A queue below may go by time again; what is below that is packed by itself."""
    tree = QueueTree.of(
        [
            queue("root"),
            queue("root.a", policy=PACKED),
            queue("root.a.x"),
            queue("root.a.y", policy=BY_TIME),
            queue("root.a.y.z", policy=PACKED),
            queue("root.b"),
        ]
    )
    assert packed_subtrees(tree) == {"root.a.x": "root.a", "root.a.y.z": "root.a.y.z"}


def test_a_gang_counts_its_dominant_resource_and_its_age() -> None:
    """In 24ths: two hours of waiting count as much as the gang, by steps of five minutes."""
    small, large = gang("small", pod_set(2, 2)), gang("large", pod_set(3, 2), submitted=3600.0)
    worth = Worth([small, large], capacity=CAPACITY, now=7200.0)
    assert worth.of(small, {"main": 2}) == 2 * 48
    assert worth.of(small, {"main": 1}) == 48
    assert worth.of(large, {"main": 3}) == 3 * 36
    later = Worth([small, large], capacity=CAPACITY, now=7499.0)
    assert later.of(small, {"main": 2}) == 2 * 48


def test_amounts_of_different_resources_are_compared_by_their_share() -> None:
    """All the GPUs count as much as all the pods."""
    gpus, pods = gang("gpus", pod_set(10, 10)), gang("pods", pod_set(1000, 0))
    worth = Worth([gpus, pods], capacity=CAPACITY, now=0.0)
    assert worth.of(gpus, {"main": 10}) == worth.of(pods, {"main": 1000}) > 0


def test_who_asks_for_nothing_that_there_is_counts_nothing() -> None:
    other = gang("other", pod_set(2, 2))
    assert Worth([other], capacity={"cpu": 10}, now=0.0).of(other, {"main": 2}) == 0


def test_a_gang_that_goes_before_all_is_weighed_by_itself() -> None:
    """A failure interrupted it, and it is chosen with nobody: its priority weighs less than those above."""
    hit = Pending(workload=gang("hit", pod_set(1, 1)), first=True)
    rest = [gang("high", pod_set(1, 1), priority=5), gang("low", pod_set(1, 1))]
    snap = snapshot([node("n1", gpu=2)], [queue("root.a", policy=PACKED)], pending=[hit, *rest])
    placed = (Assignment(pod_set="main", flavor="default", nodes={"n1": 1}),)

    def worth(*uids: str) -> Score:
        admissions = tuple(Admission(uid=uid, assignments=placed) for uid in uids)
        return score(snap, plan_of(order=("hit", "high", "low"), admissions=admissions), now=0.0)

    assert worth("hit", "high") > worth("hit", "low")
