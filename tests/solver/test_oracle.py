"""The exact solver and the decision against brute force on small worlds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from queuer.domain.reasons import Token
from queuer.solver.contested import Arrangement, Question, Settled, Unknown, Variant
from queuer.solver.cpsat import CpSat
from queuer.solver.decide import decide
from queuer.solver.problem import Budget, Plan, Snapshot, SolveStatus
from queuer.solver.score import score
from queuer.solver.verify import verify
from tests.solver.cases import NOW, seeded, world
from tests.solver.make import GPU
from tests.solver.oracle import BOUND, STARTED, WAITING, Oracle
from tests.solver.oracle_room import Turn, place_of

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


def elsewhere(snap: Snapshot, plan: Plan) -> frozenset[str]:
    """Who was bound and starts in another place than the one that was held."""
    held = {b.uid: place_of(b.assignments) for b in snap.bonds}
    places = {a.uid: place_of(a.assignments) for a in plan.admissions}
    return frozenset(uid for uid in held.keys() & places.keys() if held[uid] != places[uid])


class Told(Oracle):
    """The tournament by brute force where each gang that evicts took the victims of a plan, if these are enough."""

    def __init__(self, snapshot: Snapshot, now: float, plan: Plan) -> None:
        super().__init__(snapshot, now, elsewhere=elsewhere(snapshot, plan))
        self.plan = plan

    def least(self, everyone: Sequence[Turn]) -> tuple[str, ...] | None:
        uids = {turn.workload.uid for turn in everyone}
        gone = tuple(e.uid for e in self.plan.evictions if e.beneficiary in uids)
        return gone if self.arranged(everyone, gone) else super().least(everyone)


@pytest.mark.parametrize(
    "seed", [*range(160), 297]
)  # 297: who may reclaim at some time may only preempt at another
def test_decision_admits_what_brute_force_admits(seed: int) -> None:
    compare(seeded(seed))


def with_past(seed: int) -> Snapshot:
    """A world in which the queues used something before."""
    random, snap = Random(seed), seeded(seed)
    past = {queue.path: {GPU: random.uniform(0, 100)} for queue in snap.tree if queue.path != "root"}
    return replace(snap, past=past)


@pytest.mark.parametrize("seed", range(1000, 1060))
def test_the_same_where_past_use_counts(seed: int) -> None:
    compare(with_past(seed))


def test_past_use_moves_some_turns() -> None:
    """Else the comparison would show nothing."""
    moved = 0
    for seed in range(1000, 1060):
        oracles = Oracle(seeded(seed), NOW), Oracle(with_past(seed), NOW)
        for oracle in oracles:
            oracle.run()
        moved += oracles[0].order != oracles[1].order
    assert moved >= 5


def apart(plan: Plan) -> bool:
    """Whether somebody was put off, or the plan chosen, because gangs could not land beside others (3.5)."""
    waits = plan.explanations.values()
    put_off = any(e.primary.token is Token.PENDING_EVALUATION for e in waits)
    bound = any(e.primary.token is Token.WAITING_FOR_PREEMPTED_WORKLOADS for e in waits)
    return (
        put_off
        or bool(plan.stats.note)
        or (bound and plan.stats.passes is not None and plan.stats.passes.attempts > 1)
    )


def compare(snap: Snapshot, *, now: float = NOW) -> bool:
    """Order, flags and eviction cost; False = not compared, as the brute force knows no landing beside others. Where
    the first search settled dearer victims than the brute force at some turn, a later gang may have what those leave,
    but nobody anything else; and of all victims with which these gangs can be arranged, those that go are the
    cheapest even so.
    """
    plan = decide(snap, now=now, seed=0, budget=Budget(deterministic=10.0))
    assert verify(snap, plan, now=now) == ()
    assert plan.stats.status is not SolveStatus.FAILED
    if apart(plan):
        return False
    oracle = Oracle(snap, now, elsewhere=elsewhere(snap, plan))
    oracle.run()
    started, bound = {a.uid for a in plan.admissions}, {b.uid for b in plan.bonds}
    flags = {u: STARTED if u in started else BOUND if u in bound else WAITING for u in oracle.order}
    assert list(plan.order) == oracle.order
    if flags != oracle.flags:
        assert list(flags.values()) > list(oracle.flags.values())
        oracle = Told(snap, now, plan)
        oracle.run()
        assert flags == oracle.flags
    assert tuple(-n for n in score(snap, plan, now=now).eviction) == oracle.cheapest()
    return True
