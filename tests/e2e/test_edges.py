"""A job that cannot start says why, in words that lead to the right answer, and disturbs nobody else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.e2e.controller import GPU, tree
from tests.e2e.scene import TEAM_A, Scene, required
from tests.e2e.support import create, kubectl, pytorchjob_manifest, wait_until

LIMIT = {"team_a": {"quota": [{"resource": GPU, "limit": 16}]}}


WRONG: Mapping[str, tuple[dict[str, Any], str, str]] = {
    "unknown-queue": ({"queue": "root.research.team-aa"}, "Misconfigured", "root.research.team-a"),
    "not-a-leaf": ({"queue": "root.research"}, "Misconfigured", "root.research.team-a"),
    "duration": ({"annotations": {"queuer.dev/max-runtime": "soon"}}, "Misconfigured", "max-runtime"),
    "boolean": ({"annotations": {"queuer.dev/preemptible": "perhaps"}}, "Misconfigured", "preemptible"),
    "minimum": ({"annotations": {"queuer.dev/min-count.main": "9"}}, "Misconfigured", "min-count.main"),
    "class": ({"labels": {"queuer.dev/priority-class": "queuer-hihg"}}, "Misconfigured", "queuer-high"),
    "too-large": ({"pods": 3, "gpus": 8}, "ExceedsMaxQuota", "16"),
    "level": ({"annotations": required("rak")}, "Misconfigured", "rack"),
}
"""Jobs by name, each with its token and a word of the answer."""


def test_what_its_owner_must_change_stays_suspended_and_says_so(scene: Scene) -> None:
    scene.database.apply(tree(scene.namespace, **LIMIT))
    process = scene.start()
    for name, (wanted, _, _) in WRONG.items():
        scene.job(name, **wanted)
    for name, (_, token, answer) in WRONG.items():
        scene.wait_reason(name, token, timeout=15)
        explanation = scene.database.workload(name, scene.namespace)["explanation"]
        assert explanation["unstartable"], explanation
        said = explanation["primary"]["text"]
        assert answer in said
        _wait_status(scene, name, f"{token}: {said}")
    assert process.metric("queuer_workloads_pending") >= len(WRONG), "counted and visible"
    scene.job("right", gpus=1, run_for="1s")
    scene.wait_state("right", "Succeeded")
    assert all(scene.read(name)["spec"]["suspend"] for name in WRONG)
    assert {p["metadata"]["labels"]["batch.kubernetes.io/job-name"] for p in scene.pods()} == {"right"}
    assert process.running


def _wait_status(scene: Scene, name: str, said: str) -> None:
    def carried() -> str:
        return str(scene.read(name)["metadata"]["annotations"].get("queuer.dev/status", ""))

    wait_until(lambda: carried() == said, describe=lambda: f"the job carries {said}: {carried()}")


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

    def ended() -> bool:
        conditions = scene.read("done")["status"].get("conditions", [])
        return [c["type"] for c in conditions if c["status"] == "True"][-1:] == ["Complete"]

    wait_until(ended, describe=lambda: f"it ends without a start of ours: {scene.read('done')['status']}")
    assert scene.pods("paused") == scene.pods("done") == []
