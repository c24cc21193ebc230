"""Reservations: the earliest time for the first gang that capacity alone blocks; others backfill."""

from __future__ import annotations

from dataclasses import replace

from queuer.domain.queue import Policy
from queuer.domain.reasons import Token
from queuer.domain.workload import Workload
from queuer.solver.records import Snapshot
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
    """The reservation needs 8 of 8 GPUs on a and b; c is nobody's."""
    snap = busy(BIG, gang("long", pod_set(1, 8)))
    wider = replace(snap, nodes=(*snap.nodes, *snapshot([node("c", gpu=8)], QUEUES).nodes))
    standing = replace(wider, reservations=decided(busy(BIG)).reservations)
    plan = decided(standing)
    assert "long" in started(plan) or "big" in started(plan)


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
