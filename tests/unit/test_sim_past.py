"""The virtual cluster remembers what ended for as long as a `halfLife` may ask for it, no longer."""

from __future__ import annotations

from typing import Any

import pytest

from queuer.sim.engine import Simulation
from queuer.sim.scenario import parse
from queuer.solver.records import Budget


def remembered(policy: dict[str, Any], *events: dict[str, Any]) -> int:
    """How many ends are kept after 50 jobs of 10 s, one after the other, and a wait of 1,000 s for the last."""
    main = [{"name": "main", "count": 1, "requests": {"cpu": 1}}]
    jobs = [{"name": f"j{i}", "queue": "root.a", "submit": 20 * i, "runtime": 10} for i in range(50)]
    jobs.append({"name": "last", "queue": "root.a", "submit": 2_000, "runtime": 10})
    story = {
        "name": "ends",
        "nodes": [{"names": "n1", "allocatable": {"cpu": 1, "pods": 10}}],
        "queues": [{"path": "root", "policy": policy}, {"path": "root.a"}],
        "workloads": [{**job, "podSets": main} for job in jobs],
        "events": list(events),
        "expect": [{"at": 2_000, "admitted": ["last"]}],
    }
    simulation = Simulation(parse(story), budget=Budget(deterministic=0.0))
    for time in simulation.advance([2_000.0]):
        if time == 2_000.0:
            return len(simulation._past)
    raise AssertionError("the simulation ended before 2,000 s")


def test_without_a_half_life_no_end_is_kept() -> None:
    assert remembered({}) == 0


@pytest.mark.parametrize(("half_life", "kept"), [("51s", 1), ("100s", 50), ("60s", 10)])
def test_ends_that_count_no_more_are_dropped(half_life: str, kept: int) -> None:
    """The jobs ended at 10, 30, … 990 s; 20 half-lives are looked back."""
    assert remembered({"halfLife": half_life}) == kept


def test_a_half_life_that_comes_later_finds_what_ended_before() -> None:
    later = {"at": 1_500, "queue": {"path": "root", "policy": {"halfLife": "100s"}}}
    assert remembered({}, later) == 50
