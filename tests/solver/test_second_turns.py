"""Who was refused beside other victims than go in the end has another turn: nobody is told the reason of a turn that no
longer holds, and a plan is called the best only where each refusal was proven beside what it has (DESIGN 3.4).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from queuer.domain.queue import Policy, QueueTree
from queuer.domain.reasons import Token
from queuer.domain.workload import Workload
from queuer.solver import attempts
from queuer.solver.arrays import Arrays
from queuer.solver.attempt import Given
from queuer.solver.attempts import Attempts
from queuer.solver.board import Board
from queuer.solver.cpsat import CpSat, data
from queuer.solver.decide import decide
from queuer.solver.greedy import Greedy
from queuer.solver.outcome import Chosen
from queuer.solver.problem import (
    Admitted,
    Budget,
    Eviction,
    EvictionRule,
    Pending,
    Reservation,
    Snapshot,
    SolveStatus,
)
from queuer.solver.reserve import Reserver
from queuer.solver.score import Score, score
from queuer.solver.verify import verify
from tests.solver.cases_single import QUEUES, single
from tests.solver.judged import compare
from tests.solver.make import gang, node, pod_set, running, snapshot
from tests.solver.plans import STATS, at

NOW = 100.0


def runs(uid: str, gpus: int, at: str, *, priority: int, since: float) -> Admitted:
    return running(gang(uid, pod_set(1, gpus), priority=priority), {at: 1}, since=since)


def waits(uid: str, gpus: int, *, priority: int, submitted: float) -> Workload:
    return gang(uid, pod_set(1, gpus), priority=priority, submitted=submitted)


CHEAPER_VICTIM = snapshot(
    [node("n0", gpu=8), node("n1", gpu=8), node("n2", gpu=6)],
    QUEUES,
    admitted=[
        runs("long", 1, "n1", priority=1, since=-2316.0),
        runs("short", 3, "n0", priority=1, since=-158.0),
    ],
    pending=[
        waits("small", 7, priority=1, submitted=0.0),
        waits("first", 5, priority=2, submitted=1.0),
        waits("large", 8, priority=2, submitted=2.0),
    ],
)
"""At its turn `large` takes `long`; the pass at the end takes `short` instead, so that `small` fits on n1."""

SWAPPED = snapshot(
    [node(f"n{i}", gpu=6) for i in range(3)],
    QUEUES,
    admitted=[
        runs("r0", 3, "n2", priority=0, since=-2920.0),
        runs("r1", 4, "n0", priority=0, since=-1149.0),
        runs("r2", 4, "n1", priority=0, since=-1876.0),
        runs("r3", 2, "n1", priority=5, since=-1835.0),
    ],
    pending=[
        waits("g0", 3, priority=1, submitted=0.0),
        waits("g1", 3, priority=2, submitted=1.0),
        waits("g2", 4, priority=2, submitted=2.0),
        waits("g3", 3, priority=0, submitted=3.0),
    ],
)
"""The same victims in the end, each for the other gang: what they leave together holds `g3`, too."""

SAME_SCORE = snapshot(
    [node("n0", gpu=8), node("n1", gpu=8), node("n2", gpu=4)],
    QUEUES,
    admitted=[
        runs("recent", 3, "n0", priority=1, since=-210.0),
        runs("long", 4, "n1", priority=0, since=-1003.0),
    ],
    pending=[
        waits("small", 5, priority=1, submitted=0.0),
        waits("last", 7, priority=0, submitted=1.0),
        waits("first", 6, priority=2, submitted=2.0),
    ],
)
"""`first` would take `recent`; it takes `long` in the end, so that `small` starts. `last` waits for room beside the one
and for quota beside the other.
"""


@pytest.mark.parametrize(
    ("world", "starts", "bound"),
    [
        (CHEAPER_VICTIM, {"first", "small"}, {"large": ("short",)}),
        (SWAPPED, {"g1"}, {"g0": ("r1",), "g2": ("r2",), "g3": ("r1",)}),
    ],
    ids=["a cheaper victim", "victims that change hands"],
)
def test_who_fits_beside_the_victims_that_go_in_the_end_does_not_wait(
    world: Snapshot, starts: set[str], bound: dict[str, tuple[str, ...]]
) -> None:
    plan = decide(world, now=NOW, seed=0, budget=Budget(deterministic=10.0))
    assert not verify(world, plan, now=NOW)
    assert {a.uid for a in plan.admissions} == starts
    assert {b.uid: tuple(sorted(b.victims)) for b in plan.bonds} == bound
    assert plan.explanations.keys() == bound.keys()


@pytest.mark.parametrize("seed", range(40))
def test_single_pods_agree_with_brute_force(seed: int) -> None:
    assert compare(single(seed)) in (True, False)


def test_who_comes_after_the_victims_has_all_that_fits_beside_them() -> None:
    """A size range is filled at its turn, before anybody of lower priority starts."""
    flex = gang("flex", pod_set(8, 1, min_count=2), priority=1, submitted=0.0)
    small = gang("small", pod_set(1, 1), priority=0, submitted=5.0)
    others = [p.workload for p in CHEAPER_VICTIM.pending if p.workload.priority == 2]
    world = replace(CHEAPER_VICTIM, pending=tuple(Pending(workload=w) for w in (flex, *others, small)))
    for waiting in (world, replace(world, pending=world.pending[:-1])):
        plan = decide(waiting, now=NOW, seed=0, budget=Budget(deterministic=10.0))
        sizes = {a.uid: sum(row.count for row in a.assignments) for a in plan.admissions}
        assert sizes == {"first": 1, "flex": 8}


@pytest.mark.parametrize("world", [CHEAPER_VICTIM, SWAPPED])
def test_nothing_is_optimal_where_somebody_was_refused_beside_other_victims(
    world: Snapshot, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In large clusters, or where there is no time, turns are not played anew."""
    monkeypatch.setattr(attempts, "ANEW", 0)
    monkeypatch.setattr(
        data, "_of_these", lambda all_, _, one, __: [all_.prey.settled(e) for e in one.victims]
    )
    plan = decide(world, now=NOW, seed=0, budget=Budget(deterministic=10.0))
    assert plan.stats.status is SolveStatus.FEASIBLE
    assert len(plan.admissions) + len(plan.bonds) == len(world.pending) - 1


@pytest.mark.parametrize(
    ("anew", "status", "token"),
    [
        (attempts.ANEW, SolveStatus.OPTIMAL, Token.WAITING_FOR_QUOTA),
        (0, SolveStatus.FEASIBLE, Token.TOPOLOGY_PLACEMENT_FAILED),
    ],
)
def test_what_is_played_anew_and_scores_the_same_is_taken(
    anew: int, status: SolveStatus, token: Token, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its refusals are those of the victims that go."""
    monkeypatch.setattr(attempts, "ANEW", anew)
    plan = decide(SAME_SCORE, now=NOW, seed=0, budget=Budget(deterministic=10.0))
    assert [a.uid for a in plan.admissions] == ["small"]
    assert [(b.uid, b.victims) for b in plan.bonds] == [("first", ("long",))]
    assert (plan.stats.status, plan.explanations["last"].primary.token) == (status, token)


@pytest.mark.parametrize("sign", [1, -1])
def test_whatever_is_played_anew_is_left_where_it_scores_less(
    sign: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever way plans are scored: with flags turned round each start is a loss."""

    def turned(*asked: Any, **more: Any) -> Score:
        found = score(*asked, **more)
        return replace(found, flags=tuple(sign * flag for flag in found.flags))

    monkeypatch.setattr(attempts, "score", turned)
    arrays = Arrays.of(CHEAPER_VICTIM)
    budget = Budget(deterministic=10.0)
    made = Attempts(Given(arrays=arrays, now=NOW, seed=0, budget=budget, solver=CpSat(arrays)))
    starts = {a.uid for a in made.settle().admissions}
    assert starts == ({"first", "small"} if sign > 0 else {"first"})


def test_where_nobody_can_be_settled_as_before_the_plan_stays_what_it_was(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As where the exact solver has no time left for it."""
    monkeypatch.setattr(Greedy, "retake", lambda *_: None)
    plan = decide(CHEAPER_VICTIM, now=NOW, seed=0, budget=Budget(deterministic=10.0))
    monkeypatch.setattr(attempts, "ANEW", 0)
    assert replace(plan, stats=STATS) == replace(
        decide(CHEAPER_VICTIM, now=NOW, seed=0, budget=Budget(deterministic=10.0)), stats=STATS
    )


def retaken(one: Chosen, world: Snapshot, *, settled: Sequence[Chosen] = ()) -> Greedy:
    """A board on which these are settled, after that one was to be settled as it was."""
    greedy = Greedy(Board(Arrays.of(world), now=NOW))
    for other in settled:
        greedy.take(other)
    answer = greedy.retake(one)
    assert (answer is None) is (one.gang.uid not in greedy.chosen)
    assert not greedy.as_greedy
    return greedy


def chosen(world: Snapshot, uid: str, at: int, *victims: str) -> Chosen:
    """All of the gang on one node, bound where somebody goes for it."""
    one = Arrays.of(world).offers.gangs[uid]
    variant, charge = one.shape.smallest[0]
    gone = tuple(Eviction(uid=v, beneficiary=uid, rule=EvictionRule.PREEMPT) for v in victims)
    return Chosen(
        gang=one, variant=variant, charge=charge, spreads={"main": {at: 1}}, evictions=gone, bound=bool(gone)
    )


def test_a_gang_is_settled_as_it_was_where_that_may_be() -> None:
    world = CHEAPER_VICTIM
    first, large = chosen(world, "first", 2), chosen(world, "large", 0, "short")
    assert retaken(first, world).chosen == {"first": first}
    assert [*retaken(large, world, settled=[first]).chosen.values()] == [first, large]


@pytest.mark.parametrize(
    ("uid", "at", "victims"),
    [
        ("first", 1, ()),  # there is somebody
        ("large", 1, ("short",)),  # its victims leave room elsewhere
    ],
)
def test_it_is_not_where_nodes_do_not_bear_it(uid: str, at: int, victims: tuple[str, ...]) -> None:
    """Nothing is left of the trial."""
    small = chosen(CHEAPER_VICTIM, "small", 1)
    greedy = retaken(chosen(CHEAPER_VICTIM, uid, at, *victims), CHEAPER_VICTIM, settled=[small])
    assert greedy.chosen == {"small": small}
    assert greedy.turns.keys() == greedy.starts.keys() == {"small"}


def test_it_is_not_where_it_may_not_evict_any_more() -> None:
    """The victim is as important as the gang is."""
    equal = replace(
        CHEAPER_VICTIM,
        admitted=tuple(replace(a, workload=replace(a.workload, priority=2)) for a in CHEAPER_VICTIM.admitted),
    )
    assert retaken(chosen(equal, "large", 0, "short"), equal).chosen == {}


def test_who_may_start_now_has_a_turn_like_any_other() -> None:
    """The node is free by now; there others may move so that it gets an earlier flavor."""
    empty = replace(
        CHEAPER_VICTIM,
        admitted=(),
        nodes=tuple(replace(state, used={}) for state in CHEAPER_VICTIM.nodes),
    )
    large = chosen(empty, "large", 0)
    greedy = retaken(replace(large, bound=True), empty)
    assert not greedy.chosen
    started = greedy.turn(large.gang)
    assert isinstance(started, Chosen)
    assert not started.bound


def test_it_is_not_where_a_reservation_would_be_broken() -> None:
    """Of somebody whom it does not outrank."""
    held = Reservation(uid="large", assignments=(at({"n0": 1}),), start=NOW - 1.0, expires=NOW + 500.0)
    empty = replace(
        CHEAPER_VICTIM,
        admitted=(),
        nodes=tuple(replace(state, used={}) for state in CHEAPER_VICTIM.nodes),
        tree=QueueTree.of([QUEUES[0], replace(QUEUES[1], policy=Policy(reservations=1))]),
        reservations=(held,),
    )
    greedy = Greedy(Board(Arrays.of(empty), now=NOW))
    Reserver(greedy).resume(greedy.board.arrays.offers.gangs)
    assert greedy.board.horizons.keys() == {"large"}
    assert greedy.retake(chosen(empty, "small", 0)) is None
    assert greedy.retake(chosen(empty, "small", 1)) is not None
