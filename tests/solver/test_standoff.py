"""Bound gangs whose places let the one crowd off the other do not wait for each other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from queuer.domain.nodes import Node
from queuer.solver import standoff
from queuer.solver.decide import decide
from queuer.solver.problem import Admitted, Assignment, Bond, Budget, Pending, Plan, Snapshot, Unbound
from queuer.solver.verify import verify
from queuer.solver.verify.case import Rule
from tests.solver.make import gang, node, pod_set, queue, row, running, snapshot

NOW = 100.0
SMALL, LARGE = pod_set(6, 1), pod_set(4, 4)
SMALL_AT, LARGE_AT = {"n1": 3, "n2": 3}, {"n1": 1, "n2": 1, "n3": 2}
"""`n1` and `n2` have room for both, but four small pods on one of them leave none for a large one there, and two large
ones none for a small one.
"""
CROWDED = (node("n1", pods=4), node("n2", pods=4), node("n3", pods=2))


def bond(uid: str, nodes: Mapping[str, int], *victims: str) -> Bond:
    rows = (Assignment(pod_set="main", flavor="default", nodes=nodes, hosts=tuple(nodes)),)
    return Bond(uid=uid, assignments=rows, victims=victims or ("gone",), deadline=NOW + 200)


def world(
    *more: Node,
    admitted: Iterable[Admitted] = (),
    guaranteed: int = 0,
    victims: Iterable[str] = (),
    **large: Any,
) -> Snapshot:
    """A small gang and a large one, each bound to a place that is free unless `victims` of the large one are there."""
    small = gang("small", SMALL, queue="root.a", priority=1)
    return snapshot(
        [*CROWDED, *more],
        [queue("root"), queue("root.a"), queue("root.b", row(guaranteed=guaranteed))],
        admitted=admitted,
        pending=[replace(gang("large", LARGE, queue="root.b"), **large), small],
        bonds=[bond("large", LARGE_AT, *victims), bond("small", SMALL_AT)],
    )


def decided(snap: Snapshot) -> Plan:
    plans = [decide(snap, now=NOW, seed=0, budget=Budget(deterministic=d)) for d in (0.0, 1.0)]
    assert [verify(snap, plan, now=NOW) for plan in plans] == [(), ()]
    assert len({frozenset(starts(plan)) for plan in plans}) == 1
    return plans[0]


def starts(plan: Plan) -> dict[str, Mapping[str, int]]:
    return {a.uid: a.assignments[0].nodes for a in plan.admissions}


@pytest.mark.parametrize(
    ("guaranteed", "first", "at"),
    [(0, "small", SMALL_AT), (16, "large", LARGE_AT)],
    ids=["priority", "entitled"],
)
def test_the_higher_starts_and_the_bond_of_the_other_stands(
    guaranteed: int, first: str, at: Mapping[str, int]
) -> None:
    """For its sake nobody else goes, and nobody gets its place."""
    lower = [
        running(gang(f"low-{q}", pod_set(1, 8), queue=f"root.{q}", priority=-1), {n: 1})
        for q, n in (("a", "n4"), ("b", "n5"))
    ]
    snap = world(node("n4"), node("n5"), admitted=lower, guaranteed=guaranteed)
    behind = gang("behind", pod_set(1, 4), priority=-5)
    plan = decided(replace(snap, pending=(*snap.pending, Pending(workload=behind))))
    assert (starts(plan), plan.evictions) == ({first: at}, ())
    assert {b.uid for b in plan.bonds} == {"small", "large"} - {first}


def test_the_lower_starts_elsewhere_where_there_is_room() -> None:
    plan = decided(world(node("n4", pods=2)))
    assert starts(plan) == {"small": SMALL_AT, "large": {"n3": 2, "n4": 2}}


@pytest.mark.parametrize("preemptible", [True, False])
def test_the_higher_waits_for_no_bond_that_can_lie_elsewhere(preemptible: bool) -> None:
    """The large gang's victim is there still, and another job leaves whose room will do instead."""
    leaving = [
        running(gang("v", pod_set(1, 8), queue="root.b"), {"n3": 1}, releasing=True),
        running(gang("w", pod_set(1, 8), queue="root.b"), {"n4": 1}, releasing=True, gone_by=NOW + 60),
    ]
    plan = decided(world(node("n4", pods=2), admitted=leaving, victims=["v"], preemptible=preemptible))
    assert starts(plan) == {"small": SMALL_AT}
    (moved,) = plan.bonds
    assert (moved.uid, moved.assignments[0].nodes, moved.victims) == ("large", {"n3": 2, "n4": 2}, ("v", "w"))


def test_the_higher_waits_for_a_bond_that_can_lie_nowhere_else() -> None:
    leaving = running(gang("v", pod_set(1, 8), queue="root.b"), {"n3": 1}, releasing=True)
    plan = decided(world(admitted=[leaving], victims=["v"]))
    assert starts(plan) == {}
    assert {b.uid: b.assignments[0].nodes for b in plan.bonds} == {"small": SMALL_AT, "large": LARGE_AT}


def test_one_starts_even_where_too_many_are_near(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which one is not looked for then."""
    monkeypatch.setattr(standoff, "MOST", 1)
    plan = decided(world())
    assert (len(plan.admissions), len(plan.bonds)) == (1, 1)


@pytest.mark.parametrize(
    ("change", "victims", "robbed"),
    [
        ({}, [], False),
        ({"queue": "root.a", "priority": 5}, [], True),  # it is before the other in the same line
        ({}, ["v"], True),  # it waits for its own victim still
    ],
    ids=["crowded off", "before", "leaving"],
)
def test_no_other_bond_may_be_crowded_off(
    change: Mapping[str, Any], victims: list[str], robbed: bool
) -> None:
    leaving = [running(gang(v, pod_set(1, 8), queue="root.b"), {"n3": 1}, releasing=True) for v in victims]
    found = verify(world(admitted=leaving, victims=victims, **change), decided(world()), now=NOW)
    assert [(v.rule, v.uid) for v in found] == [(Rule.LANDING, "large")] * robbed


@pytest.mark.parametrize(
    ("lands", "starting", "kept"),
    [(None, set(), True), (SMALL_AT, {"large"}, False), ({"n1": 4, "n2": 2}, set(), False)],
    ids=["lands", "has landed", "has crowded it off"],
)
def test_the_bond_stands_until_its_place_is_lost(
    lands: Mapping[str, int] | None, starting: set[str], kept: bool
) -> None:
    small = running(gang("small", SMALL, priority=1), lands or {})
    if lands is None:
        unbound = (Unbound(pod_set="main", count=6, hosts=("n1", "n2")),)
        small = replace(small, counts={"main": 6}, unbound=unbound)
    snap = world(admitted=[small])
    alone = replace(snap, pending=snap.pending[:1], bonds=snap.bonds[:1])
    plan = decided(alone)
    assert (set(starts(plan)), bool(plan.bonds)) == (starting, kept)
