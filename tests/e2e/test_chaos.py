"""Killed at every failpoint beside a fault, nothing is lost, doubled or over-admitted, and no running gang is harmed.

Two stories share the points; `make chaos` plays them all with as many seeds as are asked for.
"""

from __future__ import annotations

import pytest

from queuer.controller.failpoints import Point
from queuer.local.cluster import Cluster
from tests.chaos.story import play

SHARED = 2
"""Stories among which the points are dealt."""


@pytest.mark.timeout(240)
@pytest.mark.parametrize("seed", range(SHARED))
def test_a_story_of_crashes_ends_as_if_nobody_had_died(cluster: Cluster, seed: int) -> None:
    points = tuple(Point)[seed::SHARED]
    told = [str(told) for told in play(cluster, seed=seed, points=points) if told.wrong]
    assert told == []
