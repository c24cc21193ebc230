"""Gangs that are packed together, and a gang's weight in the sum."""

from __future__ import annotations

from queuer.domain.queue import Order, Policy, QueueTree
from queuer.solver.packed import Worth, packed_subtrees
from tests.solver.make import GPU, gang, pod_set, queue

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
