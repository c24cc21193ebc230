"""Arrays that follow snapshots through the life of a world are those made from each snapshot alone."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations, permutations
from random import Random

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from queuer.domain.queue import Queue, QueueTree
from queuer.solver.arrays import Arrays
from queuer.solver.board import Board
from queuer.solver.decide import decide
from queuer.solver.holds import Holds
from queuer.solver.problem import Admitted, Snapshot
from queuer.solver.timeline import Timeline
from tests.solver import worlds
from tests.solver.cycles import kept, live
from tests.solver.make import gang, landing, node, pod_set, queue, running, snapshot
from tests.solver.plans import GREEDY

SLOW = settings(
    max_examples=25, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)


def amounts(arrays: Arrays, matrix: np.ndarray) -> list[dict[str, int]]:
    """Rows by resource, zeros left out: who followed may have a column for what nobody names any more."""
    return [{r: n for r, n in zip(arrays.frame.resources, row, strict=True) if n} for row in matrix.tolist()]


def use(arrays: Arrays) -> object:
    """Of every queue and account that nodes have, a row names or a running gang holds: used, with what is not lent."""
    rows = {(row.flavor, row.resource) for q in arrays.book.tree for row in q.quota}
    accounts = {*arrays.book.live, *rows, *(a for hold in arrays.holds.values() for a in hold.charge)}
    usage = arrays.sheet.usage
    return {
        (q.path, a): (usage.used(q.path, a), usage.held(q.path, a, surely=True))
        for q in arrays.book.tree
        for a in accounts
    }


def seen(arrays: Arrays) -> object:
    """All that a decision could tell two arrays apart by, the numbers of shapes aside."""
    frame, offers = arrays.frame, arrays.offers
    return (
        frame.names,
        amounts(arrays, frame.alloc),
        amounts(arrays, frame.bound_free),
        amounts(arrays, arrays.sheet.free),
        [numbers.tolist() for numbers in frame.domains],
        frame.domain_names,
        {f: mask.tolist() for f, mask in frame.in_flavor.items()},
        use(arrays),
        [
            (uid, hold.charge, {n: row.sum() for n, row in hold.rows.items()})
            for uid, hold in arrays.holds.items()
        ],
        [(uid, g.pending, g.seniority, g.shape.variants, g.shape.charges) for uid, g in offers.gangs.items()],
        dict(offers.aside),
        {leaf: [g.uid for g in line] for leaf, line in offers.lines.items()},
        offers.avoiding,
    )


@SLOW
@given(st.integers(0, 10**6))
def test_who_follows_a_life_decides_as_who_sees_each_moment_for_the_first_time(seed: int) -> None:
    arrays: Arrays | None = None
    for snap, _, at in live(seed, cycles=8, budget=GREEDY):
        now = kept(None if arrays is None else arrays.snapshot, snap)
        alone = Arrays.of(now)
        arrays = alone if arrays is None else arrays.follow(now)
        assert seen(arrays) == seen(alone)
        before = seen(arrays)
        followed = decide(now, now=at, seed=0, budget=GREEDY, arrays=arrays)
        assert followed == decide(now, now=at, seed=0, budget=GREEDY)
        assert seen(arrays) == before, "a decision changed the arrays"


def changed(snap: Snapshot, random: Random) -> Snapshot:
    """The snapshot after changes of all kinds at once."""
    states = [
        replace(s, node=replace(s.node, unschedulable=not s.node.unschedulable))
        if random.random() < 0.3
        else replace(s, used={})
        if random.random() < 0.2
        else s
        for s in snap.nodes
    ]
    if random.random() < 0.2 and len(states) > 1:
        states.pop(random.randrange(len(states)))
    pending = [
        replace(p, workload=replace(p.workload, hold=True)) if random.random() < 0.1 else p
        for p in snap.pending
    ]
    random.shuffle(pending)
    names = {s.node.name for s in states}
    admitted = [a for a in snap.admitted if random.random() < 0.8 and set(a.bound) <= names]
    tree = snap.tree
    if random.random() < 0.2:
        tree = QueueTree.of([*tree, Queue(path="root.more")])
    return replace(
        snap,
        nodes=tuple(states),
        tree=tree,
        pending=tuple(pending[random.randrange(2) :]),
        admitted=tuple(admitted),
    )


@pytest.mark.parametrize("seed", range(40))
def test_any_snapshot_can_follow_any_other(seed: int) -> None:
    random = Random(seed)
    snap = worlds.world(seed, nodes=12, pending=16, running=12)
    arrays = Arrays.of(snap)
    for step in range(6):
        snap = changed(snap, random) if step % 3 else worlds.world(100 * seed + step, nodes=12)
        branch = arrays.follow(snap)
        assert seen(branch) == seen(Arrays.of(snap))
        if random.random() < 0.7:  # else the next one follows the same arrays once more
            arrays = branch


def test_records_that_stay_are_shared() -> None:
    snap = worlds.world(3, nodes=12, pending=16, running=12)
    arrays = Arrays.of(snap)
    after = arrays.follow(replace(snap, pending=snap.pending[1:]))
    assert all(after.offers.gangs[uid] is arrays.offers.gangs[uid] for uid in after.offers.gangs)
    assert all(
        after.holds[a.workload.uid] is arrays.holds[a.workload.uid] for a in snap.admitted if not a.unbound
    )
    assert after.frame.alloc is arrays.frame.alloc
    assert after.book is arrays.book


def test_what_nobody_waits_with_any_more_is_forgotten() -> None:
    snap = worlds.world(3, nodes=4)
    arrays = Arrays.of(snap)
    one = snap.pending[0]
    for number in range(2_500):
        workload = replace(one.workload, uid=f"w{number}", priority=number)
        arrays = arrays.follow(replace(snap, pending=(replace(one, workload=workload),)))
    assert len(arrays.offers.kinds) < 1_500


LANDING = (
    landing("one", 1, "a", "b"),
    landing("two", 2, "b"),
    running(gang("sits", pod_set(1, 4)), {"b": 1}),
    landing("late", 1, "b"),
)


def landed(admitted: tuple[Admitted, ...]) -> Board:
    nodes = [node(name, pods=40) for name in "ab"]
    return Board(Arrays.of(snapshot(nodes, [queue("root"), queue("root.a")], admitted=admitted)), now=0.0)


@pytest.mark.parametrize("gone", [set(some) for n in range(5) for some in combinations(range(4), n)])
def test_whoever_goes_leaves_no_more_than_the_bound_says(gone: set[int]) -> None:
    """Gangs that land on the same node are in the way of each other only as long as they are all there."""
    board = landed(LANDING)
    flags = np.array([n in gone for n in range(4)])
    left = board.later.copy()
    for n in gone:
        left.release(board.holds[LANDING[n].workload.uid])
    nodes, amounts = Holds(board).vacated(flags)
    most = board.later.free.copy()
    most[nodes] += amounts
    assert (left.free <= most).all()


def test_what_gangs_leave_does_not_depend_on_the_order_in_which_they_are_told() -> None:
    def told(admitted: tuple[Admitted, ...]) -> dict[str, dict[int, list[int]]]:
        holds = landed(admitted).holds
        return {u: {n: r.tolist() for n, r in holds[u].rows.items()} for u in sorted(holds)}

    assert all(told(order) == told(LANDING) for order in permutations(LANDING))


@pytest.mark.parametrize("order", list(permutations(LANDING)))
def test_ends_free_no_more_than_there_is(order: tuple[Admitted, ...]) -> None:
    """Once all have ended the nodes are empty, and never freer than that before."""
    board = landed(order)
    line = Timeline(board, ())
    assert line.free(line.steps).tolist() == board.frame.alloc.tolist()
    assert all((line.free(step) <= board.frame.alloc).all() for step in range(line.steps))
