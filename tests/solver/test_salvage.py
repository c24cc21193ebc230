"""What concerns a few gangs keeps only these waiting: pods of earlier cycles that fit nowhere any more, bonds that are
sure to land no more, and any fault of ours that the verifier finds. A cluster never stands still for one gang.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from queuer.domain.nodes import Node
from queuer.domain.reasons import Deferral, Token
from queuer.domain.workload import PodSet, Workload
from queuer.solver import attempts
from queuer.solver.decide import decide
from queuer.solver.problem import Admitted, Budget, Plan, Snapshot, SolveStatus, Turn, Unbound
from queuer.solver.verify import Rule, Violation, verify
from tests.solver.make import GPU, gang, queue, row, running, snapshot

BUDGETS = [0.0, 2.0]


def host(name: str, gpu: int, cpu: int, *, ready: bool = True) -> Node:
    return Node(name=name, labels={}, allocatable={GPU: gpu, "cpu": cpu, "pods": 20}, ready=ready)


def pods(count: int, *, gpu: int = 0, cpu: int = 0, name: str = "main") -> PodSet:
    return PodSet(name=name, count=count, requests={GPU: gpu, "cpu": cpu, "pods": 1})


def planned(snap: Snapshot, deterministic: float, *, now: float = 5.0) -> Plan:
    plan = decide(snap, now=now, seed=0, budget=Budget(deterministic=deterministic))
    assert verify(snap, plan, now=now) == ()
    assert (plan.stats.status is not SolveStatus.FAILED, plan.stats.note) == (True, "")
    return plan


def starts(plan: Plan) -> set[str]:
    return {a.uid for a in plan.admissions}


def unbound_on(
    work: Workload, name: str, *, bound: Mapping[str, Mapping[str, int]] | None = None
) -> Admitted:
    """Of its pods one has still to land, and only on this node."""
    rest = (Unbound(pod_set="main", count=1, hosts=(name,)),)
    counts = {p.name: p.count for p in work.pod_sets}
    return Admitted(
        workload=work,
        counts=counts,
        flavors=dict.fromkeys(counts, "default"),
        since=0.0,
        bound=bound or {},
        unbound=rest,
        turn=Turn(1, 0),
    )


@pytest.mark.parametrize("deterministic", BUDGETS)
def test_a_pod_that_fits_nowhere_any_more_holds_up_its_node_alone(deterministic: float) -> None:
    """A pod of a DaemonSet came onto n0 first; ten other nodes are idle."""
    late = unbound_on(gang("late", pods(1, cpu=8)), "n0")
    small = [gang(f"small{i}", pods(1, cpu=2), submitted=float(i)) for i in range(3)]
    large = [gang(f"large{i}", pods(1, cpu=8), submitted=float(9 + i)) for i in range(7)]
    snap = snapshot(
        [host(f"n{i}", 0, 8) for i in range(11)],
        [queue("root"), queue("root.a", row("cpu", guaranteed=1000))],
        admitted=[late],
        pending=[*small, *large],
        foreign={"n0": {"cpu": 1, "pods": 1}},
    )
    assert starts(planned(snap, deterministic)) == {w.uid for w in [*small, *large]}


@pytest.mark.parametrize("deterministic", BUDGETS)
@pytest.mark.parametrize("many", [1, 2, 3])
def test_who_has_lost_a_node_holds_up_the_other_alone(many: int, deterministic: float) -> None:
    """Its second pod waits, and n2 has no room for it; room that gets free there is its own."""
    lost = unbound_on(gang("lost", pods(2, gpu=6)), "n2", bound={"n2": {GPU: 6, "pods": 1}})
    small = [gang(f"small{i}", pods(1, gpu=1), submitted=float(i)) for i in range(many)]
    others = [gang(f"cpu{i}", pods(1, cpu=4), submitted=float(100 + i)) for i in range(10)]
    snap = snapshot(
        [host("n1", 8, 0, ready=False), host("n2", 8, 0), host("n3", 0, 64)],
        [queue("root"), queue("root.a", row(guaranteed=16))],
        admitted=[lost],
        pending=[*small, *others],
    )
    plan = planned(snap, deterministic)
    assert starts(plan) == {w.uid for w in others}
    assert {plan.explanations[w.uid].primary.token for w in small} == {Token.PENDING_EVALUATION}


@pytest.mark.parametrize("deterministic", BUDGETS)
def test_a_bond_of_which_one_set_is_sure_no_more_holds_up_nobody_elsewhere(deterministic: float) -> None:
    """Foreign pods go, so that workers could come where the leader is to be."""
    tree = [queue("root"), queue("root.a", row(guaranteed=0)), queue("root.b", row(guaranteed=7))]
    nodes = [host("a", 4, 2), host("b", 2, 2), host("c", 1, 2), host("d", 0, 8)]
    victim = gang("victim", pods(1, gpu=4), queue="root.a")
    led = gang(
        "led",
        pods(1, gpu=3, name="leader"),
        pods(2, gpu=1, cpu=1, name="worker"),
        queue="root.b",
        submitted=1.0,
    )
    foreign = {"a": {"cpu": 1, "pods": 1}, "b": {GPU: 1, "pods": 1}, "c": {GPU: 1, "pods": 1}}
    first = snapshot(nodes, tree, admitted=[running(victim, {"a": 1})], pending=[led], foreign=foreign)
    bonds = planned(first, deterministic).bonds
    assert [bond.uid for bond in bonds] == ["led"]
    beside = gang("beside", pods(2, gpu=1), queue="root.b", submitted=2.0)
    others = [gang(f"cpu{i}", pods(1, cpu=1), queue="root.b", submitted=float(3 + i)) for i in range(5)]
    leaving = running(victim, {"a": 1}, releasing=True)
    snap = snapshot(nodes, tree, admitted=[leaving], pending=[led, beside, *others], bonds=bonds)
    plan = planned(snap, deterministic, now=10.0)
    assert starts(plan) >= {w.uid for w in others}
    assert [bond.uid for bond in plan.bonds] == ["led"]


# Any other fault


def blaming(monkeypatch: pytest.MonkeyPatch, culprit: str, named: str) -> None:
    """The verifier names somebody else wherever this gang starts."""

    def told(snap: Snapshot, plan: Plan, **more: Any) -> Sequence[Violation]:
        if culprit in starts(plan):
            return (Violation(rule=Rule.LANDING, uid=named, text="robbed"),)
        return verify(snap, plan, **more)

    monkeypatch.setattr(attempts, "verify", told)


NODES = [host(f"n{i}", 8, 8) for i in range(3)]
TREE = [queue("root"), queue("root.a", row(guaranteed=100))]


def test_who_starts_near_those_that_are_robbed_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """On the hosts of pods that have still to land."""
    blaming(monkeypatch, "near", "late")
    late = unbound_on(gang("late", pods(1, gpu=4)), "n0")
    waiting = [
        gang("near", pods(1, gpu=4)),
        *[gang(f"g{i}", pods(1, gpu=8), submitted=1.0) for i in range(2)],
    ]
    snap = snapshot(NODES, TREE, admitted=[late], pending=waiting)
    plan = decide(snap, now=0.0, seed=0, budget=Budget(deterministic=0.0))
    assert starts(plan) == {"g0", "g1"}


def test_what_no_attempt_makes_good_is_taken_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever starts first is refused, in whatever attempt; the rest of the plan is carried out."""
    refused: list[str] = []

    def told(snap: Snapshot, plan: Plan, **more: Any) -> Sequence[Violation]:
        if len(plan.admissions) > 1:
            refused.append(plan.admissions[0].uid)
            return (Violation(rule=Rule.CAPACITY, uid=refused[-1], text="too much"),)
        return verify(snap, plan, **more)

    monkeypatch.setattr(attempts, "verify", told)
    waiting = [gang(f"g{i}", pods(1, gpu=8), submitted=float(i)) for i in range(3)]
    snap = snapshot(NODES, TREE, pending=waiting)
    plan = decide(snap, now=0.0, seed=0, budget=Budget(deterministic=0.0))
    (left,) = starts(plan)
    assert left not in refused
    assert plan.stats.status is SolveStatus.FEASIBLE
    assert plan.stats.note == f"refused by the verifier in part: capacity {refused[1]}: too much"
    told_ = {uid: e.primary for uid, e in plan.explanations.items()}
    assert told_.keys() == {w.uid for w in waiting} - {left}
    assert Deferral.PLAN.value in {reason.params.get("cause") for reason in told_.values()}
    assert verify(snap, plan, now=0.0) == ()
