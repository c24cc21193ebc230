"""What concerns a few gangs keeps only these waiting: pods of earlier cycles that fit nowhere any more, bonds that are
sure to land no more, and any fault of ours that the verifier finds. A cluster never stands still for one gang.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from queuer.domain.nodes import Node
from queuer.domain.reasons import Deferral, Token
from queuer.domain.workload import PodSet, Workload
from queuer.solver import attempts
from queuer.solver.arrays import Arrays
from queuer.solver.decide import decide
from queuer.solver.problem import (
    Admitted,
    Bond,
    Budget,
    Plan,
    Reservation,
    Snapshot,
    SolveStatus,
    Turn,
    Unbound,
)
from queuer.solver.salvage import offenders, salvaged
from queuer.solver.verify import Rule, Violation, verify
from tests.solver.make import GPU, gang, queue, row, running, snapshot
from tests.solver.plans import at

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

NODES = [host(f"n{i}", 8, 8) for i in range(4)]
TREE = [queue("root"), queue("root.a", row(guaranteed=100))]
FULL = [gang(f"g{i}", pods(1, gpu=8), submitted=float(i)) for i in range(4)]


def refusing(monkeypatch: pytest.MonkeyPatch, refused: Callable[[Plan], Violation | None]) -> None:
    """The verifier finds this, too."""

    def told(snap: Snapshot, plan: Plan, **more: Any) -> Sequence[Violation]:
        found = refused(plan)
        return (found,) if found else verify(snap, plan, **more)

    monkeypatch.setattr(attempts, "verify", told)


def greedy(snap: Snapshot) -> Plan:
    plan = decide(snap, now=0.0, seed=0, budget=Budget(deterministic=0.0))
    assert verify(snap, plan, now=0.0) == ()
    return plan


def test_who_starts_near_those_that_are_robbed_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """On the hosts of pods that have still to land; it is told why, and the record says what was refused."""
    robbed = Violation(rule=Rule.LANDING, uid="late", text="robbed")
    refusing(monkeypatch, lambda plan: robbed if "near" in starts(plan) else None)
    late = unbound_on(gang("late", pods(1, gpu=4)), "n0")
    waiting = [gang("near", pods(1, gpu=4)), *FULL[:3]]
    plan = greedy(snapshot(NODES, TREE, admitted=[late], pending=waiting))
    assert starts(plan) == {"g0", "g1", "g2"}
    assert plan.explanations["near"].primary.params == {"cause": Deferral.PLAN.value}
    assert (plan.stats.deferred, plan.stats.causes) == (1, {Deferral.PLAN: 1})
    assert plan.stats.note == "refused by the verifier in part: landing late: robbed"


@pytest.mark.parametrize(
    "fault",
    [
        lambda at: Violation(rule=Rule.CAPACITY, uid="", at=at, text="too much"),
        lambda _: Violation(rule=Rule.QUOTA, uid="", at="root.a", text="too much"),
        lambda _: Violation(rule=Rule.QUOTA, uid="", at="root", text="too much"),
    ],
    ids=["node", "queue", "root"],
)
@pytest.mark.parametrize("most", [0, 1, 2, 3])
def test_where_all_together_are_too_many_the_last_wait(
    most: int, fault: Callable[[str], Violation], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The verifier names a node or a queue; so many of root.a may start. Others do all the same."""

    def too_many(plan: Plan) -> Violation | None:
        mine = [a for a in plan.admissions if a.uid.startswith("s")]
        return fault(next(iter(mine[0].assignments[0].nodes))) if len(mine) > most else None

    refusing(monkeypatch, too_many)
    small = [gang(f"s{i}", pods(1, gpu=2), submitted=float(i)) for i in range(4)]
    others = [gang(f"b{i}", pods(1, gpu=8), queue="root.b", submitted=9.0) for i in range(3)]
    tree = [*TREE, queue("root.b", row(guaranteed=100))]
    plan = greedy(snapshot(NODES, tree, pending=[*small, *others]))
    mine = {uid for uid in starts(plan) if uid.startswith("s")}
    assert len(mine) <= most
    if fault("").at != "root":
        assert starts(plan) - mine == {"b0", "b1", "b2"}
        assert mine == {f"s{i}" for i in range(len(mine))}
        assert mine or not most
    assert plan.stats.note.startswith("refused by the verifier in part: ")
    assert plan.stats.deferred == plan.stats.causes[Deferral.PLAN] > 0


def settling() -> tuple[Snapshot, Plan]:
    """One starts where its bond stands, one where it has a reservation, one just starts, one is bound for a victim."""
    rows = {n: (at({n: 1}),) for n in ("n0", "n1")}
    low = running(gang("low", pods(1, gpu=8)), {"n2": 1})
    waiting = [
        gang("held", pods(1, gpu=8), priority=2),
        gang("kept", pods(1, gpu=8), priority=2),
        gang("free", pods(1, gpu=8), priority=2),
        gang("taker", pods(1, gpu=8), priority=1),
    ]
    snap = snapshot(
        NODES,
        TREE,
        admitted=[low],
        pending=waiting,
        bonds=(Bond(uid="held", assignments=rows["n0"], victims=("gone",), deadline=300.0),),
        reservations=(Reservation(uid="kept", assignments=rows["n1"], start=-10.0, expires=300.0),),
    )
    plan = greedy(snap)
    assert starts(plan) == {"held", "kept", "free"}
    assert [(b.uid, b.victims) for b in plan.bonds] == [("taker", ("low",))]
    assert plan.reservations == ()
    return snap, plan


def without(*blamed: str) -> Plan:
    """What is left of that plan where rules are broken for these."""
    snap, plan = settling()
    wrong = [Violation(rule=Rule.GANG, uid=uid, text="wrong") for uid in blamed]
    left, still = salvaged(
        Arrays.of(snap), plan, wrong, now=0.0, judge=lambda left: verify(snap, left, now=0.0)
    )
    assert still == ()
    return left


def test_who_is_taken_out_has_again_what_it_had() -> None:
    """Its bond and its reservation; nobody goes for it, and it is told why it waits."""
    left = without("held", "kept", "taker")
    assert starts(left) == {"free"}
    assert ([b.uid for b in left.bonds], left.evictions) == (["held"], ())
    assert [r.uid for r in left.reservations] == ["kept"]
    assert (left.stats.status, left.stats.deferred) == (SolveStatus.FEASIBLE, 2)
    assert left.stats.causes == {Deferral.PLAN: 2}
    assert {uid: told.primary.token for uid, told in left.explanations.items()} == {
        "held": Token.WAITING_FOR_PREEMPTED_WORKLOADS,
        "kept": Token.SOLVER_DEFERRED,
        "taker": Token.SOLVER_DEFERRED,
    }


def test_where_a_victim_may_not_go_its_beneficiary_waits() -> None:
    left = without("low")
    assert (starts(left), left.bonds, left.evictions) == ({"held", "kept", "free"}, (), ())


def test_nobody_is_deferred_who_has_its_bond_again() -> None:
    left = without("held")
    assert (left.stats.deferred, left.stats.causes) == (0, {})
    assert [b.uid for b in left.bonds if not b.victims or b.uid == "held"] == ["held"]


def test_who_comes_onto_what_a_bond_holds_is_at_fault_not_who_holds_it() -> None:
    """The verifier names the gang that is robbed."""
    snap, plan = settling()
    places = {a.uid: a for a in plan.admissions}
    beside = replace(places["free"], assignments=places["held"].assignments)
    robbing = replace(plan, admissions=(beside, places["kept"]), bonds=(*snap.bonds, *plan.bonds))
    wrong = [Violation(rule=Rule.LANDING, uid="held", text="robbed")]
    assert offenders(snap, robbing, wrong) == ["free"]


@pytest.mark.parametrize(
    ("rule", "named", "blamed"),
    [(Rule.LANDING, "held", "held"), (Rule.VICTIM, "low", "taker"), (Rule.GANG, "kept", "kept")],
)
def test_who_is_named_is_at_fault_or_for_whose_sake_a_victim_goes(
    rule: Rule, named: str, blamed: str
) -> None:
    """And nobody else, whoever was the last."""
    snap, plan = settling()
    for order in (plan.order, plan.order[::-1]):
        wrong = [Violation(rule=rule, uid=named, text="wrong")]
        assert offenders(snap, replace(plan, order=order), wrong) == [blamed]
