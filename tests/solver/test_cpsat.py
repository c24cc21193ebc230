"""The exact solver finds arrangements that greedy misses, proves that there is none, and prefers what 3.4 prefers.

Each arrangement is judged by the verifier, as a plan.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

import pytest

from queuer.domain.queue import Policy, Preempt
from queuer.domain.reasons import Explanation, Reason, Token
from queuer.domain.workload import Workload
from queuer.solver.contested import (
    Arrangement,
    Clashes,
    Proof,
    Question,
    Settled,
    Standing,
    Unknown,
    Variant,
)
from queuer.solver.cpsat import CpSat
from queuer.solver.problem import (
    Admission,
    Assignment,
    Bond,
    CycleStats,
    Eviction,
    EvictionRule,
    Plan,
    Snapshot,
    SolveStatus,
)
from queuer.solver.verify import Violation, verify
from tests.solver.make import GPU, gang, node, pod_set, queue, row, running, snapshot

NOW = 0.0


def variant(workload: Workload, flavor: str = "default") -> Variant:
    return Variant(
        flavors={p.name: flavor for p in workload.pod_sets},
        counts={p.name: p.count for p in workload.pod_sets},
    )


def place(nodes: dict[str, int], name: str = "main") -> Assignment:
    return Assignment(pod_set=name, flavor="default", nodes=nodes)


def settled(
    snap: Snapshot, uid: str, *rows: Assignment, victims: Sequence[tuple[str, EvictionRule]] = ()
) -> Settled:
    pending = next(p for p in snap.pending if p.workload.uid == uid)
    gone = tuple(Eviction(uid=v, beneficiary=uid, rule=rule) for v, rule in victims)
    return Settled(
        pending=pending, variant=variant(pending.workload), assignments=rows, bound=bool(gone), victims=gone
    )


def question(
    snap: Snapshot,
    uid: str,
    *,
    before: Sequence[Settled] = (),
    standing: Sequence[Standing] = (),
    evict: bool = False,
    budget: float = 5.0,
    seed: int = 1,
) -> Question:
    pending = next(p for p in snap.pending if p.workload.uid == uid)
    return Question(
        snapshot=snap,
        now=NOW,
        seed=seed,
        settled=tuple(before),
        standing=tuple(standing),
        gang=pending,
        variants=(variant(pending.workload),),
        evict=evict,
        budget=budget,
    )


def judged(snap: Snapshot, found: Arrangement, *, bound: Sequence[str] = ()) -> tuple[Violation, ...]:
    """The arrangement as a plan before the verifier, each gang pinned to its hosts and in a wave of its own."""
    pinned = {
        uid: tuple(replace(r, hosts=tuple(sorted(r.nodes))) for r in rows)
        for uid, rows in found.assignments.items()
    }
    victims = {uid: tuple(e.uid for e in found.evictions if e.beneficiary == uid) for uid in bound}
    uids = [p.workload.uid for p in snap.pending]

    def why(uid: str) -> Explanation:
        token = Token.WAITING_FOR_PREEMPTED_WORKLOADS if uid in bound else Token.WAITING_FOR_QUOTA
        return Explanation(primary=Reason(token=token, text="It waits."))

    plan = Plan(
        admissions=tuple(
            Admission(uid=u, assignments=rows, wave=n)
            for n, (u, rows) in enumerate(pinned.items())
            if u not in bound
        ),
        evictions=found.evictions,
        bonds=tuple(Bond(uid=u, assignments=pinned[u], victims=victims[u], deadline=NOW + 60) for u in bound),
        reservations=(),
        explanations={u: why(u) for u in uids if u not in pinned or u in bound},
        order=tuple(uids),
        stats=CycleStats(status=SolveStatus.OPTIMAL),
    )
    return verify(snap, plan, now=NOW)


def test_earlier_gang_makes_room() -> None:
    """Two pods of 3 sit on the hosts of 8 and 6; two of 5 fit only if both of them share the host of 6."""
    snap = snapshot(
        [node("n1", gpu=8), node("n2", gpu=6), node("n3", gpu=7)],
        [queue("root.a")],
        pending=[gang("small", pod_set(2, 3)), gang("big", pod_set(2, 5), submitted=1.0)],
    )
    before = settled(snap, "small", place({"n1": 1, "n3": 1}))
    found = CpSat().settle(question(snap, "big", before=[before]))
    assert isinstance(found, Arrangement)
    assert set(found.assignments) == {"small", "big"}
    assert judged(snap, found) == ()


def test_proof_where_sums_suffice_and_slots_do_not() -> None:
    snap = snapshot(
        [node(f"n{i}", gpu=3) for i in range(4)], [queue("root.a")], pending=[gang("g", pod_set(1, 4))]
    )
    assert isinstance(CpSat().settle(question(snap, "g")), Proof)


def test_rack_by_rack_proof() -> None:
    nodes = [node(f"n{i}", labels={"block": "b", "rack": f"r{i // 2}"}) for i in range(4)]
    across = gang("g", pod_set(3, 8))
    snap = snapshot(nodes, [queue("root.a")], pending=[replace(across, required="rack")])
    assert isinstance(CpSat().settle(question(snap, "g")), Proof)
    snap = snapshot(nodes, [queue("root.a")], pending=[replace(across, required="block")])
    found = CpSat().settle(question(snap, "g"))
    assert isinstance(found, Arrangement)
    assert judged(snap, found) == ()


def test_exclusive_pods_go_to_different_hosts() -> None:
    nodes = [node("n1"), node("n2")]
    for count, kind in ((2, Arrangement), (3, Proof)):
        job = gang("g", pod_set(count, 1, exclusive_host=True))
        snap = snapshot(nodes, [queue("root.a")], pending=[job])
        assert isinstance(CpSat().settle(question(snap, "g")), kind)


def test_second_variant_where_the_first_has_no_place() -> None:
    job = gang("g", pod_set(3, 8))
    snap = snapshot([node("n1"), node("n2")], [queue("root.a")], pending=[job])
    smaller = Variant(flavors={"main": "default"}, counts={"main": 2})
    asked = question(snap, "g")
    found = CpSat().settle(replace(asked, variants=(*asked.variants, smaller)))
    assert isinstance(found, Arrangement)
    assert sum(r.count for r in found.assignments["g"]) == 2


def test_limit_that_only_quota_knows() -> None:
    snap = snapshot(
        [node("n1")],
        [queue("root.a", row(limit=3))],
        pending=[gang("g", pod_set(1, 4))],
    )
    assert isinstance(CpSat().settle(question(snap, "g")), Proof)


def test_no_time_is_no_answer() -> None:
    snap = snapshot([node("n1")], [queue("root.a")], pending=[gang("g", pod_set(1, 4))])
    assert isinstance(CpSat().settle(question(snap, "g", budget=0.0)), Unknown)


def full_of_low_work(*, sizes: Sequence[int], ages: Sequence[float], gpu: int = 8) -> Snapshot:
    """Each node full with one preemptible job of lower priority; a gang of one whole node waits."""
    low = [
        running(gang(f"v{i}", pod_set(1, size)), {f"n{i}": 1}, since=-age)
        for i, (size, age) in enumerate(zip(sizes, ages, strict=True))
    ]
    return snapshot(
        [node(f"n{i}", gpu=gpu) for i in range(len(sizes))],
        [queue("root.a")],
        admitted=low,
        pending=[gang("g", pod_set(1, gpu), priority=5)],
    )


def test_least_lost_work_is_evicted() -> None:
    snap = full_of_low_work(sizes=[8, 8, 4], ages=[900.0, 100.0, 5000.0])
    found = CpSat().settle(question(snap, "g", evict=True))
    assert isinstance(found, Arrangement)
    assert [e.uid for e in found.evictions] == ["v1"]
    assert judged(snap, found, bound=["g"]) == ()


def test_no_victims_no_place() -> None:
    snap = full_of_low_work(sizes=[8, 8], ages=[10.0, 10.0])
    equal = tuple(replace(p, workload=replace(p.workload, priority=0)) for p in snap.pending)
    assert isinstance(CpSat().settle(question(replace(snap, pending=equal), "g", evict=True)), Proof)


def borrowers(*, rows: tuple[int, int] = (8, 8), asks: int = 8) -> Snapshot:
    """b runs four jobs of 4 GPUs on two hosts, a is entitled to `asks` of its guarantee."""
    victims = [
        running(gang(f"v{i}", pod_set(1, 4), queue="root.b"), {f"n{i // 2}": 1}, since=-100.0 * (i + 1))
        for i in range(4)
    ]
    return snapshot(
        [node("n0"), node("n1")],
        [queue("root.a", row(guaranteed=rows[0])), queue("root.b", row(guaranteed=rows[1]))],
        admitted=victims,
        pending=[gang("g", pod_set(1, asks), queue="root.a")],
    )


def test_reclaim_takes_whole_hosts_and_stops_at_the_guarantee() -> None:
    snap = borrowers()
    found = CpSat().settle(question(snap, "g", evict=True))
    assert isinstance(found, Arrangement)
    assert {e.uid for e in found.evictions} == {"v0", "v1"}  # the younger pair of one host
    assert judged(snap, found, bound=["g"]) == ()


def test_reclaim_that_would_need_more_than_was_borrowed_is_refuted() -> None:
    snap = borrowers(rows=(8, 12))  # b is 4 above: the last victim may cross, a second may not
    assert isinstance(CpSat().settle(question(snap, "g", evict=True)), Proof)


def test_last_victim_may_cross_the_line() -> None:
    snap = borrowers(rows=(8, 11))  # b is 5 above: v0 leaves it 1 above, v1 crosses
    found = CpSat().settle(question(snap, "g", evict=True))
    assert isinstance(found, Arrangement)
    assert judged(snap, found, bound=["g"]) == ()


def test_what_is_not_lent_is_freed_by_victims() -> None:
    """c keeps 8 unlent; the limit of 16 on root.x then leaves 8: both jobs of b on a host must go."""
    victims = [running(gang(f"v{i}", pod_set(1, 4), queue="root.x.b"), {f"n{i}": 1}) for i in range(2)]
    queues = [
        queue("root.x", row(limit=16)),
        queue("root.x.a", row(guaranteed=8)),
        queue("root.x.b"),
        queue("root.x.c", row(guaranteed=8, lend=0)),
    ]
    snap = snapshot(
        [node(f"n{i}") for i in range(3)],
        queues,
        admitted=victims,
        pending=[gang("g", pod_set(1, 8), queue="root.x.a")],
    )
    assert isinstance(CpSat().settle(question(snap, "g")), Proof)
    found = CpSat().settle(question(snap, "g", evict=True))
    assert isinstance(found, Arrangement)
    assert {e.uid for e in found.evictions} == {"v0", "v1"}
    assert judged(snap, found, bound=["g"]) == ()


def test_inner_queue_bounds_what_its_children_lose() -> None:
    """Both children of b are far above their own guarantee, b itself by 4 only: one victim, not two."""
    victims = [
        running(gang(f"v{i}", pod_set(1, 4), queue=f"root.b.{'xy'[i % 2]}"), {"n0": 1}) for i in range(2)
    ]
    for wanted, kind in ((4, Arrangement), (8, Proof)):
        snap = snapshot(
            [node("n0")],
            [
                queue("root.a", row(guaranteed=8)),
                queue("root.b", row(guaranteed=4)),
                queue("root.b.x"),
                queue("root.b.y"),
            ],
            admitted=victims,
            pending=[gang("g", pod_set(1, wanted), queue="root.a")],
        )
        found = CpSat().settle(question(snap, "g", evict=True))
        assert isinstance(found, kind)
        if isinstance(found, Arrangement):
            assert len(found.evictions) == 1
            assert judged(snap, found, bound=["g"]) == ()


def test_standing_bond_is_not_touched() -> None:
    leaving = running(gang("v", pod_set(1, 8)), {"n0": 1}, releasing=True)
    jobs = [gang("held", pod_set(1, 8)), gang("g", pod_set(1, 8), submitted=1.0)]
    bond = Bond(uid="held", assignments=(place({"n1": 1}),), victims=("v",), deadline=60.0)
    snap = snapshot(
        [node("n0"), node("n1")], [queue("root.a")], admitted=[leaving], pending=jobs, bonds=(bond,)
    )
    standing = Standing(pending=snap.pending[0], assignments=bond.assignments, victims=("v",))
    assert isinstance(CpSat().settle(question(snap, "g", standing=[standing])), Proof)
    free = replace(snap, admitted=(), nodes=tuple(replace(s, used={}) for s in snap.nodes))
    found = CpSat().settle(question(free, "g", standing=[standing]))
    assert isinstance(found, Arrangement)
    assert dict(found.assignments["g"][0].nodes) == {"n0": 1}


def test_overfull_foreign_node_forces_nobody_out() -> None:
    snap = full_of_low_work(sizes=[8, 8], ages=[10.0, 20.0])
    crowded = tuple(replace(s, used={GPU: 12, "pods": 2}) if s.node.name == "n0" else s for s in snap.nodes)
    found = CpSat().settle(question(replace(snap, nodes=crowded), "g", evict=True))
    assert isinstance(found, Arrangement)
    assert [e.uid for e in found.evictions] == ["v1"]


def improve(snap: Snapshot, before: tuple[Settled, ...], *, clashes: Clashes = lambda _: ()) -> object:
    """What the solver makes of what is settled."""
    return CpSat().improve(
        snapshot=snap,
        now=NOW,
        seed=1,
        settled=before,
        standing=(),
        budget=5.0,
        clashes=clashes,
    )


def test_improve_narrows_and_packs() -> None:
    """Spread over two racks though one holds both; the half-full host is to be filled before a whole one."""
    nodes = [node(f"n{i}", labels={"block": "b", "rack": f"r{i // 2}"}) for i in range(4)]
    busy = running(gang("busy", pod_set(1, 4)), {"n0": 1})
    jobs = [
        replace(gang("pair", pod_set(2, 8)), preferred="rack"),
        gang("single", pod_set(1, 4), submitted=1.0),
    ]
    snap = snapshot(nodes, [queue("root.a")], admitted=[busy], pending=jobs)
    before = (
        settled(snap, "pair", place({"n1": 1, "n2": 1})),
        settled(snap, "single", place({"n3": 1})),
    )
    found = improve(snap, before)
    assert isinstance(found, Arrangement)
    assert found.proven
    assert dict(found.assignments["pair"][0].nodes) == {"n2": 1, "n3": 1}
    assert dict(found.assignments["single"][0].nodes) == {"n0": 1}
    assert judged(snap, found) == ()


def test_improve_takes_cheaper_victims_together() -> None:
    """Each gang alone took the youngest; together, one old pair and one young pair are exchanged."""
    root = queue("root", policy=Policy(preempt=Preempt.LOWER_PRIORITY))
    ages = [50.0, 900.0, 60.0, 70.0]
    low = [running(gang(f"v{i}", pod_set(1, 8)), {f"n{i}": 1}, since=-age) for i, age in enumerate(ages)]
    jobs = [gang(f"g{i}", pod_set(1, 8), priority=5, submitted=float(i)) for i in range(2)]
    snap = snapshot([node(f"n{i}") for i in range(4)], [root, queue("root.a")], admitted=low, pending=jobs)
    before = (
        settled(snap, "g0", place({"n1": 1}), victims=[("v1", EvictionRule.PREEMPT)]),
        settled(snap, "g1", place({"n3": 1}), victims=[("v3", EvictionRule.PREEMPT)]),
    )
    found = improve(snap, before)
    assert isinstance(found, Arrangement)
    assert {e.uid for e in found.evictions} == {"v0", "v2"}
    assert judged(snap, found, bound=["g0", "g1"]) == ()


def test_improve_counts_only_what_lands() -> None:
    """The cheapest victims leave places in which the two could not land, in whatever way they share them."""
    root = queue("root", policy=Policy(preempt=Preempt.LOWER_PRIORITY))
    low = [running(gang(f"v{i}", pod_set(1, 8)), {f"n{i}": 1}, since=-10.0 * (i + 1)) for i in range(4)]
    jobs = [gang(f"g{i}", pod_set(1, 8), priority=5, submitted=float(i)) for i in range(2)]
    snap = snapshot([node(f"n{i}") for i in range(4)], [root, queue("root.a")], admitted=low, pending=jobs)
    before = tuple(
        settled(snap, f"g{i}", place({f"n{i + 2}": 1}), victims=[(f"v{i + 2}", EvictionRule.PREEMPT)])
        for i in range(2)
    )

    def clashes(made: Arrangement) -> set[str]:
        hosts = {name for rows in made.assignments.values() for row in rows for name in row.nodes}
        return {"g0", "g1"} if hosts == {"n0", "n1"} else set()

    found = improve(snap, before, clashes=clashes)
    assert isinstance(found, Arrangement)
    assert found.proven
    assert {e.uid for e in found.evictions} == {"v0", "v2"}


def test_same_question_same_answer() -> None:
    snap = borrowers()
    first, second = (CpSat().settle(question(snap, "g", evict=True)) for _ in range(2))
    assert first == second


def crowd(*, nodes: int, reclaimable: Sequence[tuple[int, int]]) -> Snapshot:
    """Nodes of 8 full of one-GPU jobs; those of b at (node, how many) may be reclaimed, the rest may not."""
    free = dict(reclaimable)
    admitted = []
    for n in range(nodes):
        for i in range(8):
            loose = i < free.get(n, 0)
            job = gang(f"j{n}-{i}", pod_set(1, 1), queue="root.b", preemptible=loose)
            admitted.append(running(job, {f"n{n}": 1}, since=-100.0 - n - i))
    return snapshot(
        [node(f"n{n}") for n in range(nodes)],
        [queue("root.a", row(guaranteed=80)), queue("root.b")],
        admitted=admitted,
        pending=[gang("g", pod_set(10, 8), queue="root.a")],
    )


@pytest.mark.parametrize(
    "reclaimable",
    [
        [(n, 8) for n in range(9)] + [(9, 7)],  # 79 in all: one GPU short
        [(n, 8) for n in range(9)] + [(n, 7) for n in range(9, 60)],  # 429 in all, yet only nine whole nodes
    ],
    ids=["sums", "slots"],
)
def test_large_full_cluster_is_refuted_at_once(reclaimable: list[tuple[int, int]]) -> None:
    snap = crowd(nodes=500, reclaimable=reclaimable)
    before = time.monotonic()
    assert isinstance(CpSat().settle(question(snap, "g", evict=True)), Proof)
    assert time.monotonic() - before < 3.0  # under 1 s on an idle machine


def test_ten_nodes_that_can_be_emptied_are_found() -> None:
    snap = crowd(nodes=100, reclaimable=[(n, 8) for n in range(10)] + [(n, 7) for n in range(10, 60)])
    found = CpSat().settle(question(snap, "g", evict=True))
    assert isinstance(found, Arrangement)
    assert len(found.evictions) == 80
    assert judged(snap, found, bound=["g"]) == ()
