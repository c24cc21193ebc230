"""What tests of `order: packed` share: plans checked twice, and what was started."""

from __future__ import annotations

from queuer.domain.queue import Order, Policy
from queuer.solver.decide import decide
from queuer.solver.problem import Budget, Plan, Snapshot
from queuer.solver.verify import verify
from tests.solver.make import GPU

PACKED = Policy(order=Order.PACKED)
GREEDY, EXACT = Budget(deterministic=0.0), Budget()


def started(plan: Plan) -> set[str]:
    return {a.uid for a in plan.admissions}


def sums(snap: Snapshot, plan: Plan) -> dict[int, int]:
    """GPUs started by priority."""
    found: dict[int, int] = {}
    for p in snap.pending:
        if p.workload.uid in started(plan):
            priority = p.workload.priority
            found[priority] = found.get(priority, 0) + p.workload.demand.get(GPU, 0)
    return found


def decided(snap: Snapshot, budget: Budget = GREEDY, *, now: float = 0.0) -> Plan:
    plan = decide(snap, now=now, seed=1, budget=budget)
    assert verify(snap, plan, now=now) == ()
    assert decide(snap, now=now, seed=1, budget=budget) == plan
    return plan
