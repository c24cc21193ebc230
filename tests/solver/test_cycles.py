"""500 cycles of random small worlds: each plan is sound, every admitted pod finds a host whatever the scheduler
picks inside its pin, the same inputs give the same plan, and the exact solver is never worse than greedy.
"""

from __future__ import annotations

import pytest

from queuer.solver.decide import decide
from queuer.solver.problem import Budget
from queuer.solver.score import score
from tests.solver.cycles import live

GREEDY, EXACT = Budget(deterministic=0.0), Budget(deterministic=5.0)


@pytest.mark.parametrize("seed", range(25))
def test_greedy_lives(seed: int) -> None:
    for snap, plan, now in live(seed, cycles=12, budget=GREEDY):
        assert decide(snap, now=now, seed=0, budget=GREEDY) == plan


@pytest.mark.parametrize("seed", range(25, 42))
def test_exact_lives(seed: int) -> None:
    for snap, plan, now in live(seed, cycles=12, budget=EXACT):
        assert decide(snap, now=now, seed=0, budget=EXACT) == plan
        greedy = decide(snap, now=now, seed=0, budget=GREEDY)
        assert score(snap, plan, now=now) >= score(snap, greedy, now=now)
