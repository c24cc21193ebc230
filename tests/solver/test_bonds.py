"""Bonds: room and quota are held while victims leave, and the gang starts there when it is free."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from queuer.domain.assignments import Assignment, Bond
from queuer.domain.nodes import Taint, TaintEffect
from queuer.domain.queue import Policy, Preempt
from queuer.domain.reasons import Token
from queuer.domain.workload import PodSet
from queuer.solver.records import Admitted, Snapshot
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
    running,
    snapshot,
    started,
    token,
)

QUEUES = [
    queue("root"),
    queue("root.a", row(guaranteed=8), policy=Policy(preempt=Preempt.LOWER_PRIORITY)),
    queue("root.b", row(guaranteed=0)),
]


def borrowed() -> Snapshot:
    """Both nodes are borrowed by b; a claims one back."""
    taken = [running(gang(f"v{i}", pod_set(1, 8), queue="root.b"), {n: 1}) for i, n in enumerate("ab")]
    return snapshot([node("a"), node("b")], QUEUES, admitted=taken, pending=[gang("g", pod_set(1, 8))])


def bond(uid: str, **pods: int) -> Bond:
    """For the gang of one pod set, with pods by node."""
    held = Assignment(pod_set="main", flavor="default", nodes=pods)
    return Bond(uid=uid, assignments=(held,), victims=(), deadline=300.0)


def leaving(snap: Snapshot, uid: str) -> Snapshot:
    """The next snapshot: this victim is on its way out, and the bonds of the plan stand."""
    plan = decided(snap)
    admitted = tuple(
        replace(a, releasing=True, gone_by=30.0) if a.workload.uid == uid else a for a in snap.admitted
    )
    return replace(snap, admitted=admitted, bonds=plan.bonds)


def changed(snap: Snapshot, host: str, **change: Any) -> Snapshot:
    """One node is in another state."""
    nodes = (replace(s, node=replace(s.node, **change)) if s.node.name == host else s for s in snap.nodes)
    return replace(snap, nodes=tuple(nodes))


def test_a_gang_that_evicts_is_bound_and_told_so() -> None:
    """One borrower goes, not two."""
    plan = decided(borrowed())
    assert len(plan.evictions) == 1
    assert [bond.uid for bond in plan.bonds] == ["g"]
    assert plan.bonds[0].victims == (plan.evictions[0].uid,)
    assert token(plan, "g") is Token.WAITING_FOR_PREEMPTED_WORKLOADS


def test_what_a_bond_holds_is_not_given_away() -> None:
    """A job that comes meanwhile does not start in the room that is being vacated, and nobody goes twice."""
    first = decided(borrowed())
    snap = leaving(borrowed(), first.evictions[0].uid)
    late = gang("late", pod_set(1, 1), queue="root.a", priority=100, submitted=5.0)
    plan = decided(
        replace(snap, pending=(*snap.pending, *snapshot([], QUEUES, pending=[late]).pending)), now=10.0
    )
    assert started(plan) == set()
    assert [bond.uid for bond in plan.bonds] == ["g"]
    assert plan.evictions == ()


def gone(snap: Snapshot, bond: Bond) -> Snapshot:
    """The victims have left their nodes."""
    left: list[Admitted] = [a for a in snap.admitted if a.workload.uid not in bond.victims]
    fresh = snapshot([s.node for s in snap.nodes], QUEUES, admitted=left)
    return replace(fresh, pending=snap.pending, bonds=(bond,))


def test_it_starts_where_it_was_bound_when_the_room_is_free() -> None:
    """The bond ends with the start."""
    first = decided(borrowed())
    plan = decided(gone(borrowed(), first.bonds[0]), now=20.0)
    assert started(plan) == {"g"}
    assert hosts(plan, "g").keys() == hosts(first, "g").keys()
    assert plan.bonds == ()


def test_a_bond_past_its_deadline_ends() -> None:
    """Its gang takes its turn like any other: here it starts, as the room is free."""
    first = decided(borrowed())
    late = replace(first.bonds[0], deadline=10.0)
    assert started(decided(gone(borrowed(), late), now=20.0)) == {"g"}


def test_a_bond_lasts_as_long_as_its_victims_are_known_to_take() -> None:
    """Else somebody else would be evicted in their stead."""
    first = decided(borrowed())
    snap = leaving(borrowed(), first.evictions[0].uid)
    admitted = tuple(replace(a, gone_by=900.0) if a.releasing else a for a in snap.admitted)
    plan = decided(replace(snap, admitted=admitted), now=400.0)
    assert [bond.deadline for bond in plan.bonds] == [900.0]


def test_a_bond_whose_node_is_closed_ends() -> None:
    """The gang looks for another place, and finds the other borrower's."""
    first = decided(borrowed())
    (host,) = hosts(first, "g")
    snap = leaving(borrowed(), first.evictions[0].uid)
    plan = decided(changed(snap, host, unschedulable=True), now=10.0)
    assert hosts(plan, "g").keys() == {"a", "b"} - {host}


NOT_READY = {
    "ready": False,
    "taints": (Taint(key="node.kubernetes.io/not-ready", effect=TaintEffect.NO_EXECUTE),),
}


def test_a_bond_outlasts_a_node_that_is_not_ready() -> None:
    """Its victim has been sent away already: a kubelet that restarts must not cost a second one."""
    first = decided(borrowed())
    (host,) = hosts(first, "g")
    snap = leaving(borrowed(), first.evictions[0].uid)
    plan = decided(changed(snap, host, **NOT_READY), now=10.0)
    assert plan.evictions == ()
    assert plan.bonds == decided(snap, now=10.0).bonds


def test_a_bound_gang_starts_on_no_node_that_is_not_ready() -> None:
    """Its victim is gone; it starts as soon as the node is ready, or has its turn again at the deadline."""
    first = decided(borrowed())
    (held,), (host,) = first.bonds, hosts(first, "g")
    free = gone(borrowed(), held)
    ill = changed(free, host, **NOT_READY)
    plan = decided(ill, now=20.0)
    assert (started(plan), plan.bonds) == (set(), (held,))
    assert started(decided(replace(free, bonds=plan.bonds), now=30.0)) == {"g"}
    late = decided(ill, now=held.deadline)
    assert host not in hosts(late, "g")
    assert late.evictions


def test_nobody_starts_where_a_bond_waits_for_pods_to_land() -> None:
    """Its room is free, but someone is landing there: others that started beside it would keep it waiting."""
    small = gang("small", pod_set(1, 1), queue="root.b", submitted=5.0)
    lands, waiting = landing("l", 1, 1, "a"), [gang("g", pod_set(3, 3)), small]
    bonds = [bond("g", a=2, b=1)]
    plan = decided(snapshot([node("a"), node("b")], QUEUES, admitted=[lands], pending=waiting, bonds=bonds))
    assert started(plan) == set()
    after = decided(snapshot([node("a"), node("b")], QUEUES, pending=waiting, bonds=plan.bonds))
    assert "g" in started(after)


def test_a_bond_does_not_wait_for_one_behind_it() -> None:
    """Both have a choice and share b, all is free: the first starts, the other when that has landed."""
    waiting = [gang("g", pod_set(3, 4)), gang("h", pod_set(3, 4), queue="root.b", submitted=1.0)]
    nodes, both = [node(n) for n in "abc"], [bond("g", a=2, b=1), bond("h", b=1, c=2)]
    first = decided(snapshot(nodes, QUEUES, pending=waiting, bonds=both))
    assert started(first) == {"g"}
    assert [b.uid for b in first.bonds] == ["h"]
    lands = landing("g", 3, 4, "a", "b")
    then = decided(snapshot(nodes, QUEUES, admitted=[lands], pending=waiting[1:], bonds=first.bonds))
    assert [b.uid for b in then.bonds] == ["h"]
    landed = running(waiting[0], {"a": 2, "b": 1})
    last = decided(snapshot(nodes, QUEUES, admitted=[landed], pending=waiting[1:], bonds=then.bonds))
    assert started(last) == {"h"}


def test_a_bond_ends_whose_place_is_lost_to_one_before_it() -> None:
    """Pods of the first landed where it was to start: it has its turn again, and fits elsewhere."""
    waiting = [gang("h", pod_set(3, 4), queue="root.b", submitted=1.0)]
    nodes = [node(n) for n in "abc"]
    landed = running(gang("g", pod_set(3, 4)), {"a": 1, "b": 2})
    plan = decided(snapshot(nodes, QUEUES, admitted=[landed], pending=waiting, bonds=[bond("h", b=1, c=2)]))
    assert hosts(plan, "h") == {"a": 1, "c": 2}


@pytest.mark.parametrize("elsewhere", [(), (landing("x", 1, 8, "c"),)], ids=["nothing lands", "x lands"])
@pytest.mark.parametrize("pods", [pod_set(3, 1), pod_set(1, 3)], ids=["choice", "room"])
def test_who_needs_room_that_a_bond_holds_is_told_for_whom(
    pods: PodSet, elsewhere: tuple[Admitted, ...]
) -> None:
    """The victim has not left yet; 3 GPUs are free beside it, of which the bond needs 2."""
    leaves = running(gang("v", pod_set(1, 2), queue="root.b"), {"a": 1}, releasing=True, gone_by=3600.0)
    snap = snapshot(
        [node("a"), node("b", gpu=2), node("c", gpu=8 if elsewhere else 0)],
        QUEUES,
        admitted=[leaves, *elsewhere],
        pending=[gang("g", pod_set(1, 4)), gang("w", pods, queue="root.b", submitted=1.0)],
        foreign={"a": {GPU: 3}},
        bonds=(replace(bond("g", a=1), victims=("v",)),),
    )
    reason = decided(snap).explanations["w"].primary
    assert reason.token is Token.BEHIND_IN_QUEUE
    assert (reason.params["owner"], reason.params["held"]) == ("g", True)
