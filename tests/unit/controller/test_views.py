"""The rest of the cluster is decided on, whatever one node says of itself."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from msgspec import convert

from queuer.controller.cycle.snapshot import take
from queuer.controller.memory.live import Live
from queuer.controller.memory.pods import MOST_ON_NODE
from queuer.controller.memory.state import ClusterState
from queuer.controller.watch.views import Facts, node_of, pod_of
from queuer.controller.watch.watches import Watches
from queuer.domain.assignments import SolveStatus
from queuer.domain.quantity import MAX_AMOUNT
from queuer.domain.queue import Queue, QueueTree
from queuer.domain.rules import Rules
from queuer.domain.workload import State
from queuer.kube.objects import (
    Amounts,
    Condition,
    Container,
    Meta,
    NodeObject,
    NodeStatus,
    Pod,
    PodSpec,
    ResourceRequirements,
)
from queuer.kube.reflector import Change, ChangeKind
from queuer.solver.decide import decide
from queuer.solver.records import Budget
from tests.unit.make import gang, placed, pod_view

GPU = "example.com/gpu"
PLAIN: Amounts = {"cpu": "8", "memory": "64Gi", "pods": "110", GPU: "8"}


def node(name: str, **amounts: str | int) -> NodeObject:
    allocatable: Amounts = {
        **PLAIN,
        **{GPU if key == "gpu" else key: value for key, value in amounts.items()},
    }
    status = NodeStatus(allocatable=allocatable, conditions=[Condition(type="Ready", status="True")])
    return NodeObject(metadata=Meta(name=name, uid=name), status=status)


def heard(*nodes: NodeObject) -> ClusterState:
    """The memory after these nodes were listed."""
    state = ClusterState()
    watches = Watches(None, state, Facts(), kinds=())  # type: ignore[arg-type]  # never asked
    for found in nodes:
        watches._node(Change(kind=ChangeKind.MODIFIED, object=found))
    return state


def test_64_bits_sum_what_is_believed() -> None:
    assert 16_384 * MOST_ON_NODE <= MAX_AMOUNT


@pytest.mark.parametrize(
    "gpus",
    [str(MOST_ON_NODE + 1), str(2**63 - 1), str(2**63), "281474976710657", "8Ei", "1e30", "-1", "many", ""],
)
def test_an_amount_out_of_all_reason_is_refused_alone(gpus: str) -> None:
    found, problems = node_of(node("n1", gpu=gpus))
    assert found.allocatable == {"cpu": 8000, "memory": 64 * 2**30, "pods": 110}
    assert [p.field for p in problems] == [f"status.allocatable.{GPU}"]


def test_the_most_that_is_believed() -> None:
    found, problems = node_of(node("n1", gpu=MOST_ON_NODE, memory="256Ti"))
    assert (found.allocatable[GPU], found.allocatable["memory"], problems) == (MOST_ON_NODE, 2**48, ())


def test_a_pod_that_requests_more_than_can_be_counted_fills_its_node() -> None:
    """A pod that names its node itself passes no scheduler; with nothing counted the node would look free."""
    asks = Container(name="c", resources=ResourceRequirements(requests={"cpu": "10E", GPU: "1"}))
    pod = Pod(metadata=Meta(name="p", uid="p"), spec=PodSpec(node_name="n1", containers=[asks]))
    view = pod_of(pod, known=None, owner=None, pod_set=None)
    assert view.requests == {"cpu": MOST_ON_NODE, GPU: MOST_ON_NODE, "pods": 1}


def test_decisions_go_on_beside_nodes_and_pods_that_lie() -> None:
    liars = [node(f"liar{i}", gpu=2**62, cpu=str(2**48 // 1000), memory="255Ti") for i in range(20)]
    state = heard(node("n1"), *liars)
    state.configure(Rules(tree=QueueTree.of([Queue(path="root.a", namespaces=("ns",))]), revision=1))
    for i in range(20):
        requests = {"cpu": 2**62, "pods": 1}
        state.pod_changed(pod_view(f"foreign{i}", f"liar{i}", owner=None, pod_set=None, requests=requests))
    workload = gang(pods=2, requests={GPU: 4, "cpu": 1000, "pods": 1})
    state.put(Live(workload=workload, state=State.QUEUED))
    plan = decide(take(state, now=0.0), now=0.0, seed=0, budget=Budget(deterministic=0.0))
    assert plan.stats.status is SolveStatus.GREEDY
    assert [(a.uid, dict(a.assignments[0].nodes)) for a in plan.admissions] == [("u", {"n1": 2})]


def test_a_pod_that_is_resized_is_counted_as_it_is_now() -> None:
    """Guards nodes and quotas against pods that grow in place; an unchanged spec is not summed again."""

    def heard(cpu: str, generation: int) -> None:
        container = Container(name="c", resources=ResourceRequirements(requests={"cpu": cpu}))
        spec = PodSpec(containers=[container], node_name="n1")
        meta = Meta(name="p", namespace="ns", uid="p", generation=generation)
        found = Pod(metadata=meta, spec=spec)
        state.pod_changed(pod_of(found, known=state.pods.get("p"), owner=None, pod_set=None))

    state = ClusterState()
    heard("1", 1)
    state.take_stale()
    heard("9", 1)
    assert (state.pods.used("n1")["cpu"], state.take_stale()) == (1000, False)
    heard("2", 2)
    assert (state.pods.used("n1")["cpu"], state.take_stale()) == (2000, True)


def failed(**status: Any) -> Pod:
    """A pod on n1 that has failed."""
    made = {"metadata": {"name": "p"}, "spec": {"nodeName": "n1"}, "status": {"phase": "Failed", **status}}
    return convert(made, Pod)


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (
            {"containerStatuses": [
                {"state": {"terminated": {"exitCode": 0}}},
                {"state": {"terminated": {"exitCode": 3, "reason": "Error", "message": "no\n such file"}}},
            ]},
            "pod p on n1 ended with exit code 3: no such file",
        ),
        (
            {"initContainerStatuses": [{"state": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}}]},
            "pod p on n1 ended with exit code 137, OOMKilled",
        ),
        (
            {"conditions": [{"type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC",
                             "message": "PodGC: node no longer exists"}]},
            "pod p on n1 failed, DeletionByPodGC: PodGC: node no longer exists",
        ),
        ({"reason": "Evicted", "message": "low on memory"}, "pod p on n1 failed, Evicted: low on memory"),
        ({}, "pod p on n1 failed"),
    ],
    ids=["exit code", "init container", "node lost", "kubelet", "nothing"],
)  # fmt: skip
def test_a_pod_that_failed_says_why(status: dict[str, Any], said: str) -> None:
    assert pod_of(failed(**status), known=None, owner=None, pod_set=None).failure == said


def test_the_first_failure_of_a_job_is_known_when_the_pod_and_its_node_are_gone() -> None:
    """The job may say only then that it has failed. Work that holds nothing any more has no failure."""
    state = heard(node("n1"), node("n2"))
    workload = gang(pods=2, requests={"cpu": 1000, "pods": 1})
    live = Live(workload=workload, state=State.RUNNING, placement=placed({"n1": 1, "n2": 1}))
    state.put(live)
    pods = [pod_view("a", "n1"), pod_view("b", "n2")]
    for pod in pods:
        state.pod_changed(pod)
    state.node_gone("n2")
    state.pod_gone("b")
    state.pod_changed(replace(pods[0], failed=True, failure="pod a failed"))
    assert state.failures == {workload.uid: "node n2 is gone, and pod b with it"}
    state.put(replace(live, state=State.QUEUED, placement=None))
    assert state.failures == {}


def test_a_failure_is_told_of_its_own_run_alone() -> None:
    """The object of a pod that failed stays, and changes, while its job waits and runs again."""
    state = heard(node("n1"))
    workload = gang(pods=1, requests={"cpu": 1000, "pods": 1})
    runs = Live(workload=workload, state=State.RUNNING, placement=placed({"n1": 1}))
    pod = pod_view("a", "n1", failed=True, failure="pod a failed")
    state.put(replace(runs, state=State.QUEUED, placement=None))
    state.pod_changed(pod)
    state.put(runs)
    state.pod_changed(replace(pod, deleted=9.0))
    assert state.failures == {}
    state.pod_changed(replace(pod, uid="b", failure="pod b failed"))
    assert state.failures == {workload.uid: "pod b failed"}
    state.restore([replace(runs, state=State.QUEUED, placement=None)], rules=state.rules)
    assert state.failures == {}
