"""Live capacity: what is lost on one node under running work is never taken from the other nodes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from queuer.domain.nodes import Flavor
from queuer.solver.arrays import Arrays
from queuer.solver.records import Admitted, NodeState, Snapshot
from queuer.solver.verify.quota import Book
from tests.solver.make import GPU, decided, gang, node, pod_set, queue, row, running, snapshot, started

QUEUES = [queue("root"), queue("root.a"), queue("root.b")]
ASKS = gang("asks", pod_set(1, 8), queue="root.b", priority=10)


def full(*names: str) -> list[Admitted]:
    """A job of all GPUs on each of these nodes."""
    return [running(gang(f"on-{name}", pod_set(1, 8)), {name: 1}) for name in names]


def died(snap: Snapshot, name: str, gpus: int) -> Snapshot:
    """The snapshot once a node has only so many GPUs left; 0 = its object is gone."""
    rows = []
    for there in snap.nodes:
        if there.node.name != name:
            rows.append(there)
        elif gpus:
            rows.append(replace(there, node=replace(there.node, allocatable={GPU: gpus, "pods": 20})))
    return replace(snap, nodes=tuple(rows))


@pytest.mark.parametrize("left", [7, 0], ids=["a GPU died", "the node object is gone"])
def test_an_idle_node_is_taken_beside_a_loss(left: int) -> None:
    """Nobody is evicted for the free node, whatever the priority; the busy nodes stay as they are."""
    snap = snapshot([node("n1"), node("n2"), node("n3")], QUEUES, admitted=full("n1", "n2"), pending=[ASKS])
    plan = decided(died(snap, "n1", left))
    assert (started(plan), plan.evictions) == ({"asks"}, ())


@pytest.mark.parametrize("left", [7, 0])
def test_the_loss_itself_is_no_room(left: int) -> None:
    """On the other nodes there is none."""
    snap = snapshot([node("n1"), node("n2")], QUEUES, admitted=full("n1", "n2"), pending=[ASKS])
    assert not started(decided(died(snap, "n1", left)))


@pytest.mark.parametrize("left", [7, 0])
def test_all_say_the_same_as_it_is_lost_and_comes_back(left: int) -> None:
    """The verifier, arrays that follow, and arrays made anew; idle amounts that are lost do count."""
    snap = snapshot(
        [node("n1", gpu=9, labels={"gpu": "old"}), node("n2", labels={"gpu": "new"})],
        QUEUES,
        flavors=(
            Flavor(name="old", node_labels={"gpu": "old"}),
            Flavor(name="new", node_labels={"gpu": "new"}),
        ),
        admitted=[running(gang("on-n1", pod_set(1, 8)), {"n1": 1}, flavor="old")],
    )
    arrays = Arrays.of(snap)
    for now, gpus in ((snap, 17), (died(snap, "n1", left), 16), (snap, 17)):
        arrays, fresh = arrays.follow(now), Arrays.of(now)
        assert arrays.book.live[None, GPU] == fresh.book.live[None, GPU] == gpus
        assert arrays.book.live["old", GPU] == gpus - 8
        assert Book(now).limit("root", (None, GPU)) == gpus
        assert arrays.usage.used("root", (None, GPU)) == 8


def test_what_it_lost_ends_with_the_work_that_used_it() -> None:
    """Use alone changes, and the arrays follow."""
    snap = died(snapshot([node("n1"), node("n2")], QUEUES, admitted=full("n1")), "n1", 7)
    arrays = Arrays.of(snap)
    ended = replace(snap, nodes=tuple(NodeState(node=s.node) for s in snap.nodes), admitted=())
    assert arrays.book.live[None, GPU] == 16
    after = arrays.follow(ended)
    assert (after.book.live[None, GPU], after.usage.used("root", (None, GPU))) == (15, 0)


def test_pods_of_others_are_no_capacity() -> None:
    """More is used on the node than it has, but not by our work."""
    foreign = {"n1": {GPU: 4}}
    queues = [queue("root"), queue("root.a", row(guaranteed=8))]
    snap = snapshot([node("n1")], queues, foreign=foreign, admitted=full("n1"))
    assert Arrays.of(snap).book.live[None, GPU] == Book(snap).limit("root", (None, GPU)) == 8
