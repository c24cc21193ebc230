"""Evicted work leaves whole, comes back elsewhere by one PATCH with its own terms intact, and is never
counted twice.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from queuer.domain.reasons.run_sentences import PROVED
from tests.e2e.controller import GPU, tree
from tests.e2e.scene import TEAM_A, TEAM_B, Scene, required
from tests.e2e.support import Refused, create, kubectl, pod_manifest, read, slow_to_end, wait_until

OWN_SELECTOR = {"kubernetes.io/os": "linux"}


def _templates(found: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    if kind == "Job":
        return [found["spec"]["template"]["spec"]]
    return [replica["template"]["spec"] for replica in found["spec"]["pytorchReplicaSpecs"].values()]


@pytest.mark.parametrize("kind", ["Job", "PyTorchJob"])
def test_reclaimed_work_is_admitted_again_in_another_rack(scene: Scene, kind: str) -> None:
    """team-b borrows what team-a is guaranteed; team-a takes it back.

    Team-b returns when there is room elsewhere.
    """
    nodes = scene.nodes()
    elsewhere = sorted(node for node, rack in nodes.items() if rack == "r02")
    scene.cordon(sorted(node for node, rack in nodes.items() if rack in ("r03", "r04")))
    scene.cordon(elsewhere)
    quota = {"team_a": {"quota": [{"resource": GPU, "guaranteed": 32}]}}
    scene.database.apply(tree(scene.namespace, **quota))
    scene.start()
    scene.of_kind(kind, "borrower", pods=4, gpus=8, queue=TEAM_B, annotations=required("rack"))
    scene.wait_state("borrower", "Running")
    assert scene.racks("borrower") == {"r01"}
    submitted = scene.database.workload("borrower", scene.namespace)["submitted"]
    first = {p["metadata"]["uid"] for p in scene.pods("borrower")}

    scene.job("owner", pods=4, gpus=8, queue=TEAM_A, annotations=required("rack"))
    scene.wait_state("owner", "Running")
    assert scene.racks("owner") == {"r01"}
    scene.wait_state("borrower", "Queued")
    assert scene.pods("borrower") == []
    assert scene.database.used() == 32, "the first incarnation is paid back, the owner is charged"
    evicted = scene.database.rows("SELECT end_cause FROM admission WHERE ended_at IS NOT NULL")
    assert [row["end_cause"] for row in evicted] == ["reclaim"]

    scene.uncordon(elsewhere)
    scene.wait_state("borrower", "Running")
    row = scene.database.workload("borrower", scene.namespace)
    assert (row["attempt"], row["submitted"]) == (2, submitted)
    assert scene.racks("borrower") == {"r02"}
    pods = scene.pods("borrower")
    assert len(pods) == 4
    assert not first & {p["metadata"]["uid"] for p in pods}
    assert scene.database.used() == 64
    assert len(scene.database.open_rows()) == (2 if kind == "Job" else 3), "one open row per pod set"
    found = scene.read("borrower", kind)
    for template in _templates(found, kind):
        assert "r01" not in str(template), "nothing of the first admission is left in the template"
    if kind == "Job":
        assert found["status"].get("failed", 0) == 0, "backoffLimit is untouched"


def test_a_job_that_is_suspended_by_its_user_gives_its_place_up_and_queues_again(scene: Scene) -> None:
    scene.database.apply(tree(scene.namespace))
    scene.start()
    scene.job("mine", pods=2, gpus=8)
    scene.wait_state("mine", "Running")
    kubectl(
        scene.cluster, "alice", "patch", "job", "mine", "-n", scene.namespace, "--type=merge",
        '-p={"spec":{"suspend":true}}',
    )  # fmt: skip
    wait_until(
        lambda: scene.database.workload("mine", scene.namespace)["attempt"] == 2, timeout=30,
        describe=lambda: scene.story("mine"),
    )  # fmt: skip
    scene.wait_state("mine", "Running")
    assert scene.database.used() == 16


def test_higher_priority_displaces_lower_in_the_same_queue(scene: Scene) -> None:
    scene.database.apply(tree(scene.namespace, team_a={"quota": [{"resource": GPU, "limit": 16}]}))
    scene.start()
    scene.job("low", pods=2, gpus=8, spec=slow_to_end())
    scene.wait_state("low", "Running")
    scene.job("high", pods=2, gpus=8, labels={"queuer.dev/priority-class": "queuer-high"})
    waits = scene.wait_reason("high", "WaitingForPreemptedWorkloads")["text"]
    scene.let_go("low")
    scene.wait_state("high", "Running")
    assert scene.state("low") == "Queued"
    told = scene.wait_event("low", "Evicted")
    whose = f"evicted for {scene.namespace}/high in {TEAM_A}, which asks 16 gpu"
    right, _, why = told.partition("; ")
    assert right == f"{whose} and goes first by its priority, 1000 over 0 (preempt)"
    loses = rf"loses? \d+ gpu-seconds of work: {re.escape(PROVED)}"
    assert re.fullmatch(f"it {loses}", why), told
    assert re.search(f"Evictions for it {loses}", waits), waits
    scene.delete("high")
    scene.wait_state("low", "Running")


@pytest.mark.parametrize(
    ("kind", "part"), [("PyTorchJob", "training-operator"), ("Job", "kube-controller-manager")]
)
def test_pods_that_a_dead_controller_leaves_are_deleted(scene: Scene, kind: str, part: str) -> None:
    """The waiting gang gets the room, and the evicted job runs again once its controller is back.

    No Job counts a pod as failed for that: with a back-off limit of 0 it would be lost. Queuer's own controller
    restarts meanwhile: the next one knows since when the job leaves.
    """
    scene.database.apply(tree(scene.namespace, team_a={"quota": [{"resource": GPU, "limit": 16}]}))
    first = scene.start(QUEUER_LEFT_PODS="4")
    scene.of_kind(kind, "low", pods=2, gpus=8)
    scene.wait_state("low", "Running")
    scene.part(part, running=False)
    labels = {"queuer.dev/priority-class": "queuer-high"}
    for name in ("high-0", "high-1"):
        pod = pod_manifest(
            name, namespace=scene.namespace, queue=TEAM_A, gpus=8, group="high", size=2, labels=labels
        )
        create(scene.cluster, pod)
    scene.wait_state("low", "Evicting")
    first.kill()
    scene.start(QUEUER_LEFT_PODS="4")
    scene.wait_state("high", "Running", timeout=60)
    assert scene.pods("low") == []
    scene.wait_state("low", "Queued")
    assert scene.database.used() == 16
    told = scene.database.rows("SELECT text FROM reason_transition WHERE text LIKE '%%after the eviction%%'")
    assert [re.sub(r"\d+ s", "", row["text"]) for row in told] == [
        f"2 pods were left  after the eviction: the controller of {kind} objects did not delete them, "
        "and Queuer does"
    ]
    scene.part(part, running=True)
    for name in ("high-0", "high-1"):
        scene.delete(name, "Pod", "--wait=false")
    scene.wait_state("low", "Running", timeout=60)
    path = f"/apis/batch/v1/namespaces/{scene.namespace}/jobs"
    assert not [j for j in read(scene.cluster, path)["items"] if j["status"].get("failed")]


def test_an_eviction_that_anothers_policy_refuses_is_told_and_goes_on(scene: Scene) -> None:
    """Nobody would know why the job keeps its room, which it is charged for until the write goes through."""
    scene.database.apply(tree(scene.namespace, team_a={"quota": [{"resource": GPU, "limit": 16}]}))
    scene.start()
    scene.job("low", pods=2, gpus=8)
    scene.wait_state("low", "Running")
    remove = _refuse_suspending(scene)
    scene.job("high", pods=2, gpus=8, labels={"queuer.dev/priority-class": "queuer-high"})
    told = scene.wait_event("low", "WriteRefused", timeout=75)
    assert told.startswith("the API server refuses the write that takes the job back, since ")
    assert "suspends no job on Fridays" in told
    assert scene.wait_reason("low", "AdmittedNotPlaced")["text"].startswith(told)
    assert (scene.state("low"), len(scene.pods("low")), scene.database.used()) == ("Evicting", 2, 16)
    remove()
    scene.wait_state("high", "Running", timeout=60)
    assert scene.state("low") == "Queued"


def _refuse_suspending(scene: Scene) -> Callable[[], None]:
    """Somebody's policy that forbids what an eviction does; returns what takes it away."""
    name = f"fridays-{scene.namespace}"
    spec = {
        "failurePolicy": "Fail",
        "matchConstraints": {
            "resourceRules": [
                {"apiGroups": ["batch"], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["jobs"]}
            ],
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": scene.namespace}},
        },
        "validations": [
            {"expression": "!object.spec.suspend || oldObject.spec.suspend", "message": "suspends no job on Fridays"}
        ],
    }  # fmt: skip
    kinds = {
        "ValidatingAdmissionPolicy": spec,
        "ValidatingAdmissionPolicyBinding": {"policyName": name, "validationActions": ["Deny"]},
    }

    def remove() -> None:
        for kind in kinds:
            kubectl(scene.cluster, "admin", "delete", kind, name, "--ignore-not-found")

    scene.exits.callback(remove)
    group = {"apiVersion": "admissionregistration.k8s.io/v1", "metadata": {"name": name}}
    for kind, wanted in kinds.items():
        create(scene.cluster, {**group, "kind": kind, "spec": wanted}, identity="admin")
    where = ("-n", scene.namespace, "--type=merge", '-p={"spec":{"suspend":true}}', "--dry-run=server")

    def refuses() -> bool:
        try:
            kubectl(scene.cluster, "alice", "patch", "job", "low", *where)
        except Refused as refused:
            return "Fridays" in str(refused)
        return False

    wait_until(refuses, timeout=30, describe="the policy is in force")
    return remove


def test_own_node_selector_survives_admission_and_eviction(scene: Scene) -> None:
    nodes = sorted(scene.nodes())
    scene.cordon(nodes[1:])
    scene.database.apply(tree(scene.namespace, team_a={"quota": [{"resource": GPU, "guaranteed": 8}]}))
    scene.start()
    limits = {GPU: "8"}
    template = {"spec": {
        "restartPolicy": "Never", "nodeSelector": OWN_SELECTOR,
        "containers": [{"name": "main", "image": "x", "resources": {"limits": limits}}],
    }}  # fmt: skip
    scene.job("picky", queue=TEAM_B, spec={"template": template})
    scene.wait_state("picky", "Running")
    scene.job("owner", gpus=8, queue=TEAM_A)
    scene.wait_state("owner", "Running")
    scene.wait_state("picky", "Queued")
    selector = scene.read("picky")["spec"]["template"]["spec"]["nodeSelector"]
    assert OWN_SELECTOR.items() <= selector.items()


def test_a_hold_that_was_set_while_it_ran_counts_when_it_is_back_in_the_queue(scene: Scene) -> None:
    scene.database.apply(tree(scene.namespace, team_a={"quota": [{"resource": GPU, "limit": 16}]}))
    scene.start()
    scene.job("low", pods=2, gpus=8)
    scene.wait_state("low", "Running")
    kubectl(scene.cluster, "alice", "annotate", "job", "low", "-n", scene.namespace, "queuer.dev/hold=true")
    scene.job("high", pods=2, gpus=8, labels={"queuer.dev/priority-class": "queuer-high"})
    scene.wait_state("high", "Running")
    scene.wait_state("low", "Held")
    assert scene.wait_reason("low", "OnHold")
