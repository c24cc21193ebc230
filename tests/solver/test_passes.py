"""How far each pass came is told of every decision, added up over all attempts at a plan."""

from __future__ import annotations

import pytest

from bench.instances import NOW, Mix, instance
from queuer.solver.decide import decide
from queuer.solver.problem import Budget, Passes, Plan
from tests.solver import worlds


def passes(plan: Plan) -> Passes:
    assert plan.stats.passes is not None
    return plan.stats.passes


def test_passes_are_added_field_by_field() -> None:
    first, second = Passes(attempts=1, questions=0.5, victims=3), Passes(attempts=2, selection=1.0, victims=4)
    both = first + second
    assert both == Passes(attempts=3, questions=0.5, selection=1.0, victims=7)
    assert both.spent == 1.5


def test_a_selection_its_questions_and_its_searches_are_told_apart() -> None:
    """A packed world, so that greedy's plan is made beside the exact one: attempts, too."""
    snap = worlds.packed(worlds.world(4, nodes=48, pending=48, running=48), 4)
    told = passes(decide(snap, now=worlds.NOW, seed=0, budget=Budget()))
    assert told.attempts == 2
    assert (told.selection > 0, told.questions > 0, told.improvement > 0) == (True, True, True)
    assert (told.arrangements > 0, told.moves > 0) == (True, True)
    assert told.layouts == 0.0


def test_proofs_with_victims_as_they_are_are_told_apart() -> None:
    """Those who may evict nobody are asked about with the victims of others as they are."""
    snap = instance(nodes=64, pending=320, queues=10, mix=Mix.LARGE, fill=0.97, seed=2)
    plan = decide(snap, now=NOW, seed=0, budget=Budget())
    assert plan.evictions
    assert 0 < plan.stats.proved_in_place <= plan.stats.proved
    assert passes(plan).layouts > 0
    assert passes(plan).victims > 0


@pytest.mark.parametrize("seed", range(5))
def test_without_the_exact_solver_none_of_its_passes_came_anywhere(seed: int) -> None:
    plan = decide(worlds.world(seed), now=worlds.NOW, seed=seed, budget=Budget(deterministic=0.0))
    assert (passes(plan).attempts > 0, passes(plan).spent) == (True, 0.0)
