"""Victims leave by right, for a bond that has a place in what they leave."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from queuer.domain.assignments import EvictionRule
from queuer.domain.queue import Policy, Preempt
from queuer.solver.records import Pending, Snapshot
from queuer.solver.verify import Rule
from tests.solver.make import gang, node, pod_set, queue, row, running
from tests.solver.verify.build import NOW, at, bond, broken, evicts, plan, world

HELD = bond("g", at({"n1": 1}), victims=("v",))
RECLAIM = EvictionRule.RECLAIM
GOES: dict[str, Any] = {"bonds": (HELD,), "evictions": (evicts("g", "v"),)}
FAULT = {(Rule.VICTIM, "g")}
A = queue("root.a", row(guaranteed=8))
B: dict[str, Any] = {"queue": "root.b"}


def full(victim: Any = None, admitted: Any = None, pending: Any = None, **more: Any) -> Snapshot:
    """`g` waits in `root.a`, its only node is full with `v`, of the same queue unless said."""
    v = running(gang("v", pod_set(1, 8), **(victim or {})), {"n1": 1}, **(admitted or {}))
    g = Pending(workload=gang("g", pod_set(1, 8), priority=1), **(pending or {}))
    return world(g, nodes=[node("n1")], admitted=[v], **more)


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({}, set()),
        ({"victim": {"priority": 1}}, FAULT),
        ({"victim": {"preemptible": False}}, FAULT),
        ({"admitted": {"releasing": True}}, FAULT),
        ({"pending": {"displaced_by": frozenset({"v"})}}, FAULT),
        ({"pending": {"failed": True}}, FAULT),
        ({"queues": [queue("root.a", policy=Policy(min_runtime=NOW + 1001))]}, FAULT),
        ({"queues": [queue("root.a", policy=Policy(preempt=Preempt.NEVER))]}, FAULT),
        ({"queues": [queue("root.b")], "victim": B}, FAULT),
    ],
)
def test_preemption_in_a_queue(change: dict[str, Any], fault: set[tuple[Rule, str]]) -> None:
    snap = full(**change)
    assert broken(snap, plan(snap, {}, **GOES)) == fault


@pytest.mark.parametrize(("guaranteed", "fault"), [(7, set()), (8, FAULT)])
def test_preemption_across_queues_only_above_a_guarantee(guaranteed: int, fault: Any) -> None:
    root = queue("root", policy=Policy(preempt=Preempt.LOWER_PRIORITY))
    snap = full(victim=B, queues=[root, queue("root.b", row(guaranteed=guaranteed))])
    assert broken(snap, plan(snap, {}, **GOES)) == fault


def test_priority_spares_a_guarantee_that_it_asks_nothing_of() -> None:
    root = queue("root", policy=Policy(preempt=Preempt.LOWER_PRIORITY))
    snap = full(victim=B, queues=[root, queue("root.b", row(guaranteed=8))])
    snap = replace(snap, pending=(Pending(workload=gang("g", pod_set(1, 0), priority=1)),))
    assert broken(snap, plan(snap, {}, **GOES)) == FAULT


@pytest.mark.parametrize(
    ("a", "guaranteed", "victim", "fault"),
    [
        (A, 7, B, set()),
        (queue("root.a", row(guaranteed=7)), 7, B, FAULT),  # not entitled
        (A, 8, B, FAULT),  # no borrower
        (replace(A, policy=Policy(reclaim=False)), 7, B, FAULT),
        (A, 7, {}, FAULT),  # its own queue
    ],
)
def test_reclaim(a: Any, guaranteed: int, victim: dict[str, Any], fault: Any) -> None:
    snap = full(victim={"priority": 5, **victim}, queues=[a, queue("root.b", row(guaranteed=guaranteed))])
    assert broken(snap, plan(snap, {}, bonds=(HELD,), evictions=(evicts("g", "v", RECLAIM),))) == fault


@pytest.mark.parametrize(("guaranteed", "fault"), [(3, set()), (4, FAULT)])
def test_only_the_last_victim_crosses_the_line(guaranteed: int, fault: Any) -> None:
    both = [running(gang(u, pod_set(1, 4), **B), {"n1": 1}) for u in ("v", "w")]
    queues = [A, queue("root.b", row(guaranteed=guaranteed))]
    snap = world(gang("g", pod_set(1, 8)), nodes=[node("n1")], queues=queues, admitted=both)
    gone = tuple(evicts("g", uid, RECLAIM) for uid in ("v", "w"))
    assert broken(snap, plan(snap, {}, bonds=(replace(HELD, victims=("v", "w")),), evictions=gone)) == fault


def test_bonds_and_evictions_belong_together() -> None:
    without, late = replace(HELD, victims=()), replace(HELD, deadline=NOW)
    for change in ({"bonds": ()}, {"bonds": (without,)}, {"bonds": (late,)}, {"evictions": ()}):
        assert (Rule.BOND, "g") in broken(full(), plan(full(), {}, **{**GOES, **change}))


@pytest.mark.parametrize(("longer", "fault"), [(0.0, set()), (60.0, set()), (61.0, {(Rule.BOND, "g")})])
def test_a_bond_that_stands_lasts_longer_only_while_its_victims_do(longer: float, fault: Any) -> None:
    snap = full(admitted={"releasing": True, "gone_by": HELD.deadline + 60}, bonds=(HELD,))
    kept = replace(HELD, deadline=HELD.deadline + longer)
    assert broken(snap, plan(snap, {}, bonds=(kept,))) == fault
