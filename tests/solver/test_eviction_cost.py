"""Whom it costs least to evict: borrowers before one's own lower work, then the least lost work, then the fewest."""

from __future__ import annotations

import pytest

from queuer.solver.decide import decide
from queuer.solver.problem import Admitted, Budget, Snapshot
from tests.solver.make import gang, node, pod_set, queue, row, running, snapshot

BUDGETS = pytest.mark.parametrize("budget", [Budget(deterministic=0.0), Budget()], ids=["greedy", "exact"])


def runs(uid: str, host: str, gpus: int, *, age: float, queue: str = "root.a") -> Admitted:
    """One pod that has run for `age` seconds."""
    return running(gang(uid, pod_set(1, gpus), queue=queue), {host: 1}, since=-age)


def evicted(snap: Snapshot, budget: Budget) -> set[str]:
    """Victims of the plan."""
    return {e.uid for e in decide(snap, now=0.0, seed=1, budget=budget).evictions}


@BUDGETS
def test_several_who_have_just_started_go_rather_than_one_who_has_run_long(budget: Budget) -> None:
    snap = snapshot(
        [node("n0"), node("n1")],
        [queue("root.a")],
        admitted=[
            runs("old", "n0", 8, age=7200),
            *(runs(f"young{i}", "n1", 2, age=300) for i in range(4)),
        ],
        pending=[gang("g", pod_set(1, 8), priority=5)],
    )
    assert evicted(snap, budget) == {f"young{i}" for i in range(4)}


@BUDGETS
@pytest.mark.parametrize("age", [0.0, 60.0])
def test_a_borrower_goes_before_lower_work_of_the_same_queue(budget: Budget, age: float) -> None:
    """Even where the own gang has lost nothing yet."""
    snap = snapshot(
        [node("n0"), node("n1")],
        [queue("root.a", row(guaranteed=16)), queue("root.b")],
        admitted=[runs("own", "n0", 8, age=age), runs("borrower", "n1", 8, age=7200, queue="root.b")],
        pending=[gang("g", pod_set(1, 8), priority=5)],
    )
    assert evicted(snap, budget) == {"borrower"}
