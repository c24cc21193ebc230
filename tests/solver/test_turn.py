"""A gang's result at its turn, and the cause of a refusal."""

from __future__ import annotations

import pytest

from queuer.domain.nodes import Flavor
from queuer.domain.queue import Order, Policy, Preempt, QuotaRow
from queuer.domain.reasons import Token
from tests.solver.make import (
    decided,
    gang,
    hosts,
    node,
    pod_set,
    queue,
    row,
    running,
    snapshot,
    started,
    token,
)


def test_the_first_allowed_flavor_in_which_it_fits() -> None:
    """Rows name the flavors in order; the second is taken where the first is full."""
    flavors = (Flavor(name="new", node_labels={"f": "new"}), Flavor(name="old", node_labels={"f": "old"}))
    nodes = [node("a", labels={"f": "new"}), node("b", labels={"f": "old"})]
    queues = [queue("root"), queue("root.a", row(flavor="new"), row(flavor="old"))]
    waiting = [gang(uid, pod_set(1, 8), submitted=at) for uid, at in (("first", 0.0), ("second", 1.0))]
    plan = decided(snapshot(nodes, queues, pending=waiting, flavors=flavors))
    assert hosts(plan, "first") == {"a": 1}
    assert hosts(plan, "second") == {"b": 1}


def test_min_count_takes_the_largest_size_that_fits() -> None:
    """Seven of ten pods: more do not fit, fewer are not needed."""
    waiting = [gang("g", pod_set(10, 2, min_count=3))]
    plan = decided(snapshot([node("a"), node("b", gpu=7)], [queue("root"), queue("root.a")], pending=waiting))
    assert sum(hosts(plan, "g").values()) == 7


def test_it_shrinks_before_anybody_is_evicted_for_it() -> None:
    """Lower work stays, though the full size could have its room."""
    policy = Policy(preempt=Preempt.LOWER_PRIORITY)
    low = running(gang("low", pod_set(1, 8)), {"a": 1})
    waiting = [gang("g", pod_set(2, 8, min_count=1), priority=10)]
    queues = [queue("root"), queue("root.a", policy=policy)]
    plan = decided(snapshot([node("a"), node("b")], queues, admitted=[low], pending=waiting))
    assert plan.evictions == ()
    assert hosts(plan, "g") == {"b": 1}


def test_a_strict_head_lets_nothing_behind_it_pass() -> None:
    """The second would fit; it is told who is ahead."""
    queues = [queue("root"), queue("root.a", policy=Policy(order=Order.STRICT))]
    waiting = [gang("big", pod_set(3, 8), submitted=0.0), gang("small", pod_set(1, 1), submitted=1.0)]
    plan = decided(snapshot([node("a"), node("b")], queues, pending=waiting))
    assert started(plan) == set()
    assert token(plan, "small") is Token.BEHIND_IN_QUEUE


def test_work_that_nobody_may_evict_does_not_borrow() -> None:
    """It starts inside the guarantee of its own queue only."""
    queues = [queue("root"), queue("root.a", row(guaranteed=4)), queue("root.b", row(guaranteed=4))]
    waiting = [
        gang("over", pod_set(1, 5), preemptible=False),
        gang("inside", pod_set(1, 4), preemptible=False, submitted=1.0),
    ]
    assert started(decided(snapshot([node("a")], queues, pending=waiting))) == {"inside"}


@pytest.mark.parametrize(("limit", "reason"), [(4, Token.EXCEEDS_MAX_QUOTA), (12, Token.WAITING_FOR_QUOTA)])
def test_quota_is_named(limit: int, reason: Token) -> None:
    """More than the limit can never start; else it waits for what is used."""
    queues = [queue("root"), queue("root.a", row(limit=limit))]
    used = [running(gang("r", pod_set(1, 8)), {"a": 1})] if limit > 8 else []
    plan = decided(
        snapshot([node("a"), node("b")], queues, admitted=used, pending=[gang("g", pod_set(1, 8))])
    )
    assert token(plan, "g") is reason


def test_a_leaf_binds_one_gang_a_cycle() -> None:
    """Victims for the second are looked for in the next cycle, which follows at once."""
    policy = Policy(preempt=Preempt.LOWER_PRIORITY)
    low = [running(gang(f"low{n}", pod_set(1, 8)), {n: 1}) for n in "abc"]
    waiting = [gang(f"g{i}", pod_set(1, 8), priority=10, submitted=float(i)) for i in range(3)]
    queues = [queue("root"), queue("root.a", policy=policy)]
    plan = decided(snapshot([node(n) for n in "abc"], queues, admitted=low, pending=waiting))
    assert [bond.uid for bond in plan.bonds] == ["g0"]
    assert len(plan.evictions) == 1


def test_the_limit_of_searches_binds_each_choice_of_flavors(monkeypatch: pytest.MonkeyPatch) -> None:
    """A gang has as many choices as flavors. Here each needs two victims, of which the second may not go."""
    monkeypatch.setattr("queuer.solver.turn.SEARCHES", 1)
    names = ("x", "y")
    flavors = tuple(Flavor(name=name, node_labels={"f": name}) for name in names)
    rows = [row(flavor=name, guaranteed=8) for name in names]
    borrows = [row(flavor=name, guaranteed=4) for name in names]
    work = [
        running(gang(f"{name}{i}", pod_set(1, 4), queue="root.b"), {name: 1}, flavor=name)
        for name in names
        for i in range(2)
    ]
    queues = [queue("root"), queue("root.a", *rows), queue("root.b", *borrows)]
    nodes = [node(name, labels={"f": name}) for name in names]
    snap = snapshot(nodes, queues, admitted=work, pending=[gang("g", pod_set(1, 8))], flavors=flavors)
    plan = decided(snap)
    assert (plan.stats.searches, plan.stats.more, plan.evictions) == (1, True, ())


@pytest.mark.parametrize(("solver", "goes", "jobs"), [(0.0, "small", 1), (1.0, "wide", 2)])
def test_gangs_of_a_leaf_get_their_victims_together(solver: float, goes: str, jobs: int) -> None:
    """`small` is the cheapest for the first gang, but `wide` makes room for both and costs less than the two. The
    second gang is bound in the next cycle.
    """
    queues = [queue("root"), queue("root.a")]
    work = [
        running(gang("small", pod_set(1, 8)), {"m": 1}, since=-100.0),
        running(gang("wide", pod_set(2, 8)), {"n": 1, "o": 1}, since=-60.0),
    ]
    waiting = [gang(uid, pod_set(1, 8), priority=10, submitted=at) for uid, at in (("g", 0.0), ("h", 1.0))]
    plan = decided(
        snapshot([node(name) for name in "mno"], queues, admitted=work, pending=waiting), solver=solver
    )
    assert [(e.uid, e.lost.jobs) for e in plan.evictions if e.lost] == [(goes, jobs)]
    assert [bond.uid for bond in plan.bonds] == ["g"]
    assert plan.stats.more
    assert plan.stats.proved == plan.stats.searches


def test_who_may_not_take_the_room_has_no_say_in_whom_it_costs() -> None:
    """`h` is not preemptible, and beyond its guarantee: `small` is the cheapest for `g` alone."""
    work = [
        running(gang("small", pod_set(1, 8)), {"m": 1}, since=-100.0),
        running(gang("wide", pod_set(2, 8)), {"n": 1, "o": 1}, since=-60.0),
    ]
    waiting = [
        gang("g", pod_set(1, 8), priority=10),
        gang("h", pod_set(1, 8), priority=10, preemptible=False),
    ]
    plan = decided(
        snapshot(
            [node(name) for name in "mno"], [queue("root"), queue("root.a")], admitted=work, pending=waiting
        )
    )
    assert [(e.uid, e.lost.jobs) for e in plan.evictions if e.lost] == [("small", 1)]


@pytest.mark.parametrize(
    ("quota", "size"),
    [
        (row(guaranteed=32), 2),
        (row(guaranteed=8), 2),
        (row(guaranteed=7), 1),
        (row(limit=7, guaranteed=4), 1),
    ],
)
def test_who_evicts_at_its_smallest_size_takes_what_fits_then(quota: QuotaRow, size: int) -> None:
    """Two of its pods fit where its victim was, if they still have the right and the quota for it."""
    queues = [queue("root"), queue("root.a", quota), queue("root.b")]
    victim = running(gang("v", pod_set(1, 8), queue="root.b"), {"a": 1})
    plan = decided(
        snapshot([node("a")], queues, admitted=[victim], pending=[gang("g", pod_set(4, 4, min_count=1))])
    )
    assert [e.uid for e in plan.evictions] == ["v"]
    assert sum(hosts(plan, "g").values()) == size


def test_however_many_starts_are_taken_back_no_borrower_keeps_what_another_is_entitled_to() -> None:
    """In each of 20 leaves a gang that could never start borrows the tournament's favour from the entitled one behind
    it, so that 20 borrowers of another queue start first.
    """
    leaves = [f"root.a{number}" for number in range(20)]
    queues = [
        queue("root"),
        queue("root.b"),
        *(queue(leaf, row(guaranteed=8), weight=0.001) for leaf in leaves),
    ]
    borrowers = [gang(f"b{number}", pod_set(1, 8), queue="root.b", submitted=-90.0) for number in range(20)]
    heads = [gang(f"x{leaf}", pod_set(21, 8), queue=leaf, submitted=-50.0) for leaf in leaves]
    entitled = [gang(f"y{leaf}", pod_set(1, 8), queue=leaf, submitted=-40.0) for leaf in leaves]
    nodes = [node(f"n{number}") for number in range(20)]
    plan = decided(snapshot(nodes, queues, pending=[*borrowers, *heads, *entitled]))
    assert started(plan) == {g.uid for g in entitled}
