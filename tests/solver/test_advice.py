"""Each offer to a waiting gang is taken at its word: the same cycle is decided anew with the change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random

import pytest

from queuer.domain.quantity import add
from queuer.domain.queue import Order, Policy, Preempt, Queue, QueueTree, QuotaRow
from queuer.domain.reasons import ChangeKind, JobChange, Limit
from queuer.domain.workload import Workload
from queuer.solver.after_cycle import AfterCycle
from queuer.solver.job_detail import explain
from queuer.solver.records import Pending, Plan, Snapshot
from tests.solver.make import decided, gang, node, pod_set, queue, row, running, snapshot, started
from tests.solver.worlds import NOW
from tests.solver.worlds import world as drawn

TWO = (queue("root.a"), queue("root.b"))
RACKS = [node(f"n{i}", gpu=4, labels={"block": "b", "rack": f"r{i // 2}"}) for i in range(4)]


def offers(snap: Snapshot, uid: str = "g") -> list[str]:
    """Changes that would admit it, each of which does, made after this cycle."""
    after = AfterCycle(snap, decided(snap), now=0.0, seed=0)
    found = offered(after, uid)
    for offer in found:
        assert kept(decided(changed(after.snapshot, uid, offer)), uid, offer.evictions), offer
    return [offer.text for offer in found]


def offered(after: AfterCycle, uid: str) -> Sequence[JobChange]:
    """The changes that its explanation offers."""
    found = explain(after, uid)
    assert found is not None
    return found.would_admit


def kept(plan: Plan, uid: str, evictions: int) -> bool:
    """Whether the gang starts in the plan, or as soon as those are gone who are evicted for it."""
    if evictions == 0:
        return uid in started(plan)
    return any(bond.uid == uid for bond in plan.bonds)


def changed(snap: Snapshot, uid: str, change: JobChange) -> Snapshot:
    """The snapshot with the change carried out."""
    if change.kind is ChangeKind.END:
        ends = change.job["workload"]
        bound = {n: r for a in snap.admitted if a.workload.uid == ends for n, r in a.bound.items()}
        nodes = tuple(replace(s, used=add(s.used, bound.get(s.node.name, {}), times=-1)) for s in snap.nodes)
        admitted = tuple(a for a in snap.admitted if a.workload.uid != ends)
        waiting = tuple(
            p for p in snap.pending if p.workload.uid != ends
        )  # it may have started in this cycle
        return replace(snap, nodes=nodes, admitted=admitted, pending=waiting)
    if change.kind is ChangeKind.LIMITS:
        return replace(snap, tree=grown(snap.tree, change.limits))
    rows = {p.workload.uid: p for p in snap.pending}
    rows[uid] = replace(rows[uid], workload=edited(rows[uid].workload, change))
    return replace(snap, pending=tuple(rows.values()))


def edited(workload: Workload, change: JobChange) -> Workload:
    """The workload as the change would have it."""
    if change.kind is ChangeKind.PREEMPTIBLE:
        return replace(workload, preemptible=True)
    if change.kind is ChangeKind.LEVEL:
        return replace(workload, required=change.level)
    sets = {p.name: p for p in workload.pod_sets}
    sets[change.pod_set] = replace(sets[change.pod_set], count=change.count, min_count=None)
    return replace(workload, pod_sets=tuple(sets.values()))


def grown(tree: QueueTree, limits: Sequence[Limit]) -> QueueTree:
    """The tree with these limits."""
    queues = dict(tree.queues)
    for least in limits:
        rows = {(r.flavor, r.resource): r for r in queues[least.queue].quota}
        key = (least.flavor, least.resource)
        known = rows.get(key, QuotaRow(resource=least.resource, flavor=least.flavor))
        rows[key] = replace(known, limit=least.amount)
        queues[least.queue] = replace(queues[least.queue], quota=tuple(rows.values()))
    return QueueTree.of(queues.values())


def test_a_wider_level_fewer_pods_or_the_end_of_who_is_there() -> None:
    full = [running(gang(f"w{i}", pod_set(4, 1), queue="root.b"), {f"n{i}": 4}) for i in (0, 2)]
    snap = snapshot(RACKS, TWO, admitted=full, pending=[gang("g", pod_set(6, 1), required="rack")])
    assert offers(snap) == ["all pods in one block", "at most 4 pods in main", "test/w0 ends"]


def test_what_not_even_an_idle_cluster_holds_is_offered_changes_too() -> None:
    snap = snapshot(RACKS, TWO, pending=[gang("g", pod_set(3, 4), required="rack")])
    assert offers(snap) == ["all pods in one block", "at most 2 pods in main"]


@pytest.mark.parametrize(
    ("queues", "found"),
    [
        (
            (queue("root.a", row(limit=5)),),
            ["at most 2 pods in main", "a limit of 6 gpu in root.a", "test/r ends"],
        ),
        (
            (queue("root.p", row(limit=4)), queue("root.p.a", row(limit=5))),
            [
                "at most 1 pod in main",
                "a limit of 6 gpu in root.p.a and a limit of 6 gpu in root.p",
                "test/r ends",
            ],
        ),
    ],
)
def test_a_higher_limit(queues: Sequence[Queue], found: list[str]) -> None:
    path = queues[-1].path
    runs = running(gang("r", pod_set(1, 3), queue=path), {"n0": 1})
    snap = snapshot(
        [node("n0")], queues, admitted=[runs], pending=[gang("g", pod_set(3, 1, min_count=3), queue=path)]
    )
    assert set(offers(snap)) == set(found)


@pytest.mark.parametrize(
    ("queues", "found"),
    [
        (
            (queue("root.a", row(guaranteed=4, limit=7)),),
            ["at most 2 pods in main", "being preemptible", "test/r ends"],
        ),
        ((queue("root.a"),), ["being preemptible"]),
        ((queue("root.a", row(guaranteed=2, limit=4)),), []),
    ],
)
def test_work_that_is_not_preemptible(queues: Sequence[Queue], found: list[str]) -> None:
    runs, waits = running(gang("r", pod_set(2, 1)), {"n0": 2}), gang("g", pod_set(3, 1), preemptible=False)
    assert offers(snapshot([node("n0")], queues, admitted=[runs], pending=[waits])) == found


def test_what_others_before_it_would_have_first_is_not_offered() -> None:
    """A limit raised by 4 is `first`'s, as would be what `r` leaves. Nor is anything offered behind a strict head."""
    runs, waits = running(gang("r", pod_set(1, 4)), {"n0": 1}), gang("g", pod_set(1, 4), submitted=1.0)
    for order in (Order.PRIORITY, Order.STRICT):
        queues = [queue("root.a", row(limit=4), policy=Policy(order=order))]
        first = gang("first", pod_set(1, 4))
        snap = snapshot([node("n0", gpu=16)], queues, admitted=[runs], pending=[first, waits])
        assert offers(snap) == []
        assert offers(snap, "first") == ["a limit of 8 gpu in root.a", "test/r ends"]


def world(seed: int) -> Snapshot:
    """Racks in part full, queues with limits and guarantees, gangs of all kinds."""
    rng = Random(seed)
    free = dict.fromkeys((n.node.name for n in snapshot(RACKS, TWO).nodes), 4)
    admitted, waiting = [], list[Pending]()
    for i in range(rng.randint(2, 5)):
        host, size = rng.choice(sorted(free)), rng.randint(1, 3)
        if free[host] >= size:
            free[host] -= size
            job = gang(
                f"r{i}", pod_set(1, size), queue=f"root.{rng.choice('ab')}", preemptible=rng.random() < 0.5
            )
            admitted.append(running(job, {host: 1}))
    for i in range(rng.randint(2, 6)):
        sets = [pod_set(rng.randint(1, 6), rng.randint(1, 3))]
        if rng.random() < 0.3:
            sets.append(pod_set(1, 1, name="leader"))
        waits = gang(
            f"g{i}",
            *sets,
            queue=f"root.{rng.choice('ab')}",
            submitted=float(i),
            required=rng.choice([None, None, "rack", "host"]),
            preemptible=rng.random() < 0.7,
        )
        waiting.append(Pending(workload=waits))
    policy = Policy(preempt=Preempt.NEVER)
    queues = [
        queue(f"root.{name}", row(guaranteed=(g := rng.randint(0, 6)), limit=g + rng.randint(0, 8)))
        for name in "ab"
    ]
    return snapshot(RACKS, [queue("root", policy=policy), *queues], admitted=admitted, pending=waiting)


def test_who_takes_an_offer_starts() -> None:
    """In worlds of all kinds."""
    worlds = [world(seed) for seed in range(40)]
    taken = [c for snap in worlds for uid in decided(snap).explanations for c in offers(snap, uid)]
    for kind in ("at most ", "preemptible", " limit ", " ends"):
        assert sum(kind in change for change in taken) > 2, kind


def test_a_hundred_offers_are_kept_on_the_cluster_as_the_cycle_left_it() -> None:
    """In worlds with everything that a decision must cope with: landing gangs, bonds, foreign pods, flavors."""
    found = list[tuple[int, bool]]()
    for seed in range(90):
        snap = drawn(seed)
        plan = decided(snap, now=NOW)
        after = AfterCycle(snap, plan, now=NOW, seed=0)
        for uid in plan.explanations:
            for offer in offered(after, uid):
                plan = decided(changed(after.snapshot, uid, offer), now=NOW)
                found.append((offer.evictions, kept(plan, uid, offer.evictions)))
    assert len(found) >= 100
    assert any(evictions for evictions, _ in found)
    assert all(starts for _, starts in found)
