"""A chain of differences, as sent to the solver process, gives the snapshots and the plans that it was made of."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from queuer.solver import wire
from queuer.solver.child import Outcome
from queuer.solver.decide import decide
from queuer.solver.difference import Difference
from queuer.solver.following import Following
from queuer.solver.problem import Budget, Plan, Snapshot
from queuer.solver.verify import Violation
from queuer.solver.worker import SolverProcess, Source
from tests.solver import worker_targets, worlds
from tests.solver.cycles import kept, live
from tests.solver.plans import GREEDY

SLOW = settings(
    max_examples=25, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)


def sent(difference: Difference) -> Difference:
    told = wire.unpack(wire.pack(difference)[wire.HEADER.size :])
    assert isinstance(told, Difference)
    return told


def no_complaint(snapshot: Snapshot, plan: Plan, *, now: float) -> tuple[Violation, ...]:
    del snapshot, plan, now
    return ()


@SLOW
@given(st.integers(0, 10**6))
def test_life_told_by_differences_is_the_same_life(seed: int) -> None:
    here: Snapshot | None = None
    there: Snapshot | None = None
    decider = Following()
    for snap, _, at in live(seed, cycles=8, budget=GREEDY):
        now = kept(here, snap)
        there = now if there is None or here is None else sent(Difference.between(here, now)).after(there)
        here = now
        assert there == now
        assert decider(there, now=at, seed=0, budget=GREEDY) == decide(now, now=at, seed=0, budget=GREEDY)


@pytest.mark.parametrize("seed", range(20))
def test_records_may_come_go_change_and_move(seed: int) -> None:
    random = Random(seed)
    before = worlds.world(seed, nodes=12, pending=16, running=12)
    pending = [p if random.random() < 0.7 else replace(p, first=True) for p in before.pending]
    random.shuffle(pending)
    other = worlds.world(seed + 100, nodes=12)
    after = replace(
        before,
        nodes=(*other.nodes[:2], *before.nodes[2:]),
        pending=(*other.pending[:1], *(p for p in pending if random.random() < 0.8)),
        admitted=tuple(a for a in before.admitted if random.random() < 0.8),
    )
    found = Difference.between(before, after).after(before)
    assert found == after
    there = {id(p) for p in before.pending}
    assert all(mine is p for mine, p in zip(found.pending, after.pending, strict=True) if id(p) in there)


def test_nothing_new_says_next_to_nothing() -> None:
    snap = worlds.world(1, nodes=64, pending=200, running=64)
    assert len(wire.pack(Difference.between(snap, replace(snap)))) < 500


async def test_both_processes_know_each_snapshot_also_after_they_were_replaced() -> None:
    """The solver dies at the fourth question, the stand-in at the fifth."""
    snaps = [worlds.world(seed, nodes=6) for seed in range(5)]
    snaps += [replace(snaps[-1], pending=snaps[-1].pending[1:]), snaps[0]]
    targets = "tests.solver.worker_targets"
    async with SolverProcess(
        target=f"{targets}:echo", stand_in=f"{targets}:echo_beside", judge=no_complaint
    ) as solver:
        for number, snap in enumerate(snaps):
            for budget in (Budget(deterministic=1.0, wall=30.0), Budget(deterministic=0.0)):
                plan = await solver.decide(snap, now=0.0, seed=number, budget=budget)
                told = plan.stats.note == worker_targets.words(snap)
                assert told or number == (4 if budget.deterministic == 0 else 3)
        assert solver.counts[Source.SOLVER, Outcome.SOLVED] == len(snaps) - 1
        assert solver.counts[Source.SOLVER, Outcome.CRASHED] == 1
        assert solver.counts[Source.STAND_IN, Outcome.CRASHED] >= 1
        assert solver.restarts[Source.SOLVER] == 1
