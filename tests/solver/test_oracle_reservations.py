"""Whole plans with reservations against brute force: who starts, who waits, and what is reserved for whom."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest

from queuer.solver.problem import Snapshot
from tests.solver import judged
from tests.solver.cases import NOW
from tests.solver.cases_leaving import vacated_later
from tests.solver.cases_overlapping import overlapping
from tests.solver.cases_reserved import lapsing, reserving, sharing
from tests.solver.many_worlds import KINDS, Outcome, followed, main, planned
from tests.solver.oracle_reservations import Follower

FINE = (Outcome.AGREES, Outcome.PUT_OFF, Outcome.TOO_LONG)


@pytest.mark.parametrize("first", range(0, 200, 20))
def test_plans_with_reservations_are_those_of_brute_force(first: int) -> None:
    """Who was put off because it could not land beside others (3.5) is not compared."""
    reserved = 0
    for seed in range(first, first + 20):
        snap = reserving(seed)
        plan = planned(snap)
        outcome, wrong = followed(snap, plan)
        assert outcome in FINE, (seed, wrong)
        reserved += len(plan.reservations)
    assert reserved > 0


def test_expired_holds_go_where_brute_force_has_them() -> None:
    """To those who outrank their owners, in some of these worlds."""
    lost = 0
    for seed in range(1030, 1070):
        snap = lapsing(seed)
        plan = planned(snap)
        outcome, wrong = followed(snap, plan)
        assert outcome in FINE, (seed, wrong)
        kept = {r.uid for r in plan.reservations}
        lost += any(r.uid in plan.explanations and r.uid not in kept for r in snap.reservations)
    assert lost > 0


def test_reservations_count_on_work_that_leaves_when_it_is_expected_to_be_gone() -> None:
    then = 0
    for seed in range(40):
        snap = vacated_later(seed)
        plan = planned(snap)
        outcome, wrong = followed(snap, plan)
        assert outcome in FINE, (seed, wrong)
        then += any(r.start == a.gone_by for r in plan.reservations for a in snap.admitted)
    assert then > 0


def test_victims_are_found_on_nodes_that_are_reserved() -> None:
    """What they leave when the reservation starts, too, is there for who comes in their place: nothing is put off."""
    beside = 0
    for seed in [*range(200, 210), *range(240, 250)]:
        snap = sharing(seed)
        plan = planned(snap)
        outcome, wrong = followed(snap, plan)
        assert outcome in FINE, (seed, wrong)
        reserved = {n for held in plan.reservations for row in held.assignments for n in row.nodes}
        gone = {e.uid for e in plan.evictions}
        beside += any(a.workload.uid in gone and a.bound.keys() & reserved for a in snap.admitted)
    assert beside > 0


@pytest.mark.parametrize("first", range(0, 200, 50))
def test_two_reservations_on_one_node_are_those_of_brute_force(first: int) -> None:
    """Also where work takes what one of them, or both, would need."""
    shared = started = 0
    for seed in range(first, first + 50):
        snap = overlapping(seed)
        plan = planned(snap)
        outcome, wrong = followed(snap, plan)
        assert outcome in FINE, (seed, wrong)
        places = [{n for row in r.assignments for n in row.nodes} for r in plan.reservations]
        shared += len(places) > 1 and not places[0].isdisjoint(places[1])
        started += len(plan.admissions)
    assert min(shared, started) > 5


@pytest.mark.parametrize(
    ("world", "seed"),
    [
        (overlapping, 70001),  # of two reservations on a node, one owner takes what the other needs
        (overlapping, 70113),  # a part of a node that is reserved is free
        (reserving, 73459),  # somebody lies on a place that is held from then on
        (reserving, 73745),  # the reservation in somebody's way ends later in the cycle
        (reserving, 306263),  # of two alike only one may borrow
        (
            reserving,
            52000152,
        ),  # a settled gang gives way onto a reservation that it outranks, and nobody is evicted
        (reserving, 73815),  # no arrangement in which all would land
        (vacated_later, 18347119),  # a bound gang and whom it waits for do not use the quota together
        (vacated_later, 901327),  # nor where a time is looked for
        (vacated_later, 31400410),  # what others have displaced is in nobody's way
        (vacated_later, 901607),  # the same of two reservations, the lower of which is broken
        (vacated_later, 64100273),  # another place of one that has started gives a later time
        (vacated_later, 91000117),  # whom somebody passes on a held place loses it to nobody else
        (vacated_later, 640130),  # whose pods could take a bound gang's room does not start
        (sharing, 73310),  # another lies on what is reserved for the gang whose turn it is
        (sharing, 306890),  # nobody knows when one ends that is bound
        (sharing, 304319),  # victims of one turn are others than the cheapest of all
    ],
)
def test_worlds_in_which_brute_force_and_plans_differed(world: Callable[[int], Snapshot], seed: int) -> None:
    snap = world(seed)
    outcome, wrong = followed(snap, planned(snap))
    assert outcome is Outcome.AGREES, wrong


def test_what_victims_leave_on_a_held_place_is_proven_to_be_kept() -> None:
    """The exact solver moves nobody there, so nothing of that is found and refused."""
    plan = planned(vacated_later(91000117))
    assert (plan.stats.proved, plan.stats.deferred) == (1, 0)
    assert [(r.uid, {n for a in r.assignments for n in a.nodes}) for r in plan.reservations] == [
        ("g3", {"n1", "n3"})
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_a_plan_that_the_verifier_refuses_is_reported(
    kind: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """And the worlds after it are looked at all the same."""
    wrong = [(), ("capacity g: too much",), ()]
    monkeypatch.setattr(judged, "verify", lambda *_, now: wrong.pop(0))
    monkeypatch.setattr("sys.argv", ["many_worlds", "--kind", kind, "--worlds", "3", "--first", "7"])
    assert main() == 1
    *lines, report = capsys.readouterr().out.splitlines()
    assert f"{kind} 8 unsound: capacity g: too much" in lines
    seen = json.loads(report)[kind]
    assert (seen["unsound"], seen["differs"], sum(seen.values())) == (1, 0, 3)


def test_plans_that_reserve_otherwise_are_found_out() -> None:
    """Later than need be, or nothing: else the comparison would show nothing. A few could be the end of another run."""
    found = Counter[bool | None]()
    for seed in range(50):
        snap = reserving(seed)
        plan = planned(snap)
        if not plan.evictions and plan.reservations:
            late = tuple(replace(r, start=r.start + 1) for r in plan.reservations)
            for other in (late, ()):
                found[Follower(snap, NOW, replace(plan, reservations=other)).agrees()] += 1
    assert found[False] >= 20
    assert found[True] <= 4
