"""The exact plan of a world, judged by the verifier before anything is compared with it."""

from __future__ import annotations

from queuer.solver.decide import decide
from queuer.solver.problem import Budget, Plan, Snapshot
from queuer.solver.verify import verify


class Unsound(Exception):
    """The verifier refuses the plan; the text is what is wrong with it."""


def exact_plan(snap: Snapshot, *, now: float) -> Plan:
    """The plan, with time enough for the exact solver. Raises Unsound."""
    plan = decide(snap, now=now, seed=0, budget=Budget(deterministic=10.0))
    if wrong := verify(snap, plan, now=now):
        raise Unsound("; ".join(map(str, wrong)))
    return plan
