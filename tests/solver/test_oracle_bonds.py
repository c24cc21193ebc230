"""The decision a minute after one that bound somebody, against brute force: bonds that stand, nodes that are avoided,
work that is leaving.
"""

from __future__ import annotations

from collections import Counter

import pytest

from queuer.solver.decide import decide
from queuer.solver.problem import Budget
from tests.solver.cases_bonds import LATER, standing
from tests.solver.test_oracle import compare

FOUND = (
    425,  # rests on victims of another, which starts: nobody waits for the place that it has lost
    541,  # another starts in what is held for it
    688,  # quota was held, but not for all, as a victim has come back
    743,
    814,
    873,
    1193,
    1319,
)
"""Worlds in which plans were wrong."""


@pytest.mark.parametrize("first", range(0, 200, 20))
def test_the_next_decision_admits_what_brute_force_admits(first: int) -> None:
    compared = sum([compare(standing(seed), now=LATER) for seed in range(first, first + 20)])
    assert compared >= 15


@pytest.mark.parametrize("seed", FOUND)
def test_worlds_in_which_plans_were_wrong(seed: int) -> None:
    compare(standing(seed), now=LATER)


def test_bonds_come_to_every_end() -> None:
    """Else the comparison would show little."""
    seen = Counter[str]()
    for seed in range(100):
        snap = standing(seed)
        plan = decide(snap, now=LATER, seed=0, budget=Budget(deterministic=10.0))
        started, bound = {a.uid for a in plan.admissions}, {b.uid for b in plan.bonds}
        for bond in snap.bonds:
            seen["started"] += bond.uid in started
            seen["waiting"] += bond in plan.bonds
            seen["ended"] += bond.uid not in started | bound
        seen["avoiding"] += any(p.avoid for p in snap.pending)
        seen["leaving"] += any(a.releasing for a in snap.admitted)
    assert min(seen.values()) >= 10
