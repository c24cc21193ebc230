"""The verifier finds whoever takes what is reserved for another: by then, or from now on."""

from __future__ import annotations

from dataclasses import replace

import pytest

from queuer.domain.queue import Policy, Preempt
from queuer.solver.problem import Bond, Eviction, EvictionRule, Pending, Plan, Reservation, Snapshot, Unbound
from queuer.solver.verify import Rule
from tests.solver.make import gang, node, pod_set, queue, row, running, snapshot
from tests.solver.plans import NOW, RACKS, at, plan, queues, rules


def test_reservation_is_left_whole_by_what_outlives_it() -> None:
    busy = running(gang("busy", pod_set(1, 8), queue="root.b"), {"n1": 1}, expected_end=50.0)
    held = Reservation(uid="big", assignments=(at({"n1": 1, "n2": 1}),), start=50.0, expires=500.0)

    def world(estimate: float | None = None) -> Snapshot:
        jobs = [gang("big", pod_set(2, 8)), gang("fill", pod_set(1, 1), submitted=1.0, estimate=estimate)]
        return snapshot(
            RACKS, [queue("root.a"), queue("root.b")], admitted=[busy], pending=jobs, reservations=(held,)
        )

    def broken(snap: Snapshot, name: str) -> set[Rule]:
        return rules(snap, plan(snap, {"fill": (at({name: 1}),)}, reservations=(held,)))

    assert broken(world(), "n2") == {Rule.RESERVATION}
    assert broken(world(), "n3") == set()
    assert broken(world(estimate=50.0), "n2") == set()
    assert broken(world(estimate=51.0), "n2") == {Rule.RESERVATION}


def test_reservation_is_left_whole_by_who_is_bound() -> None:
    """Nobody knows when a bound gang ends, whatever it says of its run time."""
    low = running(gang("low", pod_set(1, 8), queue="root.a"), {"n3": 1})
    snap = snapshot(
        RACKS,
        [queue("root.a", policy=Policy(preempt=Preempt.LOWER_PRIORITY))],
        admitted=[low],
        pending=[
            gang("big", pod_set(1, 8), priority=5),
            gang("new", pod_set(1, 4), priority=3, estimate=1.0),
        ],
    )
    bond = Bond(uid="new", assignments=(at({"n3": 1}),), victims=("low",), deadline=100.0)
    eviction = Eviction(uid="low", beneficiary="new", rule=EvictionRule.PREEMPT)

    def broken(name: str) -> set[Rule]:
        held = Reservation(uid="big", assignments=(at({name: 1}),), start=50.0, expires=500.0)
        return rules(snap, plan(snap, {}, bonds=(bond,), evictions=(eviction,), reservations=(held,)))

    assert broken("n2") == set()
    assert broken("n3") == {Rule.RESERVATION}


@pytest.mark.parametrize(("exclusive", "left"), [(False, 2), (True, 6)])
def test_a_reservation_is_judged_with_pods_that_have_still_to_land_on_its_place(
    exclusive: bool, left: int
) -> None:
    """8 of 15 may be taken on n1, 4 where no two share a host, 5 are for big; one more than is left is too many, beside
    a hold, too.
    """
    loose = Unbound(pod_set="main", count=2, hosts=("n1", "n2"))
    pods = pod_set(2, 4, exclusive_host=exclusive)
    late = replace(running(gang("late", pods), {}), counts={"main": 2}, unbound=(loose,))
    jobs = [gang("big", pod_set(1, 5)), gang("fill", pod_set(1, 3), submitted=1.0)]
    snap = snapshot(
        [node("n1", gpu=15), node("n2", gpu=15)], [queue("root.a")], admitted=[late], pending=jobs
    )
    for start in (50.0, NOW):
        held = Reservation(uid="big", assignments=(at({"n1": 1}),), start=start, expires=500.0)
        standing = replace(snap, reservations=(held,))
        for gpu, broken in ((left, set()), (left + 1, {Rule.RESERVATION})):
            sized = replace(jobs[1], pod_sets=(pod_set(1, gpu),))
            world = replace(standing, pending=(standing.pending[0], Pending(workload=sized)))
            made = plan(world, {"fill": (at({"n1": 1}),)}, reservations=(held,))
            assert rules(world, made) == broken, (start, gpu)
        gone = replace(standing, admitted=(replace(late, unbound=()),))
        assert rules(gone, plan(gone, {"fill": (at({"n1": 1}),)}, reservations=(held,))) == set()


def hold_story(*, priority: int = 0, first: str = "big") -> tuple[Snapshot, Plan]:
    """big is to have n1, half of it free, from this cycle on; fill starts there. `first`: who had its turn first."""
    busy = running(gang("busy", pod_set(1, 4), queue="root.b"), {"n1": 1})
    jobs = [
        gang("big", pod_set(1, 8)),
        gang("fill", pod_set(1, 1), submitted=1.0, priority=priority),
        gang("idle", pod_set(9, 8), submitted=2.0),
    ]
    snap = snapshot(RACKS, [queue("root.a"), queue("root.b")], admitted=[busy], pending=jobs)
    hold = Reservation(uid="big", assignments=(at({"n1": 1}),), start=NOW, expires=500.0)
    made = plan(snap, {"fill": (at({"n1": 1}),)}, reservations=(hold,))
    order = tuple(sorted(made.order, key=lambda uid: (uid != first, uid)))
    return snap, replace(made, order=order)


def test_a_hold_made_in_this_cycle_is_left_whole_by_those_after_it() -> None:
    assert rules(*hold_story()) == {Rule.RESERVATION}
    assert rules(*hold_story(first="fill")) == set()
    assert rules(*hold_story(priority=1)) == set()


def test_a_standing_hold_gives_way_by_entitlement_before_priority() -> None:
    """big is in b's guarantee, so priority alone does not pass it; what is bound in b may have used that up."""
    snap, made = hold_story()
    big, fill, _ = (p.workload for p in snap.pending)
    bond = Bond(uid="late", assignments=(at({"n2": 1}),), victims=(), deadline=100.0)

    def broken(a: int, b: int, *, priority: int, bonds: tuple[Bond, ...] = ()) -> set[Rule]:
        jobs = [
            replace(big, queue="root.b"),
            replace(fill, priority=priority),
            gang("late", pod_set(1, 1), queue="root.b"),
        ]
        tree = [queue("root.a", row(guaranteed=a)), queue("root.b", row(guaranteed=b))]
        held = made.reservations
        world = snapshot(RACKS, tree, admitted=snap.admitted, pending=jobs, reservations=held, bonds=bonds)
        return rules(world, plan(world, {"fill": (at({"n1": 1}),)}, bonds=bonds, reservations=held))

    assert broken(0, 11, priority=1) == set()
    assert broken(0, 12, priority=1) == {Rule.RESERVATION}
    assert broken(1, 12, priority=1) == set()
    assert broken(1, 12, priority=0) == {Rule.RESERVATION}
    assert broken(1, 11, priority=0) == set()
    assert broken(0, 12, priority=1, bonds=(bond,)) == set()
    assert broken(0, 13, priority=1, bonds=(bond,)) == {Rule.RESERVATION}


def test_a_hold_that_somebody_after_it_may_have_moved_is_not_judged() -> None:
    snap, made = hold_story()
    urgent = gang("idle", pod_set(9, 8), priority=1)
    higher = replace(snap, pending=(*snap.pending[:2], Pending(workload=urgent)))
    assert rules(higher, made) == set()
    guaranteed = queues(snap, queue("root.a", row(guaranteed=80)), queue("root.b"))
    assert rules(guaranteed, made) == set()


def test_a_hold_is_left_whole_by_who_is_bound() -> None:
    """It is to take room of the hold when its victim, which lies elsewhere, has gone."""
    low = running(gang("low", pod_set(1, 8)), {"n3": 1})
    jobs = [gang("big", pod_set(1, 8), priority=5), gang("new", pod_set(2, 4), priority=3)]
    hold = Reservation(uid="big", assignments=(at({"n2": 1}),), start=NOW, expires=500.0)
    snap = snapshot(RACKS, [queue("root.a")], admitted=[low], pending=jobs, reservations=(hold,))
    eviction = Eviction(uid="low", beneficiary="new", rule=EvictionRule.PREEMPT)

    def broken(nodes: dict[str, int]) -> set[Rule]:
        bond = Bond(uid="new", assignments=(at(nodes),), victims=("low",), deadline=100.0)
        return rules(snap, plan(snap, {}, bonds=(bond,), evictions=(eviction,), reservations=(hold,)))

    assert broken({"n3": 2}) == set()
    assert broken({"n2": 1, "n3": 1}) == {Rule.RESERVATION}


def test_a_reservation_of_no_pod_set_is_told() -> None:
    snap = snapshot(RACKS, [queue("root.a")], pending=[gang("g", pod_set(1, 8))])
    held = Reservation(uid="g", assignments=(at({"n1": 1}, pod_set="x"),), start=50.0, expires=500.0)
    assert rules(snap, plan(snap, {}, reservations=(held,))) == {Rule.REFERENCE}
