"""The decision a minute after one that bound somebody, against brute force: bonds that stand, nodes that are avoided,
work that is leaving.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial

import pytest

from queuer.domain.queue import Policy, Preempt
from queuer.domain.reasons import Token
from queuer.solver import attempts
from queuer.solver.arrays import Arrays
from queuer.solver.attempt import Attempt, Given
from queuer.solver.decide import decide
from queuer.solver.problem import Assignment, Bond, Budget, Plan, Snapshot
from queuer.solver.verify import Violation, verify
from tests.solver.cases import NOW
from tests.solver.cases_bonds import LATER, standing
from tests.solver.cases_leaving import vacated
from tests.solver.cases_rights import twofold
from tests.solver.judged import compare
from tests.solver.make import GPU, gang, node, pod_set, queue, running, snapshot

FOUND = (
    425,  # rests on victims of another, which starts: nobody waits for the place that it has lost
    541,  # another starts in what is held for it
    688,  # quota was held, but not for all, as a victim has come back
    743,
    814,
    873,
    1193,
    1319,
    66000007,  # who lies in what another's victims leave is not in anybody's way
    66000833,  # a bond that had ended is made again, in its turn
    88114053,  # of those that cannot land together only the last is too much
    301062,  # nothing but its place could be better, and there it would not land
    810005,  # a later gang waits rather than an earlier one, whose room it has
    3990056,  # a victim that is needed no more once others lie elsewhere stays
    52000204,  # others make room for one that may evict nobody, where work leaves
    99000210,  # one that starts elsewhere leaves free where another could start
    81000067,  # an earlier gang has its first flavor rather than a later one
)
"""Worlds in which plans were wrong."""


@pytest.mark.parametrize("first", range(0, 200, 20))
def test_the_next_decision_admits_what_brute_force_admits(first: int) -> None:
    for seed in range(first, first + 20):
        assert compare(standing(seed), now=LATER), seed


@pytest.mark.parametrize("first", range(0, 120, 40))
def test_nobody_is_evicted_for_room_that_is_vacated_but_by_brute_force_too(first: int) -> None:
    for seed in range(first, first + 40):
        assert compare(vacated(seed), now=NOW), seed


@pytest.mark.parametrize("world", [partial(twofold, 106000051), partial(vacated, 108000367)])
def test_a_bound_gang_gets_other_hosts_of_its_own_beside_who_starts(world: Callable[[], Snapshot]) -> None:
    """By itself its sets need each other's hosts; beside one that starts they would rob each other there."""
    assert compare(world(), now=NOW)


@pytest.mark.parametrize("seed", FOUND)
def test_worlds_in_which_plans_were_wrong(seed: int) -> None:
    assert compare(standing(seed), now=LATER)


def test_bonds_come_to_every_end() -> None:
    """Else the comparison would show little."""
    seen = Counter[str]()
    for seed in range(100):
        snap = standing(seed)
        plan = decide(snap, now=LATER, seed=0, budget=Budget(deterministic=10.0))
        started, bound = {a.uid for a in plan.admissions}, {b.uid for b in plan.bonds}
        for bond in snap.bonds:
            seen["started"] += bond.uid in started
            seen["waiting"] += bond in plan.bonds
            seen["ended"] += bond.uid not in started | bound
        seen["avoiding"] += any(p.avoid for p in snap.pending)
        seen["leaving"] += any(a.releasing for a in snap.admitted)
    assert min(seen.values()) >= 10


def test_a_bond_ends_when_its_place_will_not_be_free() -> None:
    """`rests` was to have what `other` left of a victim's node; that victim has started anew there. Foreign pods on
    such a place are waited for, and so is whoever is leaving.
    """
    queues = [queue("root"), queue("root.a", policy=Policy(preempt=Preempt.LOWER_PRIORITY))]
    held = (Assignment(pod_set="main", flavor="default", nodes={"n0": 1}),)
    waiting = [
        gang(uid, pod_set(1, 4), priority=1, submitted=at) for uid, at in (("other", 0.0), ("rests", 1.0))
    ]
    bonds = (
        Bond(uid="other", assignments=held, victims=("victim",), deadline=LATER + 100),
        Bond(uid="rests", assignments=held, victims=(), deadline=LATER + 100),
    )

    def bound(gpus: int, *, leaving: bool, foreign: int = 0) -> dict[str, set[str]]:
        victim = running(gang("victim", pod_set(1, gpus)), {"n0": 1}, releasing=leaving)
        young = running(gang("young", pod_set(1, 8)), {"n1": 1}, since=NOW)
        snap = snapshot(
            [node("n0"), node("n1")],
            queues,
            admitted=[victim, young],
            pending=waiting,
            bonds=bonds,
            foreign={"n0": {GPU: foreign}},
        )
        plan = decide(snap, now=LATER, seed=0, budget=Budget(deterministic=0.0))
        assert verify(snap, plan, now=LATER) == ()
        return {b.uid: {n for one in b.assignments for n in one.nodes} for b in plan.bonds}

    assert bound(8, leaving=True) == {"other": {"n0"}, "rests": {"n0"}}
    assert bound(4, leaving=True, foreign=4) == {"other": {"n0"}, "rests": {"n0"}}
    assert bound(8, leaving=False) == {"other": {"n1"}, "rests": {"n1"}}
    assert bound(4, leaving=False, foreign=1) == {"other": {"n0"}, "rests": {"n1"}}


def test_who_is_put_off_is_not_given_a_bond_back_that_has_ended() -> None:
    """Its deadline has passed, and it cannot land beside others: it waits without."""
    snap = standing(977)
    given = Given(arrays=Arrays.of(snap), now=LATER, seed=0, budget=Budget(deterministic=0.0))
    attempt = Attempt(given, crowded={})
    plan = attempt.told(attempt.run()[0])
    assert plan.explanations["g4"].primary.token is Token.PENDING_EVALUATION
    assert verify(snap, plan, now=LATER) == ()


def test_nobody_takes_what_is_held_for_one_that_is_put_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """It could not land beside others that now lie on its place: another attempt is made, in large clusters too. The
    verifier has nothing to refuse, so nobody waits for its sake.
    """
    monkeypatch.setattr(attempts, "SMALL_PLAN", 0)
    verified = Counter[bool]()

    def counted(snap: Snapshot, made: Plan, *, now: float) -> tuple[Violation, ...]:
        wrong = verify(snap, made, now=now)
        verified[not wrong] += 1
        return wrong

    monkeypatch.setattr(attempts, "verify", counted)
    plan = decide(standing(470), now=LATER, seed=0, budget=Budget(deterministic=0.0))
    assert "g1" in {a.uid for a in plan.admissions}
    assert verified == {True: 1}
