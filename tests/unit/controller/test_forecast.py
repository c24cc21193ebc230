"""Forecasts beside the loop: what is shown, what is counted, and that a broken one disturbs nobody."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from queuer.controller.cycle.forecast import Forecaster, basis_of, compare, with_estimate, without_unsure_ends
from queuer.controller.health.metrics import Metrics
from queuer.domain.estimates import LEAST, Estimates, StartRange
from queuer.domain.nodes import Node
from queuer.domain.queue import Queue, QueueTree
from queuer.domain.reasons import Explanation, Reason, Token
from queuer.solver.records import Admitted, NodeState, Pending, Snapshot
from tests.unit.make import gang
from tests.waiting import beside, until

NOW = 6_000.0
TARGETS = "tests.solver.process.targets"
WAITS = Explanation(
    primary=Reason(token=Token.WAITING_FOR_QUOTA, said="no quota"), detail={"ahead": {"rank": 2}}
)
RANGE = StartRange(earliest=6_610.0, likely=7_190.0, latest=7_770.0)
SHOWN = {"from": 6_600, "likely": 7_200, "to": 7_800}


def snapshot() -> Snapshot:
    node = Node(name="n1", labels={}, allocatable={"pods": 10})
    tree = QueueTree.of([Queue(path="root.a")])
    return Snapshot(nodes=(NodeState(node=node),), tree=tree, pending=(Pending(workload=gang("g")),))


@asynccontextmanager
async def running(forecaster: Forecaster) -> AsyncIterator[None]:
    """It forecasts beside the block, and has ended with its child afterwards."""
    async with beside(forecaster.run()) as task:
        yield
    assert task.cancelled()


async def test_a_child_is_asked_and_its_answer_kept() -> None:
    told = asyncio.Event()
    forecaster = Forecaster(every=0.0, seed=0, told=told.set)
    async with running(forecaster):
        forecaster.offer(snapshot(), now=NOW)
        await until(told.is_set)
    [found] = forecaster.ranges.values()
    assert (found.earliest, found.likely, found.latest) == (NOW, NOW, NOW)
    assert found.basis == ""


async def test_a_broken_forecast_leaves_what_was_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """First an error, then a crash, then an answer: only that is told. A fourth may have begun before we look."""
    count = tmp_path / "count"
    monkeypatch.setenv("FORECASTS", str(count))
    told = asyncio.Event()
    forecaster = Forecaster(every=0.0, seed=0, told=told.set, target=f"{TARGETS}:forecast_at_the_third")
    forecaster.ranges = {"old": RANGE}

    def heard() -> bool:
        forecaster.offer(snapshot(), now=NOW)
        return told.is_set()

    async with running(forecaster):
        await until(heard)
    assert forecaster.ranges == {}
    assert count.read_text().startswith("xxx")


async def test_cancelled_it_leaves_no_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "pid"
    monkeypatch.setenv("FORECASTS", str(file))
    forecaster = Forecaster(every=0.0, seed=0, told=lambda: None, target=f"{TARGETS}:forecast_without_end")
    async with running(forecaster):
        forecaster.offer(snapshot(), now=NOW)
        await until(lambda: file.exists() and file.read_text())
    with pytest.raises(ProcessLookupError):
        os.kill(int(file.read_text()), 0)


def test_ranges_are_shown_in_whole_minutes_outwards() -> None:
    shown = with_estimate(WAITS, RANGE, now=NOW)
    assert shown.detail == {"ahead": {"rank": 2}, "estimate": SHOWN}
    assert with_estimate(WAITS, StartRange(earliest=1.0, likely=None, latest=None), now=NOW).detail[
        "estimate"
    ] == {"from": 0, "likely": None, "to": None}


def test_a_range_never_ends_within_a_minute_from_now() -> None:
    """An estimate learned from one-second runs would say so."""
    short = StartRange(earliest=NOW, likely=NOW + 1, latest=NOW + 1, basis="learned ends of running jobs")
    told = with_estimate(WAITS, short, now=NOW + 0.5).detail["estimate"]
    assert (told["from"], told["to"], told["basis"]) == (NOW, NOW + 120, short.basis)


def test_ends_that_rest_on_too_few_runs_are_not_told_on() -> None:
    """A declared end is; the decision goes on using what there is."""
    one = snapshot().pending[0].workload
    few, many, said = (replace(one, uid=u, queue=f"root.{u}") for u in ("few", "many", "said"))
    said, estimates = replace(said, max_runtime=60.0), Estimates()
    for workload, runs in ((few, LEAST - 1), (many, LEAST)):
        for _ in range(runs):
            estimates.learn(workload, 1.0)
    running = [
        Admitted(
            workload=estimates.estimated(w), counts={"main": 1}, flavors={"main": "default"}, since=NOW,
            expected_end=NOW + 1,
        )
        for w in (few, many, said)
    ]  # fmt: skip
    snap = replace(snapshot(), admitted=tuple(running))
    assert [a.expected_end for a in without_unsure_ends(snap, now=NOW).admitted] == [None, NOW + 1, NOW + 60]
    learned = "expected by the last 5 runs of such jobs in the queue"
    around = "run times drawn around ends that running jobs promise and ends"
    assert basis_of(snap, now=NOW) == f"{around} {learned}"
    assert estimates.of(few) == 1.0


@pytest.mark.parametrize("token", [Token.MISCONFIGURED, Token.ON_HOLD, Token.ADMITTED_NOT_PLACED])
def test_what_waiting_does_not_mend_has_no_range(token: Token) -> None:
    explanation = Explanation(primary=Reason(token=token, said=""))
    assert with_estimate(explanation, RANGE, now=NOW) == explanation


def test_a_range_that_is_over_is_not_shown() -> None:
    assert with_estimate(WAITS, RANGE, now=8_000.0) == WAITS
    assert with_estimate(WAITS, None, now=NOW) == WAITS


def test_a_range_from_before_an_eviction_is_not_shown() -> None:
    """It told when the attempt would start that is over."""
    for evicted, shown in ((NOW - 1, True), (NOW, True), (NOW + 1, False)):
        told = with_estimate(WAITS, replace(RANGE, made=NOW), now=NOW, evicted=evicted)
        assert ("estimate" in told.detail) is shown


@pytest.mark.parametrize(
    ("started", "hits"),
    [(6_600.0, 1), (7_800.0, 1), (6_599.0, 0), (9_000.0, 0)],
)
def test_what_was_told_is_compared(started: float, hits: int) -> None:
    metrics = Metrics()
    compare(with_estimate(WAITS, RANGE, now=NOW), started=started, metrics=metrics)
    compare(WAITS, started=started, metrics=metrics)
    compare(None, started=started, metrics=metrics)
    value = metrics.registry.get_sample_value
    assert value("queuer_estimates_total") == 1
    assert value("queuer_estimate_hits_total") == hits
