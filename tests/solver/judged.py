"""The exact plan of a world, judged by the verifier before it is compared with brute force."""

from __future__ import annotations

from queuer.solver.decide import decide
from queuer.solver.problem import Budget, Plan, Snapshot, SolveStatus
from queuer.solver.verify import verify
from tests.solver.cases import NOW
from tests.solver.oracle_landing import Following


class Unsound(Exception):
    """The verifier refuses the plan; the text is what is wrong with it."""


def exact_plan(snap: Snapshot, *, now: float) -> Plan:
    """The plan, with time enough for the exact solver. Raises Unsound."""
    plan = decide(snap, now=now, seed=0, budget=Budget(deterministic=10.0))
    if wrong := verify(snap, plan, now=now):
        raise Unsound("; ".join(map(str, wrong)))
    return plan


def compare(snap: Snapshot, *, now: float = NOW) -> bool:
    """See `played`; False = something is deferred, or there are too many arrangements to say how these land."""
    oracle = played(snap, now=now)
    return oracle.judged and not oracle.deferred


def played(snap: Snapshot, *, now: float) -> Following:
    """The tournament beside the plan, whose order, flags, flavors and eviction cost are compared. Raises Unsound, and
    AssertionError where they differ.
    """
    plan = exact_plan(snap, now=now)
    assert plan.stats.status is not SolveStatus.FAILED
    oracle = Following(snap, now, plan)
    oracle.run()
    assert list(plan.order) == oracle.order
    return oracle
