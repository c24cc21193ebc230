"""Capacity is given away when pods are gone, not when an object says that it is over."""

from __future__ import annotations

from tests.e2e.controller import GPU, tree
from tests.e2e.scene import TEAM_A, TEAM_B, Scene
from tests.e2e.support import kubectl, slow_to_end, wait_until


def test_orphans_of_a_deleted_job_are_charged_until_they_are_gone(scene: Scene) -> None:
    scene.database.apply(tree(scene.namespace))
    process = scene.start()
    scene.job("parent", pods=2, gpus=8)
    scene.wait_state("parent", "Running")
    for behind_glass in (("annotate", "queuer.dev/break-glass=drill"), ("delete", "--cascade=orphan")):
        verb, option = behind_glass
        kubectl(scene.cluster, "admin", verb, "job", "parent", "-n", scene.namespace, option)
    wait_until(
        lambda: scene.database.workload("parent", scene.namespace)["deleted_at"] is not None, timeout=20,
        describe=lambda: scene.story("parent"),
    )  # fmt: skip
    pods = scene.pods("parent")
    assert len(pods) == 2, "the orphans run on"
    assert scene.database.used() == 16

    process.kill()  # what is charged must not hang on this process's memory
    process.start().wait_leading()
    assert scene.database.used() == 16
    for pod in pods:
        kubectl(scene.cluster, "alice", "delete", "pod", pod["metadata"]["name"], "-n", scene.namespace)
    scene.wait_empty()


def test_a_deleted_job_is_charged_while_its_pods_terminate(scene: Scene) -> None:
    scene.database.apply(
        tree(scene.namespace, team_a={"quota": [{"resource": "nvidia.com/gpu", "limit": 16}]})
    )
    scene.start()
    scene.job("slow", pods=2, gpus=8, spec=slow_to_end())
    scene.wait_state("slow", "Running")
    scene.job("next", pods=2, gpus=8)
    scene.delete("slow", "Job", "--wait=false")
    wait_until(
        lambda: scene.database.workload("slow", scene.namespace)["deleted_at"] is not None, timeout=20,
        describe="its deletion is noticed",
    )  # fmt: skip
    scene.wait_leaving("slow")
    assert scene.database.used() == 16
    assert scene.pods("next") == []
    scene.let_go("slow")
    scene.wait_state("next", "Running")


def test_nobody_is_evicted_for_a_gang_that_fits_once_a_deleted_job_has_gone(scene: Scene) -> None:
    """Both nodes are lent to team-b; of one the job is deleted, and its pod takes its time."""
    scene.cordon(sorted(scene.nodes())[2:])
    scene.database.apply(tree(scene.namespace, team_a={"quota": [{"resource": GPU, "guaranteed": 16}]}))
    scene.start()
    scene.job("out", gpus=8, queue=TEAM_B, spec=slow_to_end())
    scene.job("stays", gpus=8, queue=TEAM_B)
    scene.wait_state("out", "Running")
    scene.wait_state("stays", "Running")
    scene.delete("out", "Job", "--wait=false")
    wait_until(
        lambda: scene.database.workload("out", scene.namespace)["deleted_at"] is not None, timeout=20,
        describe=lambda: scene.story("out"),
    )  # fmt: skip
    scene.job("owner", gpus=8, queue=TEAM_A)
    waits = scene.wait_reason("owner", "WaitingForPreemptedWorkloads")
    assert f"when the pods of {scene.namespace}/out have left" in waits["text"]
    scene.let_go("out")
    scene.wait_state("owner", "Running")
    assert (scene.state("stays"), scene.database.workload("stays", scene.namespace)["attempt"]) == (
        "Running",
        1,
    )


def test_a_finished_pod_frees_its_node_at_once(scene: Scene) -> None:
    scene.database.apply(tree(scene.namespace))
    nodes = sorted(scene.nodes())
    scene.cordon(nodes[1:])
    scene.start()
    scene.job("first", pods=1, gpus=8, run_for="1s")
    scene.job("second", pods=1, gpus=8, run_for="1s")
    scene.wait_state("first", "Succeeded")
    scene.wait_state("second", "Succeeded")
    scene.wait_empty()
    assert len(scene.pods("first")) == 1, "the pod object is still there, and holds nothing"


def test_pods_that_will_not_run_again_are_paid_for_no_longer(scene: Scene) -> None:
    """Of four pods one succeeds, and the owner gives up two: who waits starts beside what is left."""
    scene.database.apply(tree(scene.namespace, team_a={"quota": [{"resource": GPU, "limit": 32}]}))
    scene.start()
    scene.job("wide", pods=4, gpus=8)
    scene.wait_state("wide", "Running")
    scene.job("next", pods=3, gpus=8)
    scene.wait_reason("next", "WaitingForQuota")
    ends = scene.pods("wide")[0]["metadata"]["name"]
    scene.end(ends)
    wait_until(
        lambda: scene.database.used() == 24, timeout=30,
        describe=lambda: f"one is paid back: {scene.story('wide')}",
    )  # fmt: skip
    patch = '-p={"spec":{"parallelism":1}}'
    kubectl(scene.cluster, "alice", "patch", "job", "wide", "-n", scene.namespace, "--type=merge", patch)
    scene.wait_state("next", "Running")
    assert (scene.state("wide"), scene.database.used()) == ("Running", 32)
    assert scene.database.workload("wide", scene.namespace)["attempt"] == 1
