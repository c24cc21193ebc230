"""Who may be evicted as things are: the answer is kept, and moves with use above a guarantee and with who leaves."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from queuer.domain.nodes import Node
from queuer.domain.queue import Policy, Preempt
from queuer.domain.workload import PodSet, Workload
from queuer.solver.arrays import Arrays
from queuer.solver.board import Board
from queuer.solver.decide import decide
from queuer.solver.problem import Budget, EvictionRule, Pending, Snapshot
from queuer.solver.verify import verify
from queuer.solver.victims import Prey, Reach
from tests.solver.make import GPU, gang, node, pod_set, queue, row, running, snapshot

CLAIMS = Pending(workload=gang("claims", pod_set(1, 4), queue="root.b"))


def board_of(*queues: str) -> Board:
    """Three nodes of 8 GPUs, 4 guaranteed to `a` and 8 to `b`; a gang of 4 runs in each of these queues."""
    admitted = [
        running(gang(f"{path}{n}", pod_set(1, 4), queue=f"root.{path}"), {f"n{n}": 1})
        for n, path in enumerate(queues)
    ]
    tree = [queue("root"), queue("root.a", row(guaranteed=4)), queue("root.b", row(guaranteed=8))]
    return Board(Arrays.of(snapshot([node(f"n{n}") for n in range(3)], tree, admitted=admitted)), now=0.0)


def reach(board: Board, prey: Prey, pending: Pending = CLAIMS) -> Reach:
    """Whom the gang of 4 in `b` may evict."""
    return prey.reach(pending, {(None, GPU): 4})


def take(board: Board, workload: Workload, *, times: int = 1) -> None:
    """Count 4 GPUs in the workload's queue."""
    charge = {("default", GPU): 4, (None, GPU): 4}
    board.start(workload, charge, {"main": {2: 1}}, times=times)


def test_a_queue_that_rises_above_its_guarantee_can_be_reclaimed_from() -> None:
    """Nobody may go while `a` uses what it is guaranteed; a start there changes that, and taking it back, too."""
    board = board_of("a")
    prey, more = Prey(board), gang("more", pod_set(1, 4), queue="root.a")
    mine = reach(board, prey)
    assert not prey.anybody(mine)
    assert not prey.has_rights(mine)
    assert not prey.permitted(mine)
    take(board, more)
    assert prey.anybody(mine)
    assert [c.uid for c in prey.permitted(mine)] == ["a0"]
    take(board, more, times=-1)
    assert not prey.anybody(mine)


def with_cpu(gpu: int, cpu: int) -> PodSet:
    return replace(pod_set(1, gpu), requests={GPU: gpu, "cpu": cpu, "pods": 1})


@pytest.mark.parametrize("guaranteed", [0, 2, 4])
def test_whoever_may_reclaim_still_preempts_what_holds_nothing_of_its_claims(guaranteed: int) -> None:
    """A guarantee of GPUs takes no right away over work that has CPUs alone."""
    hog = gang("hog", with_cpu(0, 8000), queue="root.b")
    tree = [
        queue("root", policy=Policy(preempt=Preempt.LOWER_PRIORITY)),
        queue("root.a", row(guaranteed=guaranteed)),
        queue("root.b"),
    ]
    mine = gang("mine", with_cpu(2, 4000), queue="root.a", priority=5)
    snap = snapshot([node("n0")], tree, admitted=[running(hog, {"n0": 1})], pending=[mine])
    board = Board(Arrays.of(snap), now=0.0)
    prey = Prey(board)
    permitted = prey.permitted(prey.reach(Pending(workload=mine), {(None, GPU): 2, (None, "cpu"): 4000}))
    assert [(c.uid, c.rule) for c in permitted] == [("hog", EvictionRule.PREEMPT)]


def two_rights(*gpus: int, asks: int) -> Snapshot:
    """A gang that claims what it asks for of GPUs, and jobs of so many GPUs and two CPUs each in a queue that is
    guaranteed 4 GPUs and one CPU.
    """
    tree = [
        queue("root", policy=Policy(preempt=Preempt.LOWER_PRIORITY)),
        queue("root.a", row(guaranteed=asks)),
        queue("root.b", row(guaranteed=4), row("cpu", guaranteed=1)),
    ]
    jobs = [gang(f"v{n}", with_cpu(gpu, 2), queue="root.b") for n, gpu in enumerate(gpus)]
    host = Node(name="n0", labels={}, allocatable={GPU: sum(gpus), "cpu": 100, "pods": 20})
    mine = gang("mine", with_cpu(asks, 1), queue="root.a", priority=5)
    admitted = [running(job, {"n0": 1}, since=0.0) for job in jobs]
    return snapshot([host], tree, admitted=admitted, pending=[mine])


@pytest.mark.parametrize(("gpus", "rule"), [((2, 2), EvictionRule.PREEMPT), ((4, 2), EvictionRule.RECLAIM)])
def test_either_right_is_enough(gpus: tuple[int, ...], rule: EvictionRule) -> None:
    """Whose queue is within its guarantee of what the gang claims may be above it in something else."""
    snap = two_rights(*gpus, asks=2)
    prey = Prey(Board(Arrays.of(snap), now=0.0))
    permitted = prey.permitted(prey.reach(snap.pending[0], {(None, GPU): 2, (None, "cpu"): 1}))
    assert {c.uid: c.rule for c in permitted} == {f"v{n}": rule for n in range(len(gpus))}


@pytest.mark.parametrize("budget", [Budget(deterministic=0), Budget()])
def test_who_would_cross_the_line_goes_by_the_other_right(budget: Budget) -> None:
    """Of 6 GPUs 2 are borrowed, and all are needed: two jobs are reclaimed if the smallest goes first."""
    snap = two_rights(2, 1, 3, asks=6)
    made = decide(snap, now=0.0, seed=0, budget=budget)
    assert verify(snap, made, now=0.0) == ()
    assert sorted(e.rule for e in made.evictions) == ["preempt", "reclaim", "reclaim"]


def test_who_went_in_vain_takes_nobody_below_the_line() -> None:
    """`near` goes first and crosses the line of 22 GPUs; once it is back `large` needs no other right."""
    tree = [
        queue("root", policy=Policy(preempt=Preempt.LOWER_PRIORITY)),
        queue("root.a", row(guaranteed=6)),
        queue("root.b", row(guaranteed=22), row("cpu", guaranteed=1)),
    ]
    jobs = [("near", 2, "n0", -1.0), ("large", 6, "n0", -2.0)]
    jobs += [(f"j{n}", 1, f"n{1 + n // 8}", -1000.0) for n in range(16)]
    admitted = [
        running(gang(uid, with_cpu(gpu, 2), queue="root.b"), {on: 1}, since=since)
        for uid, gpu, on, since in jobs
    ]
    hosts = [Node(name=f"n{n}", labels={}, allocatable={GPU: 8, "cpu": 100, "pods": 20}) for n in range(3)]
    mine = gang("mine", replace(with_cpu(3, 1), count=2), queue="root.a", priority=5)
    made = decide(
        snapshot(hosts, tree, admitted=admitted, pending=[mine]),
        now=0.0,
        seed=0,
        budget=Budget(deterministic=0),
    )
    assert [(e.uid, e.rule) for e in made.evictions] == [("large", EvictionRule.RECLAIM)]


def test_who_leaves_takes_the_others_below_the_line_until_it_stays_after_all() -> None:
    """Of two gangs of 4 above a guarantee of 4 one may go."""
    board = board_of("a", "a")
    prey = Prey(board)
    mine = reach(board, prey)
    assert prey.anybody(mine)
    board.bind(CLAIMS.workload, {(None, GPU): 4}, {"main": {0: 1}}, victims=["a0"])
    assert not prey.anybody(mine)
    assert prey.has_rights(mine)  # the other might have gone instead
    board.stay("a0")
    assert prey.anybody(mine)


def test_whom_one_gang_must_spare_another_may_evict() -> None:
    """A victim never displaces its preemptor in turn: that binds the victim alone."""
    board = board_of("a", "a")
    prey = Prey(board)
    spares = replace(CLAIMS, displaced_by=frozenset({"a0"}))
    assert [c.uid for c in prey.permitted(reach(board, prey, spares))] == ["a1"]
    assert [c.uid for c in prey.permitted(reach(board, prey))] == ["a0", "a1"]


@pytest.mark.parametrize("there", [True, False])
def test_whoever_is_gone_ends_the_chain_of_those_to_spare(there: bool) -> None:
    """`claims` went for `a1`, that for one that waits, and that one for `a0`."""
    between = [Pending(workload=gang("w", pod_set(1, 9)), displaced_by=frozenset({"a0"}))] if there else []
    board = board_of("a", "a")
    first, second = board.snapshot.admitted
    chained = replace(
        board.snapshot,
        admitted=(first, replace(second, displaced_by=frozenset({"w"}))),
        pending=(*between, CLAIMS),
    )
    prey = Prey(Board(Arrays.of(chained), now=0.0))
    assert prey.spared(CLAIMS) == frozenset()
    spares = replace(CLAIMS, displaced_by=frozenset({"a1"}))
    assert prey.spared(spares) == ({"a0", "a1"} if there else {"a1"})


@pytest.mark.parametrize("seed", range(12))
def test_the_kept_answer_is_the_one_that_is_found_anew(seed: int) -> None:
    """Through starts, evictions and their taking back in any order."""
    rng = random.Random(seed)
    board = board_of(*rng.choices("ab", k=3))
    kept, started = Prey(board), list[Workload]()
    low = gang("low", pod_set(1, 4), queue=rng.choice(["root.a", "root.b"]), priority=rng.choice([0, 5]))
    askers = (CLAIMS, Pending(workload=low))
    assert board.book.tree.policy("root.a").preempt is not Preempt.NEVER
    for step in range(40):
        match rng.randrange(4):
            case 0:
                started.append(gang(f"s{step}", pod_set(1, 4), queue=rng.choice(["root.a", "root.b"])))
                take(board, started[-1])
            case 1 if started:
                take(board, started.pop(), times=-1)
            case 2:
                victim = rng.choice(list(board.holds))
                board.bind(gang(f"b{step}", pod_set(1, 0)), {}, {}, victims=[victim])
            case 3 if board.leaving:
                board.stay(rng.choice(sorted(board.leaving)))
        for asker in askers:
            anew, old = Prey(board), reach(board, kept, asker)
            fresh = reach(board, anew, asker)
            assert kept.anybody(old) == anew.anybody(fresh)
            assert kept.has_rights(old) == anew.has_rights(fresh)
            assert [c.uid for c in kept.permitted(old)] == [c.uid for c in anew.permitted(fresh)]
