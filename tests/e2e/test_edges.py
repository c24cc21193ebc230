"""A job that cannot start says why, in words that lead to the right answer, and disturbs nobody else."""

from __future__ import annotations

from typing import Any

import pytest

from tests.e2e.controller import GPU, tree
from tests.e2e.scene import TEAM_A, Scene, required
from tests.e2e.support import create, kubectl, pytorchjob_manifest, wait_until

LIMIT = {"team_a": {"quota": [{"resource": GPU, "limit": 16}]}}


@pytest.mark.parametrize(
    ("wanted", "token", "answer"),
    [
        ({"queue": "root.research.team-aa"}, "Misconfigured", "root.research.team-a"),
        ({"queue": "root.research"}, "Misconfigured", "root.research.team-a"),
        ({"annotations": {"queuer.dev/max-runtime": "soon"}}, "Misconfigured", "max-runtime"),
        ({"annotations": {"queuer.dev/preemptible": "perhaps"}}, "Misconfigured", "preemptible"),
        ({"annotations": {"queuer.dev/min-count.main": "9"}}, "Misconfigured", "min-count.main"),
        ({"labels": {"queuer.dev/priority-class": "queuer-hihg"}}, "Misconfigured", "queuer-high"),
        ({"pods": 3, "gpus": 8}, "ExceedsMaxQuota", "16"),
        ({"annotations": required("rak")}, "Misconfigured", "rack"),
    ],
    ids=[
        "unknown queue", "not a leaf", "malformed duration", "malformed boolean", "minimum above count",
        "unknown priority class", "larger than any limit", "unknown level",
    ],
)  # fmt: skip
def test_what_its_owner_must_change_stays_suspended_and_says_so(
    scene: Scene, wanted: dict[str, Any], token: str, answer: str
) -> None:
    scene.database.apply(tree(scene.namespace, **LIMIT))
    process = scene.start()
    scene.job("wrong", **wanted)
    scene.wait_reason("wrong", token, timeout=15)
    explanation = scene.database.workload("wrong", scene.namespace)["explanation"]
    assert explanation["unstartable"], explanation
    assert answer in explanation["primary"]["text"]
    wait_until(
        lambda: "queuer.dev/status" in scene.read("wrong")["metadata"]["annotations"], timeout=15,
        describe="the job carries its reason",
    )  # fmt: skip
    status = scene.read("wrong")["metadata"]["annotations"]["queuer.dev/status"]
    assert status == f"{explanation['primary']['token']}: {explanation['primary']['text']}"
    assert process.metric("queuer_workloads_pending") >= 1, "counted and visible"

    scene.job("right", gpus=1, run_for="1s")
    scene.wait_state("right", "Succeeded")
    assert scene.read("wrong")["spec"]["suspend"] is True
    assert scene.pods("wrong") == []
    assert process.running


def test_a_queue_that_comes_later_lets_the_job_go(scene: Scene) -> None:
    scene.database.apply(tree(scene.namespace))
    scene.start()
    scene.job("early", queue="root.research.team-new", run_for="1s")
    scene.wait_reason("early", "Misconfigured")
    scene.database.apply(tree(scene.namespace, team_new={}))
    scene.wait_state("early", "Succeeded")
    annotations = scene.read("early")["metadata"]["annotations"]
    assert "Misconfigured" not in annotations.get("queuer.dev/status", "")


def test_a_namespace_that_the_queue_does_not_serve(scene: Scene) -> None:
    scene.database.apply(tree("somewhere-else"))
    scene.start()
    scene.job("outside")
    reason = scene.wait_reason("outside", "Misconfigured")
    assert scene.namespace in reason["text"]
    assert "somewhere-else" in reason["text"]


def test_a_level_whose_label_no_node_carries(scene: Scene) -> None:
    document = tree(scene.namespace)
    document["topology"] = {"levels": ["example.com/zone", "topology.kubernetes.io/rack"]}
    scene.database.apply(document)
    scene.start()
    scene.job("lost", annotations=required("zone"))
    reason = scene.wait_reason("lost", "Misconfigured")
    assert "example.com/zone" in reason["text"]


def test_a_namespace_that_opts_out_and_in_again(scene: Scene) -> None:
    """A job that waits there stays visible, waits in its queue again, and starts when there is room."""
    scene.database.apply(tree(scene.namespace, **LIMIT))
    process = scene.start()
    scene.job("holds", gpus=8, pods=2)
    scene.wait_state("holds", "Running")
    scene.job("waits", gpus=8)
    scene.wait_reason("waits", "WaitingForQuota")
    kubectl(scene.cluster, "admin", "label", "namespace", scene.namespace, "queuer.dev/managed-")
    scene.wait_reason("waits", "Suspended", timeout=15)
    assert scene.database.workload("waits", scene.namespace)["deleted_at"] is None
    assert scene.state("holds") == "Running", "what holds quota is followed"
    kubectl(scene.cluster, "admin", "label", "namespace", scene.namespace, "queuer.dev/managed=true")
    scene.wait_reason("waits", "WaitingForQuota", timeout=15)
    scene.delete("holds")
    scene.wait_state("waits", "Running")
    assert process.metric("queuer_leader_epoch") == 1, "the term goes on"


def test_jobs_and_roles_of_no_pods(scene: Scene) -> None:
    """A job that asks for nothing at all is told so, unless Kubernetes ends it by itself."""
    scene.database.apply(tree(scene.namespace))
    scene.start()
    scene.job("paused", spec={"parallelism": 0})
    scene.job("done", spec={"parallelism": 1, "completions": 0})
    scene.pytorchjob("alone", workers=0, run_for="1s")
    found = pytorchjob_manifest("empty", namespace=scene.namespace, queue=TEAM_A, workers=1, run_for="1s")
    found["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"] = 0
    create(scene.cluster, found)
    assert "asks for no pod" in scene.wait_reason("paused", "Misconfigured")["text"]
    scene.wait_state("alone", "Succeeded")
    scene.wait_state("empty", "Succeeded")
    conditions = scene.read("done")["status"].get("conditions", [])
    assert [c["type"] for c in conditions if c["status"] == "True"][-1:] == ["Complete"], (
        "without a start of ours"
    )
    assert scene.pods("paused") == scene.pods("done") == []
