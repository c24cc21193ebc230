"""What holds for every plan, on random worlds: sound, deterministic, one reason per waiting gang."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from queuer.domain.reasons import Explanation
from queuer.solver.decide import decide
from queuer.solver.problem import Budget, Plan, Snapshot, SolveStatus
from queuer.solver.verify import verify
from tests.solver.worlds import NOW, world

GREEDY = Budget(deterministic=0.0)
seeds = st.integers(min_value=0, max_value=10**6)


def waiting(snapshot: Snapshot, plan: Plan) -> set[str]:
    """Uids that the plan does not start."""
    return {p.workload.uid for p in snapshot.pending} - {a.uid for a in plan.admissions}


@settings(max_examples=150, deadline=None)
@given(seeds)
def test_greedy_plans_are_sound(seed: int) -> None:
    """The independent verifier finds nothing, and the fallback of last resort was not needed."""
    snapshot = world(seed)
    plan = decide(snapshot, now=NOW, seed=0, budget=GREEDY)
    assert verify(snapshot, plan, now=NOW) == ()
    assert plan.stats.status is not SolveStatus.FAILED


@settings(max_examples=60, deadline=None)
@given(seeds)
def test_plans_with_the_exact_solver_are_sound(seed: int) -> None:
    """Answers of the exact solver are adopted whole or not at all."""
    pytest.importorskip("ortools")
    snapshot = world(seed)
    plan = decide(snapshot, now=NOW, seed=0, budget=Budget(deterministic=1.0))
    assert verify(snapshot, plan, now=NOW) == ()
    assert plan.stats.status is not SolveStatus.FAILED


@settings(max_examples=40, deadline=None)
@given(seeds)
def test_the_same_inputs_give_the_same_plan(seed: int) -> None:
    """Replay depends on it."""
    assert decide(world(seed), now=NOW, seed=0, budget=GREEDY) == decide(world(seed), now=NOW, seed=0, budget=GREEDY)


@settings(max_examples=60, deadline=None)
@given(seeds)
def test_each_waiting_gang_has_one_primary_reason_with_a_sentence(seed: int) -> None:
    """No gang waits in silence, none that starts is told to wait, and the order names each once."""
    snapshot = world(seed)
    plan = decide(snapshot, now=NOW, seed=0, budget=GREEDY)
    told: Mapping[str, Explanation] = plan.explanations
    assert set(told) == waiting(snapshot, plan)
    assert all(e.primary.text.endswith(".") for e in told.values())
    assert sorted(plan.order) == sorted(p.workload.uid for p in snapshot.pending)


@settings(max_examples=60, deadline=None)
@given(seeds)
def test_would_admit_is_true(seed: int) -> None:
    """A change that is said to admit a gang does admit it when it is made."""
    snapshot = world(seed)
    plan = decide(snapshot, now=NOW, seed=0, budget=GREEDY)
    for explanation in plan.explanations.values():
        for change in explanation.would_admit:
            assert change["evictions"] == 0
