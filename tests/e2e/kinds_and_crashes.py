"""A job of each kind while its controller dies or it is deleted: `make conformance` names this file, no other run does.

The plain kinds die at every failpoint in `tests.chaos`.
"""

from __future__ import annotations

import json

import msgspec
import pytest

from queuer.kube.gated import pod_patches
from queuer.kube.kinds.pod import group_of
from queuer.kube.objects import Pod
from tests.e2e.controller import tree
from tests.e2e.scene import TEAM_A, Scene, required
from tests.e2e.support import Refused, create, kubectl, pod_manifest, wait_until
from tests.e2e.test_conformance import PODS, patch_job, pytest_generate_tests, suspend_patch

__all__ = ["pytest_generate_tests"]


def test_a_controller_that_dies_at_each_write_starts_the_gang_once(scene: Scene, kind: str) -> None:
    """First with the admission committed, then with the job started, last with the ledger open after the end."""
    scene.database.apply(tree(scene.namespace))
    process = scene.another()
    process.start_without_waiting(QUEUER_FAILPOINTS="committed=kill")
    scene.of_kind(kind, "gang", pods=PODS, gpus=8, annotations=required("rack"))
    process.wait_gone(timeout=60)
    assert scene.pods("gang") == []
    process.start_without_waiting(QUEUER_FAILPOINTS="admitted=kill")
    process.wait_gone(timeout=60)
    process.start()
    scene.wait_state("gang", "Running", timeout=60)
    assert len(scene.pods("gang")) == PODS
    assert len(scene.racks("gang")) == 1
    assert scene.database.used() == 8 * PODS
    assert scene.database.workload("gang", scene.namespace)["attempt"] == 1
    process.stop()
    process.start_without_waiting(QUEUER_FAILPOINTS="before-release=kill")
    scene.delete("gang", kind)
    process.wait_gone(timeout=60)
    process.start()
    scene.wait_empty(timeout=60)


@pytest.mark.parametrize("point", ["taken-in", "committed", "admitted"])
def test_a_gang_is_deleted_in_each_state_while_nobody_looks(scene: Scene, kind: str, point: str) -> None:
    scene.database.apply(tree(scene.namespace))
    process = scene.another()
    process.start_without_waiting(QUEUER_FAILPOINTS=f"{point}=kill")
    scene.of_kind(kind, "gang", pods=PODS, gpus=8, annotations=required("rack"))
    process.wait_gone(timeout=60)
    scene.delete("gang", kind)
    process.start()
    scene.job("next", pods=1, gpus=8)
    scene.wait_state("next", "Running", timeout=60)
    scene.delete("next")
    scene.wait_empty(timeout=60)
    assert not scene.pods("gang")


def test_its_owner_holds_it_lets_it_go_and_asks_for_a_rack(scene: Scene, kind: str) -> None:
    """Edits count while it waits; one that runs keeps what it was started with."""
    scene.database.apply(tree(scene.namespace))
    scene.of_kind(kind, "gang", pods=PODS, gpus=8, annotations={"queuer.dev/hold": "true"})
    scene.start()
    scene.wait_state("gang", "Held")
    change = {"queuer.dev/hold": None, "queuer.dev/topology-required": "rack"}
    patch_job(scene, kind, "gang", {"metadata": {"annotations": change}})
    scene.wait_state("gang", "Running")
    assert len(scene.racks("gang")) == 1
    patch_job(scene, kind, "gang", {"metadata": {"annotations": {"queuer.dev/hold": "true"}}})
    labels = {"queuer.dev/queue": "root.research.team-b"}
    with pytest.raises(Refused, match="the queue of a started job cannot change"):
        patch_job(scene, kind, "gang", {"metadata": {"labels": labels}})
    assert scene.state("gang") == "Running"
    patch_job(scene, kind, "gang", suspend_patch(kind, True))
    scene.wait_state("gang", "Held", timeout=60)
    wait_until(lambda: not scene.pods("gang"), timeout=30, describe=lambda: scene.story("gang"))
    scene.wait_empty()


def _group(scene: Scene) -> None:
    for i in range(PODS):
        pod = pod_manifest(
            f"gang-{i}", namespace=scene.namespace, queue=TEAM_A, group="gang", size=PODS, gpus=8
        )
        create(scene.cluster, pod)


def test_a_group_of_pods_starts_once_where_its_controller_dies(scene: Scene) -> None:
    scene.database.apply(tree(scene.namespace))
    process = scene.another()
    process.start_without_waiting(QUEUER_FAILPOINTS="committed=kill")
    _group(scene)
    process.wait_gone(timeout=60)
    process.start_without_waiting(QUEUER_FAILPOINTS="admitted=kill")
    process.wait_gone(timeout=60)
    process.start()
    scene.wait_state("gang", "Running", timeout=60)
    assert scene.database.used() == 8 * PODS
    assert scene.database.workload("gang", scene.namespace)["attempt"] == 1


def test_a_group_that_was_started_in_part_is_started_whole(scene: Scene) -> None:
    """The controller died between the writes to its pods: the first of them is sent here in its name."""
    scene.database.apply(tree(scene.namespace))
    process = scene.another()
    process.start_without_waiting(QUEUER_FAILPOINTS="committed=kill")
    _group(scene)
    process.wait_gone(timeout=60)
    [entry] = scene.database.rows("SELECT uid, patch FROM outbox WHERE kind = 'admit'")
    group = group_of(entry["uid"], [msgspec.convert(pod, Pod) for pod in scene.pods("gang")])
    pod, change = next(iter(pod_patches(group, entry["patch"])))
    where = ("-n", scene.namespace, "--type=merge", f"-p={json.dumps(change)}")
    kubectl(scene.cluster, "queuer-controller", "patch", "pod", pod.metadata.name, *where)
    process.start()
    scene.wait_state("gang", "Running", timeout=60)
    assert len(scene.racks("gang")) == 1
    assert scene.database.used() == 8 * PODS
    assert scene.database.workload("gang", scene.namespace)["attempt"] == 1
