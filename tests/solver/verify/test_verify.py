"""Rules for a plan as a whole: names, closed queues, reasons."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from queuer.domain.assignments import Admission, Reservation
from queuer.domain.queue import QueueState
from queuer.solver.verify import Rule, Violation
from tests.solver.make import gang, pod_set, queue, running
from tests.solver.verify.build import at, bond, broken, evicts, plan, waits, world

ROW = at({"n1": 1})
G = gang("g", pod_set(1, 8))
SNAP = world(G, admitted=[running(gang("r", pod_set(1, 1)), {"n4": 1})])


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


def test_exactly_one_reason_for_everyone_who_waits() -> None:
    assert not broken(SNAP, plan(SNAP, {}))
    held = {"bonds": (bond("g", at({"n4": 1}), victims=("r",)),)}
    for begun, change in (({}, {"explanations": {}}), ({"g": [ROW]}, {"explanations": {"g": waits()}})):
        assert broken(SNAP, plan(SNAP, begun, **change)) == {(Rule.EXPLANATION, "g")}
    assert (Rule.EXPLANATION, "g") in broken(SNAP, plan(SNAP, {}, **held, explanations={"g": waits()}))


def test_a_violation_reads_as_a_sentence() -> None:
    assert str(Violation(Rule.NODE, "g", "n1 is outside its pin")) == "node g: n1 is outside its pin"
