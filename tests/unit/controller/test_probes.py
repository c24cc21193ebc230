"""`/livez` fails where the loop hangs or what it begins with does not come, and only there."""

from __future__ import annotations

import asyncio
import threading

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from queuer.controller.health.metrics import Metrics
from queuer.controller.health.probes import FRESH, LOADING, LONG_DECISION, Figures, Health, Phase
from queuer.controller.memory.live import Live
from queuer.controller.memory.state import ClusterState
from queuer.domain.workload import State
from tests.unit.make import gang


@pytest.mark.parametrize(
    ("phase", "patience"), [(Phase.LEADING, 30.0), (Phase.LISTING, LOADING), (Phase.STANDBY, float("inf"))]
)
def test_a_process_is_alive_while_it_gives_signs_of_life(phase: Phase, patience: float) -> None:
    clock = [0.0]
    health = Health(stalled=30.0, clock=lambda: clock[0])
    clock[0] = 1000.0
    health.enter(phase)
    assert health.alive, "a phase begins alive, however long the one before it was"
    clock[0] += min(patience, 1e6) - 1.0
    assert health.alive
    clock[0] += 2.0
    assert health.alive is (phase is Phase.STANDBY)
    health.beat()
    assert health.alive


def test_a_decision_that_takes_long_or_fails_is_told_while_it_leads() -> None:
    clock, told = [0.0], list[Phase]()
    health = Health(stalled=30.0, clock=lambda: clock[0])
    health.enter(Phase.LEADING)
    health.deciding_since = clock[0]
    told.append(health.told_phase)
    clock[0] = LONG_DECISION
    told.append(health.told_phase)
    for phase in (Phase.STANDBY, Phase.LEADING):  # the decision was cut off with its term
        health.enter(phase)
        told.append(health.told_phase)
    assert told == [Phase.LEADING, Phase.DECIDING, Phase.STANDBY, Phase.LEADING]
    health.failing = True
    told.append(health.told_phase)
    health.enter(Phase.LEADING)
    told.append(health.told_phase)
    assert told[-2:] == [Phase.FAILING, Phase.LEADING]


async def test_metrics_are_counted_once_in_a_few_seconds_whoever_asks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They are counted beside the decisions of the same process, and their text is made beside its loop."""
    threads = list[threading.Thread]()

    def traced(registry: CollectorRegistry) -> bytes:
        threads.append(threading.current_thread())
        return generate_latest(registry)

    monkeypatch.setattr("queuer.controller.health.metrics.generate_latest", traced)
    clock, state, health = [0.0], ClusterState(), Health(stalled=30.0)
    figures = Figures(Metrics(), state, health, clock=lambda: clock[0])
    health.enter(Phase.LEADING)
    first, beside = await asyncio.gather(figures.text(), figures.text())
    assert first is beside
    state.put(Live(workload=gang("g"), state=State.QUEUED))
    state.quarantine_one("g", ValueError("odd"), now=0.0)
    clock[0] = FRESH - 0.1
    assert await figures.text() is first
    clock[0] = FRESH
    assert b"queuer_workloads_in_quarantine 1.0" in await figures.text()
    health.enter(Phase.STANDBY)
    clock[0] += FRESH
    text = await figures.text()
    assert b"queuer_workloads_in_quarantine 0.0" in text, "the next leader counts what this one remembers"
    assert b"queuer_workloads{" not in text
    assert len(threads) == 3
    assert threading.main_thread() not in threads
