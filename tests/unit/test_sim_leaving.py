"""In the virtual cluster, pods that are going stay for one grace."""

from __future__ import annotations

import pytest

from queuer.sim.engine import Simulation
from queuer.sim.scenario import parse
from queuer.solver.records import Budget


@pytest.mark.parametrize("deleted", [(), (25,), (15, 35)])
def test_deleting_what_leaves_already_keeps_it_no_longer(deleted: tuple[int, ...]) -> None:
    """Evicted at 10 s: gone at 40 s."""
    main = [{"name": "main", "count": 1, "requests": {"gpu": 4}}]
    runs = {"name": "low", "queue": "root.a", "podSets": main, "running": {"nodes": {"n1": 1}, "since": -5}}
    story = {
        "name": "grace",
        "grace": 30,
        "nodes": [{"names": "n1", "allocatable": {"gpu": 4, "pods": 10}}],
        "queues": [{"path": "root.a"}],
        "workloads": [
            runs,
            {"name": "high", "queue": "root.a", "priority": 5, "submit": 10, "podSets": main},
        ],
        "events": [{"at": at, "delete": ["low"]} for at in deleted],
        "expect": [{"at": 100, "admitted": ["high"]}],
    }
    simulation = Simulation(parse(story), budget=Budget(deterministic=0.0))
    list(simulation.advance([]))
    assert simulation.jobs["low"].evictions == [10.0]
    assert simulation.jobs["high"].started == 40.0
