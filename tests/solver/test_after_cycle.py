"""Answers about queues on a stored cycle agree with the decision itself: the line, the probe, the shares."""

from __future__ import annotations

from dataclasses import replace

import pytest

from queuer.domain.queue import Order, Policy
from queuer.solver.after_cycle import AfterCycle
from queuer.solver.decide import decide
from queuer.solver.headroom import Cap, headroom
from queuer.solver.records import Budget, Pending, Snapshot
from queuer.solver.shares import deficits, factors, pairs, shares
from tests.solver.make import GPU, gang, node, pod_set, queue, row, running, snapshot
from tests.solver.worlds import NOW, world

GREEDY = Budget(deterministic=0.0)
SEEDS = range(40)


def after(snap: Snapshot, *, now: float = NOW) -> AfterCycle:
    return AfterCycle(snap, decide(snap, now=now, seed=0, budget=GREEDY), now=now, seed=0)


def starts(
    there: AfterCycle, pods: int, leaf: str, requests: dict[str, int], required: str | None, flavor: str
) -> bool:
    """Whether a job of exactly so many pods would start, beside those that something is held for, or who are ahead."""
    made = replace(pod_set(pods, 1), requests=requests)
    nodes = there.state.nodes
    elsewhere = frozenset(
        name for name, of in zip(nodes.names, nodes.in_flavor[flavor], strict=True) if not of
    )
    probe = gang("exact", made, queue=leaf, required=required, submitted=NOW + 1)
    exact = Pending(workload=probe, avoid=elsewhere)
    strict = there.state.book.tree.policy(leaf).order is Order.STRICT
    ahead = [p for p in there.pending.values() if strict and p.workload.queue == leaf]
    arrays = there.arrays_with(*ahead, exact)
    plan = decide(arrays.snapshot, now=NOW, seed=0, budget=GREEDY)
    return any(admission.uid == "exact" for admission in plan.admissions)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_probe_gets_what_a_real_job_would_and_no_pod_more(seed: int) -> None:
    there = after(world(seed))
    state = there.state
    lands = any(why.primary.params.get("landing") for why in there.plan.explanations.values())
    for leaf in state.book.tree.leaves:
        for gpus in (1, 4):
            pod = {GPU: gpus, "pods": 1}
            for flavor in state.nodes.flavors:
                found = headroom(there, leaf, pod, flavor=flavor)
                assert found.pods * gpus <= found.free[GPU]
                for level, pods in ((None, found.pods), *found.levels.items()):
                    assert pods <= found.pods
                    assert pods == 0 or starts(there, pods, leaf, pod, level, flavor)
                    # A place that is kept while others land is not seen by this real job.
                    assert lands or not starts(there, pods + 1, leaf, pod, level, flavor)


@pytest.mark.parametrize(
    ("limit", "gpus", "pods", "cap", "ancestor"),
    [(None, 3, 4, Cap.CAPACITY, None), (5, 1, 5, Cap.LIMIT, "root.a"), (5, 3, 1, Cap.LIMIT, "root.a")],
)
def test_what_keeps_it_from_more_is_named(
    limit: int | None, gpus: int, pods: int, cap: Cap, ancestor: str | None
) -> None:
    snap = snapshot([node("n1"), node("n2")], [queue("root.a", row(limit=limit))])
    found = headroom(after(snap), "root.a", {GPU: gpus}, flavor="default")
    assert (found.pods, found.cap, found.ancestor) == (pods, cap, ancestor)


@pytest.mark.parametrize("free", [1, 0])
def test_a_limit_that_is_exceeded_is_the_cap_on_a_full_cluster_too(free: int) -> None:
    """Guards against "free capacity is the cap" in a queue that is over its limit."""
    nodes, pods = [node(f"n{i}") for i in range(2 + free)], {"n0": 1, "n1": 1}
    over = running(gang("over", pod_set(2, 8)), pods)
    found = headroom(
        after(snapshot(nodes, [queue("root.a", row(limit=8))], admitted=[over])),
        "root.a",
        {GPU: 8},
        flavor="default",
    )
    assert (found.pods, found.cap, found.ancestor) == (0, Cap.LIMIT, "root.a")


def test_what_the_last_plan_started_is_no_room_any_more() -> None:
    snap = snapshot([node("n1")], [queue("root.a")], pending=[gang("u1", pod_set(1, 6))])
    found = headroom(after(snap), "root.a", {GPU: 1}, flavor="default")
    assert (found.pods, found.free[GPU], found.cap) == (2, 2, Cap.CAPACITY)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_line_is_the_order_of_the_next_turns(seed: int) -> None:
    """The next decision on the same cluster gives turns in this order, until somebody starts."""
    there = after(world(seed))
    line = [g.uid for g in there.line]
    assert sorted(line) == sorted(there.state.arrays.waiting.gangs)
    plan = decide(there.state.snapshot, now=NOW, seed=0, budget=GREEDY)
    if plan.admissions or plan.bonds or plan.reservations:
        return
    had = list(plan.order[: plan.stats.turns])
    assert had == [uid for uid in line if uid in had]


def test_a_strict_queue_has_a_line_behind_its_refused_head() -> None:
    waiting = [gang(f"u{n}", pod_set(n, 8), submitted=-n) for n in (1, 2, 3)]
    snap = snapshot(
        [node("n1", gpu=4)], [queue("root.a", policy=Policy(order=Order.STRICT))], pending=waiting
    )
    there = after(snap)
    assert [g.uid for g in there.line] == ["u3", "u2", "u1"]
    found = headroom(there, "root.a", {GPU: 1}, flavor="default")
    assert (found.pods, found.cap) == (0, Cap.LINE)


@pytest.mark.parametrize("seed", SEEDS)
def test_factors_make_the_share_that_the_order_uses(seed: int) -> None:
    there = after(world(seed))
    usage, past = there.state.claimed, there.state.past
    for found in shares(there):
        assert found.now.share == pytest.approx(usage.share(found.path, {}))
        assert found.now.score == found.now.share + past.get(found.path, 0.0)
        if found.offered is not None:
            charge = there.first[found.path].shape.charges[0]
            again = factors(usage, found.path, charge, past=found.offered.past)
            assert found.offered == again
            assert again.share == pytest.approx(usage.share(found.path, charge))


@pytest.mark.parametrize("seed", SEEDS)
def test_pairs_sum_to_the_deficits_and_nobody_gives_more_than_it_borrows(seed: int) -> None:
    there = after(world(seed))
    lacking, state = deficits(there), there.state
    found = pairs(there, lacking)
    for (starved, resource), amount in lacking.items():
        assert sum(p.amount for p in found if (p.starved, p.resource) == (starved, resource)) == amount
    for borrower, resource in {(p.borrower, p.resource) for p in found if p.borrower}:
        assert borrower is not None
        above = state.used_now.used(borrower, (None, resource)) - state.book.guaranteed(
            borrower, (None, resource)
        )
        assert sum(p.amount for p in found if (p.borrower, p.resource) == (borrower, resource)) <= above


def test_a_deficit_is_paired_with_the_nearest_borrower() -> None:
    """Resources that nobody borrows are told apart."""
    queues = [
        queue("root.x"), queue("root.x.a", row(guaranteed=8)), queue("root.x.b", row(guaranteed=2)),
        queue("root.y", row(guaranteed=0)),
    ]  # fmt: skip
    held = [
        running(gang("r1", pod_set(1, 6), queue="root.x.b", preemptible=False), {"n1": 1}),
        running(gang("r2", pod_set(1, 3), queue="root.y", preemptible=False), {"n2": 1}),
    ]
    snap = snapshot(
        [node("n1"), node("n2")], queues, admitted=held, pending=[gang("u1", pod_set(1, 8), queue="root.x.a")]
    )
    there = after(snap, now=0.0)
    lacking = deficits(there)
    assert lacking == {("root.x.a", GPU): 8}
    assert [(p.borrower, p.amount) for p in pairs(there, lacking)] == [
        ("root.x.b", 4),
        ("root.y", 3),
        (None, 1),
    ]
