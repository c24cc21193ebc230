"""Who was refused beside other victims than go in the end has another turn: nobody is told the reason of a turn that no
longer holds, and a plan is called the best only where each refusal was proven beside what it has (DESIGN 3.4).
"""

from __future__ import annotations

import pytest

from queuer.domain.workload import Workload
from queuer.solver.decide import decide
from queuer.solver.problem import Admitted, Budget, Snapshot
from queuer.solver.verify import verify
from tests.solver.cases_single import QUEUES, single
from tests.solver.judged import compare
from tests.solver.make import gang, node, pod_set, running, snapshot

NOW = 100.0


def runs(uid: str, gpus: int, at: str, *, priority: int, since: float) -> Admitted:
    return running(gang(uid, pod_set(1, gpus), priority=priority), {at: 1}, since=since)


def waits(uid: str, gpus: int, *, priority: int, submitted: float) -> Workload:
    return gang(uid, pod_set(1, gpus), priority=priority, submitted=submitted)


CHEAPER_VICTIM = snapshot(
    [node("n0", gpu=8), node("n1", gpu=8), node("n2", gpu=6)],
    QUEUES,
    admitted=[
        runs("long", 1, "n1", priority=1, since=-2316.0),
        runs("short", 3, "n0", priority=1, since=-158.0),
    ],
    pending=[
        waits("small", 7, priority=1, submitted=0.0),
        waits("first", 5, priority=2, submitted=1.0),
        waits("large", 8, priority=2, submitted=2.0),
    ],
)
"""At its turn `large` takes `long`; the pass at the end takes `short` instead, so that `small` fits on n1."""

SWAPPED = snapshot(
    [node(f"n{i}", gpu=6) for i in range(3)],
    QUEUES,
    admitted=[
        runs("r0", 3, "n2", priority=0, since=-2920.0),
        runs("r1", 4, "n0", priority=0, since=-1149.0),
        runs("r2", 4, "n1", priority=0, since=-1876.0),
        runs("r3", 2, "n1", priority=5, since=-1835.0),
    ],
    pending=[
        waits("g0", 3, priority=1, submitted=0.0),
        waits("g1", 3, priority=2, submitted=1.0),
        waits("g2", 4, priority=2, submitted=2.0),
        waits("g3", 3, priority=0, submitted=3.0),
    ],
)
"""The same victims in the end, each for the other gang: what they leave together holds `g3`, too."""


@pytest.mark.parametrize(
    ("world", "starts", "bound"),
    [
        (CHEAPER_VICTIM, {"first", "small"}, {"large": ("short",)}),
        (SWAPPED, {"g1"}, {"g0": ("r1",), "g2": ("r2",), "g3": ("r1",)}),
    ],
    ids=["a cheaper victim", "victims that change hands"],
)
def test_who_fits_beside_the_victims_that_go_in_the_end_does_not_wait(
    world: Snapshot, starts: set[str], bound: dict[str, tuple[str, ...]]
) -> None:
    plan = decide(world, now=NOW, seed=0, budget=Budget(deterministic=10.0))
    assert not verify(world, plan, now=NOW)
    assert {a.uid for a in plan.admissions} == starts
    assert {b.uid: tuple(sorted(b.victims)) for b in plan.bonds} == bound
    assert plan.explanations.keys() == bound.keys()


@pytest.mark.parametrize("seed", range(40))
def test_single_pods_agree_with_brute_force(seed: int) -> None:
    assert compare(single(seed)) in (True, False)
