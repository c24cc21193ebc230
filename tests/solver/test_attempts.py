"""What one attempt after the other does otherwise: who keeps off which hosts, who waits, what is given up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import pytest

from bench.instances import NOW
from bench.uneven import uneven
from queuer.domain.reasons import Deferral, Token
from queuer.domain.workload import Workload
from queuer.solver import attempts
from queuer.solver.arrays import Arrays
from queuer.solver.attempt import Attempt, Given
from queuer.solver.attempts import Attempts
from queuer.solver.decide import decide
from queuer.solver.problem import Assignment, Bond, Budget, Passes, Plan, Reservation, Snapshot, SolveStatus
from queuer.solver.score import score
from queuer.solver.verify import Rule, Violation, verify
from queuer.solver.yielding import Yielding
from tests.solver.make import gang, node, pod_set, queue, running, snapshot

ALL = frozenset({"n0", "n1"})
Late = Mapping[str, frozenset[str]]


def snap(*more: Workload, gpu: int = 2) -> Snapshot:
    waiting = [gang(uid, pod_set(1, gpu), submitted=float(i)) for i, uid in enumerate("ab")] + [*more]
    return snapshot([node("n0", gpu=4), node("n1", gpu=4)], [queue("root.a")], pending=waiting)


def decided(
    monkeypatch: pytest.MonkeyPatch,
    *late: Late,
    snap: Snapshot,
    instead: Late = MappingProxyType({}),
    asked_back: list[Late] | None = None,
) -> tuple[Plan, list[Late]]:
    """The plan, and who kept off what in each attempt. `late`: who could not land, one by one; `instead`: see
    `Yielding`; `asked_back`: is given who kept off what where these were tried on those hosts all the same.
    """
    seen, init, run = list[Late](), Attempt.__init__, Attempt.run
    asked_back = [] if asked_back is None else asked_back

    def noted(one: Attempt, *args: Any, crowded: Late, **more: Any) -> None:
        (asked_back if more.get("ask_back") else seen).append(dict(crowded))
        init(one, *args, crowded=crowded, **more)

    def told(one: Attempt) -> tuple[Plan, Yielding | None]:
        again = len(seen) <= len(late)
        return run(one)[0], Yielding(dict(late[len(seen) - 1]), dict(instead)) if again else None

    monkeypatch.setattr(Attempt, "__init__", noted)
    monkeypatch.setattr(Attempt, "run", told)
    return decide(snap, now=0.0, seed=0, budget=Budget(deterministic=0.0)), seen


def refusing(monkeypatch: pytest.MonkeyPatch, uid: str) -> None:
    """The verifier refuses every plan that starts this one."""

    def refused(_: Snapshot, made: Plan, *, now: float) -> Sequence[Violation]:
        return [Violation(rule=Rule.LANDING, uid=uid, text="no")] if uid in started(made) else ()

    monkeypatch.setattr(attempts, "verify", refused)


def started(plan: Plan) -> set[str]:
    return {a.uid for a in plan.admissions}


def test_who_cannot_land_keeps_off_hosts_and_at_last_off_all(monkeypatch: pytest.MonkeyPatch) -> None:
    late = [{"b": frozenset({"n0"})}, {"a": frozenset({"n1"})}, {"b": frozenset({"n1"})}]
    _, seen = decided(monkeypatch, *late, snap=snap())
    only = frozenset({"n0"})
    assert seen == [{}, {"b": only}, {"b": only, "a": frozenset({"n1"})}, {"b": ALL, "a": frozenset({"n1"})}]


@pytest.mark.parametrize("again", [frozenset[str](), frozenset({"n0"})])
def test_no_attempt_is_made_twice(again: frozenset[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Who cannot land and has nothing new to keep off waits."""
    _, seen = decided(monkeypatch, {"b": frozenset({"n0"})}, {"b": again}, snap=snap())
    assert seen == [{}, {"b": frozenset({"n0"})}, {"b": ALL}]


def test_where_a_gang_waits_apart_an_earlier_one_keeps_off_instead(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside what keeps off for another reason; once."""
    refusing(monkeypatch, "a")
    only = frozenset({"n0"})
    monkeypatch.setattr(Attempt, "apart", True)
    _, seen = decided(monkeypatch, {"b": only}, snap=snap(), instead={"a": only})
    assert seen[:3] == [{}, {"b": only}, {"a": only}]
    assert all(crowded["a"] == ALL for crowded in seen[3:])


N0, N1 = frozenset({"n0"}), frozenset({"n1"})
LARGE = gang("c", pod_set(1, 8), submitted=2.0)


@pytest.mark.parametrize(
    ("late", "back"),
    [
        ([], []),
        ([{"b": N0}], [{"b": N0}]),
        ([{"b": N0}, {"a": N1}], [{"b": N0}, {"b": N0, "a": N1}]),
        ([{"b": N0}, {"a": N1}, {"b": N1}], [{"b": N0, "a": N1}, {"b": ALL, "a": N1}]),
    ],
)
def test_who_keeps_off_is_asked_back(
    late: list[Late], back: list[Late], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the best attempt in which somebody waits, of equal ones the latest, and in all that were made together."""
    asked_back: list[Late] = []
    decided(monkeypatch, *late, snap=snap(LARGE, gpu=4), asked_back=asked_back)
    assert asked_back == back


def test_nobody_is_asked_back_where_all_start(monkeypatch: pytest.MonkeyPatch) -> None:
    asked_back: list[Late] = []
    decided(monkeypatch, {"b": N0}, {"a": N1}, snap=snap(), asked_back=asked_back)
    assert asked_back == []


def test_attempts_are_bounded_and_the_best_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those in which somebody is asked back come on top."""
    asked_back: list[Late] = []
    plan, seen = decided(monkeypatch, *[{"a": N0}] * 9, snap=snap(LARGE), asked_back=asked_back)
    assert len(seen) == attempts.ATTEMPTS
    assert len(asked_back) == 2
    assert started(plan) == {"a", "b"}


def test_after_long_searches_for_victims_there_is_no_other_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor is anybody asked back; who cannot land waits for the next cycle."""
    monkeypatch.setattr(attempts, "SEARCHED", -1)
    asked_back: list[Late] = []
    _, seen = decided(monkeypatch, *[{"a": N0}] * 9, snap=snap(LARGE), asked_back=asked_back)
    assert seen == [{}]
    assert asked_back == []


@pytest.mark.parametrize(
    ("passes", "has_time"),
    [
        (Passes(victims=attempts.SEARCHED), True),
        (Passes(victims=attempts.SEARCHED, questions=0.01), False),
        (Passes(improvement=2.0), True),
        (Passes(improvement=2.0, layouts=0.01), False),
    ],
)
def test_time_of_the_exact_solver_counts_as_searches_do(passes: Passes, has_time: bool) -> None:
    made = Attempts(Given(arrays=Arrays.of(snap()), now=0.0, seed=0, budget=Budget()))
    made.passes = passes
    assert made._has_time is has_time


LONG = Passes(victims=attempts.SEARCHED)


@pytest.mark.parametrize(
    ("passes", "waits", "small", "lost"),
    [
        (LONG + Passes(questions=0.01), True, True, True),
        (LONG + Passes(questions=0.01), False, True, False),
        (LONG + Passes(questions=0.01), True, False, False),
        (LONG + Passes(victims=1), True, True, False),
        (LONG, True, True, False),
    ],
    ids=["cut short", "nobody waits", "a large cluster", "by searches alone", "time left"],
)
def test_a_plan_may_have_lost_where_only_the_exact_solver_s_time_left_none_for_those_who_wait(
    passes: Passes, waits: bool, small: bool, lost: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Greedy alone would have made another attempt. Who waits keeps off hosts."""
    monkeypatch.setattr(attempts, "SMALL_PLAN", 4 if small else 3)  # two gangs on two nodes
    monkeypatch.setattr(Attempt, "apart", waits)
    made = Attempts(Given(arrays=Arrays.of(snap()), now=0.0, seed=0, budget=Budget(deterministic=0.0)))
    made.passes = passes
    assert started(made.settle()) == {"a", "b"}
    assert made.lost is lost


def test_who_is_refused_by_the_verifier_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """After as many attempts as may be, too, and the others start."""
    refusing(monkeypatch, "a")
    plan, seen = decided(monkeypatch, *[{"b": frozenset({"n0"})}] * attempts.ATTEMPTS, snap=snap())
    assert len(seen) == attempts.ATTEMPTS + 1
    assert seen[-1]["a"] == ALL
    assert "a" not in started(plan)
    assert plan.stats.status is not SolveStatus.FAILED


def test_large_clusters_have_another_attempt_only_after_one_that_gives_a_bond_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whatever the attempts before it gave back."""
    monkeypatch.setattr(attempts, "SMALL_PLAN", 0)
    run, made = Attempt.run, list[Attempt]()

    def told(one: Attempt) -> tuple[Plan, Yielding]:
        plan = run(one)[0]
        made.append(one)
        one.gave_back = len(made) == 1
        return plan, Yielding(off={"b": frozenset({"n0"})})

    monkeypatch.setattr(Attempt, "run", told)
    decide(snap(), now=0.0, seed=0, budget=Budget(deterministic=0.0))
    assert len(made) == 2


def refuse_all(monkeypatch: pytest.MonkeyPatch) -> None:
    always = (Violation(rule=Rule.QUOTA, uid="", text="always"),)
    monkeypatch.setattr(attempts, "verify", lambda *_, now: always)


def test_a_plan_that_starts_nobody_is_left_where_all_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    refuse_all(monkeypatch)
    plan, seen = decided(monkeypatch, snap=snap())
    assert (len(seen), started(plan), plan.stats.status) == (3, set(), SolveStatus.FAILED)
    assert plan.stats.note == "refused by the verifier: quota : always"


def test_the_plan_that_starts_nobody_keeps_what_stands_and_tells_the_others_why(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What has expired ends; those with a bond and those that take no part are not deferred."""

    def held(uid: str, *, expires: float) -> Reservation:
        return Reservation(uid=uid, assignments=on("n0"), start=5.0, expires=expires)

    waiting = {
        "bound": gang("bound", pod_set(1, 8)),
        "late": gang("late", pod_set(2, 8)),
        "next": gang("next", pod_set(2, 8)),
        "bad": gang("bad", pod_set(-3, 8)),
        "hold": gang("hold", pod_set(1, 8), hold=True),
    }
    bond = Bond(uid="bound", assignments=on("n1"), victims=("v",), deadline=20.0)
    snap = snapshot(
        [node("n0"), node("n1")],
        [queue("root.a")],
        admitted=[running(gang("v", pod_set(1, 8)), {"n1": 1}, releasing=True)],
        pending=list(waiting.values()),
        reservations=(held("late", expires=9.0), held("next", expires=11.0), held("hold", expires=11.0)),
        bonds=(bond, replace(bond, uid="hold")),
    )
    refuse_all(monkeypatch)
    plan = decide(snap, now=10.0, seed=0, budget=Budget(deterministic=0.0))
    assert (plan.stats.status, plan.stats.deferred) == (SolveStatus.FAILED, 2)
    assert plan.stats.causes == {Deferral.PLAN: 2}
    assert [b.uid for b in plan.bonds] == ["bound"]
    assert [r.uid for r in plan.reservations] == ["next"]
    assert {uid: told.primary.token for uid, told in plan.explanations.items()} == {
        "bound": Token.WAITING_FOR_PREEMPTED_WORKLOADS,
        "late": Token.SOLVER_DEFERRED,
        "next": Token.SOLVER_DEFERRED,
        "bad": Token.MISCONFIGURED,
        "hold": Token.ON_HOLD,
    }
    assert verify(snap, plan, now=10.0) == ()


def on(host: str) -> tuple[Assignment, ...]:
    return (Assignment(pod_set="main", flavor="default", nodes={host: 1}),)


def test_no_plan_is_worse_than_greedy_s_where_attempts_end_by_the_time_of_the_exact_solver() -> None:
    """Greedy alone makes more of them."""
    world = uneven(5005)
    plans = (decide(world, now=NOW, seed=5005, budget=Budget(deterministic=time)) for time in (2.0, 0.0))
    exact, greedy = (score(world, plan, now=NOW) for plan in plans)
    assert exact >= greedy
