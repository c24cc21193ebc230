"""What holds for a plan as a whole: names, closed queues, strict order, reasons."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from queuer.domain.nodes import Flavor
from queuer.domain.queue import Order, Policy, QueueState
from queuer.solver.records import Admission, Pending, Reservation
from queuer.solver.verify import Rule, Violation
from tests.solver.make import gang, node, pod_set, queue, row, running
from tests.solver.verify.build import at, bond, broken, evicts, plan, waits, world

ROW = at({"n1": 1})
G, TAIL = gang("g", pod_set(1, 8)), gang("h", pod_set(1, 8), submitted=1.0)
SNAP = world(G, admitted=[running(gang("r", pod_set(1, 1)), {"n4": 1})])
STRICT = queue("root.a", policy=Policy(order=Order.STRICT))


def starts(*rows: Any, uid: str = "g") -> Admission:
    return Admission(uid=uid, assignments=rows)


@pytest.mark.parametrize(
    ("change", "uid"),
    [
        ({"admissions": (starts(ROW, uid="ghost"),)}, "ghost"),
        ({"admissions": (starts(ROW), starts(ROW))}, "g"),
        ({"admissions": (starts(at({"n9": 1})),)}, "g"),
        ({"admissions": (starts(at({"n1": 1}, pod_set="x")),)}, "g"),
        ({"evictions": (evicts("g", "ghost"),)}, "ghost"),
        ({"evictions": (evicts("g", "r"),) * 2}, "r"),
        ({"bonds": (bond("ghost", ROW),)}, "ghost"),
        ({"reservations": (Reservation(uid="r", assignments=(ROW,), start=0, expires=9),)}, "r"),
        ({"order": ("g", "ghost")}, "ghost"),
        ({"order": ("g", "g")}, "g"),
        ({"explanations": {"ghost": waits()}}, "ghost"),
    ],
)
def test_every_name_stands_for_something_once(change: dict[str, Any], uid: str) -> None:
    assert not broken(SNAP, plan(SNAP, {"g": [ROW]}))
    assert broken(SNAP, plan(SNAP, {"g": [ROW]}, **change)) == {(Rule.REFERENCE, uid)}


@pytest.mark.parametrize(
    "change",
    [
        {"pod_sets": (pod_set(1, 8), pod_set(1, 8))},
        {"pod_sets": (pod_set(0, 8),)},
        {"pod_sets": (pod_set(1, -8),)},
        {"pod_sets": (pod_set(1, 8, min_count=0),)},
        {"submitted": float("nan")},
        {"hold": True},
        {"queue": "root.x"},
        {"queue": "root.b"},
        {"queue": "root.c"},
    ],
)
def test_what_may_not_start_at_all(change: dict[str, Any]) -> None:
    shut = [queue("root.b", state=QueueState.HELD), queue("root.c", state=QueueState.DRAINING)]
    snap = world(replace(G, **change), queues=shut)
    assert broken(snap, plan(snap, {"g": [ROW]})) == {(Rule.CLOSED, "g")}


def test_nothing_passes_a_refused_head_of_a_strict_queue() -> None:
    head, tail = Pending(workload=G), Pending(workload=TAIL)
    snap = world(head, tail, queues=[STRICT])
    made = plan(snap, {"h": [ROW]})
    assert broken(snap, made) == {(Rule.STRICT, "h")}
    for before in ((head, replace(tail, first=True)), (Pending(workload=replace(G, hold=True)), tail)):
        assert not broken(replace(snap, pending=before), made)
    assert not broken(replace(snap, bonds=(bond("h", ROW),)), made)


def test_disjoint_flavors_pass_each_other() -> None:
    rows = (row(flavor="f", limit=99), row("cpu", flavor="e", limit=99))
    flavors = (Flavor(name="f", node_labels={"f": ""}), Flavor(name="e"))
    head = gang("g", replace(pod_set(1, 0), requests={"cpu": 1}))
    nodes = [node("n1", labels={"f": ""})]
    snap = world(head, TAIL, nodes=nodes, queues=[replace(STRICT, quota=rows)], flavors=flavors)
    assert not broken(snap, plan(snap, {"h": [at({"n1": 1}, flavor="f")]}))


def test_exactly_one_reason_for_everyone_who_waits() -> None:
    assert not broken(SNAP, plan(SNAP, {}))
    held = {"bonds": (bond("g", at({"n4": 1}), victims=("r",)),)}
    for begun, change in (({}, {"explanations": {}}), ({"g": [ROW]}, {"explanations": {"g": waits()}})):
        assert broken(SNAP, plan(SNAP, begun, **change)) == {(Rule.EXPLANATION, "g")}
    assert (Rule.EXPLANATION, "g") in broken(SNAP, plan(SNAP, {}, **held, explanations={"g": waits()}))


def test_a_violation_reads_as_a_sentence() -> None:
    assert str(Violation(Rule.PIN, "g", "n1 is outside", "n1")) == "pin g: n1 is outside"
