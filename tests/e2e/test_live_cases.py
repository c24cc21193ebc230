"""Manifests of `live_cases/`, each a kind of fault that other queues had: jobs and pods as Kubernetes makes them.

The first lines of a manifest say what must happen.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from tests.e2e.controller import GPU, tree
from tests.e2e.scene import TEAM_B, Scene
from tests.e2e.support import create, kubectl, wait_until

CASES = Path(__file__).parent / "live_cases"
KEEP = "example.org/keep"


def put(scene: Scene, case: str) -> None:
    """Create the jobs of a manifest as alice."""
    for manifest in yaml.safe_load_all((CASES / f"{case}.yaml").read_text()):
        manifest["metadata"]["namespace"] = scene.namespace
        create(scene.cluster, manifest)


def running(scene: Scene, name: str) -> list[str]:
    """Names of its pods that run and are not told to go."""
    pods = (p for p in scene.pods(name) if "deletionTimestamp" not in p["metadata"])
    return sorted(p["metadata"]["name"] for p in pods if p["status"]["phase"] == "Running")


def patch(scene: Scene, resource: str, name: str, body: Mapping[str, Any], *options: str) -> None:
    """Merge-patch an object as administrator."""
    said = ("-n", scene.namespace, "--type=merge", f"-p={json.dumps(body)}", *options)
    kubectl(scene.cluster, "admin", "patch", resource, name, *said)


def set_gpus(scene: Scene, node: str, gpus: int) -> None:
    """Change the allocatable GPUs of a node, as its device plug-in does."""
    body = {"status": {"allocatable": {GPU: str(gpus)}}}
    patch(scene, "node", node, body, "--subresource=status")


def hosts(scene: Scene, name: str) -> set[str]:
    """The nodes of a job's pods."""
    return {pod["spec"]["nodeName"] for pod in scene.pods(name)}


def wait_used(scene: Scene, gpus: int) -> None:
    """Wait until so many GPUs are charged."""
    wait_until(
        lambda: scene.database.used() == gpus, timeout=40,
        describe=lambda: f"{gpus} GPUs are charged: {scene.database.open_rows()}",
    )  # fmt: skip


def test_a_work_queue_and_a_tail_keep_what_is_left_of_them(scene: Scene) -> None:
    scene.database.apply(tree(scene.namespace))
    scene.start()
    put(scene, "work-queue")
    put(scene, "min-count-above-what-is-left")
    for name, pods in (("work-queue", 4), ("tail", 5)):
        scene.wait_state(name, "Running")
        assert len(running(scene, name)) == pods
    first, second, *_ = running(scene, "work-queue")
    scene.end(first)
    kubectl(scene.cluster, "admin", "delete", "pod", second, "-n", scene.namespace)
    done = running(scene, "tail")
    scene.end(*done)
    wait_until(
        lambda: len(set(running(scene, "tail")) - set(done)) == 5, timeout=40, describe="the next five run"
    )
    scene.end(*running(scene, "tail")[:2])
    wait_used(scene, 2 + 3)
    patch(scene, "job", "tail", {"spec": {"suspend": True}})
    wait_until(
        lambda: scene.database.workload("tail", scene.namespace)["attempt"] == 2
        and scene.state("tail") == "Running",
        timeout=60, describe=lambda: f"the rest runs again: {scene.story('tail')}",
    )  # fmt: skip
    assert len(running(scene, "tail")) == 3
    assert (scene.state("work-queue"), len(running(scene, "work-queue"))) == ("Running", 2)


def test_what_is_wrong_with_a_template_or_said_in_it_is_read_for_every_kind(scene: Scene) -> None:
    scene.database.apply(tree(scene.namespace))
    scene.start()
    put(scene, "templates-no-pod-can-be-made-of")
    put(scene, "class-of-the-workers-only")
    for name, said in (
        ("half-gpu", "'0.5' is no whole number"),
        ("request-over-limit", "4 is above the limit, 2"),
        ("gpu-without-limit", "8 has no limit"),
    ):
        assert said in scene.wait_reason(name, "Misconfigured")["text"]
    scene.wait_state("workers-class", "Held")
    assert scene.database.workload("workers-class", scene.namespace)["priority"] == 1000
    assert scene.database.used() == 0


def test_workers_that_outlive_their_master_are_charged_as_they_are(scene: Scene) -> None:
    scene.database.apply(tree(scene.namespace))
    scene.start()
    put(scene, "workers-outlive-the-master")
    scene.wait_state("outlived", "Running", timeout=60)
    scene.end("outlived-master-0")
    scene.wait_state("outlived", "Succeeded")
    wait_used(scene, 16)
    for left, worker in ((8, "outlived-worker-0"), (0, "outlived-worker-1")):
        kubectl(scene.cluster, "admin", "delete", "pod", worker, "-n", scene.namespace)
        wait_used(scene, left)


def test_workers_that_outlive_their_master_go_for_who_is_guaranteed_their_room(scene: Scene) -> None:
    """Their owner insists on `cleanPodPolicy: None`; the job stays as it ended."""
    scene.cordon(sorted(scene.nodes())[3:])
    scene.database.apply(tree(scene.namespace, team_b={"quota": [{"resource": GPU, "guaranteed": 24}]}))
    scene.start()
    put(scene, "workers-outlive-the-master")
    scene.wait_state("outlived", "Running", timeout=60)
    scene.end("outlived-master-0")
    scene.wait_state("outlived", "Succeeded")
    wait_used(scene, 16)
    scene.job("owner", queue=TEAM_B, pods=2, gpus=8)
    scene.wait_state("owner", "Running", timeout=60)
    assert (running(scene, "outlived"), scene.state("outlived")) == ([], "Succeeded")
    assert "takes back what root.research.team-b is guaranteed" in scene.wait_event("outlived", "Evicted")


def test_no_part_of_a_gang_runs_that_the_namespace_has_no_limits_for(scene: Scene) -> None:
    quota = {
        "apiVersion": "v1", "kind": "ResourceQuota",
        "metadata": {"name": "limits", "namespace": scene.namespace},
        "spec": {"hard": {"limits.cpu": "6"}},
    }  # fmt: skip
    create(scene.cluster, quota, identity="admin")
    scene.database.apply(tree(scene.namespace))
    scene.start()
    put(scene, "resource-quota-on-limits")
    silent = "ResourceQuota limits of namespace .* demands of every container: limits.cpu in main. Write it"
    assert re.search(silent, scene.wait_reason("silent", "Misconfigured")["text"])
    waits = scene.wait_reason("half", "ExceedsMaxQuota")
    told = f"ResourceQuota limits of namespace {scene.namespace} allows 6 limits.cpu; this job asks 8"
    assert waits["text"].startswith(told)
    patch(scene, "resourcequota", "limits", {"spec": {"hard": {"limits.cpu": "8"}}})
    scene.wait_state("half", "Running")
    assert scene.database.workload("half", scene.namespace)["attempt"] == 1
    assert (scene.state("silent"), scene.pods("silent")) == ("Queued", [])


def test_a_loss_under_work_is_not_taken_from_free_nodes(scene: Scene) -> None:
    scene.database.apply(tree(scene.namespace))
    scene.start()
    put(scene, "lost-under-work")
    there = ("dies", "goes", "fills", "seven")
    for name in there:
        scene.wait_state(name, "Running")
    [dies], [goes], [seven] = (hosts(scene, name) for name in ("dies", "goes", "seven"))
    idle = scene.nodes().keys() - hosts(scene, "fills") - {dies, goes, seven}
    scene.exits.callback(set_gpus, scene, dies, 8)
    set_gpus(scene, dies, 7)
    put(scene, "urgent-gpu")
    scene.wait_state("more", "Running")
    assert hosts(scene, "more") == {seven}
    set_gpus(scene, dies, 8)
    scene.remove_node(goes)
    put(scene, "urgent-node")
    scene.wait_state("next", "Running")
    assert hosts(scene, "next") == idle
    for name in there:
        row = scene.database.workload(name, scene.namespace)
        assert (row["state"], row["attempt"]) == ("Running", 1), scene.story(name)


def test_a_pod_has_its_grace_before_its_gang_is_given_up(scene: Scene) -> None:
    scene.database.apply(tree(scene.namespace))
    scene.start(QUEUER_LOST_PODS="20")
    put(scene, "slow-leavers")
    for name in ("slow", "brief"):
        scene.wait_state(name, "Running")
    gone = {name: running(scene, name)[0] for name in ("slow", "brief")}
    kubectl(scene.cluster, "admin", "delete", "pod", *gone.values(), "-n", scene.namespace, "--wait=false")
    scene.wait_state("brief", "Evicting", timeout=60)
    assert (scene.state("slow"), len(running(scene, "slow"))) == ("Running", 3)
    scene.end(gone["slow"], phase="Failed")
    wait_until(
        lambda: len(running(scene, "slow")) == 4, timeout=30,
        describe=lambda: f"the pod is replaced: {scene.story('slow')}",
    )  # fmt: skip
    assert scene.state("slow") == "Running"


def test_a_job_whose_deletion_is_held_up_is_offered_no_more(scene: Scene) -> None:
    """Its object stays for as long as what it owns does."""
    scene.database.apply(tree(scene.namespace))
    scene.start()
    meta = scene.job("kept", pods=1, gpus=8, annotations={"queuer.dev/hold": "true"})["metadata"]
    scene.wait_state("kept", "Held")
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "kept", "uid": meta["uid"]}
    owned = {
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {
            "name": "owned", "namespace": scene.namespace, "finalizers": [KEEP],
            "ownerReferences": [{**owner, "blockOwnerDeletion": True}],
        },
    }  # fmt: skip
    create(scene.cluster, owned, identity="admin")
    scene.exits.callback(patch, scene, "configmap", "owned", {"metadata": {"finalizers": None}})
    scene.delete("kept", "Job", "--cascade=foreground", "--wait=false")
    wait_until(
        lambda: scene.database.workload("kept", scene.namespace)["deleted_at"] is not None,
        timeout=30, describe=lambda: f"it is known to be deleted: {scene.story('kept')}",
    )  # fmt: skip
    assert scene.read("kept")["metadata"]["deletionTimestamp"]
