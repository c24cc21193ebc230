"""Start ranges: known ends give known starts, what is not known gives none, and the decision's own rules hold."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from queuer.domain.estimates import StartRange
from queuer.domain.queue import Order, Policy
from queuer.domain.workload import GRACE, Workload
from queuer.sim.forecast import Effort, forecast
from queuer.solver.ends import OVERDUE
from queuer.solver.process import wire
from queuer.solver.process.child import Child
from queuer.solver.records import Admitted, Snapshot
from tests.solver.make import gang, landing, node, pod_set, queue, row, running, snapshot

PLAIN = Effort(spread=0.0, rolls=3)
"""Everything lasts as long as expected."""


def holder(ends: float | None, **more: Any) -> Admitted:
    """Has all 8 GPUs of n1 until then."""
    return running(asks("h", estimate=ends, **more), {"n1": 1}, since=0.0, expected_end=ends)


def asks(uid: str, gpus: int = 8, **more: Any) -> Workload:
    return gang(uid, pod_set(1, gpus), **more)


def at(time: float) -> StartRange:
    return StartRange(earliest=time, likely=time, latest=time)


def given(*pending: Workload, admitted: Admitted | None = None, nodes: int = 1, **policy: Any) -> Snapshot:
    return snapshot(
        [node(f"n{i}") for i in range(1, nodes + 1)],
        [queue("root.a", policy=Policy(**policy)), queue("root.b", row(guaranteed=8))],
        pending=pending,
        admitted=[admitted] if admitted else [],
    )


def test_a_gang_that_fits_starts_now() -> None:
    assert forecast(given(asks("g")), now=5.0, seed=0) == {"g": at(5.0)}


def test_gangs_behind_each_other_start_when_those_before_them_end() -> None:
    """The holder ends at 1,000, the first gang 600 later."""
    made = given(asks("g1", estimate=600.0), asks("g2", submitted=1.0), admitted=holder(1_000.0))
    assert forecast(made, now=0.0, seed=0, effort=PLAIN) == {"g1": at(1_000.0), "g2": at(1_600.0)}


def test_run_times_are_drawn_around_what_is_expected() -> None:
    """The median near the expected end, the first and the last apart; a later look at the same job moves with it."""
    made, many = given(asks("g"), admitted=holder(10_000.0)), Effort(rolls=101, spread=0.7)
    found = forecast(made, now=0.0, seed=0, effort=many)["g"]
    assert found.likely == pytest.approx(10_000.0, rel=0.2)
    assert found.latest is not None
    assert found.earliest < 4_000.0 < 25_000.0 < found.latest
    overdue = forecast(made, now=30_000.0, seed=0, effort=many)["g"]
    assert overdue.earliest > 30_000.0
    assert overdue.latest is not None
    assert overdue.latest < 300_000.0


def test_a_declared_bound_is_not_exceeded() -> None:
    made = given(asks("g"), admitted=holder(1_000.0, max_runtime=1_200.0))
    assert forecast(made, now=0.0, seed=0, effort=Effort(rolls=31))["g"].latest == 1_200.0


@pytest.mark.parametrize(("gone_by", "starts"), [(1_200.0, 1_200.0), (None, 1_000.0 + OVERDUE)])
def test_what_leaves_is_gone_when_that_is_known_else_soon(gone_by: float | None, starts: float) -> None:
    made = given(asks("g"), admitted=replace(holder(5_000.0), releasing=True, gone_by=gone_by))
    assert forecast(made, now=1_000.0, seed=0) == {"g": at(starts)}


def test_no_known_end_no_range() -> None:
    assert forecast(given(asks("g"), admitted=holder(None)), now=0.0, seed=0) == {}


def test_beyond_the_horizon_only_what_is_within() -> None:
    made = given(asks("g"), admitted=holder(1_000.0))
    found = forecast(made, now=0.0, seed=0, effort=Effort(horizon=1_100.0, rolls=31))["g"]
    assert found.likely is None or found.likely <= 1_100.0
    assert found.latest is None
    assert forecast(made, now=0.0, seed=0, effort=replace(PLAIN, horizon=900.0)) == {}


def test_decisions_and_gangs_are_bounded() -> None:
    made = given(*(asks(f"g{i}", submitted=float(i), estimate=1_000.0) for i in range(9)))
    assert set(forecast(made, now=0.0, seed=0, effort=replace(PLAIN, decisions=3))) == {"g0", "g1", "g2"}
    jobs = [
        asks(f"{q}{i}", 1, queue=f"root.{q}", submitted=float(i), priority=i // 3)
        for q in "ab"
        for i in range(4)
    ]
    few = given(*jobs)
    assert forecast(few, now=0.0, seed=0, effort=replace(PLAIN, per_queue=2)).keys() == {
        "a3",
        "a0",
        "b3",
        "b0",
    }
    assert len(forecast(few, now=0.0, seed=0, effort=replace(PLAIN, gangs=3))) == 3


@pytest.mark.parametrize("more", [{"priority": 5}, {"queue": "root.b"}], ids=["preempt", "reclaim"])
def test_an_eviction_is_foretold(more: dict[str, Any]) -> None:
    """The victim's place is free after its grace."""
    made = given(asks("g", estimate=600.0, **more), admitted=holder(None))
    assert forecast(made, now=0.0, seed=0)["g"] == at(GRACE)


def test_a_strict_queue_holds_its_line() -> None:
    half = running(asks("h", 4), {"n1": 1}, since=0.0, expected_end=1_000.0)
    jobs = [asks("big", estimate=100.0), asks("small", 4, submitted=1.0)]
    found = forecast(given(*jobs, admitted=half, order=Order.STRICT), now=0.0, seed=0, effort=PLAIN)
    assert (found["big"].likely, found["small"].likely) == (1_000.0, 1_100.0)


@pytest.mark.parametrize(("exclusive", "starts"), [(False, 0.0), (True, 600.0)])
def test_pods_that_still_land_take_the_first_hosts_of_their_pin(exclusive: bool, starts: float) -> None:
    """Both on the first, unless they keep off each other: then no node is left."""
    held = landing("h", 2, 4, "n1", "n2")
    apart = replace(held.workload, pod_sets=(pod_set(2, 4, exclusive_host=exclusive),))
    made = given(asks("g"), admitted=replace(held, workload=apart, expected_end=600.0), nodes=2)
    assert forecast(made, now=0.0, seed=0, effort=PLAIN)["g"].likely == starts


async def test_a_child_answers_like_the_function() -> None:
    """The same arguments give the same ranges, each in order."""
    jobs = [asks(f"g{i}", 1 + i % 8, submitted=float(i), estimate=100.0 * i or None) for i in range(20)]
    made = given(*jobs, admitted=holder(1_000.0), nodes=3)
    child = Child("queuer.sim.forecast:forecast")
    try:
        told = await child.ask(wire.ForecastRequest(snapshot=made, now=0.0, seed=0), within=60.0)
    finally:
        await child.end()
    found = forecast(made, now=0.0, seed=0)
    assert told == found
    assert len(found) > 5
    for each in found.values():
        times = [t for t in (0.0, each.earliest, each.likely, each.latest) if t is not None]
        assert all(a <= b for a, b in pairwise(times))
