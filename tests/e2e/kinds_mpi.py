"""An MPIJob, whose launcher is a Job.

`make conformance` names this file, no other run does: the cluster has the controller there.
"""

from __future__ import annotations

from typing import Any

import pytest

from queuer.kube.objects import JOBS
from tests.e2e.controller import tree
from tests.e2e.scene import Scene, required
from tests.e2e.support import Refused, create, kubectl, read, wait_until
from tests.e2e.test_commands import command
from tests.e2e.test_conformance import PODS, patch_job


@pytest.mark.parametrize("child", ["TrainJob", "MPIJob"])
def test_what_a_queued_job_makes_needs_no_queue_where_one_is_required(scene: Scene, child: str) -> None:
    required_ = "queuer.dev/managed=required"
    kubectl(scene.cluster, "admin", "label", "namespace", scene.namespace, required_, "--overwrite")
    scene.database.apply(tree(scene.namespace))
    scene.start()
    scene.of_kind(child, "gang", pods=PODS)
    scene.wait_state("gang", "Running")


class TestMPIJob:
    """A kind of which one role is a Job, known by its owner alone."""

    def test_its_launcher_is_suspended_where_its_operator_leaves_it_running(self, scene: Scene) -> None:
        """Else the Job controller, which lives, would make its pod anew each time that Queuer deletes it."""
        scene.database.apply(tree(scene.namespace))
        scene.start(QUEUER_LEFT_PODS="4")
        scene.of_kind("MPIJob", "gang", pods=PODS, gpus=8)
        scene.wait_state("gang", "Running")
        scene.part("mpi-operator", running=False)
        command(scene, "gang", ":evict")
        wait_until(lambda: not scene.pods("gang"), timeout=60, describe=lambda: scene.story("gang"))
        assert self._launcher(scene, "gang")["spec"]["suspend"] is True
        scene.wait_state("gang", "Queued", timeout=60)
        assert scene.database.used() == 0
        scene.part("mpi-operator", running=True)
        scene.wait_state("gang", "Running", timeout=150)
        assert not self._launcher(scene, "gang")["status"].get("failed")

    def _launcher(self, scene: Scene, name: str) -> dict[str, Any]:
        path = f"/apis/{JOBS.group}/{JOBS.version}/namespaces/{scene.namespace}/jobs"
        items = read(scene.cluster, path, labelSelector=f"app={name}")["items"]
        return dict(items[0]) if items else {}

    def test_nobody_else_makes_changes_or_orphans_its_launcher(self, scene: Scene) -> None:
        scene.of_kind("MPIJob", "held", pods=PODS)
        wait_until(lambda: self._launcher(scene, "held"), timeout=30, describe="its launcher is made")
        launcher = self._launcher(scene, "held")
        name, meta = launcher["metadata"]["name"], launcher["metadata"]
        for change in (
            {"spec": {"suspend": False}},
            {"spec": {"template": {"metadata": {"labels": {"queuer.dev/workload": "another"}}}}},
            {"metadata": {"labels": {"app": None}}},
            {"metadata": {"ownerReferences": None}},
        ):
            with pytest.raises(Refused, match="queuer-guard-made"):
                patch_job(scene, "Job", name, change)
        with pytest.raises(Refused, match="queuer-guard-deletion"):
            scene.delete(name, "Job", "--cascade=orphan")
        forged = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {
                "name": "forged",
                **{k: meta[k] for k in ("namespace", "labels", "ownerReferences")},
            },
            "spec": {"template": {"spec": launcher["spec"]["template"]["spec"]}},
        }
        with pytest.raises(Refused, match="may give it a Job to own"):
            create(scene.cluster, forged)

    def test_its_launcher_never_queues_by_itself(self, scene: Scene) -> None:
        """Not even where the namespace gives a queue to every job."""
        scene.database.apply(tree(scene.namespace))
        label = "queuer.dev/default-queue=root.research.team-a"
        kubectl(scene.cluster, "admin", "label", "namespace", scene.namespace, label)
        scene.start()
        scene.of_kind("MPIJob", "gang", pods=PODS, queue=None)
        scene.wait_state("gang", "Running")
        rows = scene.database.rows("SELECT name, kind FROM workload WHERE namespace = %s", scene.namespace)
        assert [(row["name"], row["kind"]) for row in rows] == [("gang", "MPIJob")]

    def test_a_launcher_that_is_to_wait_for_workers_lands_with_them(self, scene: Scene) -> None:
        """Its controller makes the launcher of a suspended job at once, whatever it says."""
        scene.database.apply(tree(scene.namespace))
        scene.of_kind("MPIJob", "gang", pods=PODS)
        late = {"spec": {"launcherCreationPolicy": "WaitForWorkersReady", "runLauncherAsWorker": True}}
        patch_job(scene, "MPIJob", "gang", late)
        scene.start()
        scene.wait_state("gang", "Running")
        assert len(scene.pods("gang")) == PODS

    def test_one_write_starts_it_and_one_its_launcher_where_hosts_are_pinned(self, scene: Scene) -> None:
        scene.database.apply(tree(scene.namespace))
        scene.start()
        before = [scene.writes(kind).get("200", 0) for kind in ("mpijobs", "jobs")]
        scene.of_kind("MPIJob", "gang", pods=PODS, gpus=8, annotations=required("rack"))
        scene.wait_state("gang", "Running")
        after = [scene.writes(kind).get("200", 0) for kind in ("mpijobs", "jobs")]
        assert [now - then for now, then in zip(after, before, strict=True)] == [1, 1]

    def test_its_quota_is_returned_when_its_pods_are_gone(self, scene: Scene) -> None:
        """The launcher's Job goes before its pod, also for a controller that has not seen it."""
        scene.database.apply(tree(scene.namespace))
        first = scene.start()
        scene.of_kind("MPIJob", "gang", pods=PODS, gpus=2)
        scene.wait_state("gang", "Running")
        names = [p["metadata"]["name"] for p in scene.pods("gang")]
        kept = next(name for name in names if "launcher" in name)
        finalizer = ("--type=merge", '-p={"metadata":{"finalizers":["example.org/kept"]}}')
        kubectl(scene.cluster, "admin", "patch", "pod", kept, "-n", scene.namespace, *finalizer)
        scene.delete("gang", "MPIJob", "--wait=false")
        wait_until(lambda: not self._launcher(scene, "gang"), timeout=60, describe="its launcher is gone")
        wait_until(lambda: scene.database.used() == 2, timeout=30, describe=lambda: scene.story("gang"))
        first.stop()
        scene.start()
        assert scene.database.used() == 2
        freed = ("--type=merge", '-p={"metadata":{"finalizers":null}}')
        kubectl(scene.cluster, "admin", "patch", "pod", kept, "-n", scene.namespace, *freed)
        scene.wait_empty()
