"""The sums of packed subtrees: the largest by brute force over sets of gangs, no less than those of plain rules; no
plan is unsound or below greedy's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from random import Random

import pytest

from bench import quality
from bench.bursts import scale
from queuer.domain.queue import Order, Policy, Preempt, Queue, QueueTree
from queuer.domain.reasons import Token
from queuer.domain.workload import Workload
from queuer.solver.arrays import Arrays
from queuer.solver.board import Board
from queuer.solver.cpsat.packed_model import Relaxed
from queuer.solver.greedy import Greedy
from queuer.solver.packed.packer import in_tiers
from queuer.solver.packed.room import Room
from queuer.solver.packed.sums import Sums
from queuer.solver.packed.worth import Worth
from queuer.solver.problem import NodeState, Pending, Plan, Snapshot
from queuer.solver.score import score
from tests.solver import worlds
from tests.solver.make import GPU, gang, node, pod_set, queue, row, snapshot
from tests.solver.packing import EXACT, GREEDY, PACKED, decided, started, sums


def tiny(seed: int) -> Snapshot:
    """Two to four nodes in racks of two, up to seven gangs of two priorities, limits here and there; in every second
    world sizes that do not divide each other.
    """
    rng = Random(seed)
    sizes, most = ((1, 2, 4, 8), (2, 4, 8)) if seed % 2 else ((1, 2, 3, 5), (3, 5, 7))
    nodes = [
        node(f"n{i}", gpu=rng.choice(most), labels={"block": "b", "rack": f"r{i // 2}"})
        for i in range(rng.randint(2, 4))
    ]
    total = sum(n.allocatable[GPU] for n in nodes)
    tree = [
        Queue(path="root", policy=replace(PACKED, preempt=Preempt.NEVER, reservations=0)),
        queue("root.a", row(limit=rng.choice((None, total // 2)))),
        queue("root.b"),
    ]
    waiting = [
        gang(
            f"w{i}",
            pod_set(rng.choice((1, 1, 2, 3)), rng.choice(sizes)),
            queue=rng.choice(("root.a", "root.b")),
            priority=rng.choice((0, 0, 1)),
            submitted=float(-i),
            required=rng.choice((None, None, "rack")),
        )
        for i in range(rng.randint(2, 7))
    ]
    return snapshot(nodes, tree, pending=waiting)


def fits(snap: Snapshot, gangs: Sequence[Workload]) -> bool:
    """Whether all of these have a place together, by trying every one; limits included."""
    limit = next((r.limit for r in snap.tree["root.a"].quota), None)
    if limit is not None and sum(g.demand[GPU] for g in gangs if g.queue == "root.a") > limit:
        return False
    racks = {s.node.name: s.node.labels["rack"] for s in snap.nodes}

    def descend(at: int, free: dict[str, int]) -> bool:
        if at == len(gangs):
            return True
        only, level = gangs[at].pod_sets[0], gangs[at].required
        scopes = [[n for n in free if racks[n] == r] for r in set(racks.values())] if level else [list(free)]
        return any(spread(at, scope, only.count, only.requests[GPU], free) for scope in scopes)

    def spread(at: int, scope: list[str], left: int, size: int, free: dict[str, int]) -> bool:
        if left == 0:
            return descend(at + 1, free)
        if not scope:
            return False
        name, rest = scope[0], scope[1:]
        return any(
            spread(at, rest, left - n, size, {**free, name: free[name] - n * size})
            for n in range(min(left, free[name] // size), -1, -1)
        )

    return descend(0, {s.node.name: s.node.allocatable[GPU] for s in snap.nodes})


def best(snap: Snapshot) -> tuple[int, int]:
    """The largest sums of priorities 1 and 0, in this order."""
    gangs = [p.workload for p in snap.pending]
    return max(
        (sum(g.demand[GPU] for g in some if g.priority), sum(g.demand[GPU] for g in some if not g.priority))
        for n in range(len(gangs) + 1)
        for some in combinations(gangs, n)
        if fits(snap, some)
    )


def reached(snap: Snapshot, plan: Plan) -> tuple[int, int]:
    found = sums(snap, plan)
    return found.get(1, 0), found.get(0, 0)


@pytest.mark.parametrize("seed", range(40))
def test_the_exact_solver_reaches_the_largest_sums_and_greedy_is_between_them_and_the_default_order(
    seed: int,
) -> None:
    snap = tiny(seed)
    assert reached(snap, decided(snap, EXACT)) == best(snap)
    assert (
        best(snap) >= reached(snap, decided(snap)) >= reached(snap, decided(with_order(snap, Order.PRIORITY)))
    )


def test_where_cpu_runs_out_first_each_node_is_counted_by_itself() -> None:
    """Sums over both nodes would let a, b and c in: 12 CPUs are free, 6 on each."""
    nodes = [replace(node(name), allocatable={GPU: 8, "cpu": 6, "pods": 20}) for name in ("n1", "n2")]
    waiting = [
        gang(uid, replace(pod_set(1, 1), requests={GPU: 1, "cpu": cpu, "pods": 1}))
        for uid, cpu in (("a", 5), ("b", 5), ("c", 2), ("d", 4))
    ]
    snap = snapshot(nodes, [Queue(path="root", policy=PACKED), queue("root.a")], pending=waiting)
    assert started(decided(snap, EXACT)) == {"a", "c", "d"}


def test_a_bound_that_was_not_reached_in_time_excludes_nothing() -> None:
    snap = tiny(0)
    room = Room(Greedy(Board(Arrays.of(snap), now=0.0)))
    tiers = in_tiers(room.greedy.board.arrays.offers.gangs.values())
    worth = Worth((p.workload for p in snap.pending), capacity=room.greedy.board.capacity, now=0.0)
    relaxed = Relaxed(Sums(room, tiers, worth, {}, window=100.0), seed=1)
    assert relaxed.bound(0, budget=0.0) is None
    assert relaxed.bound(0, budget=1.0)


def test_a_gang_of_a_rack_outside_any_block_takes_no_place_in_the_blocks() -> None:
    """Both fit, so a bound that counts the rack's slots among those of the block would be too low."""
    nodes = [
        node("a", labels={"block": "b", "rack": "r"}),
        *(node(n, gpu=4, labels={"rack": "q"}) for n in "mn"),
    ]
    waiting = [gang(f"w{level}", pod_set(2, 4), required=level) for level in ("block", "rack")]
    snap = snapshot(nodes, [Queue(path="root", policy=PACKED), queue("root.a")], pending=waiting)
    room = Room(Greedy(Board(Arrays.of(snap), now=0.0)))
    tiers = in_tiers(room.greedy.board.arrays.offers.gangs.values())
    worth = Worth((p.workload for p in snap.pending), capacity=room.greedy.board.capacity, now=0.0)
    both = sum(worth.of(w, {"main": 2}) for w in waiting)
    assert Relaxed(Sums(room, tiers, worth, {}, window=100.0), seed=1).bound(0, budget=1.0) == both


def test_racks_of_one_name_in_a_block_with_an_empty_name_and_in_none_are_two() -> None:
    """Each is in one place of the tree, so that counts find their way from every node up to where a gang lies."""
    nodes = [
        node("a", labels={"block": "", "rack": "r"}),
        node("n", labels={"rack": "r"}),
        node("x", labels={"block": "b", "rack": "q"}),
    ]
    levels = enumerate(("rack", "block", "rack"))
    waiting = [gang(f"w{i}", pod_set(2, 4), required=level) for i, level in levels]
    snap = snapshot(nodes, [Queue(path="root", policy=PACKED), queue("root.a")], pending=waiting)
    assert started(decided(snap, EXACT)) == {"w0", "w1", "w2"}


def with_order(snap: Snapshot, order: Order) -> Snapshot:
    """The same with another order on root."""
    queues = [replace(q, policy=replace(q.policy, order=order)) if q.path == "root" else q for q in snap.tree]
    return replace(snap, tree=QueueTree.of(queues))


@pytest.mark.parametrize("seed", range(900, 930))
def test_any_world_with_a_packed_subtree_gets_a_sound_plan_not_below_greedy(seed: int) -> None:
    snap = worlds.packed(worlds.world(seed, nodes=8, pending=16), seed)
    greedy, exact = (decided(snap, budget, now=worlds.NOW) for budget in (GREEDY, EXACT))
    assert score(snap, exact, now=worlds.NOW) >= score(snap, greedy, now=worlds.NOW)
    for plan in (greedy, exact):
        assert {p.workload.uid for p in snap.pending} - started(plan) == set(plan.explanations)


@pytest.mark.parametrize("seed", [7051, 7475, 7941, 7992])
def test_a_larger_sum_that_costs_a_later_gang_its_turn_is_not_taken(seed: int) -> None:
    """The selection of one priority does not see what it does to neighbours, to later priorities, to places."""
    snap = worlds.packed(worlds.world(seed, nodes=10, pending=14, running=10), seed)
    greedy, exact = (decided(snap, budget, now=0.0) for budget in (GREEDY, EXACT))
    assert score(snap, exact, now=0.0) >= score(snap, greedy, now=0.0)


def test_waiting_gangs_of_held_queues_are_not_selected() -> None:
    snap = tiny(3)
    held = [Pending(workload=replace(p.workload, hold=True)) for p in snap.pending]
    plan = decided(replace(snap, pending=tuple(held)))
    assert plan.admissions == ()
    assert {e.primary.token for e in plan.explanations.values()} == {Token.ON_HOLD}


def test_nodes_that_others_use_are_not_counted_as_free() -> None:
    snap = tiny(5)
    used = tuple(NodeState(node=s.node, used={GPU: s.node.allocatable[GPU]}) for s in snap.nodes)
    assert decided(replace(snap, nodes=used)).admissions == ()


def test_a_queue_below_with_another_order_takes_no_part_in_the_selection() -> None:
    """Such a tree once ended every decision."""
    strict = queue("root.b", policy=Policy(order=Order.STRICT))
    tree = [queue("root", policy=PACKED), queue("root.a"), strict]
    waiting = [gang("x", pod_set(1, 8), queue="root.a"), gang("y", pod_set(1, 8), queue="root.b")]
    snap = snapshot([node("m"), node("n")], tree, pending=waiting)
    for budget in (GREEDY, EXACT):
        assert started(decided(snap, budget)) == {"x", "y"}


# Against the plain rule


SMALL = [n for n in range(241, 271) if scale(n).nodes <= 256 and scale(n).pending <= 200]


@pytest.mark.parametrize("seed", SMALL)
def test_never_fewer_gpus_than_first_in_first_out(seed: int) -> None:
    """By priority, highest first, though unlike that rule's the plan lands whatever kube-scheduler picks."""
    measured = quality.packed(seed, budget=GREEDY)
    assert not measured["worse"]
    assert not measured["violations"]
