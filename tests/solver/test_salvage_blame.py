"""Who is at fault where the verifier refuses a plan: never who is robbed, nor who only stands beside it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from queuer.domain.reasons import Deferral, Token
from queuer.solver.arrays import Arrays
from queuer.solver.problem import Reservation
from queuer.solver.salvage import offenders, salvaged
from queuer.solver.verify import Rule, Violation, verify
from tests.solver.make import gang, queue, row, snapshot
from tests.solver.plans import at
from tests.solver.test_salvage import NODES, TREE, greedy, host, pods, refusing, settling, starts


def test_whose_reservation_is_not_left_whole_waits_without_it_and_nobody_else_does() -> None:
    """Others may have started there by right: whose turn came first, or who displaces it."""
    snap, plan = settling()
    place = Reservation(uid="late", assignments=(at({"n1": 1}),), start=0.0, expires=300.0)
    late = gang("late", pods(1, gpu=8), submitted=9.0)
    more = replace(snap, pending=(*snap.pending, replace(snap.pending[0], workload=late)))
    robbed = replace(
        plan,
        reservations=(place,),
        order=(*plan.order, "late"),
        explanations={**plan.explanations, "late": plan.explanations["taker"]},
    )
    wrong = [Violation(rule=Rule.RESERVATION, uid="late", text="n1 is taken")]
    assert offenders(more, robbed, wrong) == ["late"]
    left, still = salvaged(
        Arrays.of(more), robbed, wrong, now=0.0, judge=lambda left: verify(more, left, now=0.0)
    )
    assert (starts(left), left.reservations, still) == ({"held", "kept", "free"}, (), ())


@pytest.mark.parametrize("bound", [False, True])
def test_who_is_not_known_is_taken_out_and_nothing_is_told_of_it(bound: bool) -> None:
    snap, plan = settling()
    bad = replace(plan, order=(*plan.order, "ghost"))
    if bound:
        bad = replace(bad, bonds=(*plan.bonds, replace(plan.bonds[0], uid="ghost")))
    else:
        bad = replace(bad, admissions=(*plan.admissions, replace(plan.admissions[0], uid="ghost")))
    wrong = verify(snap, bad, now=0.0)
    assert Rule.REFERENCE in {v.rule for v in wrong}
    assert "ghost" in offenders(snap, bad, wrong)
    left, _ = salvaged(Arrays.of(snap), bad, wrong, now=0.0, judge=lambda left: verify(snap, left, now=0.0))
    assert "ghost" not in {*starts(left), *(b.uid for b in left.bonds), *left.explanations}


@pytest.mark.parametrize(("first", "blamed"), [("a", "z"), ("z", "a")])
def test_of_too_many_the_last_by_turn_waits_whatever_they_are_called(first: str, blamed: str) -> None:
    waiting = [gang(uid, pods(1, gpu=2), submitted=float(uid != first)) for uid in ("a", "z")]
    snap = snapshot(NODES[:1], TREE, pending=waiting)
    wrong = [Violation(rule=Rule.CAPACITY, uid="", text="too much", at="n0")]
    assert offenders(snap, greedy(snap), wrong) == [blamed]


def test_who_had_no_turn_can_be_at_fault_too() -> None:
    snap, plan = settling()
    wrong = [Violation(rule=Rule.CAPACITY, uid="", text="too much", at="n0")]
    assert offenders(snap, replace(plan, order=()), wrong) == offenders(snap, plan, wrong) == ["held"]


def test_a_node_with_the_name_of_a_queue_is_not_that_queue() -> None:
    nodes = [host("root.a", 8, 8)]
    tree = [*TREE, queue("root.b", row(guaranteed=100))]
    snap = snapshot(
        nodes, tree, pending=[gang("one", pods(1, gpu=2)), gang("two", pods(1, gpu=2), queue="root.b")]
    )
    wrong = [Violation(rule=Rule.QUOTA, uid="", text="too much", at="root.a")]
    assert offenders(snap, greedy(snap), wrong) == ["one"]


def test_many_too_many_are_found_in_a_few_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many again each time: 37 of 40 one by one would be more rounds than there are."""
    fault = Violation(rule=Rule.QUOTA, uid="", text="too much", at="root.a")
    refusing(monkeypatch, lambda plan: fault if len(starts(plan)) > 3 else None)
    waiting = [gang(f"s{i:02}", pods(1, cpu=1), submitted=float(i)) for i in range(40)]
    plan = greedy(snapshot([host("n0", 0, 64)], [queue("root"), queue("root.a")], pending=waiting))
    assert 0 < len(starts(plan)) <= 3
    assert plan.stats.note.startswith("refused by the verifier in part: ")


def test_who_did_not_start_has_nothing_given_back() -> None:
    """Its reservation has ended in the plan, as another displaced it."""
    snap, plan = settling()
    displaced = replace(plan, admissions=tuple(a for a in plan.admissions if a.uid != "kept"))
    wrong = [Violation(rule=Rule.GANG, uid="kept", text="wrong")]
    left, _ = salvaged(Arrays.of(snap), displaced, wrong, now=0.0, judge=lambda _: ())
    assert left.reservations == ()


def test_who_is_to_wait_and_has_its_bond_is_told_of_that_and_not_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wrong = Violation(rule=Rule.GANG, uid="held", text="wrong")
    snap, _ = settling()
    refusing(monkeypatch, lambda plan: wrong if "held" in starts(plan) else None)
    plan = greedy(snap)
    assert "held" in {b.uid for b in plan.bonds}
    assert plan.explanations["held"].primary.token is Token.WAITING_FOR_PREEMPTED_WORKLOADS
    assert Deferral.PLAN not in plan.stats.causes


def test_who_was_told_nothing_is_told_that_it_is_tried_again() -> None:
    """The rest is carried out: a reason that is missing keeps nobody else waiting."""
    snap, plan = settling()
    forgotten = replace(plan, admissions=tuple(a for a in plan.admissions if a.uid != "free"))
    wrong = verify(snap, forgotten, now=0.0)
    assert [v.uid for v in wrong] == ["free"]
    left, still = salvaged(
        Arrays.of(snap), forgotten, wrong, now=0.0, judge=lambda left: verify(snap, left, now=0.0)
    )
    assert (starts(left), still) == ({"held", "kept"}, ())
    assert left.explanations["free"].primary.params == {"cause": Deferral.PLAN.value}
    assert left.stats.causes == {Deferral.PLAN: 1}
