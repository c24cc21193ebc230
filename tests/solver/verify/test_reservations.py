"""Work that would be there then leaves a reserved place whole."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from queuer.domain.assignments import Reservation
from queuer.solver.records import Snapshot
from queuer.solver.verify import Rule
from tests.solver.make import gang, node, pod_set, queue, row, running
from tests.solver.verify.build import NOW, at, broken, plan, world

TIMED = Reservation(uid="o", assignments=(at({"n1": 1}),), start=NOW + 100, expires=NOW + 900)
HOLD = replace(TIMED, start=NOW)
STARTS = {"g": [at({"n1": 1})]}
FAULT = {(Rule.RESERVATION, "g")}


def half(kept: Reservation, *, need: int = 8, queues: Any = (), **more: Any) -> Snapshot:
    """Half of n1 is free, the rest will be before `o` starts there. `g` could start there now."""
    ends = running(gang("r", pod_set(1, 4)), {"n1": 1}, expected_end=NOW + 50)
    waiting = (gang("o", pod_set(1, need)), gang("g", pod_set(1, 4), **more))
    return world(*waiting, nodes=[node("n1")], admitted=[ends], queues=queues, reservations=(kept,))


@pytest.mark.parametrize("kept", [TIMED, HOLD])
@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({}, FAULT),
        ({"priority": 1}, set()),
        ({"queue": "root.b", "queues": [queue("root.b", row(guaranteed=4))]}, set()),
        ({"queue": "root.b", "queues": [queue("root.b"), queue("root.a", row(guaranteed=99))]}, FAULT),
    ],
)
def test_only_who_comes_first_takes_what_is_reserved(kept: Reservation, change: Any, fault: Any) -> None:
    snap = half(kept, **change)
    assert broken(snap, plan(snap, STARTS, reservations=(kept,))) == fault
    assert not broken(snap, plan(snap, STARTS))


def test_backfill() -> None:
    """Work that ends before may use a reserved place, but not a hold's. Work that leaves the place whole may
    stay.
    """
    for kept, fault in ((TIMED, set()), (HOLD, FAULT)):
        short = half(kept, estimate=90.0)
        assert broken(short, plan(short, STARTS, reservations=(kept,))) == fault
    beside = half(TIMED, need=4)
    assert not broken(beside, plan(beside, STARTS, reservations=(TIMED,)))


def test_only_reservations_that_stood_are_judged() -> None:
    later = replace(TIMED, start=NOW + 200)
    assert not broken(half(TIMED), plan(half(TIMED), STARTS, reservations=(later,)))
