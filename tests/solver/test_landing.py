"""The landing rule: pods land whatever kube-scheduler picks within the pins."""

from __future__ import annotations

from dataclasses import replace

import pytest

from queuer.domain.nodes import SchedulingTerms
from queuer.domain.reasons import Token
from queuer.domain.workload import PodSet
from tests.solver.make import (
    GPU,
    decided,
    gang,
    hosts,
    landing,
    node,
    pod_set,
    queue,
    row,
    snapshot,
    started,
    token,
)
from tests.solver.repair.turns import played

QUEUES = [queue("root"), queue("root.a"), queue("root.b")]


def test_nobody_starts_where_a_gang_with_a_choice_is_landing() -> None:
    """Three pods of 2 may land on two nodes in several ways: both are theirs until they are bound."""
    snap = snapshot(
        [node("a"), node("b")],
        QUEUES,
        admitted=[landing("l", 3, 2, "a", "b")],
        pending=[gang("g", pod_set(1, 1))],
    )
    plan = decided(snap)
    assert started(plan) == set()
    assert token(plan, "g") is Token.BEHIND_IN_QUEUE
    assert "l" in plan.explanations["g"].primary.text


def test_who_fills_its_hosts_shares_what_it_leaves() -> None:
    """Two pods of 5 have no choice on two nodes of 8; 3 GPUs are left on each for others."""
    snap = snapshot(
        [node("a"), node("b")],
        QUEUES,
        admitted=[landing("l", 2, 5, "a", "b")],
        pending=[gang("g", pod_set(1, 3)), gang("h", pod_set(1, 4))],
    )
    assert started(decided(snap)) == {"g"}


def test_single_pods_share_one_node_without_waiting_for_each_other() -> None:
    """One host leaves no choice: all start at once beside one that lands there."""
    waiting = [gang(f"g{i}", pod_set(1, 1), submitted=float(i)) for i in range(9)]
    snap = snapshot([node("a")], QUEUES, admitted=[landing("l", 1, 1, "a")], pending=waiting)
    assert len(started(decided(snap))) == 7


def test_a_gang_with_a_choice_takes_hosts_where_nobody_lands() -> None:
    """Fullest first would send it to a, where another lands in the same plan."""
    first = gang("first", pod_set(1, 6), submitted=0.0)
    wide = gang("wide", pod_set(3, 2), submitted=1.0, preferred="block")
    snap = snapshot([node("a", gpu=8), node("b", gpu=4), node("c", gpu=4)], QUEUES, pending=[first, wide])
    plan = decided(snap)
    assert started(plan) == {"first", "wide"}
    assert hosts(plan, "wide").keys().isdisjoint(hosts(plan, "first"))


def test_who_fits_but_for_what_is_landing_keeps_its_placement() -> None:
    """Nobody later in the order starts there, so landings cannot starve it."""
    big = gang("big", pod_set(2, 5), submitted=0.0)
    small = gang("small", pod_set(1, 2), submitted=1.0)
    snap = snapshot(
        [node("a"), node("b")], QUEUES, admitted=[landing("l", 3, 1, "a", "b")], pending=[big, small]
    )
    plan = decided(snap)
    assert started(plan) == set()
    assert token(plan, "big") is Token.BEHIND_IN_QUEUE


def test_a_gang_with_all_that_is_free_of_its_rack_is_pinned_to_the_rack() -> None:
    """Pods that follow each other find the whole rack; else the pin names hosts."""
    labels = {"block": "b0", "rack": "r0"}
    nodes = [node("a", labels=labels), node("b", labels=labels)]
    whole = gang("whole", pod_set(2, 8), required="rack")
    part = gang("part", pod_set(2, 5), required="rack")
    (admission,) = decided(snapshot(nodes, QUEUES, pending=[whole])).admissions
    assert admission.assignments[0].hosts is None
    assert admission.assignments[0].selector == labels
    (admission,) = decided(snapshot(nodes, QUEUES, pending=[part])).admissions
    assert admission.assignments[0].hosts is None  # two pods of 5 fill both nodes as well
    foreign = {"a": {GPU: 0}}
    three = [*nodes, node("c", labels=labels)]
    (admission,) = decided(snapshot(three, QUEUES, pending=[whole], foreign=foreign)).admissions
    assert admission.assignments[0].hosts is not None


def test_rows_are_kept_for_quota_while_a_gang_waits_for_landings() -> None:
    """What is kept for it counts: a later gang of its queue does not take its quota."""
    queues = [queue("root"), queue("root.a", row(limit=11)), queue("root.b")]
    big = gang("big", pod_set(2, 4), submitted=0.0)
    small = gang("small", pod_set(1, 1), submitted=1.0)
    snap = snapshot(
        [node("a"), node("b"), node("c")],
        queues,
        admitted=[landing("l", 3, 1, "a", "b", "c")],
        pending=[big, small],
    )
    assert started(decided(snap)) == set()


@pytest.mark.parametrize("second", [pod_set(1, 6), pod_set(2, 3)], ids=["alike", "another kind"])
def test_what_is_kept_takes_nobodys_entitlement(second: PodSet) -> None:
    """It may come to nothing. So the second of `root.a` is entitled still, and its turn is before that of `root.c`."""
    queues = [queue("root"), queue("root.l")]
    queues += [
        queue("root.a", row(guaranteed=8), row("pods", guaranteed=9)),
        queue("root.c", row(guaranteed=8)),
    ]
    there = landing("l", 3, 1, "a1", "a2")
    only = SchedulingTerms(node_selector={"s": "1"})
    waiting = [
        gang("kept", pod_set(1, 6, terms=only), submitted=0.0),
        gang("second", second, submitted=1.0),
        gang("other", pod_set(1, 6), queue="root.c", submitted=9.0),
    ]
    snap = snapshot(
        [node("a1", labels={"s": "1"}), node("a2", labels={"s": "1"}), node("b")],
        queues,
        admitted=[replace(there, workload=replace(there.workload, queue="root.l"))],
        pending=waiting,
    )
    assert started(decided(snap)) == {"second"}


def test_each_of_two_that_are_alike_keeps_a_placement() -> None:
    """Nobody later starts where the second will fit once others have landed."""
    waiting = [gang(f"g{i}", pod_set(1, 6), submitted=float(i)) for i in range(2)]
    snap = snapshot([node("a"), node("b")], QUEUES, admitted=[landing("l", 2, 1, "a", "b")], pending=waiting)
    state = played(snap)
    assert state.kept.keys() == {"g0", "g1"}
    assert state.kept["g0"].hosts.isdisjoint(state.kept["g1"].hosts)
