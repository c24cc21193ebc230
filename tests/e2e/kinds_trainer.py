"""A TrainJob, whose JobSet and its Jobs are its own.

`make conformance` names this file, no other run does: the cluster has the controller there.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from queuer.kube.kinds import BY_NAME
from queuer.local.fleet import RACK
from tests.e2e.controller import tree
from tests.e2e.scene import TEAM_A, Scene, required
from tests.e2e.support import Refused, create, jobset_manifest, kubectl, read, runtime_manifest, wait_until
from tests.e2e.test_commands import command
from tests.e2e.test_conformance import PODS, made_jobs, only_rack, patch_job, suspend_patch

WHEN = "2026-01-01T00:00:00Z"
"""Of an entry of a TrainJob: without it the Trainer writes one, and quantities as texts where they must not change."""


class TestTrainJob:
    """A kind that is read from the JobSet which its controller makes of it."""

    def _jobset(self, scene: Scene, name: str) -> dict[str, Any] | None:
        path = BY_NAME["JobSet"].resource.path("", namespace=scene.namespace).rstrip("/")
        return next((j for j in read(scene.cluster, path)["items"] if j["metadata"]["name"] == name), None)

    def test_what_it_makes_never_queues_by_itself(self, scene: Scene) -> None:
        """Not even where the namespace gives a queue to every job."""
        scene.database.apply(tree(scene.namespace))
        label = "queuer.dev/default-queue=root.research.team-a"
        kubectl(scene.cluster, "admin", "label", "namespace", scene.namespace, label)
        scene.start()
        scene.of_kind("TrainJob", "gang", pods=PODS, queue=None)
        scene.wait_state("gang", "Running")
        rows = scene.database.rows("SELECT name, kind FROM workload WHERE namespace = %s", scene.namespace)
        assert [(row["name"], row["kind"]) for row in rows] == [("gang", "TrainJob")]
        pods = scene.pods("gang")
        assert {pod["spec"]["priorityClassName"] for pod in pods} == {"queuer-default"}

    def test_nobody_else_makes_changes_starts_or_orphans_its_jobset(self, scene: Scene) -> None:
        scene.of_kind("TrainJob", "held", pods=PODS)
        found = wait_until(lambda: self._jobset(scene, "held"), timeout=30, describe="its JobSet is made")
        assert found is not None
        for change in (
            {"spec": {"suspend": False}},
            {"metadata": {"ownerReferences": None}},
            {"metadata": {"labels": {"queuer.dev/queue": TEAM_A}}},
        ):
            with pytest.raises(Refused, match=r"queuer-guard"):
                patch_job(scene, "JobSet", "held", change)
        for options in ((), ("--cascade=orphan",)):
            with pytest.raises(Refused, match="queuer-guard-deletion"):
                scene.delete("held", "JobSet", *options)
        forged = jobset_manifest("forged", namespace=scene.namespace)
        forged["metadata"]["ownerReferences"] = found["metadata"]["ownerReferences"]
        with pytest.raises(Refused, match="may give it a Job to own"):
            create(scene.cluster, forged)
        paid = jobset_manifest("paid", namespace=scene.namespace)
        template = paid["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
        template["metadata"]["labels"] = {
            "queuer.dev/workload": found["metadata"]["ownerReferences"][0]["uid"]
        }
        with pytest.raises(Refused, match=r"queuer\.dev/workload is written by Queuer"):
            create(scene.cluster, paid)
        with pytest.raises(Refused, match="written by Queuer only"):
            patch_job(
                scene,
                "TrainJob",
                "held",
                {"spec": {"runtimePatches": [{"manager": "queuer.dev/mine", "time": WHEN}]}},
            )

    def test_a_queue_label_in_its_entries_is_refused(self, scene: Scene) -> None:
        """Its controller copies these labels to the JobSet."""
        labels = {"queuer.dev/queue": TEAM_A}
        entry = {
            "manager": "example.org/x",
            "time": WHEN,
            "trainingRuntimeSpec": {"template": {"metadata": {"labels": labels}}},
        }
        scene.of_kind("TrainJob", "held", pods=PODS)
        with pytest.raises(Refused, match="is queued with it"):
            patch_job(scene, "TrainJob", "held", {"spec": {"runtimePatches": [entry]}})

    def test_its_entry_is_replaced_and_others_stay(self, scene: Scene) -> None:
        """Its owner's entry and the runtime say what they said, wherever the gang goes."""
        scene.database.apply(tree(scene.namespace))
        only_rack(scene, "r01")
        own = {"key": "own", "operator": "Exists"}
        scene.of_kind(
            "TrainJob", "gang", pods=4, gpus=8, annotations=required("rack"), spec={"tolerations": [own]}
        )
        pods = {"spec": {"template": {"spec": {"nodeSelector": {"kubernetes.io/os": "linux"}}}}}
        entry = {
            "manager": "example.org/x",
            "time": WHEN,
            "trainingRuntimeSpec": {
                "template": {"spec": {"replicatedJobs": [{"name": "node", "template": pods}]}}
            },
        }
        nodes = sorted(scene.nodes())
        kubectl(scene.cluster, "admin", "label", "node", *nodes, "kubernetes.io/os=linux", "--overwrite")
        patch_job(scene, "TrainJob", "gang", {"spec": {"runtimePatches": [entry]}})
        wait_until(
            lambda: "kubernetes.io/os" in json.dumps(self._jobset(scene, "gang")), timeout=30,
            describe="the entry has come to its JobSet",
        )  # fmt: skip
        scene.start()
        scene.wait_state("gang", "Running")
        managers = [e["manager"] for e in scene.read("gang", "TrainJob")["spec"]["runtimePatches"]]
        only_rack(scene, "r02")
        patch_job(scene, "TrainJob", "gang", suspend_patch("TrainJob", True))
        wait_until(
            lambda: scene.database.workload("gang", scene.namespace)["attempt"] == 2, timeout=60,
            describe=lambda: scene.story("gang"),
        )  # fmt: skip
        scene.wait_state("gang", "Running")
        assert scene.racks("gang") == {"r02"}
        after = [e["manager"] for e in scene.read("gang", "TrainJob")["spec"]["runtimePatches"]]
        assert after[0] == managers[0] == "example.org/x"
        assert [len(managers), len(after)] == [2, 2]
        assert after[1] != managers[1]
        for pod in scene.pods("gang"):
            assert own in pod["spec"]["tolerations"]
            assert pod["spec"]["nodeSelector"]["kubernetes.io/os"] == "linux"
            assert pod["spec"]["nodeSelector"][RACK] == "r02"

    @pytest.mark.parametrize(("pods", "to_jobs"), [(4, 0), (3, 1)], ids=["a rack", "hosts"])
    def test_one_write_starts_it_and_one_its_job_where_hosts_are_pinned(
        self, scene: Scene, pods: int, to_jobs: int
    ) -> None:
        scene.database.apply(tree(scene.namespace))
        scene.start()
        before = [scene.writes(kind).get("200", 0) for kind in ("trainjobs", "jobs")]
        scene.of_kind("TrainJob", "gang", pods=pods, gpus=8, annotations=required("rack"))
        scene.wait_state("gang", "Running")
        after = [scene.writes(kind).get("200", 0) for kind in ("trainjobs", "jobs")]
        assert [now - then for now, then in zip(after, before, strict=True)] == [1, to_jobs]

    def test_a_runtime_that_cannot_be_queued_is_told(self, scene: Scene) -> None:
        scene.database.apply(tree(scene.namespace))
        scene.start()
        runtime = runtime_manifest("steps", namespace=scene.namespace)
        roles = runtime["spec"]["template"]["spec"]["replicatedJobs"]
        first = {**roles[0], "name": "first", "template": {**roles[0]["template"], "metadata": {}}}
        roles.insert(0, first)
        roles[1]["dependsOn"] = [{"name": "first", "status": "Complete"}]
        create(scene.cluster, runtime, identity="admin")
        scene.train("steps", pods=2)
        told = scene.wait_reason("steps", "Misconfigured")
        assert "dependsOn" in told["text"]
        assert "spec.runtimeRef" in told["text"]

    def test_an_eviction_that_lacks_its_runtime_is_told_and_goes_on(self, scene: Scene) -> None:
        """The Trainer's webhook refuses every change of the job then, in words that name the cure."""
        scene.database.apply(tree(scene.namespace))
        scene.start()
        scene.of_kind("TrainJob", "gang", pods=PODS, gpus=8)
        scene.wait_state("gang", "Running")
        kubectl(scene.cluster, "admin", "delete", "trainingruntime", "gang", "-n", scene.namespace)
        command(scene, "gang", ":evict", hold=True)
        told = scene.wait_event("gang", "WriteRefused", timeout=75)
        assert "must be created before" in told
        assert scene.database.used() == 8 * PODS
        create(scene.cluster, runtime_manifest("gang", namespace=scene.namespace, gpus=8), identity="admin")
        scene.wait_state("gang", "Held", timeout=60)
        assert scene.database.used() == 0

    def test_its_quota_is_returned_when_its_pods_are_gone(self, scene: Scene) -> None:
        """JobSet and Jobs go before the pods, also for a controller that has seen neither."""
        scene.database.apply(tree(scene.namespace))
        first = scene.start()
        scene.of_kind("TrainJob", "gang", pods=PODS, gpus=2)
        scene.wait_state("gang", "Running")
        kept = scene.pods("gang")[0]["metadata"]["name"]
        finalizer = ("--type=merge", '-p={"metadata":{"finalizers":["example.org/kept"]}}')
        kubectl(scene.cluster, "admin", "patch", "pod", kept, "-n", scene.namespace, *finalizer)
        scene.delete("gang", "TrainJob", "--wait=false")
        wait_until(lambda: not made_jobs(scene, "gang"), timeout=60, describe="its Jobs are gone")
        wait_until(lambda: scene.database.used() == 2, timeout=30, describe=lambda: scene.story("gang"))
        first.stop()
        scene.start()
        assert scene.database.used() == 2
        freed = ("--type=merge", '-p={"metadata":{"finalizers":null}}')
        kubectl(scene.cluster, "admin", "patch", "pod", kept, "-n", scene.namespace, *freed)
        scene.wait_empty()
