"""`/livez` fails where the loop hangs or what it begins with does not come, and only there."""

from __future__ import annotations

import pytest

from queuer.controller.health.probes import LOADING, Health, Phase


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
