"""The exact solver and the decision against brute force on small worlds."""

from __future__ import annotations

from collections.abc import Iterator

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from queuer.solver.contested import Arrangement, Question, Settled, Unknown, Variant
from queuer.solver.cpsat import CpSat
from queuer.solver.problem import Eviction, EvictionRule, Snapshot
from tests.solver.cases import NOW, world
from tests.solver.oracle import BOUND, STARTED, WAITING, Oracle, Turn

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
        mark = Eviction(uid="somebody", beneficiary=one.workload.uid, rule=EvictionRule.PREEMPT)
        return Settled(
            pending=pending[one.workload.uid],
            variant=variant(one),
            assignments=(),
            victims=(mark,) if one.bound else (),
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

    def possible(self, turn: Turn) -> bool:
        found = super().possible(turn)
        entitled = self.claimed().entitled(turn.workload.queue, turn.asks, at=turn.workload.queue)
        if turn.workload.preemptible or entitled:
            self.compare(turn, found)
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


def flags_of(starts: Iterator[str], bonds: Iterator[str], order: list[str]) -> list[int]:
    started, bound = set(starts), set(bonds)
    return [STARTED if u in started else BOUND if u in bound else WAITING for u in order]
