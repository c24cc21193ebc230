"""The soak's own judgement: what it counts of a process, and what it takes for growth."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from queuer.controller.memory.state import ClusterState
from queuer.store import retention
from tests.soak.bounds import BOUNDED, broken, rises, spread
from tests.soak.census import Census, take
from tests.soak.quiet import Moment, Table
from tests.solver.make import node, queue, snapshot, state_of

CENSUS = Census(number=1, entries={"ClusterState.nodes": 16}, tasks=20, threads=5, objects=1, blocks=1)
TABLE = Table(rows=1, put=1, taken=0, bytes=8192)
QUIET = Moment(
    jobs=0, seconds=0.0, quiet_after=0.0, rss={"controller": 150.0}, drift=0.0, census={"controller": CENSUS},
    series=100, tables={"leader": TABLE, "event": TABLE}, outdated={}, reads={}, wrong=[],
)  # fmt: skip
POINTS = 8


Changes = Mapping[str, Callable[[int], Any]]


def course(changes: Changes) -> list[Moment]:
    """Quiet points that are alike but for what changes from one to the next, a function of its number."""
    return [
        replace(QUIET, jobs=number * 1000, **{name: make(number) for name, make in changes.items()})
        for number in range(POINTS)
    ]


def test_a_process_that_stays_as_it_is_passes() -> None:
    assert list(broken(course({}))) == []


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"rss": lambda n: {"controller": 150.0 + 20 * n}}, "the memory of controller is not flat: 2"),
        (
            {"census": lambda n: {"controller": replace(CENSUS, entries={"Loop.kept": 1000 * n})}},
            "keeps more and more in Loop.kept",
        ),
        ({"census": lambda n: {"controller": replace(CENSUS, tasks=100 * n)}}, "more and more tasks"),
        ({"series": lambda n: 100 * n}, "more and more series"),
        ({"tables": lambda n: {"leader": replace(TABLE, rows=n)}}, "leader grows, and no rule"),
        ({"outdated": lambda _: {"event after 30 days": 9_000}}, "9000 rows are left of event after 30 days"),
        ({"wrong": lambda n: ["drift was 3.0"] * (n == 5)}, "after 5000 jobs: drift was 3.0"),
    ],
)  # fmt: skip
def test_what_grows_is_told(changes: Changes, said: str) -> None:
    [found] = broken(course(changes))
    assert said in found


def test_what_comes_and_goes_is_no_growth() -> None:
    assert not rises([0, 500, 100, 900])
    assert not rises([0, 0, 0, 100])
    assert rises([0, 500, 500, 900])
    assert spread([100.0, 105.0, 90.0]) == pytest.approx(0.1)


def test_tables_that_may_grow_are_those_that_an_age_bounds() -> None:
    assert {"event", "workload", "admission"} <= BOUNDED
    assert not BOUNDED & {name for name, why in retention.KEPT.items() if why is retention.Bound.ONE_ROW}


def test_a_census_counts_what_the_memory_holds() -> None:
    """All objects of a class together; what is empty is left out."""
    before, state = Counter(take(1).entries), ClusterState()
    state.touched.update("abc")
    found = Counter(take(2).entries)
    found.subtract(before)
    assert found["ClusterState.touched"] == 3
    assert "ClusterState.holds" not in found or found["ClusterState.holds"] == 0


def test_a_census_bears_arrays() -> None:
    """The node arrays of a solver state are neither true nor false: an error here would end the controller."""
    state = state_of(snapshot([node("n1"), node("n2")], [queue("root")]))
    assert take(1).entries["Nodes.names"] >= len(state.nodes.names)
