"""`halfLife`: among borrowers past use is added to the share; entitled work and `sharing: priority` do not know it."""

from __future__ import annotations

import pytest

from queuer.domain.queue import Policy, Sharing
from queuer.solver.decide import decide
from queuer.solver.problem import Budget, Snapshot
from tests.solver.make import GPU, gang, node, pod_set, queue, row, snapshot


def contest(
    past: dict[str, float],
    *,
    weight: float = 1.0,
    guaranteed: int | None = None,
    sharing: Sharing = Sharing.FAIR,
) -> str:
    """Two queues ask for the one node of 8; `a` asked first. Who gets it?"""
    made: Snapshot = snapshot(
        [node("n1", gpu=8)],
        [
            queue("root", policy=Policy(half_life=3600.0, sharing=sharing)),
            queue("root.a", *([row(guaranteed=guaranteed)] if guaranteed else []), weight=weight),
            queue("root.b"),
        ],
        pending=[
            gang("a1", pod_set(1, 8), queue="root.a", submitted=1.0),
            gang("b1", pod_set(1, 8), queue="root.b", submitted=2.0),
        ],
        past={path: {GPU: amount, "cpu": 1e9} for path, amount in past.items()},
    )
    plan = decide(made, now=10.0, seed=0, budget=Budget(deterministic=0.0))
    (admitted,) = plan.admissions
    return admitted.uid


@pytest.mark.parametrize(
    ("past", "first"),
    [
        ({}, "a1"),
        ({"root.a": 0.001}, "b1"),
        ({"root.a": 2.0, "root.b": 3.0}, "a1"),
        ({"root.a": 3.0, "root.b": 2.0}, "b1"),
        ({"root.gone": 5.0, "root.b": 1.0}, "a1"),
    ],
)
def test_who_used_less_is_first(past: dict[str, float], first: str) -> None:
    assert contest(past) == first


def test_weight_divides_the_past_too() -> None:
    # (8 + 6) / 8 / 2 = 0.875 against (8 + 1) / 8 = 1.125; a weight of 1 would lose.
    assert contest({"root.a": 6.0, "root.b": 1.0}, weight=2.0) == "a1"
    assert contest({"root.a": 6.0, "root.b": 1.0}) == "b1"


def test_entitled_work_is_first_whatever_was_used() -> None:
    assert contest({"root.a": 8.0}, guaranteed=8) == "a1"


def test_sharing_by_priority_knows_no_past() -> None:
    """Nobody hands a past over there; one that is there all the same does not count."""
    assert contest({"root.a": 8.0}, sharing=Sharing.PRIORITY) == "a1"
