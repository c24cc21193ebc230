"""Choices of flavors: two pod sets may take each any of nine, and what an earlier gang has comes before what later ones
have.
"""

from __future__ import annotations

import pytest

from queuer.domain.nodes import Flavor
from queuer.domain.reasons import Deferral, Token
from queuer.solver import offers
from queuer.solver.decide import decide
from queuer.solver.problem import Budget, Snapshot
from queuer.solver.score import score
from tests.solver.make import gang, node, pod_set, queue, snapshot
from tests.solver.plans import at, plan

NAMES = [f"f{i}" for i in range(9)]


def world(*sizes: int) -> Snapshot:
    """One idle node of each flavor, and a gang of 7 and 1."""
    nodes = [node(f"n{i}", gpu=gpu, labels={"f": NAMES[i]}) for i, gpu in enumerate(sizes)]
    flavors = tuple(Flavor(name=f, node_labels={"f": f}) for f in NAMES)
    sets = pod_set(1, 7, name="worker"), pod_set(1, 1, name="master")
    return snapshot(nodes, [queue("root.a")], flavors=flavors, pending=[gang("g", *sets)])


def test_the_last_combination_is_found() -> None:
    plan = decide(world(*[0] * 8, 8), now=0.0, seed=0, budget=Budget(deterministic=0.0))
    assert [a.uid for a in plan.admissions] == ["g"]


def test_where_not_all_are_looked_at_nothing_is_said_to_be_proven(monkeypatch: pytest.MonkeyPatch) -> None:
    """It waits as too large a question, and is not told that it can never start."""
    monkeypatch.setattr(offers, "VARIANTS", 64)
    waits = decide(world(*[0] * 7, 1, 7), now=0.0, seed=0, budget=Budget()).explanations["g"].primary
    assert (waits.token, waits.params["cause"]) == (Token.SOLVER_DEFERRED, Deferral.SIZE.value)
    assert decide(world(*[8] * 9), now=0.0, seed=0, budget=Budget()).admissions


def test_where_not_all_are_looked_at_those_of_one_flavor_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offers, "VARIANTS", 3)
    plan = decide(world(*[0] * 8, 8), now=0.0, seed=0, budget=Budget(deterministic=0.0))
    assert [a.uid for a in plan.admissions] == ["g"]


def test_first_choices_of_earlier_gangs_come_before_those_of_later_ones_and_before_narrowness() -> None:
    nodes = [node(f"n{i}", labels={"f": f, "rack": "r"}) for i, f in enumerate(("f0", "f0", "f1"))]
    flavors = tuple(Flavor(name=f, node_labels={"f": f}) for f in NAMES[:2])
    waiting = [
        gang("first", pod_set(2, 1), preferred="host"),
        gang("next", pod_set(2, 1), submitted=1.0),
    ]
    snap = snapshot(nodes, [queue("root.a")], flavors=flavors, pending=waiting)
    spread, narrow = at({"n0": 1, "n1": 1}, flavor="f0"), at({"n2": 2}, flavor="f1")
    kept = plan(snap, {"first": (spread,), "next": (narrow,)})
    lost = plan(snap, {"first": (narrow,), "next": (spread,)})
    assert score(snap, kept, now=0.0) > score(snap, lost, now=0.0)
