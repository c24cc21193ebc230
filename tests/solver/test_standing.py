"""Reservations of earlier cycles: which of them stand, and that none loses its place to a lower or later one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from queuer.domain.nodes import Flavor, Node, SchedulingTerms
from queuer.domain.queue import Policy, Preempt, QueueTree
from queuer.domain.workload import Workload
from queuer.solver.arrays import Arrays
from queuer.solver.attempt import Attempt, Given
from queuer.solver.ends import OVERDUE
from queuer.solver.explain.sentences import LANDING
from queuer.solver.problem import Assignment, Budget, Plan, Reservation, Snapshot
from queuer.solver.verify import verify
from tests.solver.cases_crowded import drawn
from tests.solver.make import gang, node, pod_set, queue, row, running, snapshot
from tests.solver.oracle_reservations import Follower
from tests.solver.reserved import FOUR, NOW, asks, busy, hosts, place, plan_of, world


def stand(uid: str, *nodes: str, start: float) -> Reservation:
    """A reservation of an earlier cycle, one pod on each."""
    return Reservation(uid=uid, assignments=place(*nodes), start=start, expires=start + 1000.0)


def told(snap: Snapshot) -> list[tuple[str, set[str], float]]:
    """What is reserved, as brute force has it, too."""
    plan = plan_of(snap)
    assert Follower(snap, NOW, plan).agrees()
    return [(r.uid, hosts(r), r.start) for r in plan.reservations]


@pytest.mark.parametrize("priority", [0, 5])
@pytest.mark.parametrize("turned", [False, True])
def test_no_place_is_lost_to_a_lower_or_a_later_one(priority: int, turned: bool) -> None:
    """n0 is left early: whoever stands there starts early, though the other would move there, were it asked first."""
    runs = [replace(busy("x", "n0"), releasing=True), busy("y", "n1", end=2000.0), busy("c", "n2", "n3")]
    jobs = [asks("high", 1, priority=priority, submitted=1.0), asks("low", 1, submitted=2.0)]
    held = stand("high", "n0", start=1500.0), stand("low", "n1", start=2000.0)
    snap = world(runs, jobs, most=2, held=held[::-1] if turned else held)
    assert told(snap) == [("high", {"n0"}, NOW + OVERDUE), ("low", {"n1"}, 2000.0)]


def test_of_two_that_are_too_much_for_a_node_the_higher_one_stands() -> None:
    """They come from before the node was smaller, in whatever order."""
    runs = [busy("x", "n0", end=1500.0), busy("y", "n1", end=2000.0), busy("c", "n2", "n3")]
    jobs = [asks("high", 1, priority=1), asks("low", 1)]
    held = stand("low", "n0", start=1500.0), stand("high", "n0", start=1500.0)
    snap = world(runs, jobs, most=2, held=held)
    assert told(snap) == [("high", {"n0"}, 1500.0), ("low", {"n1"}, 2000.0)]


def test_of_two_that_are_too_much_for_a_node_the_entitled_one_stands() -> None:
    """Whatever their priorities."""
    policy = Policy(preempt=Preempt.NEVER, reclaim=False, reservations=2)
    queues = [queue("root", policy=policy), queue("root.a"), queue("root.b", row(guaranteed=8))]
    runs = [busy("x", "n0", end=1500.0), busy("y", "n1", end=2000.0), busy("c", "n2", "n3")]
    jobs = [asks("high", 1, priority=1), asks("inside", 1, queue="root.b")]
    held = stand("high", "n0", start=1500.0), stand("inside", "n0", start=1500.0)
    snap = snapshot(FOUR, queues, admitted=runs, pending=jobs, reservations=held)
    assert told(snap) == [("inside", {"n0"}, 1500.0), ("high", {"n1"}, 2000.0)]


@pytest.mark.parametrize("limit", [None, 8])
def test_who_is_refused_by_a_written_limit_keeps_nothing_from_others(limit: int | None) -> None:
    """The limit was cut below what the gang asks for: capacity alone is in its way no more."""
    policy = Policy(preempt=Preempt.NEVER, reservations=1)
    queues = [queue("root", policy=policy), queue("root.a", row(limit=limit)), queue("root.b")]
    runs = [replace(busy("x", "n0", end=2000.0), workload=replace(asks("x", 1), queue="root.b"))]
    jobs = [asks("owner", 2, submitted=1.0), asks("other", 1, queue="root.b")]
    held = (stand("owner", "n0", "n1", start=2000.0),)
    snap = snapshot(FOUR[:2], queues, admitted=runs, pending=jobs, reservations=held)
    plan = plan_of(snap)
    assert [a.uid for a in plan.admissions] == (["other"] if limit else [])
    assert plan.reservations == (() if limit else held)
    assert Follower(snap, NOW, plan).agrees()


def test_a_time_that_the_live_capacity_does_not_bear_is_lost() -> None:
    """The node of `lost` is gone, but what it had counts until it ends; by then another place is free, too."""
    lost = replace(busy("lost", "n2", end=1400.0), bound={})
    runs = [busy("a", "n0", end=1100.0), busy("b", "n1", end=1500.0), lost]
    held = stand("g", "n0", start=1100.0)
    snap = world(runs, [asks("g", 1)], held=(held,))
    snap = replace(snap, nodes=snap.nodes[:2])
    assert told(snap) == [("g", {"n0"}, 1400.0)]


@pytest.mark.parametrize("start", [NOW - 1.0, NOW + 500.0])
def test_who_is_put_off_keeps_what_is_reserved_for_it(start: float) -> None:
    """It cannot land beside others, so it does not start; nobody has displaced it."""
    snap, uid = drawn(159), "w2"
    tree = QueueTree.of(replace(q, policy=replace(q.policy, reservations=1)) for q in snap.tree)
    alone = replace(snap, pending=tuple(p for p in snap.pending if p.workload.uid == uid))
    (place_alone,) = attempt(alone).admissions
    held = Reservation(uid=uid, assignments=place_alone.assignments, start=start, expires=NOW + 1000.0)
    snap = replace(snap, tree=tree, reservations=(held,))
    plan = attempt(snap)
    assert plan.explanations[uid].primary == LANDING
    assert [r.uid for r in plan.reservations] == [uid]
    assert plan.explanations[uid].detail["reservation"]["start"] == start
    assert verify(snap, plan, now=NOW) == ()


def test_two_of_different_flavors_that_are_put_off_keep_one_each() -> None:
    """As many as are allowed for each flavor; each keeps its own when alone, too."""
    held = tuple(_alone_in(flavor) for flavor in "xy")
    snap = _doubled(held)
    plan = attempt(snap)
    assert [r.uid for r in plan.reservations] == ["x-w2", "y-w2"]
    assert all(plan.explanations[r.uid].primary == LANDING for r in held)
    assert verify(snap, plan, now=NOW) == ()


@pytest.mark.parametrize(
    ("kind", "gpus", "keeps"),
    [
        ("nobody", 0, ["w2"]),  # a hold stands where it lacks something, too
        ("there", 1, []),  # upon it
        ("beside", 2, []),  # uses up the limit of its flavor
        ("behind", 9, ["behind"]),  # has the only one that its queue may have
    ],
)
def test_who_is_put_off_gets_nothing_back_that_others_have_taken_since(
    kind: str, gpus: int, keeps: list[str]
) -> None:
    """Its place, what its queue may use, or the right to have one."""
    waits = gang(kind, pod_set(1, gpus, terms=SchedulingTerms(node_selector={"only": kind})), submitted=9.0)
    snap, flavors = drawn(159), tuple(Flavor(name=f, node_labels={"f": f}) for f in "xy")
    nodes = [replace(s.node, labels={**s.node.labels, "f": "x"}) for s in snap.nodes]
    nodes.append(node("there", gpu=9, labels={"f": "y", "only": "there"}))
    nodes.append(node("beside", gpu=2, labels={"f": "y", "only": "beside"}))
    nodes.append(node("behind", gpu=9, labels={"f": "y", "only": "behind"}))
    policy = Policy(preempt=Preempt.NEVER, reservations=1, max_wait=100.0)
    rows = row(flavor="x"), row(flavor="y", limit=10)
    runs = [
        running(gang(f"run-{n}", pod_set(1, 7), queue="root.b"), {n: 1}, flavor="y")
        for n in ("there", "behind")
    ]
    held = Reservation(
        uid="w2",
        assignments=(Assignment(pod_set="main", flavor="y", nodes={"there": 3}),),
        start=NOW - 1.0,
        expires=NOW + 1000.0,
    )
    jobs = [p.workload for p in snap.pending] + ([waits] if gpus else [])
    queues = [queue("root"), queue("root.a", *rows, policy=policy), queue("root.b")]
    plan = attempt(
        snapshot(nodes, queues, admitted=runs, pending=jobs, flavors=flavors, reservations=(held,))
    )
    assert plan.explanations["w2"].primary == LANDING
    assert [r.uid for r in plan.reservations] == keeps


def _alone_in(flavor: str) -> Reservation:
    """The place that the gang which is put off would have."""
    snap, uid = _doubled(), f"{flavor}-w2"
    alone = replace(snap, pending=tuple(p for p in snap.pending if p.workload.uid == uid))
    (started,) = attempt(alone).admissions
    return Reservation(uid=uid, assignments=started.assignments, start=NOW + 500.0, expires=NOW + 1000.0)


def _doubled(held: tuple[Reservation, ...] = ()) -> Snapshot:
    """A world in which a gang is put off, once in each of two flavors."""
    one, nodes, waiting = drawn(159), list[Node](), list[Workload]()
    for f in "xy":
        for state in one.nodes:
            labels = {**state.node.labels, "f": f, "rack": f + state.node.labels["rack"]}
            nodes.append(replace(state.node, name=f"{f}-{state.node.name}", labels=labels))
        terms = SchedulingTerms(node_selector={"f": f})
        for own in (p.workload for p in one.pending):
            sets = tuple(replace(pod_set, terms=terms) for pod_set in own.pod_sets)
            waiting.append(replace(own, uid=f"{f}-{own.uid}", name=f"{f}-{own.uid}", pod_sets=sets))
    flavors = tuple(Flavor(name=f, node_labels={"f": f}) for f in "xy")
    alone = queue("root.a", policy=Policy(preempt=Preempt.NEVER, reservations=1))
    return snapshot(nodes, [alone], pending=waiting, flavors=flavors, reservations=held)


def attempt(snap: Snapshot) -> Plan:
    """The first attempt at a plan: nobody has been told to keep off others yet."""
    given = Given(arrays=Arrays.of(snap), now=NOW, seed=0, budget=Budget(deterministic=0.0))
    first = Attempt(given, crowded={})
    return first.told(first.run()[0])
