"""Records from another process are what they are declared to be, or their plan is none."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from queuer.domain.reasons import Deferral, Explanation, Reason, Token
from queuer.solver import wire
from queuer.solver.decide import decide
from queuer.solver.problem import Bond, Passes, Plan, Reservation
from queuer.solver.wellformed import misfits
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


def test_text_of_any_script_fits() -> None:
    """A backslash before what looks like a NUL in JSON is one."""
    reason = replace(LATER, text="später 🕐", params={"a": r"\u0000", "b": "é\n"})
    assert misfits(replace(made(0), explanations={"g0": Explanation(primary=reason)})) == []


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("stats", None),
        ("stats", replace(made(0).stats, phases=None)),  # type: ignore[arg-type]
        ("stats", replace(made(0).stats, considered=True)),
        ("stats", replace(made(0).stats, status="GREEDY")),  # type: ignore[arg-type]
        ("stats", replace(made(0).stats, phases={"solve": float("nan")})),
        ("stats", replace(made(0).stats, considered=-1)),
        ("stats", replace(made(0).stats, phases={"solve": -1.0})),
        ("stats", replace(made(0).stats, passes=Passes(questions=-1.0))),
        ("stats", replace(made(0).stats, causes={Deferral.PLAN: -1})),
        ("stats", replace(made(0).stats, phases={"a\0": 1.0})),
        ("stats", replace(made(0).stats, note="\ud800")),
        ("bonds", (Bond(uid="g0", assignments=(), victims=(), deadline=1e13),)),
        ("bonds", (Bond(uid="g0", assignments=(), victims=("\0",), deadline=NOW),)),
        ("reservations", (Reservation(uid="g0", assignments=(), start=-1e15, expires=NOW),)),
        ("admissions", []),
        ("admissions", (None,)),
        ("order", None),
        ("order", (1,)),
        ("explanations", None),
        ("explanations", {"g0": None}),
        ("explanations", {"g0": Explanation(primary=replace(LATER, text=42))}),  # type: ignore[arg-type]
        ("explanations", {"g0": Explanation(primary=replace(LATER, params={"asks": object()}))}),
        ("explanations", {"g0": Explanation(primary=replace(LATER, text="\udfff"))}),
        ("explanations", {"g0": Explanation(primary=replace(LATER, params={"\0": 1}))}),
        ("explanations", {"g0": Explanation(primary=replace(LATER, params={"a": ["\\\0"]}))}),
        ("explanations", {"g0": Explanation(primary=replace(LATER, params={"a": "\ud800"}))}),
        ("explanations", {"g0": Explanation(primary=LATER, others=[LATER])}),  # type: ignore[arg-type]
    ],
)
def test_wrong_part_of_a_plan_is_named(field: str, value: Any) -> None:
    assert misfits(replace(made(0), **{field: value})) == [field]
