"""`order: packed`: what counts, whose turn it is, who is left over; fairness towards queues that are not packed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from queuer.domain.queue import Order, Policy, Preempt, Queue, QueueTree
from queuer.domain.reasons import Token
from queuer.solver.arrays import Arrays
from queuer.solver.board import Board
from queuer.solver.decide import decide
from queuer.solver.greedy import Greedy
from queuer.solver.outcome import Chosen
from queuer.solver.packed.packer import Packer
from queuer.solver.packed.room import Room
from queuer.solver.packed.worth import AGEING, Worth, packed_subtrees
from queuer.solver.pins import Pinner
from queuer.solver.problem import Assignment, Reservation
from tests.solver import worlds
from tests.solver.make import GPU, gang, node, pod_set, queue, row, running, snapshot
from tests.solver.packing import EXACT, GREEDY, PACKED, decided, started

# What counts


def test_a_subtree_reaches_up_as_far_as_the_order_is_said() -> None:
    tree = QueueTree.of(
        [
            Queue(path="root.a", policy=PACKED),
            Queue(path="root.a.b"),
            Queue(path="root.a.c", policy=Policy(order=Order.STRICT)),
            Queue(path="root.d"),
        ]
    )
    assert packed_subtrees(tree) == {"root.a.b": "root.a"}


def test_worth_is_the_dominant_resource_in_whole_units_and_doubles_after_two_hours() -> None:
    old = gang("old", pod_set(1, 2), submitted=-float(AGEING))
    new = gang("new", pod_set(3, 4), submitted=0.0)
    worth = Worth([old, new], capacity={GPU: 64, "pods": 1000}, now=0.0)
    one = worth.of(new, {"main": 1})
    assert worth.of(new, {"main": 3}) == 3 * one
    assert worth.of(old, {"main": 1}) == one


def test_worth_of_resources_that_differ_is_their_part_of_the_cluster() -> None:
    gpus = gang("g", pod_set(1, 1))
    cpus = replace(
        gang("c", pod_set(1, 0)), pod_sets=(replace(pod_set(1, 0), requests={"cpu": 3, "pods": 1}),)
    )
    worth = Worth([gpus, cpus], capacity={GPU: 10, "cpu": 60, "pods": 100}, now=0.0)
    assert worth.of(gpus, {"main": 1}) == 2 * worth.of(cpus, {"main": 1})


# The largest sum


def test_one_large_gang_goes_before_an_older_small_one_that_would_bar_it() -> None:
    snap = snapshot(
        [node("n1", gpu=8)],
        [Queue(path="root", policy=PACKED), queue("root.a")],
        pending=[gang("small", pod_set(1, 1), submitted=0.0), gang("large", pod_set(1, 8), submitted=1.0)],
    )
    plan = decided(snap, now=2.0)
    assert started(plan) == {"large"}
    assert plan.explanations["small"].primary.token is Token.BEHIND_IN_QUEUE
    assert plan.explanations["small"].primary.params == {"queue": "root", "priority": 0}
    assert plan.explanations["small"].others[0].token is Token.WAITING_FOR_QUOTA


def test_higher_priority_goes_first_whatever_the_sum() -> None:
    snap = snapshot(
        [node("n1", gpu=8)],
        [Queue(path="root", policy=PACKED), queue("root.a"), queue("root.b")],
        pending=[
            gang("high", pod_set(1, 1), priority=1, queue="root.b"),
            gang("large", pod_set(1, 8)),
            gang("rest", pod_set(1, 7)),
        ],
    )
    assert started(decided(snap)) == {"high", "rest"}


def test_what_has_waited_long_counts_more() -> None:
    snap = snapshot(
        [node("n1", gpu=8)],
        [Queue(path="root", policy=PACKED), queue("root.a")],
        pending=[
            gang("old", pod_set(1, 5), submitted=0.0),
            gang("new", pod_set(1, 8), submitted=AGEING - 1.0),
        ],
    )
    assert started(decided(snap, now=float(AGEING))) == {"old"}


def test_a_gang_too_large_for_what_is_free_is_told_that_not_the_selection() -> None:
    snap = snapshot(
        [node("n1", gpu=8), node("n2", gpu=4)],
        [Queue(path="root", policy=PACKED), queue("root.a")],
        admitted=[running(gang("r", pod_set(1, 4)), {"n1": 1})],
        pending=[gang("w", pod_set(1, 6))],
    )
    assert decided(snap).explanations["w"].primary.token is Token.TOPOLOGY_PLACEMENT_FAILED


def test_no_selection_evicts_but_a_gang_left_over_may_preempt_at_its_turn() -> None:
    tree = [Queue(path="root", policy=replace(PACKED, preempt=Preempt.WITHIN_QUEUE)), queue("root.a")]
    snap = snapshot(
        [node("n1", gpu=4), node("n2", gpu=4)],
        tree,
        admitted=[running(gang("low", pod_set(1, 4)), {"n1": 1})],
        pending=[
            gang("one", pod_set(1, 4), priority=5, submitted=0.0),
            gang("two", pod_set(1, 4), priority=5, submitted=1.0),
        ],
    )
    plan = decided(snap, now=2.0)
    assert started(plan) == {"one"}
    assert [(e.uid, e.beneficiary) for e in plan.evictions] == [("low", "two")]


def test_reservations_made_since_a_selection_do_not_count_in_the_room_before_it() -> None:
    """A world in which a gang that was left over is bound by one."""
    snap = worlds.packed(worlds.world(403_351, nodes=64, pending=64, running=64), 50_418)
    assert decided(snap, now=worlds.NOW).reservations


def test_a_pick_on_nodes_that_a_reservation_takes_later_is_not_counted_anew() -> None:
    """short ends before large starts on n0 and n1; the model's free nodes do not tell of its rack."""
    tree = [
        queue("root"),
        queue("root.big", row(guaranteed=48), policy=Policy(preempt=Preempt.NEVER)),
        queue("root.p", policy=replace(PACKED, preempt=Preempt.NEVER)),
    ]
    waiting = [
        gang("large", pod_set(4, 8), queue="root.big", priority=1, submitted=-10.0),
        gang("short", pod_set(2, 8), queue="root.p", required="rack", max_runtime=100.0),
        gang("other", pod_set(2, 4), queue="root.p", required="rack", max_runtime=100.0),
        gang("third", pod_set(1, 4), queue="root.p"),
    ]
    rows = (Assignment(pod_set="main", flavor="default", nodes={f"n{i}": 1 for i in range(4)}),)
    first = gang("first", pod_set(2, 8), queue="root.big", estimate=1000.0)
    snap = snapshot(
        [node(f"n{i}", labels={"block": "b", "rack": f"r{i // 2}"}) for i in range(6)],
        tree,
        admitted=[running(first, {"n0": 1, "n1": 1}, since=0.0, expected_end=1000.0)],
        pending=waiting,
        reservations=(Reservation(uid="large", assignments=rows, start=1000.0, expires=5000.0),),
        foreign={"n4": {GPU: 4, "pods": 1}, "n5": {GPU: 4, "pods": 1}},
    )
    assert "short" in started(decided(snap, EXACT))


# Beside other queues


def test_a_packed_subtree_takes_turns_with_its_neighbours() -> None:
    snap = snapshot(
        [node("n1", gpu=8)],
        [
            queue("root.p", row(guaranteed=4), policy=PACKED),
            queue("root.q", row(guaranteed=4)),
        ],
        pending=[
            gang("p1", pod_set(1, 1), queue="root.p", submitted=0.0),
            gang("p8", pod_set(1, 8), queue="root.p", submitted=1.0),
            gang("p4", pod_set(1, 4), queue="root.p", submitted=2.0),
            gang("q2", pod_set(1, 2), queue="root.q", submitted=3.0),
            gang("q3", pod_set(1, 3), queue="root.q", submitted=4.0),
        ],
    )
    plan = decided(snap, now=5.0)
    assert {"q2"} <= started(plan), "its guarantee is not spent by the neighbour's larger sum"
    assert "p8" not in started(plan)


def test_neighbours_that_are_not_packed_keep_their_order() -> None:
    snap = snapshot(
        [node("n1", gpu=4), node("n2", gpu=4)],
        [
            queue("root.p", row(limit=4), policy=PACKED),
            queue("root.q", row(limit=4)),
        ],
        pending=[
            gang("p1", pod_set(1, 1), queue="root.p", submitted=0.0),
            gang("p4", pod_set(1, 4), queue="root.p", submitted=1.0),
            gang("q1", pod_set(1, 1), queue="root.q", submitted=0.0),
            gang("q4", pod_set(1, 4), queue="root.q", submitted=1.0),
        ],
    )
    assert started(decided(snap, now=5.0)) == {"p4", "q1"}


# Gangs left over


def test_a_gang_left_over_may_start_though_two_others_cannot_land_together() -> None:
    """x and y could take each other's place on s0 and s1. z lands beside both once `loose` has moved."""
    sizes = {"n0": 8, "n1": 8, "s0": 11, "s1": 11}
    waiting = [
        gang("loose", pod_set(1, 4), queue="root.q"),
        gang("tied", pod_set(1, 4), queue="root.q"),
        gang("x", pod_set(2, 5), queue="root.q", required="rack"),
        gang("y", pod_set(4, 3), queue="root.q", required="rack"),
        gang("z", pod_set(1, 8), queue="root.p"),
    ]
    snap = snapshot(
        [node(name, gpu=size, labels={"block": "b", "rack": name[0]}) for name, size in sizes.items()],
        [queue("root.q"), queue("root.p", policy=PACKED)],
        pending=waiting,
    )
    greedy = Greedy(Board(Arrays.of(snap), now=0.0))
    gangs, index = greedy.board.arrays.offers.gangs, greedy.board.frame.index
    places = {"loose": {"n0": 1}, "tied": {"n1": 1}, "x": {"s0": 1, "s1": 1}, "y": {"s0": 2, "s1": 2}}
    for uid, nodes in places.items():
        shape, spread = gangs[uid].shape, {index[name]: count for name, count in nodes.items()}
        variant, charge = shape.variants[0], shape.charges[0]
        greedy.take(Chosen(gang=gangs[uid], variant=variant, charge=charge, spreads={"main": spread}))
    assert Pinner(greedy.board, {}).late(greedy.started())
    packer = Packer(greedy, None, seed=1, budget=0.0)
    assert packer.due(gangs["z"]) == "root.p"
    assert not packer.select("root.p", [gangs["z"]])
    assert isinstance(packer.turn(gangs["z"]), Chosen)


def test_turns_in_a_packed_subtree_make_no_copy_of_the_board(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Greedy] = []
    create = Room.__init__

    def counted(room: Room, greedy: Greedy) -> None:
        made.append(greedy)
        create(room, greedy)

    monkeypatch.setattr(Room, "__init__", counted)
    waiting = [gang(f"w{i}", pod_set(1, 2), submitted=float(i)) for i in range(20)]
    snap = snapshot(
        [node(f"n{i}") for i in range(8)],
        [Queue(path="root", policy=PACKED), queue("root.a")],
        pending=waiting,
    )
    assert len(decide(snap, now=20.0, seed=1, budget=GREEDY).admissions) == 20
    assert len(made) == 1
