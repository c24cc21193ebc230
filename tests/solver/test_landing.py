"""The landing rule: pods land whatever kube-scheduler picks within the pins."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from queuer.domain.nodes import SchedulingTerms, Topology
from queuer.domain.reasons import Token
from queuer.domain.workload import PodSet, Workload
from queuer.sim.engine import Simulation
from queuer.sim.scenario import Scenario, Story
from queuer.solver.records import Admitted, Unbound
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


def test_a_rack_with_a_cordoned_host_is_no_pin() -> None:
    """kube-scheduler puts pods that tolerate everything onto cordoned hosts, too."""
    labels = {"block": "b0", "rack": "r0"}
    nodes = [node("a", labels=labels), node("b", labels=labels), node("c", labels=labels, unschedulable=True)]
    whole = gang("whole", pod_set(2, 8), required="rack")
    (admission,) = decided(snapshot(nodes, QUEUES, pending=[whole])).admissions
    assert admission.assignments[0].hosts == ("a", "b")


def test_rows_are_kept_for_quota_while_a_gang_waits_for_landings() -> None:
    """The kept quota counts: a later gang of its queue does not take it."""
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


def master_and_workers(workers: int, gpus: int, *, master: int, **more: Any) -> Workload:
    """A PyTorchJob as users write it."""
    return gang("g", pod_set(1, master, name="master"), pod_set(workers, gpus, name="worker"), **more)


def test_pod_sets_that_nothing_tells_apart_are_one_for_landing() -> None:
    """They share a pin, so that any of their pods may take any of their places: the idle nodes are filled."""
    snap = snapshot([node("a"), node("b")], QUEUES, pending=[master_and_workers(15, 1, master=1)])
    (admission,) = decided(snap).admissions
    assert [row.count for row in admission.assignments] == [1, 15]
    assert {row.hosts for row in admission.assignments} == {("a", "b")}


def test_a_master_and_its_workers_start_in_an_idle_rack() -> None:
    """Two nodes of 8 for four pods of 4: narrowest first, whole nodes."""
    nodes = [node(f"n{i}", labels={"block": "b", "rack": f"r{i // 2}"}) for i in range(4)]
    snap = snapshot(nodes, QUEUES, pending=[master_and_workers(3, 4, master=4, required="rack")])
    assert hosts(decided(snap), "g") == {"n0": 2, "n1": 2}


def test_the_choice_is_judged_of_all_pods_that_are_alike() -> None:
    """Alone each of the sets could land otherwise; together they fill their hosts, and others start beside them."""
    whole = Admitted(
        workload=gang("l", pod_set(1, 3, name="master"), pod_set(3, 3, name="worker")),
        counts={"master": 1, "worker": 3},
        flavors={"master": "default", "worker": "default"},
        since=0.0,
        unbound=(
            Unbound(pod_set="master", count=1, hosts=("a", "b")),
            Unbound(pod_set="worker", count=3, hosts=("a", "b")),
        ),
    )
    waiting = [gang(f"g{i}", pod_set(1, 2), submitted=float(i)) for i in range(3)]
    snap = snapshot([node("a"), node("b")], QUEUES, admitted=[whole], pending=waiting)
    assert started(decided(snap)) == {"g0", "g1"}


def test_pod_sets_that_differ_get_hosts_of_their_own() -> None:
    """Workers could come to the master's host first; on a third host it is safe from them."""
    pending = [master_and_workers(3, 4, master=2)]
    assert started(decided(snapshot([node("a"), node("b")], QUEUES, pending=pending))) == set()
    plan = decided(snapshot([node(n) for n in "abc"], QUEUES, pending=pending))
    first, second = plan.admissions[0].assignments
    assert first.nodes.keys().isdisjoint(second.nodes)


def test_hosts_that_a_gang_keeps_are_closed_to_all_behind_it() -> None:
    """Else a small job starts there every second, and someone is always landing."""
    snap = snapshot(
        [node("a"), node("b")],
        QUEUES,
        admitted=[landing("l", 1, 1, "a")],
        pending=[gang("w", pod_set(3, 3), submitted=1.0), gang("s", pod_set(1, 1), submitted=2.0)],
    )
    assert started(decided(snap)) == set()


@pytest.mark.parametrize("every", [0.7, 1.0, 1.5])
def test_a_stream_of_small_jobs_does_not_starve_a_gang(every: float) -> None:
    """It starts once those that land where it belongs are bound."""
    wide = Story(workload=gang("w", pod_set(3, 3), submitted=10.5), runtime=60.0)
    stream = [
        Story(workload=gang(f"s{i:03}", pod_set(1, 1), submitted=i * every), runtime=1.0) for i in range(100)
    ]
    scenario = Scenario(
        name="stream",
        why="",
        grace=30.0,
        until=60.0,
        topology=Topology(),
        flavors=(),
        nodes=(node("a", pods=50), node("b", pods=50)),
        foreign=(),
        queues={"root": {}, "root.a": {}},
        stories=(wide, *stream),
        events=(),
        expect=(),
    )
    played = Simulation(scenario, landing=2.0)
    for _ in played.advance([60.0]):
        pass
    began = played.jobs["w"].started
    assert began is not None
    assert began < 16.0


def test_who_waits_for_a_landing_is_not_in_its_own_way() -> None:
    """Its kept place is not told as taken; later gangs are told the owner."""
    waiting = [gang("w", pod_set(3, 3), submitted=1.0), gang("s", pod_set(1, 6), submitted=2.0)]
    nodes = [node("a"), node("b")]
    plan = decided(snapshot(nodes, QUEUES, admitted=[landing("l", 1, 1, "a")], pending=waiting))
    first, second = (plan.explanations[uid].primary for uid in "ws")
    assert (first.params["owner"], first.params["host"]) == ("l", "a")
    assert (second.params["owner"], second.params["held"]) == ("w", True)
