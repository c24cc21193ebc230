"""Reservations: when, where, for how long, and who passes. Holds without a known end are in `test_hold`."""

from __future__ import annotations

from dataclasses import replace

import pytest

from queuer.domain.nodes import Flavor
from queuer.domain.queue import Policy, Preempt, Sharing
from queuer.domain.reasons import Token
from queuer.domain.workload import PodSet
from queuer.solver.arrays import Arrays
from queuer.solver.board import Board
from queuer.solver.decide import decide
from queuer.solver.ends import OVERDUE, expected_end
from queuer.solver.greedy import Greedy
from queuer.solver.holding import intact
from queuer.solver.outcome import Chosen, Refusal
from queuer.solver.problem import Admitted, Assignment, Budget, Reservation, Snapshot, Unbound
from queuer.solver.reserve import Reserver
from queuer.solver.verify import verify
from tests.solver.make import gang, node, pod_set, queue, row, running, snapshot
from tests.solver.reserved import FOUR, NOW, WAIT, asks, busy, hosts, place, plan_of, two, world

ALL_BUSY = [busy("a", "n0", end=1100.0), busy("b", "n1", end=1400.0), busy("c", "n2", "n3", end=1300.0)]


def test_earliest_time_first_then_the_narrowest_domain() -> None:
    """Two nodes are free at 1300; a rack of two then too; both in rack r0 only at 1400."""
    (found,) = plan_of(world(ALL_BUSY, [asks("g", 2)])).reservations
    assert (found.uid, found.start) == ("g", 1300.0)
    told = plan_of(world(ALL_BUSY, [asks("g", 2)])).explanations["g"].detail["reservation"]
    assert told == {"start": 1300.0, "expires": 1600.0, "hosts": sorted(hosts(found))}
    (racked,) = plan_of(world(ALL_BUSY, [asks("g", 2, required="rack")])).reservations
    assert (racked.start, hosts(racked)) == (1300.0, {"n2", "n3"})
    (large,) = plan_of(world(ALL_BUSY, [asks("g", 4)])).reservations
    assert (large.start, large.expires) == (1400.0, 1800.0)


def test_what_ends_before_passes_and_what_outlives_leaves_it_whole() -> None:
    """One free node is part of the place for three; a second job has a node that is not."""
    ends = [busy("a", "n0", end=1100.0), busy("b", "n1", end=1200.0)]
    short, long = asks("s", 1, estimate=200.0, submitted=2.0), asks("l", 1, estimate=201.0, submitted=1.0)
    jobs = [asks("g", 4, submitted=0.0), long, short]
    plan = plan_of(world(ends, jobs))
    assert {a.uid for a in plan.admissions} == {"s"}
    behind = plan.explanations["l"].primary
    assert (behind.token, behind.params["owner"]) == (Token.BEHIND_IN_QUEUE, "g")
    ends[0] = busy("a", "n0", end=1200.0)
    beside = plan_of(world(ends, [replace(jobs[0], pod_sets=(pod_set(3, 8),)), long]))
    assert {a.uid for a in beside.admissions} == {"l"}, "three of four nodes are enough at 1200"


@pytest.mark.parametrize("on_n0", [False, True])
def test_what_victims_leave_beside_a_reservation_is_free_for_others(on_n0: bool) -> None:
    """`g` waits for `a` on n0. Then `p` evicts `v`; half of what that had is left to `y`: on n1, or beside `a`."""
    first, never = Policy(sharing=Sharing.PRIORITY), Policy(preempt=Preempt.NEVER, reservations=1)
    queues = [queue("root", policy=first), queue("root.a", policy=never)]
    queues.append(queue("root.b", policy=Policy(reservations=0)))
    sets = (pod_set(1, 8, name="main"), pod_set(1, 4, name="rest"))[: 1 + on_n0]
    evicted = Admitted(
        workload=gang("v", *sets, queue="root.b"),
        counts={p.name: 1 for p in sets},
        flavors={p.name: "default" for p in sets},
        since=0.0,
        bound={name: dict(p.requests) for name, p in zip(("n1", "n0"), sets, strict=False)},
    )
    half = 4 if on_n0 else 8
    ends = [busy("a", "n0", end=1100.0, gpus=half), busy("c", "n2", "n3"), evicted]
    pending = [
        asks("g", 1, half, priority=5),
        asks("p", 1, 12 - half, queue="root.b", priority=3),
        asks("y", 1, 4, queue="root.b", priority=2),
    ]
    plan = plan_of(snapshot(FOUR, queues, admitted=ends, pending=pending))
    assert [(r.uid, hosts(r), r.start) for r in plan.reservations] == [("g", {"n0"}, 1100.0)]
    assert [e.uid for e in plan.evictions] == ["v"]
    left = {b.uid: b.assignments[0].nodes for b in plan.bonds}
    assert left == {"p": {"n1": 1}, "y": {"n0" if on_n0 else "n1": 1}}


def test_a_reservation_stays_where_it_is_until_an_earlier_time_comes_into_reach() -> None:
    """It would be placed on another node today, and is not moved for that."""
    ends = [busy("a", "n0", end=1300.0), busy("b", "n1", end=1300.0), busy("c", "n2", "n3")]
    held = Reservation(uid="g", assignments=place("n1"), start=1300.0, expires=1900.0)
    assert plan_of(world(ends, [asks("g", 1)])).reservations[0].assignments != held.assignments
    assert plan_of(world(ends, [asks("g", 1)], held=(held,))).reservations == (held,)
    sooner = [*ends[:2], busy("c", "n2", "n3", end=1200.0)]
    (moved,) = plan_of(world(sooner, [asks("g", 1)], held=(held,))).reservations
    assert (moved.start, moved.expires) == (1200.0, held.expires)
    (same,) = plan_of(
        world([ends[0], busy("b", "n1", end=1250.0), ends[2]], [asks("g", 1)], held=(held,))
    ).reservations
    assert (same.start, same.assignments) == (1250.0, held.assignments), "its own place is free sooner"


def test_a_late_end_moves_a_reservation_to_the_next_estimate() -> None:
    """The job was to end at 1000 after 1000 s: it is given another 500, not called about to end."""
    held = Reservation(uid="g", assignments=place("n0"), start=1000.0, expires=2000.0)
    late = [busy("a", "n0", end=1000.0), busy("c", "n1", "n2", "n3")]
    (renewed,) = plan_of(world(late, [asks("g", 1)], held=(held,))).reservations
    assert renewed.start == 1500.0


@pytest.mark.parametrize(
    ("end", "now", "expected"),
    [
        (500.0, 100.0, 500.0),
        (500.0, 500.0, 750.0),
        (500.0, 749.0, 750.0),
        (500.0, 750.0, 1125.0),
        (10.0, 10.0, 10.0 + OVERDUE),
        (0.0, 0.0, OVERDUE),
    ],
)
def test_an_overdue_gang_is_given_half_its_age_more(end: float, now: float, expected: float) -> None:
    """And again when that has passed; never less than a minute."""
    assert expected_end(busy("a", "n0", end=end), now=now) == expected


def test_what_leaves_is_about_to_end_and_what_says_nothing_never_does() -> None:
    """Whatever was declared."""
    assert expected_end(replace(busy("a", "n0"), releasing=True), now=NOW) == NOW + OVERDUE
    assert expected_end(busy("a", "n0"), now=NOW) == float("inf")


def test_a_second_reservation_leaves_the_first_whole() -> None:
    """With two allowed: the second gang gets what ends after the first one's place is taken."""
    plan = plan_of(world(ALL_BUSY, [asks("g", 3, submitted=1.0), asks("h", 1, submitted=2.0)], most=2))
    first, second = plan.reservations
    assert (first.uid, first.start, second.uid) == ("g", 1300.0, "h")
    assert second.start == 1400.0
    assert not hosts(first) & hosts(second)
    assert len(plan_of(world(ALL_BUSY, [asks("g", 3), asks("h", 1)])).reservations) == 1


def test_nothing_is_reserved_where_quota_is_in_the_way() -> None:
    """A reservation is for what capacity alone blocks, and lasts no longer than that, or than any is allowed."""
    held = plan_of(world(ALL_BUSY, [asks("g", 2)])).reservations

    def left(*, limit: int, most: int = 1) -> list[int]:
        root = queue("root", policy=Policy(preempt=Preempt.NEVER, reservations=most))
        before = snapshot(
            FOUR, [root, queue("root.a", row(limit=limit))], admitted=ALL_BUSY, pending=[asks("g", 2)]
        )
        after = replace(before, reservations=held)
        return [len(plan_of(snap).reservations) for snap in (before, after)]

    assert left(limit=48) == [1, 1]
    assert left(limit=47) == [0, 0]
    assert left(limit=48, most=0) == [0, 0]


# Two reservations, and what else stands beside one


def test_its_own_reservation_does_not_keep_a_gang_from_its_place() -> None:
    """Another that begins later has it in place, not twice."""
    held = two("g", "n0", start=1100.0), two("h", "n1", start=1400.0)
    ends = [busy("b", "n1", end=1400.0), busy("c", "n2", "n3")]
    plan = plan_of(world(ends, [asks("g", 1, submitted=1.0), asks("h", 1, submitted=0.0)], most=2, held=held))
    assert "n0" in {n for a in plan.admissions for row in a.assignments for n in row.nodes}
    later = [busy("b", "n1", end=1400.0), busy("c", "n2", end=1100.0), busy("d", "n3")]
    both = [asks("g", 1, submitted=0.0), asks("h", 2, submitted=1.0)]
    first = plan_of(world([*later, busy("a", "n0", end=1050.0)], both, most=2))
    assert [(r.uid, r.start) for r in first.reservations] == [("g", 1050.0), ("h", 1400.0)]
    then = plan_of(world(later, both, most=2, held=first.reservations), now=1050.0)
    assert {a.uid for a in then.admissions} == {"g"}


def test_who_outranks_one_of_two_reservations_leaves_only_the_other_whole() -> None:
    """Both are on one node, of which the higher one leaves enough."""
    full = [
        busy("a", "n0", gpus=3, end=1100.0), busy("b", "n1", gpus=6, end=1200.0), busy("c", "n2", "n3")
    ]  # fmt: skip
    jobs = [
        asks("low", 1, gpus=3, submitted=0.0),
        asks("high", 2, gpus=5, priority=2),
        asks("mid", 1, gpus=3, priority=1),
    ]
    held = (
        replace(two("low", "n0", start=1100.0), expires=9000.0),
        replace(two("high", "n0", "n1", start=1200.0), expires=9000.0),
    )
    plan = plan_of(world(full, jobs, most=2, held=held))
    assert {a.uid for a in plan.admissions} == {"mid"}
    assert [r.start for r in plan.reservations if r.uid == "high"] == [1200.0]


def shared() -> Snapshot:
    """At 1100 four GPUs of n0 are free, two for each of two reservations; on n1 there is room for both."""
    ends = [
        busy("x", "n0", gpus=4), busy("y", "n1", end=1100.0), busy("z", "n2", end=1200.0), busy("w", "n3")
    ]  # fmt: skip
    one_a_host = pod_set(2, 2, exclusive_host=True)
    jobs = [
        replace(asks(uid, 2, submitted=at), pod_sets=(one_a_host,)) for uid, at in (("A", 0.0), ("B", 1.0))
    ]
    held = two("A", "n0", "n1", start=1100.0), two("B", "n0", "n2", start=1200.0)
    return world(ends, jobs, most=3, held=held)


def test_two_reservations_do_not_hold_the_same_when_one_outranks_both() -> None:
    """`G` takes two of the four GPUs that they share: each would have room, not both."""
    snap = shared()
    (urgent,) = world([], [asks("G", 1, 2, priority=5)]).pending
    plan = plan_of(replace(snap, pending=(*snap.pending, urgent)))
    assert [a.assignments[0].nodes for a in plan.admissions] == [{"n0": 1}]
    assert [(r.uid, r.start, hosts(r)) for r in plan.reservations] == [
        ("A", 1100.0, {"n0", "n1"}),
        ("B", 1200.0, {"n1", "n2"}),
    ]
    both = two("A", "n0", "n1", start=1100.0), two("B", "n0", "n1", start=1100.0)
    assert verify(replace(snap, pending=(*snap.pending, urgent)), replace(plan, reservations=both), now=NOW)


def test_a_place_that_breaks_two_reservations_together_does_not_stand() -> None:
    """Whoever proposes it: greedy does not find it, and a layout with it is taken back."""
    snap = shared()
    (more,) = world([], [asks("G", 1, 2)]).pending
    arrays = Arrays.of(replace(snap, pending=(*snap.pending, more)))
    greedy = Greedy(Board(arrays, now=NOW))
    Reserver(greedy).resume(arrays.offers.gangs)
    one, whole = arrays.offers.gangs["G"], intact(greedy.board)
    variant, charge = one.shape.variants[0], one.shape.charges[0]
    assert whole == {"A", "B"}
    assert isinstance(greedy.turn(one), Refusal)
    greedy.take(Chosen(gang=one, variant=variant, charge=charge, spreads={"main": {0: 1}}))
    assert not intact(greedy.board) >= whole


def test_a_hold_leaves_a_reservation_before_it_where_it_is() -> None:
    """What it waits for may not have come by then, so its gang is not taken to be in place."""
    shared = [
        busy("a", "n0", gpus=2),
        busy("s", "n0", gpus=2, end=1100.0),
        busy("b", "n1"),
        busy("c", "n2", "n3"),
    ]
    jobs = [asks("g", 1, gpus=6, submitted=NOW, priority=1), asks("h", 1, gpus=1, submitted=1.0)]
    jobs[1] = replace(jobs[1], pod_sets=(pod_set(1, 2),))
    plan = plan_of(world(shared, jobs, max_wait=WAIT, most=2))
    assert [(r.uid, r.start) for r in plan.reservations] == [("g", 1100.0), ("h", NOW)]


def test_nothing_is_reserved_that_others_keep_back_even_then() -> None:
    """What a queue does not lend is no matter of capacity: nobody's end would free it."""

    def starts(lend: int | None) -> list[float]:
        root = queue("root", policy=Policy(preempt=Preempt.NEVER))
        queues = [root, queue("root.a"), queue("root.b", row(guaranteed=24, lend=lend))]
        full = [busy("a", "n0", end=1100.0), busy("b", "n1", end=1200.0)]
        snap = snapshot(FOUR, queues, admitted=full, pending=[asks("g", 3)])
        return [r.start for r in plan_of(snap).reservations]

    assert starts(None) == [1100.0]
    assert starts(16) == [1200.0]
    assert starts(0) == []


def test_what_is_used_on_a_node_that_is_gone_counts_when_the_time_is_looked_for() -> None:
    """Nodes would bear it after the first end, the live capacity after the second."""
    ends = [busy("a", "n0", end=1100.0), busy("b", "n1", end=1200.0), busy("c", "n2", "n3")]
    (held,) = plan_of(world([*ends, busy("d", "lost")], [asks("g", 1)])).reservations
    assert held.start == 1200.0
    (held,) = plan_of(world(ends, [asks("g", 1)])).reservations
    assert held.start == 1100.0


@pytest.mark.parametrize("order", ["xy", "yx"])
def test_where_two_flavors_have_room_at_the_same_time_the_first_is_reserved(order: str) -> None:
    flavors = tuple(Flavor(name=name, node_labels={"f": name}) for name in "xy")
    queues = [queue("root"), queue("root.a", *(row(flavor=name) for name in order))]
    nodes = [node(name, labels={"f": name}) for name in "xy"]
    full = [
        running(gang(f"on-{name}", pod_set(1, 8)), {name: 1}, flavor=name, expected_end=1100.0)
        for name in "xy"
    ]
    (held,) = plan_of(
        snapshot(nodes, queues, flavors=flavors, admitted=full, pending=[asks("g", 1)])
    ).reservations
    assert (held.start, hosts(held)) == (1100.0, {order[0]})


def test_a_reservation_ends_when_its_queue_may_not_use_the_flavor_any_more() -> None:
    """Else it would keep a place for a gang that can never come."""
    flavors = (Flavor(name="x", node_labels={"f": "x"}), Flavor(name="y", node_labels={"f": "y"}))
    nodes = [node("n0", labels={"f": "x"}), node("n1", labels={"f": "y"})]
    held = Reservation(
        uid="g",
        assignments=(Assignment(pod_set="main", flavor="x", nodes={"n0": 1}),),
        start=1100.0,
        expires=2000.0,
    )

    def left(flavor: str) -> list[str]:
        queues = [queue("root"), queue("root.a", row(flavor=flavor))]
        full = [
            running(gang("v", pod_set(1, 8)), {"n0": 1}, flavor="x", expected_end=1100.0),
            running(gang("w", pod_set(1, 8)), {"n1": 1}, flavor="y"),
        ]
        snap = snapshot(
            nodes, queues, admitted=full, pending=[asks("g", 1)], flavors=flavors, reservations=(held,)
        )
        return [r.uid for r in plan_of(snap).reservations]

    assert left("x") == ["g"]
    assert left("y") == []


def test_who_ends_before_a_reservation_makes_room_for_a_later_gang_on_its_place() -> None:
    """Two nodes are free, each part of a reservation. The short one takes that of the long one, which needs it; the
    other will be free in time.
    """
    full = [busy("b", "n2", end=1300.0), busy("c", "n3")]
    held = two("long", "n0", start=1300.0), two("g", "n1", "n2", start=1300.0)
    jobs = [
        asks("short", 1, estimate=100.0, priority=1, submitted=0.0),
        asks("g", 2, submitted=1.0),
        asks("long", 1, submitted=2.0),
    ]
    plan = plan_of(world(full, jobs, most=2, held=held))
    assert {a.uid for a in plan.admissions} == {"short", "long"}


@pytest.mark.parametrize("landed", [True, False])
@pytest.mark.parametrize("sets", [(pod_set(1, 4),), (pod_set(1, 3), pod_set(1, 1, name="second"))])
def test_who_takes_the_place_of_a_victim_leaves_the_rest_of_its_node_reserved(
    sets: tuple[PodSet, ...], landed: bool
) -> None:
    """What the victim leaves is free when the reservation starts, too, as it would have stayed that long; also where it
    had still to land.
    """
    first, never = Policy(sharing=Sharing.PRIORITY), Policy(preempt=Preempt.NEVER, reservations=1)
    queues = [
        queue("root", policy=first),
        queue("root.a", policy=never),
        queue("root.b", policy=Policy(reservations=0)),
    ]
    victim = running(gang("v", pod_set(1, 4), queue="root.b"), {"n0": 1}, since=0.0)
    if not landed:
        victim = replace(victim, bound={}, unbound=(Unbound(pod_set="main", count=1, hosts=("n0",)),))
    full = [busy("x", "n0", gpus=4, end=NOW + 100), victim, busy("y", "n1"), busy("z", "n2", "n3")]
    taker = gang("p", *sets, queue="root.b", submitted=NOW, priority=3)
    jobs = [asks("g", 1, 4, priority=5), taker]
    snap = snapshot(FOUR, queues, admitted=full, pending=jobs)
    plan = decide(snap, now=NOW, seed=0, budget=Budget(deterministic=0.0))
    assert verify(snap, plan, now=NOW) == ()
    assert [(r.uid, r.start, hosts(r)) for r in plan.reservations] == [("g", NOW + 100, {"n0"})]
    assert [(e.uid, e.beneficiary) for e in plan.evictions] == [("v", "p")]
