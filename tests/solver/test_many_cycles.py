"""The long gate of the decision sees what it is there to see, and what it once found stays mended."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from random import Random
from unittest import mock

import pytest

from queuer.domain.reasons import Deferral, Reason, Token
from queuer.solver import attempts
from queuer.solver.decide import decide
from queuer.solver.explain.explainer import Explainer
from queuer.solver.order import Gang
from queuer.solver.outcome import Refusal
from queuer.solver.problem import Plan, Snapshot, SolveStatus
from queuer.solver.score import score
from queuer.solver.verify import Violation, verify
from tests.solver.cases import seeded
from tests.solver.cycles import Life
from tests.solver.many_cycles import EXACT, GREEDY, ROUND, Cycle, Tally, judge, rounds, run
from tests.solver.worlds import NOW, expected, packed, world


@pytest.mark.parametrize(("seed", "size"), [(8130, 16), (8079, 64)])
def test_never_worse_than_greedy_where_gangs_cannot_land_beside_each_other(seed: int, size: int) -> None:
    """The exact solver's plan was laid out anew in these worlds, and lost a gang by it that greedy starts."""
    snap = world(seed, nodes=size, pending=size, running=size)
    exact, greedy = (decide(snap, now=NOW, seed=0, budget=b) for b in (EXACT, GREEDY))
    assert score(snap, exact, now=NOW) >= score(snap, greedy, now=NOW)


@pytest.mark.parametrize(("seed", "cycles"), [(5059, 5), (5021, 11)])
def test_victims_of_a_gang_that_started_elsewhere_are_promised_to_nobody(seed: int, cycles: int) -> None:
    """Others were bound to the room of victims that nobody waited for any more, and the verifier refused it."""
    life, refused = Life(Random(seed), seeded(seed)), list[Violation]()

    def watched(snapshot: Snapshot, plan: Plan, *, now: float) -> tuple[Violation, ...]:
        broken = verify(snapshot, plan, now=now)
        refused.extend(broken)
        return broken

    with mock.patch.object(attempts, "verify", watched):
        for _ in range(cycles):
            life.cycle(GREEDY)
    assert refused == []


def test_a_place_that_more_room_spoils_is_reserved_when_it_is_there() -> None:
    """A master and its workers landed for certain at one end, not any more after others at the same time."""
    snap = packed(world(6216987247, nodes=64, pending=64, running=64), 777123405)
    plan = decide(snap, now=NOW, seed=0, budget=GREEDY)
    assert plan.reservations
    assert verify(snap, plan, now=NOW) == ()


def test_never_worse_than_greedy_where_victims_are_many() -> None:
    """The search for victims took more steps with the exact solver than without it, and found another plan."""
    snap = packed(world(1504000135, nodes=64, pending=64, running=64), 188000016)
    exact, greedy = (decide(snap, now=NOW, seed=0, budget=b) for b in (EXACT, GREEDY))
    assert score(snap, exact, now=NOW) >= score(snap, greedy, now=NOW)


def test_a_plan_that_is_taken_instead_of_the_exact_solver_s_says_so() -> None:
    """By a proof a reservation stayed where it was; without, it was moved, and another gang started there. Whom the
    exact solver had refused by a row of quota waits in that plan without an answer, though there was time for one.
    """
    tally = Tally()
    *_, cycle = islice(rounds(528000000, tally), 5)
    judge(cycle, cycle.plan, tally)
    assert tally.examples == []
    stats = cycle.plan.stats
    assert cycle.snapshot.reservations
    assert stats.note == "the exact plan scored less than greedy's"
    assert (stats.status, stats.contested, stats.causes) == (SolveStatus.FEASIBLE, 1, {Deferral.OUTSCORED: 1})
    told = [e.primary for e in cycle.plan.explanations.values() if e.primary.token is Token.SOLVER_DEFERRED]
    assert [reason.params["cause"] for reason in told] == [Deferral.OUTSCORED]
    assert "scored less than one without" in told[0].text


def test_greedy_s_plan_that_is_taken_is_made_once_more_with_proofs() -> None:
    snap = expected(world(500385, nodes=10, pending=14, running=16), 500385)
    exact, greedy = (decide(snap, now=NOW, seed=0, budget=b) for b in (EXACT, GREEDY))
    assert exact.stats.note == "the exact plan scored less than greedy's with proofs"
    assert exact.stats.passes is not None
    assert exact.stats.passes.attempts == 3
    assert score(snap, exact, now=NOW) == score(snap, greedy, now=NOW)


def test_nobody_is_told_one_reason_twice() -> None:
    """What one flavor lacks, and another, is kept for the same gang."""
    at_its_turn, elsewhere = set[tuple[str, str]](), set[tuple[str, str]]()
    from_, kept_elsewhere = Explainer._kept_from, Explainer._kept_elsewhere

    def noted(one: Explainer, gang: Gang, reason: Reason) -> Reason:
        found = from_(one, gang, reason)
        at_its_turn.add((gang.uid, found.text))
        return found

    def noted_elsewhere(one: Explainer, gang: Gang, refusal: Refusal) -> Reason | None:
        found = kept_elsewhere(one, gang, refusal)
        elsewhere.update([] if found is None else [(gang.uid, found.text)])
        return found

    with mock.patch.multiple(Explainer, _kept_from=noted, _kept_elsewhere=noted_elsewhere):
        plan = decide(world(4240000094, nodes=48, pending=48, running=48), now=NOW, seed=0, budget=GREEDY)
    assert at_its_turn & elsewhere, "the world no longer shows it"
    assert not [uid for uid, told in plan.explanations.items() if told.primary in told.others]


def test_a_round_is_sound() -> None:
    tally = Tally()
    run(ROUND, first=0, tally=tally)
    assert tally.examples == []
    assert tally.counts["cycles"] == ROUND
    assert tally.counts["admitted"] > 0
    assert tally.counts["waiting"] > 0


def test_faults_are_counted() -> None:
    """A plan that starts nobody and says nothing, where the same decision said otherwise before."""
    snap = world(8130, nodes=16, pending=16, running=16)
    plan = decide(snap, now=NOW, seed=0, budget=GREEDY)
    assert plan.admissions
    mute = replace(plan, admissions=(), evictions=(), bonds=(), reservations=(), explanations={})
    tally = Tally()
    judge(Cycle(name="mute", snapshot=snap, now=NOW, plan=mute), plan, tally)
    found = ("violations", "worse_than_greedy", "without_one_reason", "not_deterministic")
    assert {kind: tally.counts[kind] for kind in found} == dict.fromkeys(found, 1)
    assert not tally.sound
