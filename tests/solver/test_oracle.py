"""The exact solver and the decision against brute force on small worlds."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from queuer.solver.contested import Arrangement, Question, Settled, Unknown, Variant
from queuer.solver.cpsat import CpSat
from queuer.solver.problem import Snapshot
from tests.solver.cases import NOW, seeded, world
from tests.solver.cases_rights import linked, twofold
from tests.solver.judged import compare, played
from tests.solver.make import GPU
from tests.solver.oracle import BOUND, STARTED, WAITING, Oracle
from tests.solver.oracle_room import Turn

SLOW = settings(
    max_examples=60, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)


@st.composite
def worlds(draw: st.DrawFn) -> Snapshot:
    return world(lambda low, high: draw(st.integers(low, high)))


def question(snap: Snapshot, oracle: Oracle, turn: Turn) -> Question:
    """What `decide()` would ask at this turn, places unknown."""
    pending = {p.workload.uid: p for p in snap.pending}

    def variant(one: Turn) -> Variant:
        return Variant(flavors=one.flavors, counts={p.name: p.count for p in one.workload.pod_sets})

    def settled(one: Turn) -> Settled:
        return Settled(
            pending=pending[one.workload.uid],
            variant=variant(one),
            assignments=(),
            bound=one.bound,
            victims=oracle.evictions(one),
        )

    return Question(
        snapshot=snap,
        now=NOW,
        seed=0,
        settled=tuple(settled(one) for one in oracle.settled),
        standing=(),
        gang=pending[turn.workload.uid],
        variants=(variant(turn),),
        evict=turn.bound,
        budget=20.0,
    )


class Watched(Oracle):
    """The tournament by brute force, with every question that came up and its answer."""

    def possible(self, turn: Turn) -> tuple[str, ...] | None:
        found = super().possible(turn)
        entitled = self.claimed().entitled(turn.workload.queue, turn.asks, at=turn.workload.queue)
        if turn.workload.preemptible or entitled:
            self.compare(turn, found is not None)
        return found

    def compare(self, turn: Turn, found: bool) -> None:
        got = CpSat().settle(question(self.snapshot, self, turn))
        assert not isinstance(got, Unknown)
        assert isinstance(got, Arrangement) is found, (turn.workload.uid, turn.bound, got)
        if isinstance(got, Arrangement):
            assert set(got.assignments) == {t.workload.uid for t in (*self.settled, turn)}
            assert self.arranged([*self.settled, turn], [e.uid for e in got.evictions])


@SLOW
@given(worlds())
def test_solver_finds_an_arrangement_exactly_where_there_is_one(snap: Snapshot) -> None:
    oracle = Watched(snap, NOW)
    oracle.run()
    assert set(oracle.flags.values()) <= {STARTED, BOUND, WAITING}


@pytest.mark.parametrize(
    "seed",
    [
        *range(150),
        297,  # who may reclaim at some time may only preempt at another
        70501,  # all whom a gang might evict leave for others, who could take somebody else
        70687,  # in the cheapest places a gang would not land
        301117,  # a gang that started where others leave would not land; bound it does
        303816,  # another can give way on the first flavor
        301432,  # nodes that a gang keeps off are the cheapest for all
        300209,  # that an earlier gang lies elsewhere lets two land together
        20639,  # a victim is needed for a limit that what others keep back exceeds anyway
        103000252,  # it costs less if an earlier gang needs another of the same victims
    ],
)
def test_decision_admits_what_brute_force_admits(seed: int) -> None:
    assert compare(seeded(seed))


def test_a_later_flavor_that_lets_more_start_is_no_fault() -> None:
    """By the flavor that is owed the plan would score less; who waits for that is told so."""
    assert played(seeded(103000246), now=NOW).deferred == ["g4"]


@pytest.mark.parametrize(
    "seed", [830092, 830148, 830232, 830306, 830371, 830477, 99000217, 99000265, 105000678]
)
def test_whom_one_right_protects_the_other_may_take(seed: int) -> None:
    """Somebody is reclaimed in one account, or preempted in another, whichever permits it when it goes."""
    assert compare(twofold(seed))


@pytest.mark.parametrize("seed", [5122, 5147, 5195, 5255, 105000486])
def test_whoever_went_for_another_spares_it_and_whom_that_one_went_for(seed: int) -> None:
    assert compare(linked(seed))


def with_past(seed: int) -> Snapshot:
    """A world in which the queues used something before."""
    random, snap = Random(seed), seeded(seed)
    past = {queue.path: {GPU: random.uniform(0, 100)} for queue in snap.tree if queue.path != "root"}
    return replace(snap, past=past)


@pytest.mark.parametrize("seed", range(1000, 1060))
def test_the_same_where_past_use_counts(seed: int) -> None:
    assert compare(with_past(seed))


def test_past_use_moves_some_turns() -> None:
    """Else the comparison would show nothing."""
    moved = 0
    for seed in range(1000, 1060):
        oracles = Oracle(seeded(seed), NOW), Oracle(with_past(seed), NOW)
        for oracle in oracles:
            oracle.run()
        moved += oracles[0].order != oracles[1].order
    assert moved >= 5
