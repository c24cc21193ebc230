"""A gang may require one level and prefer another: the requirement holds whatever becomes of the wish."""

from __future__ import annotations

from queuer.solver.decide import decide
from queuer.solver.problem import Budget, Plan
from tests.solver.make import gang, node, pod_set, queue, snapshot


def _plan(required: str, preferred: str) -> Plan:
    """A gang of two on two racks with room for one pod each, in one block."""
    nodes = [
        node(name, gpu=2, labels={"block": "b0", "rack": rack}) for name, rack in (("n0", "r0"), ("n1", "r1"))
    ]
    waiting = gang("g", pod_set(2, 2), required=required, preferred=preferred)
    snap = snapshot(nodes, [queue("root.a")], pending=[waiting])
    return decide(snap, now=0.0, seed=0, budget=Budget(deterministic=0.0))


def test_a_wish_does_not_widen_a_requirement() -> None:
    plan = _plan("rack", "block")
    assert plan.admissions == ()
    assert plan.explanations["g"].primary.token == "TopologyPlacementFailed"


def test_a_wish_inside_a_requirement_may_fail() -> None:
    assert [a.uid for a in _plan("block", "rack").admissions] == ["g"]
