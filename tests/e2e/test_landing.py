"""A gang that does not land whole in time is rolled back whole, keeps its reason, and is placed elsewhere."""

from __future__ import annotations

import json
from typing import Any

from tests.e2e.controller import GPU, tree
from tests.e2e.scene import Scene, required
from tests.e2e.support import kubectl, wait_until


def test_half_of_the_rack_is_cordoned_between_patch_and_binding(scene: Scene) -> None:
    scene.database.apply(tree(scene.namespace))
    scene.start(QUEUER_LANDING_DEADLINE="8")
    scene.scheduler(running=False)
    scene.job("gang", pods=4, gpus=8, annotations=required("rack"))
    scene.wait_state("gang", "Placing")
    wait_until(lambda: len(scene.pods("gang")) == 4, timeout=60, describe="its pods exist, unbound")
    admission = scene.database.rows("SELECT domains, assignments FROM admission")[0]
    target = admission["domains"][0].split("/")[-1]
    hosts = sorted(node for node, rack in scene.nodes().items() if rack == target)
    scene.cordon(hosts[:2])
    scene.scheduler(running=True)

    wait_until(
        lambda: scene.database.workload("gang", scene.namespace)["attempt"] == 2, timeout=20,
        describe=lambda: f"rolled back within its deadline: {scene.story('gang')}",
    )  # fmt: skip
    scene.wait_state("gang", "Running")
    assert scene.racks("gang") != {target}
    assert len(scene.racks("gang")) == 1
    assert len(scene.pods("gang")) == 4, "no pod of the first landing is left"
    assert scene.database.used() == 32
    ended = scene.database.rows("SELECT end_cause FROM admission WHERE ended_at IS NOT NULL")
    assert [row["end_cause"] for row in ended] == ["landing-timeout"]
    reasons = scene.database.rows("SELECT token, text FROM reason_transition ORDER BY id")
    assert any("pods were not bound within" in row["text"] for row in reasons), reasons
    told = scene.wait_event("gang", "RolledBack")
    assert "2 of 4 pods were not bound within" in told
    assert "nodes are available" in told, "in the words of kube-scheduler"


def test_nothing_is_said_to_run_before_every_pod_is_bound(scene: Scene) -> None:
    scene.database.apply(tree(scene.namespace))
    scene.start()
    scene.scheduler(running=False)
    scene.job("gang", pods=2, gpus=8)
    scene.wait_state("gang", "Placing")
    wait_until(lambda: len(scene.pods("gang")) == 2, timeout=60, describe="its pods exist")
    assert scene.state("gang") == "Placing"
    assert scene.database.used() == 16, "charged from admission on"
    scene.scheduler(running=True)
    scene.wait_state("gang", "Running")


def test_a_gang_that_lands_nowhere_rests_and_others_use_the_nodes(scene: Scene) -> None:
    """Its volume is not there. A job that its owner holds and releases is tried at once."""
    scene.database.apply(tree(scene.namespace))
    scene.cordon(sorted(scene.nodes())[2:])
    scene.start(QUEUER_LANDING_DEADLINE="5", QUEUER_AVOID="60")
    scene.job("stuck", gpus=8, spec={"template": _with_volume("data")})
    wait_until(
        lambda: "Start 1 in a row" in str(scene.reason("stuck").get("text")), timeout=60,
        describe=lambda: f"its start has failed: {scene.story('stuck')}",
    )  # fmt: skip
    scene.wait_state("stuck", "Queued")
    told = scene.reason("stuck")
    assert told["token"] == "AdmittedNotPlaced"
    assert 'persistentvolumeclaim "data" not found' in told["text"]
    assert scene.database.used() == 0
    scene.job("others", pods=2, gpus=8)
    scene.wait_state("others", "Running")
    scene.delete("others")

    kubectl(scene.cluster, "alice", "annotate", "job", "stuck", "-n", scene.namespace, "queuer.dev/hold=true")
    scene.wait_state("stuck", "Held")
    kubectl(scene.cluster, "alice", "annotate", "job", "stuck", "-n", scene.namespace, "queuer.dev/hold-")
    scene.wait_state("stuck", "Placing", timeout=10)


def test_a_gang_whose_pods_are_refused_is_told_why(scene: Scene) -> None:
    """Its namespace allows no such pods, which shows when they are to be created."""
    scene.database.apply(tree(scene.namespace))
    scene.start(QUEUER_LANDING_DEADLINE="2")
    label = "pod-security.kubernetes.io/enforce=restricted"
    kubectl(scene.cluster, "admin", "label", "namespace", scene.namespace, label)
    scene.job("root-user", pods=2, gpus=1)
    wait_until(
        lambda: "pods were refused" in str(scene.reason("root-user").get("text")), timeout=60,
        describe=lambda: f"the refusal is told: {scene.story('root-user')}",
    )  # fmt: skip
    told = scene.reason("root-user")
    assert told["token"] == "AdmittedNotPlaced"
    assert "violates PodSecurity" in told["text"]
    assert "tried again at" in told["text"]


def _with_volume(claim: str) -> dict[str, Any]:
    """A template of one 8-GPU container that mounts the claim."""
    container = {"name": "main", "image": "x", "resources": {"limits": {GPU: "8", "cpu": "1"}}}
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": claim}}]
    return {"spec": {"restartPolicy": "Never", "containers": [container], "volumes": volumes}}


def test_a_job_that_fails_says_which_pod_and_why(scene: Scene) -> None:
    """With the last words of the container; before that, that the running gang lost a pod."""
    scene.database.apply(tree(scene.namespace))
    scene.start()
    scene.job("fails", pods=2, gpus=8, spec={"backoffLimit": 0})
    scene.wait_state("fails", "Running")
    name = scene.pods("fails")[0]["metadata"]["name"]
    ended = {
        "exitCode": 3,
        "reason": "Error",
        "message": "no such file",
        "startedAt": None,
        "finishedAt": None,
    }
    status = {"phase": "Failed", "containerStatuses": [
        {"name": "main", "image": "x", "imageID": "", "ready": False, "restartCount": 0, "state": {"terminated": ended}}
    ]}  # fmt: skip
    kubectl(
        scene.cluster, "admin", "patch", "pod", name, "-n", scene.namespace, "--subresource=status",
        "--type=merge", "-p", json.dumps({"status": status}),
    )  # fmt: skip
    scene.wait_state("fails", "Failed")
    scene.wait_empty()
    told = scene.story("fails")
    assert f"pod {name} on " in told
    assert "ended with exit code 3: no such file; BackoffLimitExceeded" in told
