"""RayJobs and RayClusters, whose pods hang below what KubeRay makes.

`make conformance` names this file, no other run does: the cluster has the controller there.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from queuer.kube.kinds import BY_NAME
from tests.e2e.controller import tree
from tests.e2e.ray import dashboard, ray_manifest
from tests.e2e.scene import KINDS, TEAM_A, Scene, required
from tests.e2e.support import Refused, create, kubectl, read, wait_until
from tests.e2e.test_conformance import PODS, only_rack, patch_job, suspend_patch


class TestRay:
    """Kinds whose pods hang below objects that their controller makes: RayJob → RayCluster, RayJob → Job."""

    def _all(self, scene: Scene, kind: str) -> list[dict[str, Any]]:
        path = BY_NAME[kind].resource.path("", namespace=scene.namespace).rstrip("/")
        return list(read(scene.cluster, path)["items"])

    def _job(self, scene: Scene, name: str, **wanted: Any) -> None:
        """A RayJob whose work is submitted by a Job of its own."""
        scene.of_kind("RayJob", name, pods=PODS, mode="K8sJobMode", **wanted)

    def _submitted(self, scene: Scene, name: str) -> dict[str, Any]:
        """The pod that submits, once it is there."""
        found: list[dict[str, Any]] = []

        def bound() -> bool:
            found[:] = [p for p in scene.pods(name) if "ray.io/cluster" not in p["metadata"]["labels"]]
            return any("nodeName" in p["spec"] for p in found)

        wait_until(bound, timeout=60, describe=lambda: f"it is submitted: {scene.story(name)}")
        return found[0]

    def test_all_its_pods_are_charged_to_a_job(self, scene: Scene) -> None:
        """Not even where the namespace gives a queue to every job is anything of it queued by itself."""
        scene.database.apply(tree(scene.namespace))
        label = "queuer.dev/default-queue=root.research.team-a"
        kubectl(scene.cluster, "admin", "label", "namespace", scene.namespace, label)
        only_rack(scene, "r01")
        scene.start()
        self._job(scene, "gang", gpus=8, queue=None, annotations=required("rack"))
        scene.wait_state("gang", "Running", timeout=60)
        first = self._submitted(scene, "gang")
        assert first["metadata"]["labels"]["ray.io/group"] == "submitter"
        assert first["spec"]["priorityClassName"] == "queuer-default"
        assert scene.racks("gang") == {"r01"}
        assert len(scene.pods("gang")) == PODS + 1
        assert scene.database.used() == 8 * PODS
        rows = scene.database.rows("SELECT name, kind FROM workload WHERE namespace = %s", scene.namespace)
        assert [(row["name"], row["kind"]) for row in rows] == [("gang", "RayJob")]
        told = scene.database.rows(
            "SELECT type, data FROM event WHERE uid = %s",
            scene.database.workload("gang", scene.namespace)["uid"],
        )
        assert "something else" not in json.dumps(told, default=str)
        clusters = {c["metadata"]["name"] for c in self._all(scene, "RayCluster")}

        only_rack(scene, "r02")
        patch_job(scene, "RayJob", "gang", suspend_patch("RayJob", True))
        wait_until(
            lambda: scene.database.workload("gang", scene.namespace)["attempt"] == 2, timeout=60,
            describe=lambda: scene.story("gang"),
        )  # fmt: skip
        scene.wait_state("gang", "Running", timeout=60)
        second = self._submitted(scene, "gang")
        assert second["metadata"]["uid"] != first["metadata"]["uid"]
        assert scene.racks("gang") == {"r02"}
        assert not clusters & {c["metadata"]["name"] for c in self._all(scene, "RayCluster")}

    def test_what_it_makes_needs_no_queue_where_one_is_required(self, scene: Scene) -> None:
        required_ = "queuer.dev/managed=required"
        kubectl(scene.cluster, "admin", "label", "namespace", scene.namespace, required_, "--overwrite")
        scene.database.apply(tree(scene.namespace))
        scene.start()
        self._job(scene, "gang")
        self._submitted(scene, "gang")

    def test_it_is_given_back_while_its_cluster_starts(self, scene: Scene) -> None:
        """KubeRay suspends it from there, too."""
        scene.database.apply(tree(scene.namespace))
        scene.start()
        scene.scheduler(running=False)
        self._job(scene, "gang", gpus=1)
        wait_until(lambda: len(scene.pods("gang")) == PODS, timeout=60, describe=lambda: scene.story("gang"))
        hold = {"metadata": {"annotations": {"queuer.dev/hold": "true"}}, **suspend_patch("RayJob", True)}
        patch_job(scene, "RayJob", "gang", hold)
        scene.wait_state("gang", "Held", timeout=60)
        assert not scene.pods("gang")
        assert not scene.database.open_rows()
        scene.scheduler(running=True)
        patch_job(scene, "RayJob", "gang", {"metadata": {"annotations": {"queuer.dev/hold": None}}})
        scene.wait_state("gang", "Running", timeout=60)

    def test_it_ends_with_the_pod_that_submits(self, scene: Scene) -> None:
        scene.database.apply(tree(scene.namespace))
        scene.start()
        self._job(scene, "short", gpus=1, run_for="1s")
        with dashboard(scene.cluster, "short", scene.namespace, status="FAILED"):
            scene.wait_state("short", "Failed", timeout=60)
        scene.wait_empty()

    def test_a_job_that_kuberay_finds_wrong_fails_while_it_waits_and_stays_right_while_it_runs(
        self, scene: Scene
    ) -> None:
        """KubeRay would never suspend it any more."""
        scene.database.apply(tree(scene.namespace))
        scene.start()
        scene.of_kind("RayJob", "held", pods=PODS, annotations={"queuer.dev/hold": "true"})
        scene.of_kind("RayJob", "runs", pods=PODS)
        wrong = {"spec": {"backoffLimit": -1}}
        scene.wait_state("runs", "Running", timeout=60)
        with pytest.raises(Refused, match="a started RayJob stays as it is"):
            patch_job(scene, "RayJob", "runs", wrong)
        patch_job(scene, "RayJob", "held", wrong)
        scene.wait_state("held", "Failed", timeout=60)

    @pytest.mark.parametrize("of", ["RayJob", "RayCluster"])
    def test_a_cluster_that_scales_itself_waits_with_the_field(self, scene: Scene, of: str) -> None:
        scene.database.apply(tree(scene.namespace))
        scene.start()
        scene.of_kind(of, "grows", pods=PODS, cluster={"enableInTreeAutoscaling": True})
        assert "enableInTreeAutoscaling" in scene.wait_reason("grows", "Misconfigured")["text"]

    def test_a_started_cluster_never_grows(self, scene: Scene) -> None:
        scene.database.apply(tree(scene.namespace))
        scene.start()
        scene.of_kind("RayCluster", "gang", pods=PODS, gpus=2)
        scene.wait_state("gang", "Running", timeout=60)
        at = "/spec/workerGroupSpecs/0"

        def write(field: str, value: Any) -> None:
            body = json.dumps([{"op": "replace", "path": f"{at}/{field}", "value": value}])
            kubectl(
                scene.cluster, "alice", "patch", KINDS["RayCluster"], "gang", "-n", scene.namespace,
                "--type=json", f"-p={body}",
            )  # fmt: skip

        template = scene.read("gang", "RayCluster")["spec"]["workerGroupSpecs"][0]["template"]
        template["spec"]["containers"][0]["image"] = "ray:3"
        refused = {"replicas": 5, "minReplicas": 5, "maxReplicas": -1, "numOfHosts": 2, "template": template}
        for field, value in refused.items():
            with pytest.raises(Refused, match="queuer-guard-ray"):
                write(field, value)

    def test_what_a_job_without_a_queue_makes_is_left_alone(self, scene: Scene) -> None:
        """KubeRay's own finalizers, and whoever scales it."""
        scene.of_kind("RayJob", "free", pods=PODS, queue=None)
        wait_until(lambda: self._all(scene, "RayCluster"), timeout=60, describe="its RayCluster is made")
        name = self._all(scene, "RayCluster")[0]["metadata"]["name"]
        patch_job(
            scene, "RayCluster", name, {"metadata": {"finalizers": ["ray.io/gcs-ft-redis-cleanup-finalizer"]}}
        )
        scene.delete(name, "RayCluster", "--wait=false")
        patch_job(scene, "RayCluster", name, {"metadata": {"finalizers": None}})

    def test_nobody_else_makes_changes_or_orphans_what_a_job_makes(self, scene: Scene) -> None:
        scene.database.apply(tree(scene.namespace))
        scene.start()
        self._job(scene, "gang", gpus=1)
        scene.wait_state("gang", "Running", timeout=60)
        self._submitted(scene, "gang")
        cluster = self._all(scene, "RayCluster")[0]
        name, owners = cluster["metadata"]["name"], cluster["metadata"]["ownerReferences"]
        for kind, made in (("RayCluster", name), ("Job", "gang")):
            for change in (
                {"metadata": {"ownerReferences": None}},
                {"spec": {"suspend": True}},
                {"metadata": {"labels": {"queuer.dev/queue": "root.research.team-b"}}},
            ):
                with pytest.raises(Refused, match="queuer-guard"):
                    patch_job(scene, kind, made, change)
            with pytest.raises(Refused, match="queuer-guard-deletion"):
                scene.delete(made, kind, "--cascade=orphan")
        forged = ray_manifest("RayCluster", "forged", namespace=scene.namespace)
        with pytest.raises(Refused, match="may give it a Job to own"):
            create(scene.cluster, {**forged, "metadata": {**forged["metadata"], "ownerReferences": owners}})
        paid = ray_manifest("RayCluster", "paid", namespace=scene.namespace, queue=TEAM_A)
        template = paid["spec"]["workerGroupSpecs"][0]["template"]
        template["metadata"] = {"labels": {"queuer.dev/workload": owners[0]["uid"]}}
        with pytest.raises(Refused, match=r"queuer\.dev/workload is written by Queuer"):
            create(scene.cluster, paid)

    def test_fields_that_kuberay_fails_are_refused(self, scene: Scene) -> None:
        manifest = ray_manifest("RayJob", "kept", namespace=scene.namespace, queue=TEAM_A)
        for field, value in (
            ("shutdownAfterJobFinishes", False),
            ("clusterSelector", {"ray.io/cluster": "c"}),
        ):
            with pytest.raises(Refused, match=field):
                create(scene.cluster, {**manifest, "spec": {**manifest["spec"], field: value}})
