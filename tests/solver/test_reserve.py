"""Reservations: the earliest time for the first gang that capacity alone blocks; others backfill."""

from __future__ import annotations

from dataclasses import replace

import pytest

from queuer.domain.assignments import Assignment, Reservation
from queuer.domain.nodes import Flavor, SchedulingTerms
from queuer.domain.queue import Policy
from queuer.domain.reasons import Token
from queuer.domain.workload import PodSet, Workload
from queuer.solver.records import Pending, Snapshot
from tests.solver.make import (
    decided,
    gang,
    hosts,
    node,
    pod_set,
    queue,
    row,
    running,
    snapshot,
    started,
    token,
)

QUEUES = [queue("root"), queue("root.a"), queue("root.b")]


def busy(*waiting: Workload, until: float | None = 600.0, policy: Policy | None = None) -> Snapshot:
    """Node a is taken until then; b is free. The first who waits needs both."""
    work = running(gang("r", pod_set(1, 8), queue="root.b"), {"a": 1}, expected_end=until)
    queues = [queue("root"), queue("root.a", policy=policy), queue("root.b")]
    return snapshot([node("a"), node("b")], queues, admitted=[work], pending=waiting)


BIG = gang("big", pod_set(2, 8), submitted=-100.0)


def test_a_blocked_gang_gets_the_time_at_which_enough_has_ended() -> None:
    """Visible, owned, with an expiry."""
    (reservation,) = decided(busy(BIG)).reservations
    assert (reservation.uid, reservation.start) == ("big", 600.0)
    assert reservation.expires >= 900.0
    assert set(reservation.assignments[0].nodes) == {"a", "b"}


def test_who_ends_before_it_backfills_and_who_does_not_waits() -> None:
    """The short one will have left by then; the long one is told whose reservation it would break."""
    big = gang("big", pod_set(3, 8), submitted=-100.0)
    short = gang("short", pod_set(1, 8), estimate=500.0)
    long = gang("long", pod_set(1, 8), estimate=700.0, submitted=-1.0)
    spare = snapshot([node("c")], QUEUES).nodes
    first = replace(busy(big), nodes=(*busy(big).nodes, *spare))
    both = busy(big, long, short)
    standing = replace(both, nodes=first.nodes, reservations=decided(first).reservations)
    plan = decided(standing)
    assert started(plan) == {"short"}
    assert token(plan, "long") is Token.BEHIND_IN_QUEUE
    assert "big" in plan.explanations["long"].primary.text


def test_who_leaves_it_whole_starts_whatever_it_takes() -> None:
    """The reservation needs 8 of 8 GPUs on a and b. It ends never, yet 4 GPUs of c are nobody's, too few for big."""
    snap = busy(BIG, gang("long", pod_set(1, 4)))
    wider = replace(snap, nodes=(*snap.nodes, *snapshot([node("c", gpu=4)], QUEUES).nodes))
    plan = decided(replace(wider, reservations=decided(busy(BIG)).reservations))
    assert hosts(plan, "long") == {"c": 1}
    assert [(r.uid, set(r.assignments[0].nodes)) for r in plan.reservations] == [("big", {"a", "b"})]


def test_it_stays_where_it_was_until_an_earlier_time_is_in_reach() -> None:
    """A figure that moves a little makes nobody wait anew."""
    first = decided(busy(BIG)).reservations
    assert decided(replace(busy(BIG), reservations=first), now=60.0).reservations == first
    sooner = busy(BIG, until=300.0)
    (moved,) = decided(replace(sooner, reservations=first), now=60.0).reservations
    assert moved.start == 300.0


def test_work_past_its_expected_end_is_never_about_to_end() -> None:
    """It is estimated anew: half of its age more."""
    (reservation,) = decided(busy(BIG, until=-10.0)).reservations
    assert reservation.start > 60.0


@pytest.mark.parametrize(("now", "ends"), [(60.0, 70.0), (100.0, 110.0)])
def test_work_past_its_estimate_ends_within_its_max_runtime(now: float, ends: float) -> None:
    """A run that is past that too is estimated as if there were none."""
    made = busy(BIG, until=50.0)
    (work,) = made.admitted
    bound = replace(work, since=-20.0, workload=replace(work.workload, estimate=70.0, max_runtime=90.0))
    (reservation,) = decided(replace(made, admitted=(bound,)), now=now).reservations
    assert reservation.start == ends


def test_without_any_estimate_there_is_a_hold_after_max_wait() -> None:
    """From now on nobody takes what the place has or lacks."""
    policy = Policy(max_wait=50.0)
    assert decided(busy(BIG, until=None)).reservations == ()
    (hold,) = decided(busy(BIG, until=None, policy=policy)).reservations
    assert hold.start == 0.0
    small = gang("small", pod_set(1, 1), queue="root.b", submitted=5.0)
    held = replace(busy(BIG, small, until=None, policy=policy), reservations=(hold,))
    assert started(decided(held, now=1.0)) == set()


def test_a_reservation_that_moves_becomes_a_hold_after_max_wait() -> None:
    """An estimate that is never kept does not keep a gang waiting for ever: it holds where it would be first."""
    first = decided(busy(BIG)).reservations
    later = replace(busy(BIG, until=900.0, policy=Policy(max_wait=150.0)), reservations=first)
    (moved,) = decided(later, now=40.0).reservations
    assert moved.start == 900.0
    (hold,) = decided(replace(later, reservations=first), now=60.0).reservations
    assert hold.start == 60.0
    assert hold.expires >= 360.0


def test_entitled_work_displaces_the_reservation_of_a_borrower() -> None:
    """The right to one's guarantee comes before a place in line."""
    queues = [queue("root"), queue("root.a", row(guaranteed=0)), queue("root.b", row(guaranteed=8))]
    work = running(gang("r", pod_set(1, 8), queue="root.a"), {"a": 1}, expected_end=600.0)
    base = snapshot([node("a"), node("b")], queues, admitted=[work], pending=[BIG])
    first = decided(base).reservations
    mine = gang("mine", pod_set(1, 8), queue="root.b", submitted=5.0)
    both = snapshot([node("a"), node("b")], queues, admitted=[work], pending=[BIG, mine])
    assert started(decided(replace(both, reservations=first))) == {"mine"}


def test_policy_says_how_many() -> None:
    """None where the queue has none."""
    assert decided(busy(BIG, policy=Policy(reservations=0))).reservations == ()
    assert hosts(decided(busy(BIG)), "big").keys() == {"a", "b"}


def test_an_answer_beside_reservations_is_not_kept_when_one_has_ended() -> None:
    """One gang outlives A's alone, the other, when A has started, B's alone: as many, but others."""
    nodes = [node(name) for name in "fgaeb"]
    shares = {"a": 16, "b": 8, "x": 8, "r": 16}
    queues = [queue("root"), *(queue(f"root.{name}", row(guaranteed=n)) for name, n in shares.items())]
    work = [
        running(gang(f"r{name}", pod_set(1, 8), queue="root.r"), {name: 1}, expected_end=end)
        for name, end in (("e", 100.0), ("b", 200.0))
    ]
    first = gang("A", pod_set(2, 8), queue="root.a", submitted=10.0)
    other = Pending(
        workload=gang("B", pod_set(1, 8), queue="root.b", submitted=30.0), avoid=frozenset("fgae")
    )
    alike = [
        Pending(
            workload=gang(uid, pod_set(1, 8), queue="root.x", submitted=at, estimate=lasts),
            avoid=frozenset("fg"),
        )
        for uid, at, lasts in (("short", 1.0, 150.0), ("long", 20.0, 500.0))
    ]
    between = gang("between", pod_set(1, 9), queue="root.x", submitted=15.0)
    reserved = [
        Reservation(
            uid=uid,
            assignments=(
                Assignment(
                    pod_set="main", flavor="default", nodes=dict.fromkeys(on, 1), selector={}, hosts=tuple(on)
                ),
            ),
            start=start,
            expires=9000.0,
        )
        for uid, on, start in (("A", "ae", 100.0), ("B", "b", 200.0))
    ]
    waiting: list[Workload | Pending] = [first, other, *alike, between]
    plan = decided(snapshot(nodes, queues, admitted=work, pending=waiting, reservations=tuple(reserved)))
    assert started(plan) == {"A", "long"}


def test_a_reservation_ends_when_its_queue_wants_none() -> None:
    """Its nodes are anybody's again."""
    first = decided(busy(BIG)).reservations
    long = gang("long", pod_set(1, 8), submitted=5.0)
    off = replace(busy(BIG, long, policy=Policy(reservations=0)), reservations=first)
    plan = decided(off, now=60.0)
    assert plan.reservations == ()
    assert started(plan) == {"long"}


@pytest.mark.parametrize("standing", [False, True])
def test_who_can_never_start_by_quota_holds_nothing(standing: bool) -> None:
    """`root.b` keeps 4 of 16 GPUs back for ever, so that 16 are never there for `root.a`."""
    snap = busy(BIG, until=None, policy=Policy(max_wait=50.0))
    queues = [
        queue("root"),
        queue("root.a", policy=Policy(max_wait=50.0)),
        queue("root.b", row(guaranteed=8, lend=4)),
    ]
    keeping = replace(snap, tree=snapshot([], queues).tree)
    holds = decided(snap).reservations if standing else ()
    assert decided(replace(keeping, reservations=holds), now=1.0).reservations == ()


@pytest.mark.parametrize(
    "impossible",
    [pod_set(3, 8), pod_set(1, 9), pod_set(2, 8, required="rack")],
    ids=["more than all nodes", "more than any node", "more than any rack"],
)
def test_who_could_never_have_a_place_takes_nobodys_reservation(impossible: PodSet) -> None:
    """However many there are before it."""
    heads = [gang(f"head{n}", impossible, submitted=-200.0, queue=f"root.q{n}") for n in range(20)]
    behind = gang("head", impossible, submitted=-200.0)
    snap = busy(behind, BIG, *heads)
    nodes = [node(name, labels={"block": "b", "rack": name}) for name in "ab"]
    queues = [*QUEUES, *(queue(head.queue) for head in heads)]
    snap = replace(
        snap, nodes=snapshot(nodes, queues, admitted=snap.admitted).nodes, tree=snapshot([], queues).tree
    )
    assert [r.uid for r in decided(snap).reservations] == ["big"]


def test_a_head_whose_place_has_no_known_end_takes_nobodys_reservation() -> None:
    """The service on c runs for ever: the head of the leaf needs c, the next gang does not."""
    head = gang("head", pod_set(3, 8), submitted=-200.0)
    service = running(gang("service", pod_set(1, 8), queue="root.b"), {"c": 1})
    work = [*busy().admitted, service]
    plan = decided(snapshot([node(name) for name in "abc"], QUEUES, admitted=work, pending=[head, BIG]))
    assert [(r.uid, r.start) for r in plan.reservations] == [("big", 600.0)]


def test_one_for_each_flavor() -> None:
    """Of one leaf, and whoever came first; the second on a flavor gets none."""
    flavors = tuple(Flavor(name=name, node_labels={"flavor": name}) for name in ("f1", "f2"))
    nodes = [node(name, labels={"flavor": f"f{name[0]}"}) for name in ("1a", "1b", "2a", "2b")]
    work = [
        running(
            gang(f"r{f}", pod_set(1, 8), queue="root.b"), {f"{f}a": 1}, flavor=f"f{f}", expected_end=600.0
        )
        for f in (1, 2)
    ]
    waiting = [
        gang(f"w{n}", pod_set(2, 8, terms=SchedulingTerms(node_selector={"flavor": f})), submitted=n - 9.0)
        for n, f in enumerate(("f1", "f1", "f2", "f2"))
    ]
    snap = snapshot(nodes, QUEUES, admitted=work, pending=waiting, flavors=flavors)
    first = decided(snap).reservations
    assert [r.uid for r in first] == ["w0", "w2"]
    assert decided(replace(snap, reservations=first), now=5.0).reservations == first


def test_of_equals_the_older_holds_it_although_its_start_was_taken_back() -> None:
    """b1 starts, b2 reserves at its turn, a2 takes back what b1 borrowed: b1 is the older, and reserves in turn."""
    guaranteed = queue("root.a", row(guaranteed=4, limit=8), weight=0.1)
    queues = [queue("root"), guaranteed, queue("root.b"), queue("root.c")]
    runs = running(gang("runs", pod_set(1, 8), queue="root.c"), {"n2": 1}, since=-1000.0, expected_end=1000.0)
    waiting = [
        gang("b1", pod_set(1, 8), queue="root.b", submitted=-9.0),
        gang("b2", pod_set(1, 8), queue="root.b", submitted=-8.0),
        gang("too-large", pod_set(1, 10), queue="root.a", submitted=-7.0),
        gang("a2", pod_set(1, 4), queue="root.a", submitted=-6.0),
    ]
    plan = decided(snapshot([node("n1"), node("n2")], queues, admitted=[runs], pending=waiting))
    assert started(plan) == {"a2"}
    assert [(reserved.uid, reserved.start) for reserved in plan.reservations] == [("b1", 1000.0)]
