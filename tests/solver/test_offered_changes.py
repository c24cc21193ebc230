"""What is offered to a waiting gang is taken at its word: the same cycle is decided anew with the change."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from queuer.domain.quantity import add
from queuer.domain.queue import Policy, Preempt, Queue
from queuer.domain.reasons import Explanation, Token
from queuer.domain.workload import PodSet
from queuer.solver.decide import decide
from queuer.solver.explain.explainer import Explainer
from queuer.solver.order import Gang
from queuer.solver.problem import Admitted, Assignment, Bond, Budget, Pending, Plan, Reservation, Snapshot
from tests.solver import worlds
from tests.solver.cases import NOW, seeded
from tests.solver.cases_reserved import reserving
from tests.solver.changes import changed, changed_tree
from tests.solver.cycles import Life
from tests.solver.make import GPU, gang, node, pod_set, queue, row, running, snapshot
from tests.solver.told import told

GREEDY, EXACT = Budget(deterministic=0.0), Budget(deterministic=0.5)


def offered(snap: Snapshot, *, now: float) -> Iterator[tuple[Pending, str]]:
    """Every change offered in this cycle."""
    yield from told_in(snap, decide(snap, now=now, seed=0, budget=GREEDY))


def told_in(snap: Snapshot, plan: Plan) -> Iterator[tuple[Pending, str]]:
    """Every change offered by a plan."""
    told = plan.explanations
    for pending in snap.pending:
        if pending.workload.uid in told:
            for change in told[pending.workload.uid].would_admit:
                yield pending, change["change"]


def starts(snap: Snapshot, pending: Pending, change: str, *, now: float, budget: Budget = GREEDY) -> bool:
    """Whether it starts when the cycle is decided with the change."""
    new = replace(pending, workload=changed(pending.workload, change))
    others = tuple(new if one is pending else one for one in snap.pending)
    snap = replace(snap, tree=changed_tree(snap.tree, change), pending=others)
    return pending.workload.uid in {a.uid for a in decide(snap, now=now, seed=0, budget=budget).admissions}


def test_who_takes_an_offer_starts() -> None:
    """Quota, levels, sizes and whether it is preemptible; with victims, bonds and reservations about."""
    tried = Counter[str]()
    for seed in [*range(20), 273, 348, 525, 527, 536, 592, 596, 679]:
        mixed = worlds.world(seed, nodes=16, pending=16, running=16)
        for snap, now in ((mixed, worlds.NOW), (seeded(seed), NOW), (reserving(seed), NOW)):
            for pending, change in offered(snap, now=now):
                assert starts(snap, pending, change, now=now), (seed, pending.workload.uid, change)
                tried[change.partition("=")[0].split(" ")[-1].rstrip("<>")] += 1
    assert tried["preemptible"] > 5
    assert tried[GPU] > 2


@pytest.mark.parametrize("seed", [*range(6), 92, 110, 134, 135, 157, 202, 326, 413, 486, 517, 534, 576])
def test_who_takes_an_offer_starts_where_reservations_and_bonds_stand(seed: int) -> None:
    """Changed, their owner has them no more or elsewhere, and others before it may have what was kept from them. What
    greedy lays out with the gang as it was, the exact solver does with it changed.
    """
    life = Life(Random(seed), seeded(seed))
    for number in range(12):
        now = life.now
        snap, plan = life.cycle(GREEDY)
        for pending, change in told_in(snap, plan):
            taken = any(starts(snap, pending, change, now=now, budget=b) for b in (GREEDY, Budget()))
            assert taken, (seed, number, pending.workload.uid, change)


def drawn(kind: str, seed: int) -> Snapshot:
    """The world of a seed."""
    if kind == "small":
        return seeded(seed)
    mixed = worlds.world(seed, nodes=12, pending=14, running=12)
    return worlds.packed(mixed, seed) if kind == "packed" else mixed


@pytest.mark.parametrize(
    ("kind", "seed", "cycles", "budget"),
    [
        ("small", 10035, 11, EXACT),  # who was kept off its reservation evicts
        ("small", 10199, 4, GREEDY),  # who was kept off its reservation gets one
        ("mixed", 20067, 4, EXACT),  # who has started beside its reservation starts elsewhere
        ("small", 10110, 12, EXACT),  # a reservation that has ended bound it, and not one that is like it
        ("small", 10134, 2, EXACT),  # others keep off each other as they land, and so would it
        ("small", 10499, 11, GREEDY),  # it grows, and does not land at the larger size
        ("small", 10522, 3, GREEDY),  # with a larger guarantee another of its queue grows
        ("packed", 62034, 4, EXACT),  # with a larger guarantee another of its queue is selected
    ],
)
def test_what_others_would_have_first_is_not_offered(
    kind: str, seed: int, cycles: int, budget: Budget
) -> None:
    """What comes before its turn may be otherwise when the gang is."""
    life = Life(Random(seed), drawn(kind, seed))
    for number in range(cycles):
        now = life.now
        snap, plan = life.cycle(budget)
        for pending, change in told_in(snap, plan):
            assert starts(snap, pending, change, now=now, budget=budget), (
                number,
                pending.workload.uid,
                change,
            )


def test_owners_of_standing_reservations_are_offered_changes_too() -> None:
    """Where nobody before it was refused for what is held for it."""
    busy = running(gang("long", pod_set(1, 4)), {"n0": 1}, expected_end=600.0)
    job = gang("g", pod_set(2, 4))
    snap = snapshot([node("n0", gpu=4), node("n1", gpu=4)], [queue("root.a")], admitted=[busy], pending=[job])
    held = decide(snap, now=0.0, seed=0, budget=GREEDY).reservations
    assert [one.uid for one in held] == ["g"]
    again = replace(snap, reservations=held)
    assert [change for _, change in offered(again, now=30.0)] == ["main.count<=1"]


def test_only_the_first_of_its_queue_is_offered_a_guarantee() -> None:
    """Another before it would have it first. Nor is one offered that the queue's own limit refuses."""

    def guarantees(limit: int) -> list[tuple[str, str]]:
        rows = row(guaranteed=2, limit=limit)
        queues = [queue("root", policy=Policy(preempt=Preempt.NEVER)), queue("root.a", rows)]
        jobs = [gang(uid, pod_set(1, 4), submitted=at, preemptible=False) for at, uid in enumerate("gh")]
        snap = snapshot([node("n0", gpu=6)], queues, pending=jobs)
        found = offered(snap, now=0.0)
        return [(p.workload.uid, change) for p, change in found if " guaranteed " in change]

    assert guarantees(6) == [("g", f"root.a guaranteed {GPU}>=4")]
    assert guarantees(3) == []


def test_who_is_bound_already_stands_before_nobody() -> None:
    """Its place and its quota are held; what is offered to the one behind it is no less."""
    queues = [
        queue("root", policy=Policy(preempt=Preempt.NEVER)),
        queue("root.a", row(guaranteed=2, limit=40)),
    ]
    leaving = running(gang("v", pod_set(1, 8), queue="root.b"), {"n1": 1}, releasing=True)
    jobs = [gang("g", pod_set(1, 8)), gang("h", pod_set(1, 4), submitted=1.0, preemptible=False)]
    bond = Bond(
        uid="g",
        assignments=(Assignment(pod_set="main", flavor="default", nodes={"n1": 1}),),
        victims=("v",),
        deadline=100.0,
    )
    snap = snapshot(
        [node("n0", gpu=6), node("n1", gpu=8)],
        [*queues, queue("root.b")],
        admitted=[leaving],
        pending=jobs,
        bonds=(bond,),
    )
    found = dict.fromkeys(change for _, change in offered(snap, now=0.0))
    assert list(found) == ["preemptible=true", f"root.a guaranteed {GPU}>=12"]
    assert all(starts(snap, snap.pending[1], change, now=0.0) for change in found)


def test_its_own_reservation_keeps_no_guarantee_from_a_gang() -> None:
    """Its guarantee was larger when it got that."""
    queues = [queue("root", policy=Policy(preempt=Preempt.NEVER)), queue("root.a", row(guaranteed=2))]
    busy = running(gang("long", pod_set(1, 4)), {"n0": 1}, expected_end=600.0)
    job = gang("g", pod_set(1, 4), preemptible=False)
    there = (Assignment(pod_set="main", flavor="default", nodes={"n0": 1}),)
    kept = Reservation(uid="g", assignments=there, start=600.0, expires=1200.0)
    nodes = [node("n0", gpu=4), node("n1", gpu=4)]
    snap = snapshot(nodes, queues, admitted=[busy], pending=[job], reservations=(kept,))
    found = [change for _, change in offered(snap, now=30.0)]
    assert f"root.a guaranteed {GPU}>=8" in found
    assert all(starts(snap, snap.pending[0], change, now=30.0) for change in found)


def test_alike_gangs_outside_their_guarantee_share_one_explanation(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever of their queue starts between them: they may reclaim nothing."""
    made, explain = list[str](), Explainer._explain

    def counted(self: Explainer, gang: Gang, *refused: Any, **said: Any) -> Explanation:
        made.append(gang.uid)
        return explain(self, gang, *refused, **said)

    monkeypatch.setattr(Explainer, "_explain", counted)
    large = [gang(f"a{i}", pod_set(2, 5), submitted=2.0 * i, required="rack") for i in range(6)]
    small = [gang(f"b{i}", pod_set(1, 1), submitted=2.0 * i + 1) for i in range(6)]
    snap = snapshot(
        [node(f"n{i}", labels={"block": "b", "rack": f"r{i}"}) for i in range(6)],
        [queue("root.a", row(guaranteed=1)), queue("root.b")],
        admitted=[running(gang(f"r{i}", pod_set(1, 3), queue="root.b"), {f"n{i}": 1}) for i in range(6)],
        pending=[*large, *small],
    )
    plan = decide(snap, now=20.0, seed=0, budget=GREEDY)
    assert plan.explanations.keys() == {one.uid for one in large}
    assert len(made) == 1


# Changes for gangs of each kind


def test_fewer_pods_are_tried_where_a_row_of_quota_is_in_the_way() -> None:
    """2 of the 5 that a may use are left."""
    runs = running(gang("r", pod_set(1, 3)), {"n1": 1})
    found = told(
        snapshot(
            [node("n1")], [queue("root.a", row(limit=5))], admitted=[runs], pending=[gang("g", pod_set(3, 1))]
        )
    )
    assert found.primary.token is Token.WAITING_FOR_QUOTA
    assert [advice["change"] for advice in found.would_admit] == ["main.count<=2"]


def carried_out(snap: Snapshot, plan: Plan) -> Snapshot:
    """The snapshot once all that the plan starts runs where it was planned, and its victims are on their way out."""
    workloads = {p.workload.uid: p.workload for p in snap.pending}
    leaving = {e.uid for e in plan.evictions}
    admitted = [replace(a, releasing=a.releasing or a.workload.uid in leaving) for a in snap.admitted]
    used: dict[str, Mapping[str, int]] = {s.node.name: s.used for s in snap.nodes}
    for one in plan.admissions:
        sets = {p.name: p for p in workloads[one.uid].pod_sets}
        bound: dict[str, Mapping[str, int]] = {}
        for part in one.assignments:
            for name, count in part.nodes.items():
                asked = add({}, sets[part.pod_set].requests, times=count)
                bound[name], used[name] = add(bound.get(name, {}), asked), add(used[name], asked)
        admitted.append(
            Admitted(
                workload=workloads[one.uid],
                counts={part.pod_set: part.count for part in one.assignments},
                flavors={part.pod_set: part.flavor for part in one.assignments},
                since=NOW,
                bound=bound,
            )
        )
    return replace(
        snap,
        nodes=tuple(replace(s, used=used[s.node.name]) for s in snap.nodes),
        admitted=tuple(admitted),
        bonds=plan.bonds,
        reservations=plan.reservations,
    )


def test_a_change_that_would_admit_it_does() -> None:
    tried = Counter[str]()
    for seed in range(300):
        snap = seeded(seed)
        plan = decide(snap, now=NOW, seed=0, budget=GREEDY)
        after = carried_out(snap, plan)
        kept = {b.uid for b in plan.bonds} | {r.uid for r in plan.reservations}
        for pending in snap.pending:
            explanation = plan.explanations.get(pending.workload.uid)
            for change in explanation.would_admit if explanation else ():
                others = tuple(p for p in snap.pending if p.workload.uid in kept and p is not pending)
                again = replace(
                    after,
                    tree=changed_tree(after.tree, change["change"]),
                    pending=(*others, replace(pending, workload=changed(pending.workload, change["change"]))),
                )
                starts = {a.uid for a in decide(again, now=NOW, seed=0, budget=GREEDY).admissions}
                assert pending.workload.uid in starts, (seed, pending.workload.uid, change)
                tried[change["change"].partition("=")[0].split(" ")[-1].rstrip("<>")] += 1
    assert tried.total() >= 20
    assert min(tried["preemptible"], tried[GPU]) > 0


def test_a_change_with_a_place_in_which_it_may_not_land_is_not_offered() -> None:
    """Three of the pods of g have a place beside e, but on e's hosts, and whoever goes first may take what the other
    needs. With fewer, decided with all others anew, it starts.
    """
    nodes = [node(f"n{i}", labels={"rack": "r"}) for i in (1, 2, 3)]
    used = [
        running(gang(f"r{i}", pod_set(1, gpus), queue="root.b"), {f"n{i}": 1})
        for i, gpus in ((1, 1), (2, 3), (3, 4))
    ]
    before, waits = gang("e", pod_set(3, 3), queue="root.b", priority=5), gang("g", pod_set(8, 2))
    queues = [queue("root.a"), queue("root.b")]
    snap = snapshot(nodes, queues, admitted=used, pending=[before, waits])
    assert [advice["change"] for advice in told(snap).would_admit] == ["main.count<=2"]
    again = snapshot(nodes, queues, admitted=used, pending=[before, changed(waits, "main.count<=2")])
    assert "g" in {a.uid for a in decide(again, now=NOW, seed=0, budget=GREEDY).admissions}


def test_what_would_admit_work_that_is_not_preemptible() -> None:
    """The guarantee that it would take is named where the queue above can grant it."""
    waits = gang("g", pod_set(3, 1), preemptible=False)
    runs = running(gang("r", pod_set(2, 1)), {"n0": 2})

    def changes(*queues: Queue) -> list[str]:
        return [
            advice["change"]
            for advice in told(snapshot([node("n0")], queues, admitted=[runs], pending=[waits])).would_admit
        ]

    own = queue("root.a", row(guaranteed=4, limit=7))
    assert changes(own) == ["main.count<=2", "preemptible=true", f"root.a guaranteed {GPU}>=5"]
    assert changes(queue("root", row(guaranteed=4)), own) == ["main.count<=2", "preemptible=true"]
    assert changes(queue("root.a")) == ["preemptible=true", f"root.a guaranteed {GPU}>=5"]
    assert changes(queue("root.a", row(guaranteed=2, limit=4))) == []


def test_work_that_asks_for_no_resource_has_no_guarantee_to_take() -> None:
    """It stopped the decision for everyone."""
    for asked, offered in (({}, []), ({GPU: 0}, []), ({"pods": 1}, ["root.a guaranteed pods>=1"])):
        waits = gang("g", PodSet(name="main", count=1, requests=asked), preemptible=False)
        why = told(snapshot([node("n0")], [queue("root.a", row(guaranteed=4))], pending=[waits]))
        assert why.primary.text.endswith("this job asks for pods alone; root.a is guaranteed none of that.")
        assert [advice["change"] for advice in why.would_admit] == ["preemptible=true", *offered]
