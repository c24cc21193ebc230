"""Two pod sets may take each any of nine flavors: 81 combinations."""

from __future__ import annotations

import pytest

from queuer.domain.nodes import Flavor
from queuer.domain.reasons import Deferral, Token
from queuer.solver import offers
from queuer.solver.decide import decide
from queuer.solver.problem import Budget, Snapshot
from tests.solver.make import gang, node, pod_set, queue, snapshot

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
