"""Intake, which knows no use, and a decision tell a job that can never start alike: else each corrects the
other.
"""

from __future__ import annotations

import pytest

from queuer.domain.reasons import Verdict
from queuer.solver.decide import decide
from queuer.solver.explain.unstartable import Outlook
from queuer.solver.records import Budget
from tests.solver.worlds import NOW, world


@pytest.mark.parametrize("seed", range(40))
def test_intake_and_the_decision_tell_the_same(seed: int) -> None:
    snapshot = world(seed)
    plan = decide(snapshot, now=NOW, seed=0, budget=Budget(deterministic=0.0))
    outlook = Outlook((state.node for state in snapshot.nodes), snapshot.rules)
    for pending in snapshot.pending:
        never, told = outlook.unstartable(pending.workload), plan.explanations.get(pending.workload.uid)
        if never is not None:
            assert told is not None
            assert (told.primary, told.verdict) == (never.primary, Verdict.CHANGE), pending.workload.uid
