"""Properties of every plan, on random worlds: sound, deterministic, one reason for each waiting gang."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from bench.score import score
from queuer.domain.assignments import SolveStatus
from queuer.solver.arrays import Arrays
from queuer.solver.decide import decide
from queuer.solver.records import Budget, Plan, Snapshot
from queuer.solver.verify import verify
from tests.solver.cycles import Life
from tests.solver.strict import passers
from tests.solver.worlds import NOW, packed, world

GREEDY, EXACT = Budget(deterministic=0.0), Budget(deterministic=1.0)
seeds = st.integers(min_value=0, max_value=10**6)


def decided(snapshot: Snapshot, budget: Budget = GREEDY) -> Plan:
    return decide(snapshot, now=NOW, seed=0, budget=budget)


@settings(max_examples=150)
@given(seeds)
def test_plans_are_sound(seed: int) -> None:
    """The independent verifier finds nothing, and had nothing to take out."""
    plan = decided(world(seed))
    assert verify(world(seed), plan, now=NOW) == ()
    assert not passers(world(seed), plan)
    assert (plan.stats.refused, plan.stats.status) == (0, SolveStatus.GREEDY)


@settings(max_examples=60)
@given(seeds, st.booleans())
def test_cp_sat_keeps_plans_sound_and_makes_none_worse(seed: int, is_packed: bool) -> None:
    snapshot = packed(world(seed), seed) if is_packed else world(seed)
    plan = decided(snapshot, EXACT)
    assert verify(snapshot, plan, now=NOW) == ()
    assert plan.stats.refused == 0
    greedy = decided(snapshot)
    as_greedy = plan.evictions == greedy.evictions  # else there is another state from then on
    if as_greedy or not (plan.evictions or is_packed):  # packed gangs start where those by time would evict
        assert score(snapshot, plan, now=NOW) >= score(snapshot, greedy, now=NOW)


@settings(max_examples=40)
@given(seeds)
def test_the_same_inputs_give_the_same_plan(seed: int) -> None:
    """Replay depends on it."""
    assert decided(world(seed)) == decided(world(seed))


@settings(max_examples=60)
@given(seeds)
def test_each_waiting_gang_has_one_reason_with_a_sentence(seed: int) -> None:
    """No gang waits in silence, none that starts is told to wait, and the order names each once."""
    snapshot = world(seed)
    plan = decided(snapshot)
    uids = {p.workload.uid for p in snapshot.pending}
    assert set(plan.explanations) == uids - {a.uid for a in plan.admissions}
    assert all(told.primary.text.endswith(".") for told in plan.explanations.values())
    assert sorted(plan.order) == sorted(uids)


@settings(max_examples=30)
@given(seeds)
def test_arrays_that_followed_give_the_same_plan(seed: int) -> None:
    """Cycle after cycle, as in the controller."""
    life = Life.of(seed)
    for _ in range(6):
        now = life.now
        snapshot, plan = life.cycle(GREEDY)
        anew = decide(snapshot, now=now, seed=0, budget=GREEDY, arrays=Arrays.of(snapshot))
        assert anew == plan
