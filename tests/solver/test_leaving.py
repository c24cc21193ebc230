"""Work that leaves anyway: nobody is evicted for a gang that fits once it has gone (DESIGN 3.3)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from queuer.domain.nodes import SchedulingTerms
from queuer.domain.queue import Policy
from queuer.domain.reasons import Deferral, Token
from queuer.domain.workload import Workload
from queuer.solver import attempts, contest
from queuer.solver.decide import decide
from queuer.solver.ends import OVERDUE, SOON, expected_end
from queuer.solver.problem import Admitted, Assignment, Bond, Budget, Plan, Snapshot, SolveStatus
from queuer.solver.score import score
from queuer.solver.verify import verify
from queuer.solver.verify.case import Rule, Violation
from tests.solver.make import gang, node, pod_set, queue, row, running, snapshot
from tests.solver.worlds import NOW as WORLD
from tests.solver.worlds import world

NOW, GONE_BY = 1000.0, 1040.0
BUDGETS = pytest.mark.parametrize("deterministic", [0.0, 2.0])


def busy(uid: str, host: str, *, queue: str = "root.b", gpus: int = 8, **more: Any) -> Admitted:
    return running(gang(uid, pod_set(1, gpus), queue=queue), {host: 1}, **more)


def leaves(uid: str, host: str, *, gone_by: float | None = GONE_BY, **more: Any) -> Admitted:
    return busy(uid, host, releasing=True, gone_by=gone_by, **more)


def entitled(pods: int = 1, **more: Any) -> Workload:
    return gang("g", pod_set(pods, 8), **more)


def lent(*admitted: Admitted, pending: tuple[Workload, ...], hosts: int = 2, **more: Any) -> Snapshot:
    """`root.a` is guaranteed all, `root.b` borrows it."""
    queues = [queue("root"), queue("root.a", row(guaranteed=8 * hosts)), queue("root.b")]
    nodes = [node(f"n{i}") for i in range(hosts)]
    return snapshot(nodes, queues, admitted=admitted, pending=pending, **more)


def decided(snap: Snapshot, *, now: float = NOW, deterministic: float = 0.0) -> Plan:
    plan = decide(snap, now=now, seed=0, budget=Budget(deterministic=deterministic))
    assert verify(snap, plan, now=now) == ()
    return plan


def later(snap: Snapshot, plan: Plan, *gone: str) -> Snapshot:
    """A moment after a plan that starts nobody: these have gone."""
    left = {a.workload.uid: a for a in snap.admitted if a.workload.uid not in gone}
    back = snapshot(
        [s.node for s in snap.nodes],
        list(snap.tree),
        admitted=left.values(),
        pending=snap.pending,
        bonds=plan.bonds,
    )
    return replace(back, reservations=plan.reservations)


@BUDGETS
def test_nobody_is_evicted_where_work_that_leaves_makes_room_enough(deterministic: float) -> None:
    snap = lent(busy("v", "n0"), leaves("out", "n1"), pending=(entitled(),))
    plan = decided(snap, deterministic=deterministic)
    assert (plan.evictions, plan.admissions) == ((), ())
    (bond,) = plan.bonds
    assert (bond.uid, bond.victims, bond.deadline) == ("g", ("out",), NOW + Budget().bond)
    assert list(bond.assignments[0].nodes) == ["n1"]
    reason = plan.explanations["g"].primary
    assert reason.token is Token.WAITING_FOR_PREEMPTED_WORKLOADS
    assert reason.text == "1 node is held for it; it starts when the pods of test/out have left."
    same = later(snap, plan)
    assert decided(same, now=NOW + 10, deterministic=deterministic).bonds == plan.bonds
    gone = later(snap, plan, "out")
    after = decided(gone, now=NOW + 20, deterministic=deterministic)
    assert ([a.uid for a in after.admissions], after.evictions) == (["g"], ())


@BUDGETS
@pytest.mark.parametrize("gone_by", [None, NOW, NOW - 1, NOW + SOON + 1])
def test_where_nobody_knows_that_it_will_be_gone_soon_somebody_is_evicted(
    gone_by: float | None, deterministic: float
) -> None:
    snap = lent(busy("v", "n0"), leaves("out", "n1", gone_by=gone_by), pending=(entitled(),))
    assert [e.uid for e in decided(snap, deterministic=deterministic).evictions] == ["v"]


@BUDGETS
def test_where_the_room_is_not_enough_alone_only_the_rest_is_evicted(deterministic: float) -> None:
    there = (busy("v", "n0"), busy("w", "n2"), leaves("out", "n1"))
    plan = decided(lent(*there, hosts=3, pending=(entitled(2),)), deterministic=deterministic)
    assert len(plan.evictions) == 1
    assert plan.bonds[0].victims == (plan.evictions[0].uid, "out")


@BUDGETS
def test_quota_that_leaves_spares_an_eviction_too(deterministic: float) -> None:
    """Both nodes have room; the limit of `root` is used up, half of it by work that leaves."""
    queues = [
        queue("root", row(limit=16)),
        queue("root.a", row(guaranteed=16)),
        queue("root.b"),
    ]
    there = (busy("v", "n0"), leaves("out", "n1"))
    snap = snapshot([node(f"n{i}") for i in range(4)], queues, admitted=there, pending=(entitled(),))
    plan = decided(snap, deterministic=deterministic)
    assert (plan.evictions, plan.admissions) == ((), ())
    assert [(b.uid, b.victims) for b in plan.bonds] == [("g", ("out",))]
    gone = decided(later(snap, plan, "out"), now=NOW + 20, deterministic=deterministic)
    assert [a.uid for a in gone.admissions] == ["g"]


def test_preemption_waits_for_what_leaves_too() -> None:
    urgent = gang("g", pod_set(1, 8), queue="root.b", priority=1)
    out = leaves("out", "n1", gone_by=NOW + SOON)
    plan = decided(lent(busy("v", "n0"), out, pending=(urgent,)))
    assert (plan.evictions, [b.victims for b in plan.bonds]) == ((), [("out",)])


def test_a_bond_ends_at_its_deadline_and_somebody_is_evicted_then() -> None:
    """What does not let go holds up nobody for ever."""
    snap = lent(busy("v", "n0"), leaves("out", "n1"), pending=(entitled(),))
    plan = decided(snap)
    over, end = later(snap, plan), plan.bonds[0].deadline
    stands = decided(over, now=end - 1)
    assert (stands.bonds, stands.evictions) == (plan.bonds, ())
    assert [e.uid for e in decided(over, now=end).evictions] == ["v"]


def test_victims_that_take_longer_than_a_bond_lasts_are_waited_for() -> None:
    """As long as their grace says; else others would be evicted every few minutes for the same gang."""
    snap = lent(busy("v", "n0"), busy("w", "n1"), pending=(entitled(),))
    plan = decided(snap)
    (first,) = plan.evictions
    slow = NOW + 5 * Budget().bond
    going = [
        replace(a, releasing=True, gone_by=slow) if a.workload.uid == first.uid else a for a in snap.admitted
    ]
    over = later(replace(snap, admitted=tuple(going)), plan)
    still = decided(over, now=plan.bonds[0].deadline + 1)
    assert (still.evictions, still.bonds) == ((), (replace(plan.bonds[0], deadline=slow),))
    prolonged = replace(still, bonds=(replace(still.bonds[0], deadline=slow + 1),))
    assert [v.rule for v in verify(over, prolonged, now=plan.bonds[0].deadline + 1)] == [Rule.BOND]
    stuck = decided(replace(over, bonds=still.bonds), now=slow)
    assert [e.beneficiary for e in stuck.evictions] == ["g"]


def test_a_short_bond_lasts_until_what_it_waits_for_is_gone() -> None:
    """It says so from the first."""
    there = (leaves("first", "n0", gone_by=GONE_BY - 5), leaves("last", "n1"), busy("v", "n2"))
    snap, short = lent(*there, hosts=3, pending=(entitled(2),)), GONE_BY - NOW - 10
    plan = decide(snap, now=NOW, seed=0, budget=Budget(deterministic=0.0, bond=short))
    assert [(b.victims, b.deadline) for b in plan.bonds] == [(("first", "last"), GONE_BY)]
    assert verify(snap, plan, now=NOW) == ()


def test_where_no_plan_is_sound_such_a_bond_stands_too(monkeypatch: pytest.MonkeyPatch) -> None:
    held = Assignment(pod_set="main", flavor="default", nodes={"n1": 1}, hosts=("n1",))
    bond = Bond(uid="g", assignments=(held,), victims=("out",), deadline=NOW - 1)
    snap = lent(busy("v", "n0"), leaves("out", "n1"), pending=(entitled(),), bonds=(bond,))
    wrong = Violation(rule=Rule.BOND, uid="g", text="no")
    with monkeypatch.context() as context:
        context.setattr(attempts, "verify", lambda *_, **__: (wrong,))
        plan = decide(snap, now=NOW, seed=0, budget=Budget(deterministic=0.0))
    assert plan.stats.status is SolveStatus.FAILED
    assert [b.deadline for b in plan.bonds] == [GONE_BY]
    assert verify(snap, plan, now=NOW) == ()


def test_a_bond_that_had_ended_is_judged_as_a_new_one() -> None:
    """Nobody knows whether what it waits for will go."""
    snap = lent(busy("v", "n0"), leaves("out", "n1"), pending=(entitled(),))
    plan = decided(snap)
    ended = replace(plan.bonds[0], deadline=NOW - 1)
    unclear = tuple(replace(a, gone_by=None) for a in snap.admitted)
    again = replace(snap, admitted=unclear, bonds=(ended,))
    assert Rule.BOND in {v.rule for v in verify(again, plan, now=NOW)}


def test_of_those_that_leave_a_bond_names_those_whose_room_it_needs() -> None:
    there = (leaves("far", "n0"), busy("v", "n1"), leaves("near", "n2"))
    needs = entitled(required="rack")
    nodes = [node(f"n{i}", labels={"rack": f"r{i}"}, unschedulable=i == 0) for i in range(3)]
    queues = [queue("root"), queue("root.a", row(guaranteed=24)), queue("root.b")]
    plan = decided(snapshot(nodes, queues, admitted=there, pending=[needs]))
    assert ([b.victims for b in plan.bonds], plan.evictions) == ([("near",)], ())


def test_two_gangs_do_not_wait_for_the_same_room() -> None:
    two = (entitled(), gang("h", pod_set(1, 8), submitted=1.0))
    plan = decided(lent(busy("v", "n0"), leaves("out", "n1"), pending=two))
    assert {b.uid: b.victims for b in plan.bonds} == {"g": ("out",), "h": ("v",)}


def test_what_leaves_goes_to_whom_it_belongs_to_once_it_has_gone() -> None:
    """While it leaves its queue uses all that it is guaranteed, and its next job is not entitled yet. Were the room
    promised to the borrower that comes before it then, that would be evicted as soon as it has started.
    """
    queues = [queue("root"), queue("root.a", row(guaranteed=8)), queue("root.b", row(guaranteed=8))]
    there = (leaves("out", "n0", queue="root.a"), busy("v", "n1", queue="root.b"))
    waiting = (
        gang("borrows", pod_set(1, 8), queue="root.b", submitted=-2.0),
        gang("next", pod_set(1, 8), queue="root.a", submitted=-1.0),
    )
    snap = snapshot([node("n0"), node("n1")], queues, admitted=there, pending=waiting)
    plan = decided(snap)
    assert (plan.bonds, plan.evictions) == ((), ())
    gone = decided(later(snap, plan, "out"), now=NOW + 20)
    assert ([a.uid for a in gone.admissions], gone.evictions) == (["next"], ())


def test_nor_does_it_go_to_others_who_are_bound() -> None:
    """What victims leave beside the gang that they leave for is held for anybody; not what leaves anyway."""
    queues = [queue("root"), *(queue(f"root.{name}", row(guaranteed=8)) for name in "abc")]
    there = (
        leaves("out", "n0", queue="root.a"),
        busy("v", "n1", queue="root.b"),
        leaves("victim", "n2", queue="root.b", gone_by=None),
    )
    held = Assignment(pod_set="main", flavor="default", nodes={"n2": 1}, hosts=("n2",))
    bond = Bond(uid="waits", assignments=(held,), victims=("victim",), deadline=NOW + 100)
    waiting = (
        gang("waits", pod_set(1, 6), queue="root.c", submitted=-3.0),
        gang("borrows", pod_set(1, 8), queue="root.b", submitted=-2.0),
        gang("next", pod_set(1, 8), queue="root.a", submitted=-1.0),
        gang("small", pod_set(1, 2), queue="root.b"),
        gang("late", pod_set(1, 1), queue="root.b", submitted=1.0),
    )
    snap = snapshot([node(f"n{i}") for i in range(3)], queues, admitted=there, pending=waiting, bonds=(bond,))
    plan = decided(snap)
    assert {b.uid: list(b.assignments[0].nodes) for b in plan.bonds} == {"waits": ["n2"], "small": ["n2"]}


def test_nor_does_the_rest_of_what_one_gang_waits_for() -> None:
    """By room, not by job: `g` needs but four of the eight GPUs that `out` leaves."""
    queues = [queue("root"), *(queue(f"root.{name}", row(guaranteed=8)) for name in "ac"), queue("root.b")]
    there = (leaves("out", "n0", queue="root.c"), busy("victim", "n1", releasing=True))
    bonds = tuple(
        Bond(
            uid=uid,
            assignments=(Assignment(pod_set="main", flavor="default", nodes={host: 1}, hosts=(host,)),),
            victims=(victim,),
            deadline=NOW + 100,
        )
        for uid, host, victim in (("g", "n0", "out"), ("waits", "n1", "victim"))
    )
    waiting = (
        gang("g", pod_set(1, 4)),
        gang("waits", pod_set(1, 6), queue="root.c"),
        gang("three", pod_set(1, 3), queue="root.b"),
        gang("two", pod_set(1, 2), queue="root.b", submitted=1.0),
    )
    nodes = [node("n0"), node("n1"), node("closed", unschedulable=True)]
    plan = decided(snapshot(nodes, queues, admitted=there, pending=waiting, bonds=bonds))
    assert {b.uid: list(b.assignments[0].nodes) for b in plan.bonds} == {
        "g": ["n0"],
        "waits": ["n1"],
        "two": ["n1"],
    }


def test_nor_does_its_quota() -> None:
    """Beside `waits` there are two GPUs on n1, but `out` still uses up the limit of root.b."""
    queues = [queue("root"), queue("root.a", row(guaranteed=8)), queue("root.b", row(limit=8))]
    there = (leaves("out", "n0", gpus=7), busy("victim", "n1", queue="root.a", releasing=True))
    held = Assignment(pod_set="main", flavor="default", nodes={"n1": 1}, hosts=("n1",))
    bond = Bond(uid="waits", assignments=(held,), victims=("victim",), deadline=NOW + 100)
    waiting = (gang("waits", pod_set(1, 6)), gang("two", pod_set(1, 2), queue="root.b"))
    nodes = [node("n0", gpu=7), node("n1"), node("closed", unschedulable=True)]
    snap = snapshot(nodes, queues, admitted=there, pending=waiting, bonds=(bond,))
    assert [b.uid for b in decided(snap).bonds] == ["waits"]
    gone = replace(snap, admitted=snap.admitted[1:], nodes=snap.nodes[1:])
    assert [b.uid for b in decided(gone).bonds] == ["waits", "two"]


def test_nor_is_anybody_moved_there_as_if_its_hosts_were_full() -> None:
    """Once `out` has gone n0 is whole, so `borrows` lies best beside `first` on n1."""
    snap = beside_victims()
    plan = decided(snap, deterministic=2.0)
    assert hosts_of(plan) == {"first": ["n1"], "borrows": ["n1"]}
    first, borrows = plan.bonds
    on_n0 = replace(borrows.assignments[0], nodes={"n0": 1}, hosts=("n0",))
    other = replace(plan, bonds=(first, replace(borrows, assignments=(on_n0,), victims=("out",))))
    assert verify(snap, other, now=NOW) == ()
    assert score(snap, plan, now=NOW) > score(snap, other, now=NOW)


@BUDGETS
def test_but_for_another_that_could_wait_there_itself(deterministic: float) -> None:
    """`second` might evict `low`; it needs the rest of n1. No arrangement of those bound before it is left out."""
    second = gang("second", pod_set(1, 2, terms=ON_N1), queue="root.e")
    plan = decided(beside_victims(second), deterministic=deterministic)
    assert [e.uid for e in plan.evictions] == ["victim"]
    assert hosts_of(plan) == {"first": ["n1"], "borrows": ["n0"], "second": ["n1"]}


@pytest.mark.parametrize(
    ("deterministic", "small", "cause"),
    [(0.0, contest.SMALL_MODEL, Deferral.TIME), (2.0, contest.SMALL_MODEL, None), (2.0, 0, Deferral.SIZE)],
)
@pytest.mark.parametrize("room", [2, 1])
def test_whom_they_leave_room_if_others_move_waits_there_too(
    monkeypatch: pytest.MonkeyPatch, deterministic: float, small: int, cause: Deferral | None, room: int
) -> None:
    """`borrows` fits on n1 if a pod of `first` lies on n2, which has room for it where it has two GPUs. Else it would
    have to wait for `out`. In large clusters, or without time, nobody says which.
    """
    monkeypatch.setattr(contest, "SMALL_MODEL", small)
    aside = SchedulingTerms(node_selector={"aside": "yes"})
    open_to_first = (node(f"n{i}", gpu=gpu, labels={"aside": "yes"}) for i, gpu in ((1, 8), (2, room)))
    nodes = [node("n0"), *open_to_first, node("closed", unschedulable=True)]
    first = gang("first", pod_set(3, 2, terms=aside), queue="root.c")
    snap = snapshot(
        nodes,
        [*(queue(f"root.{name}") for name in "abd"), queue("root.c", row(guaranteed=8))],
        admitted=(leaves("out", "n0", queue="root.a"), busy("victim", "n1", queue="root.d")),
        pending=(first, gang("borrows", pod_set(1, 4), queue="root.b")),
    )
    plan = decided(snap, deterministic=deterministic)
    if cause is None and room == 2:
        assert hosts_of(plan) == {"first": ["n1", "n2"], "borrows": ["n1"]}
        return
    told = plan.explanations["borrows"].primary
    expected = Token.TOPOLOGY_PLACEMENT_FAILED if cause is None else Token.SOLVER_DEFERRED
    assert (told.token, told.params.get("cause")) == (expected, cause)


ON_N1 = SchedulingTerms(node_selector={"only": "n1"})


def beside_victims(*more: Workload) -> Snapshot:
    """`first` evicts `victim` and leaves two GPUs of n1, for `borrows`, which may evict nobody. `out` leaves n0."""
    queues = [queue("root", policy=Policy(reservations=0)), *(queue(f"root.{name}") for name in "bde")]
    queues += [queue("root.a", row(guaranteed=8)), queue("root.c", row(guaranteed=16))]
    low = busy("low", "n2", queue="root.e")
    low = replace(low, workload=replace(low.workload, priority=-1))
    there = (leaves("out", "n0", queue="root.a"), busy("victim", "n1", queue="root.d"), low)
    first = gang("first", pod_set(1, 6, terms=ON_N1), queue="root.c")
    waiting = (first, gang("borrows", pod_set(1, 2), queue="root.b"), *more)
    nodes = [node(f"n{i}", labels={"only": f"n{i}"}) for i in range(3)]
    return snapshot(nodes, queues, admitted=there, pending=waiting)


def hosts_of(plan: Plan) -> dict[str, list[str]]:
    """Where those lie that are bound."""
    return {bond.uid: [*bond.assignments[0].nodes] for bond in plan.bonds}


def test_a_reservation_counts_on_the_moment_at_which_pods_are_gone() -> None:
    snap = lent(
        busy("v", "n0", expected_end=5000.0),
        leaves("out", "n1"),
        pending=(gang("w", pod_set(1, 8), queue="root.b"),),
    )
    plan = decided(snap)
    assert [(r.uid, r.start) for r in plan.reservations] == [("w", GONE_BY)]
    assert expected_end(leaves("out", "n1"), now=GONE_BY) == GONE_BY + OVERDUE


@pytest.mark.parametrize("gone_by", [None, NOW, NOW + SOON + 1])
def test_the_verifier_refuses_to_wait_for_what_is_not_known_to_go(gone_by: float | None) -> None:
    there = busy("v", "n0")
    plan = decided(lent(there, leaves("out", "n1"), pending=(entitled(),)))
    found = verify(lent(there, leaves("out", "n1", gone_by=gone_by), pending=(entitled(),)), plan, now=NOW)
    assert [v.rule for v in found] == [Rule.BOND]


def test_no_victim_is_needless_beside_what_leaves() -> None:
    """Of a random world: the exact solver waits for what leaves, too."""
    snap = world(55120735, nodes=24, pending=24, running=24)
    known = (replace(a, gone_by=WORLD + 30.0 if a.releasing else None) for a in snap.admitted)
    plans = [decided(s, now=WORLD, deterministic=2.0) for s in (snap, replace(snap, admitted=tuple(known)))]
    assert [len(p.evictions) for p in plans] == [3, 2]


def test_no_start_waits_for_what_leaves() -> None:
    """Room that is free is taken at once."""
    plan = decided(lent(leaves("out", "n1"), pending=(entitled(),)))
    assert ([a.uid for a in plan.admissions], plan.bonds) == (["g"], ())


def test_who_starts_on_free_nodes_takes_nothing_of_what_is_held_where_work_leaves() -> None:
    """The room on n1 is the gang's; the later one may have what is free beside it."""
    there = (busy("v", "n0"), leaves("out", "n1", gpus=6))
    small = gang("s", pod_set(1, 2), queue="root.b", submitted=1.0)
    plan = decided(lent(*there, pending=(entitled(), small)))
    assert ([b.uid for b in plan.bonds], plan.admissions) == (["g"], ())
