"""Records from another process are what they are declared to be, or their plan is none."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from queuer.domain.reasons import Explanation, Reason, Token
from queuer.solver import wire
from queuer.solver.decide import decide
from queuer.solver.problem import Plan
from queuer.solver.shape import misfits
from tests.solver.plans import GREEDY
from tests.solver.worlds import NOW, world

LATER = Reason(token=Token.SOLVER_DEFERRED, text="later")


def made(seed: int) -> Plan:
    """As it comes from another process."""
    plan: Plan = wire.unpack(
        wire.pack(decide(world(seed), now=NOW, seed=0, budget=GREEDY))[wire.HEADER.size :]
    )
    return plan


def test_plans_of_the_decision_fit() -> None:
    for seed in range(20):
        assert misfits(made(seed)) == []


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("stats", None),
        ("stats", replace(made(0).stats, phases=None)),  # type: ignore[arg-type]
        ("stats", replace(made(0).stats, considered=True)),
        ("stats", replace(made(0).stats, status="GREEDY")),  # type: ignore[arg-type]
        ("stats", replace(made(0).stats, phases={"solve": float("nan")})),
        ("admissions", []),
        ("admissions", (None,)),
        ("order", None),
        ("order", (1,)),
        ("explanations", None),
        ("explanations", {"g0": None}),
        ("explanations", {"g0": Explanation(primary=replace(LATER, text=42))}),  # type: ignore[arg-type]
        ("explanations", {"g0": Explanation(primary=replace(LATER, params={"asks": object()}))}),
        ("explanations", {"g0": Explanation(primary=LATER, others=[LATER])}),  # type: ignore[arg-type]
    ],
)
def test_wrong_part_of_a_plan_is_named(field: str, value: Any) -> None:
    assert misfits(replace(made(0), **{field: value})) == [field]
