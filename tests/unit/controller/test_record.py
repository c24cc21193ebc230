"""The record of a cycle tells what the decision saw of the cluster: capacity, and who has it beside the queues."""

from __future__ import annotations

from dataclasses import replace

import pytest

from queuer.controller.cycle.snapshot import take
from queuer.controller.ledger.record import out_of_use, reserved
from queuer.controller.memory.live import Live
from queuer.domain.assignments import Admission, Reservation
from queuer.domain.outside import Outside, bounded
from queuer.domain.workload import State
from queuer.solver.after_cycle import AfterCycle
from queuer.solver.arrays import Arrays
from queuer.solver.clustermap import ClusterMap
from queuer.solver.decide import decide
from queuer.solver.records import Budget
from queuer.solver.stored import StoredCycle
from tests.unit.controller.test_state import GPU, PLACING, WORKLOAD, cluster, node, placed, pod
from tests.unit.make import assigned, gang


def test_pods_that_no_queue_pays_for_are_told_by_owner() -> None:
    """Guards against nodes that are full of nobody: `why` and the overview name who has the room."""
    state = cluster(*map(node, ("n1", "n2")))
    state.put(PLACING)
    state.pod_changed(pod("mine", "n1", owner="u", pod_set="main"))
    state.pod_changed(pod("j1", "n1", owner="stranger", controller=("Job", "big")))
    state.pod_changed(pod("j2", "n2", owner="stranger", controller=("Job", "big")))
    state.pod_changed(pod("over", "n2", owner="stranger", controller=("Job", "big"), succeeded=True))
    state.pod_changed(pod("unbound", controller=("Job", "none")))
    state.pod_changed(pod("bare", "n2"))
    agent = replace(pod("d0", "n1", controller=("DaemonSet", "agent")), requests={"pods": 1})
    for uid in ("d0", "d1"):
        state.pod_changed(replace(agent, uid=uid, name=uid))
    job, bare, system = take(state, now=60.0).outside
    assert (job.namespace, job.kind, job.name, job.pods) == ("ns", "Job", "big", 2)
    assert job.nodes == {"n1": GPU, "n2": GPU}
    assert (bare.kind, bare.name, bare.amounts) == ("Pod", "bare", GPU)
    assert (system.system, system.amounts, system.nodes) == (True, {"pods": 2}, {})
    state.pod_gone("j2")
    assert take(state, now=60.0).outside[0].nodes == {"n1": GPU}, "a sum that was kept is made anew"
    state.put(replace(state.live["u"], state=State.RUNNING, placement=None))
    assert [each.name for each in take(state, now=60.0).outside] == ["big", "bare", "mine", ""]


def test_the_largest_owners_are_named_and_the_others_are_one_sum() -> None:
    """Guards the size of every record against a cluster full of small owners."""
    one = Outside(namespace="ns", kind="Pod", name="p", amounts={}, nodes={})
    *named, others = bounded(
        replace(one, name=f"p{i}", amounts={"gpu": i, "pods": 1}, nodes={"n": {"gpu": i}})
        for i in range(1, 14)
    )
    assert [each.name for each in named] == [f"p{i}" for i in range(13, 3, -1)]
    assert (others.name, others.owners) == ("", 3)
    assert (others.amounts, others.nodes) == ({"gpu": 6, "pods": 3}, {"n": {"gpu": 6}})


def test_reserved_is_the_room_that_nobody_uses_or_is_about_to() -> None:
    """Guards `free` of the overview: room that is held for others is not free, nor what is used reserved."""
    state = cluster(node("n1"), node("n2"), node("n3"), node("n4", unschedulable=True))
    waits = gang("w", pods=8, requests=GPU)
    for workload in (waits, gang("s", requests=GPU)):
        state.put(Live(workload=workload, state=State.QUEUED))
    hold = Reservation(
        uid="w", assignments=(assigned({f"n{n}": 2 for n in range(1, 5)}),), start=9.0, expires=99.0
    )
    assert reserved(state, [hold]) == {"gpu": 24, "pods": 6}, "the last node is cordoned"
    state.put(PLACING)
    assert reserved(state, [hold]) == {"gpu": 12, "pods": 6}, "two are to land on n1, one on n2"
    state.pod_changed(pod("a", "n1", owner="u", pod_set="main"))
    state.pod_changed(pod("other", "n2"))
    assert reserved(state, [hold]) == {"gpu": 8, "pods": 6}, "a pod that landed counts once"
    starts = Admission(uid="s", assignments=(assigned({"n3": 1}),))
    assert reserved(state, [hold], [starts]) == {"gpu": 4, "pods": 6}
    assert reserved(state, []) == {}


@pytest.mark.parametrize("landed", [True, False])
def test_the_room_that_a_decision_reserves_is_what_the_map_shows(landed: bool) -> None:
    """Guards `free` of two screens: the record of a cycle and the map of the stored one agree on it."""
    state = cluster(node("n1"), node("n2"), node("n3", "r2"))
    runs = replace(WORKLOAD, max_runtime=600.0)
    state.put(placed(Live(workload=runs, state=State.QUEUED)))
    for uid, at in (("a", "n1"), ("b", "n1"), ("c", "n2" if landed else None)):
        state.pod_changed(pod(uid, at, owner="u", pod_set="main"))
    waits = gang("w", pods=4, requests=GPU, queue="root.b", required="rack")
    state.put(Live(workload=waits, state=State.QUEUED))
    snapshot, budget = take(state, now=60.0), Budget(deterministic=0.0)
    plan = decide(snapshot, now=60.0, seed=0, budget=budget)
    cycle = StoredCycle(snapshot=snapshot, now=60.0, seed=0, budget=budget, plan=plan)
    shown = ClusterMap(AfterCycle.of(cycle)).domains("host", "gpu")
    told = reserved(state, (*plan.bonds, *plan.reservations), plan.admissions)
    assert [row.uid for row in plan.reservations] == ["w"]
    assert told["gpu"] == sum(row.reserved for row in shown) == 4
    assert sum(row.free for row in shown) == 24 - 12 - told["gpu"]


def test_live_capacity_is_told_as_the_decision_counts_it() -> None:
    """A GPU that died and a node that is gone are capacity as long as pods of ours use them."""
    state = cluster(*map(node, ("n1", "n2", "n3")))
    state.put(PLACING)

    def gpus() -> int:
        told = state.capacity_by_flavor["default"]["gpu"]
        assert told == Arrays.of(take(state, now=60.0)).book.live[None, "gpu"]
        return told

    for uid, host in (("a", "n1"), ("b", "n1"), ("c", "n2")):
        state.pod_changed(pod(uid, host, owner="u", pod_set="main"))
    assert gpus() == 24
    state.node_changed(replace(node("n1"), allocatable={"gpu": 7, "pods": 10}))
    assert gpus() == 24
    state.node_gone("n2")
    assert gpus() == 20
    state.pod_gone("c")
    assert gpus() == 16
    state.pod_changed(pod("a", "n1", owner="u", pod_set="main", succeeded=True))
    assert gpus() == 15


def test_what_is_free_on_nodes_that_take_no_pods_is_out_of_use() -> None:
    state = cluster(node("n1"), node("n2", unschedulable=True), node("n3", unschedulable=True, ready=False))
    state.pod_changed(pod("a", "n2"))
    assert out_of_use(state) == {"cordoned": 1, "notReady": 1, "free": {"gpu": 12, "pods": 19}}
