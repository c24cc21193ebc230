"""The life of a job of each kind under the controller that really runs it.

`make test` runs the kinds of `OFTEN`, `make conformance` (`--kinds=all`) all of them.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from queuer.kube.kinds import BY_NAME
from queuer.kube.objects import JOBS
from queuer.local.controlplane import RAY_OPERATOR
from queuer.local.fleet import RACK
from tests.e2e.conftest import PARTS_OF
from tests.e2e.controller import tree
from tests.e2e.ray import dashboard, ray_manifest
from tests.e2e.scene import KINDS, TEAM_A, Scene, required
from tests.e2e.support import Refused, create, jobset_manifest, kubectl, read, runtime_manifest, wait_until

OFTEN = ("Job", "PyTorchJob", "JobSet")
PODS = 3
WHEN = "2026-01-01T00:00:00Z"
"""Of an entry of a TrainJob: without it the Trainer writes one, and quantities as texts where they must not change."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test a kind."""
    if "kind" in metafunc.fixturenames:
        said = metafunc.config.getoption("--kinds")
        every = tuple(
            name for name, kind in BY_NAME.items() if kind.gates is None
        )  # the others: test_queued_pods
        names = {"all": every, "often": OFTEN}.get(said, tuple(said.split(",")))
        metafunc.parametrize("kind", names)


def patch_job(scene: Scene, kind: str, name: str, body: dict[str, Any], *, by: str = "alice") -> None:
    """Merge-patch a job as alice."""
    where = ("-n", scene.namespace, "--type=merge", f"-p={json.dumps(body)}")
    kubectl(scene.cluster, by, "patch", KINDS[kind], name, *where)


def suspend_patch(kind: str, value: bool) -> dict[str, Any]:
    """The patch that suspends a job of this kind, or starts it."""
    body: Any = value
    for key in reversed(BY_NAME[kind].suspend_path):
        body = {key: body}
    return dict(body)


def _is_suspended(kind: str, found: Any) -> bool:
    for key in BY_NAME[kind].suspend_path:
        found = found.get(key, {})
    return found is True


def _made(scene: Scene, name: str) -> list[dict[str, Any]]:
    """The Jobs that the controller of a JobSet made."""
    path = f"/apis/{JOBS.group}/{JOBS.version}/namespaces/{scene.namespace}/jobs"
    selector = f"jobset.sigs.k8s.io/jobset-name={name}"
    return list(read(scene.cluster, path, labelSelector=selector)["items"])


def _only(scene: Scene, rack: str) -> None:
    """Leave the nodes of one rack open."""
    nodes = scene.nodes()
    scene.uncordon(sorted(n for n, r in nodes.items() if r == rack))
    scene.cordon(sorted(n for n, r in nodes.items() if r != rack))


def test_a_gang_is_held_lands_inside_its_pins_and_goes_elsewhere(scene: Scene, kind: str) -> None:
    """Three pods of a host each, in racks of four: hosts are pinned, not the rack."""
    scene.database.apply(tree(scene.namespace))
    _only(scene, "r01")
    created = scene.of_kind(kind, "gang", pods=PODS, gpus=8, annotations=required("rack"))
    assert _is_suspended(kind, created), "a policy holds it while no controller is there"
    scene.start()
    scene.wait_state("gang", "Running")
    assert scene.racks("gang") == {"r01"}
    assert scene.database.used() == 8 * PODS
    first = {p["metadata"]["uid"]: p for p in scene.pods("gang")}
    assert len(first) == PODS
    assert all("kubernetes.io/hostname" in json.dumps(p["spec"]["affinity"]) for p in first.values())

    _only(scene, "r02")
    patch_job(scene, kind, "gang", suspend_patch(kind, True))
    wait_until(
        lambda: scene.database.workload("gang", scene.namespace)["attempt"] == 2, timeout=60,
        describe=lambda: scene.story("gang"),
    )  # fmt: skip
    scene.wait_state("gang", "Running")
    assert scene.racks("gang") == {"r02"}
    assert not first.keys() & {p["metadata"]["uid"] for p in scene.pods("gang")}
    written = json.dumps([scene.read("gang", kind)["spec"], [j["spec"] for j in _made(scene, "gang")]])
    assert not [n for n, rack in scene.nodes().items() if rack == "r01" and f'"{n}"' in written]
    assert scene.database.used() == 8 * PODS

    scene.delete("gang", kind)
    scene.wait_empty()


def test_a_gang_ends_and_gives_back_all(scene: Scene, kind: str) -> None:
    scene.database.apply(tree(scene.namespace))
    scene.start()
    if kind == "RayCluster":
        pytest.skip("it never ends")
    scene.of_kind(kind, "short", pods=PODS, gpus=1, run_for="1s")
    if kind == "RayJob":
        with dashboard(scene.cluster, "short", scene.namespace, status="SUCCEEDED"):
            scene.wait_state("short", "Succeeded", timeout=60)
    scene.wait_state("short", "Succeeded", timeout=60)
    scene.wait_empty()


def test_a_gang_that_waits_is_deleted(scene: Scene, kind: str) -> None:
    scene.database.apply(tree(scene.namespace))
    _only(scene, "r01")
    scene.start()
    scene.of_kind(kind, "large", pods=5, gpus=8)
    scene.wait_reason("large", "TopologyPlacementFailed")
    scene.delete("large", kind)
    wait_until(
        lambda: scene.database.workload("large", scene.namespace)["deleted_at"], timeout=30,
        describe=lambda: scene.story("large"),
    )  # fmt: skip
    assert not scene.database.open_rows()
    assert not scene.pods("large")


class TestJobSet:
    """A kind that makes Jobs."""

    def test_nobody_else_makes_changes_or_orphans_a_job_of_it(self, scene: Scene) -> None:
        """Its pods would run beside the queue, or be charged to somebody else."""
        held = scene.of_kind("JobSet", "held", pods=PODS)
        wait_until(lambda: len(_made(scene, "held")) == PODS, timeout=30, describe="its Jobs are made")
        job = _made(scene, "held")[0]
        name, template = job["metadata"]["name"], job["spec"]["template"]
        for change in (
            {"spec": {"suspend": False}},
            {"spec": {"parallelism": 500}},
            {"spec": {"template": {"metadata": {"labels": {"queuer.dev/workload": "another"}}}}},
            {"metadata": {"labels": {"jobset.sigs.k8s.io/jobset-uid": None}}},
            {"metadata": {"ownerReferences": None}},
        ):
            with pytest.raises(Refused, match="queuer-guard-made"):
                patch_job(scene, "Job", name, change)
        with pytest.raises(Refused, match="queuer-guard-deletion"):
            scene.delete(name, "Job", "--cascade=orphan")
        forged = {key: job["metadata"][key] for key in ("namespace", "labels", "ownerReferences")}
        spec = {"template": {"spec": template["spec"]}}
        manifest = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": "forged", **forged},
            "spec": spec,
        }
        with pytest.raises(Refused, match="may give it a Job to own"):
            create(scene.cluster, manifest)
        assert len(_made(scene, "held")) == PODS
        assert _is_suspended("JobSet", held)

    def test_its_quota_is_returned_when_its_pods_are_gone(self, scene: Scene) -> None:
        """Its Jobs go before their pods, which run on for their grace."""
        scene.database.apply(tree(scene.namespace))
        scene.start()
        scene.of_kind("JobSet", "gang", pods=PODS, gpus=2)
        scene.wait_state("gang", "Running")
        kept = scene.pods("gang")[0]["metadata"]["name"]
        finalizer = ("--type=merge", '-p={"metadata":{"finalizers":["example.org/kept"]}}')
        kubectl(scene.cluster, "admin", "patch", "pod", kept, "-n", scene.namespace, *finalizer)
        scene.delete("gang", "JobSet", "--wait=false")
        wait_until(lambda: not _made(scene, "gang"), timeout=60, describe="its Jobs are gone")
        wait_until(lambda: scene.database.used() == 2, timeout=30, describe=lambda: scene.story("gang"))
        assert [p["metadata"]["name"] for p in scene.pods("gang")] == [kept]
        freed = ("--type=merge", '-p={"metadata":{"finalizers":null}}')
        kubectl(scene.cluster, "admin", "patch", "pod", kept, "-n", scene.namespace, *freed)
        scene.wait_empty()

    @pytest.mark.parametrize(("workers", "to_jobs"), [(4, 0), (3, 3)], ids=["a rack", "hosts"])
    def test_one_write_starts_it_and_one_each_job_that_takes_hosts(
        self, scene: Scene, workers: int, to_jobs: int
    ) -> None:
        """A gang that takes a whole rack is pinned to the rack, by its JobSet alone."""
        scene.database.apply(tree(scene.namespace))
        scene.start()
        before = [scene.writes(kind).get("200", 0) for kind in ("jobsets", "jobs")]
        wanted: Any = {"workers": workers, "gpus": 8, "annotations": required("rack")}
        manifest = jobset_manifest("gang", namespace=scene.namespace, queue=TEAM_A, **wanted)
        del manifest["spec"]["replicatedJobs"][0]
        create(scene.cluster, manifest)
        scene.wait_state("gang", "Running")
        after = [scene.writes(kind).get("200", 0) for kind in ("jobsets", "jobs")]
        assert [now - then for now, then in zip(after, before, strict=True)] == [1, to_jobs]

    def test_pins_of_an_earlier_start_are_replaced(self, scene: Scene) -> None:
        """Its controller merges, and never takes anything off a Job."""
        scene.database.apply(tree(scene.namespace))
        _only(scene, "r01")
        scene.of_kind("JobSet", "gang", pods=PODS, gpus=8, annotations=required("rack"))
        wait_until(lambda: len(_made(scene, "gang")) == PODS, timeout=30, describe="its Jobs are made")
        other = next(node for node, rack in scene.nodes().items() if rack == "r04")
        for job in _made(scene, "gang"):
            stale = {"spec": {"template": {"spec": {"nodeSelector": {"kubernetes.io/hostname": other}}}}}
            patch_job(scene, "Job", job["metadata"]["name"], stale, by="queuer-controller")
        scene.start()
        scene.wait_state("gang", "Running")
        assert scene.racks("gang") == {"r01"}

    def test_what_has_succeeded_is_not_asked_for_again(self, scene: Scene) -> None:
        scene.database.apply(tree(scene.namespace))
        scene.start()
        scene.of_kind("JobSet", "gang", pods=PODS, gpus=2, driver_runs_for="1s")
        wait_until(
            lambda: scene.database.used() == 2 * (PODS - 1), timeout=60, describe=lambda: scene.story("gang")
        )
        patch_job(scene, "JobSet", "gang", suspend_patch("JobSet", True))
        wait_until(
            lambda: scene.database.workload("gang", scene.namespace)["attempt"] == 2, timeout=60,
            describe=lambda: scene.story("gang"),
        )  # fmt: skip
        scene.wait_state("gang", "Running")
        assert scene.database.used() == 2 * (PODS - 1)

    def test_its_jobs_never_queue_by_themselves(self, scene: Scene) -> None:
        """Not even where the namespace gives a queue to every job."""
        scene.database.apply(tree(scene.namespace))
        label = "queuer.dev/default-queue=root.research.team-a"
        kubectl(scene.cluster, "admin", "label", "namespace", scene.namespace, label)
        scene.start()
        scene.of_kind("JobSet", "gang", pods=PODS, queue=None)
        scene.wait_state("gang", "Running")
        rows = scene.database.rows("SELECT name FROM workload WHERE namespace = %s", scene.namespace)
        assert [row["name"] for row in rows] == ["gang"]


class TestTrainJob:
    """A kind that is read from the JobSet which its controller makes of it."""

    @pytest.fixture(autouse=True)
    def _with_the_trainer(self, scene: Scene) -> None:
        if "trainer" not in scene.cluster.state.parts:
            pytest.skip("the cluster runs no Trainer")

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
        _only(scene, "r01")
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
        _only(scene, "r02")
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
        wait_until(lambda: not _made(scene, "gang"), timeout=60, describe="its Jobs are gone")
        wait_until(lambda: scene.database.used() == 2, timeout=30, describe=lambda: scene.story("gang"))
        first.stop()
        scene.start()
        assert scene.database.used() == 2
        freed = ("--type=merge", '-p={"metadata":{"finalizers":null}}')
        kubectl(scene.cluster, "admin", "patch", "pod", kept, "-n", scene.namespace, *freed)
        scene.wait_empty()


@pytest.fixture
def mpi(scene: Scene) -> Scene:
    """A scene with the mpi-operator."""
    if "mpi-operator" not in scene.cluster.state.parts:
        pytest.skip("the cluster runs no mpi-operator")
    return scene


@pytest.mark.parametrize("child", ["TrainJob", "MPIJob"])
def test_what_a_queued_job_makes_needs_no_queue_where_one_is_required(scene: Scene, child: str) -> None:
    if PARTS_OF[child] not in scene.cluster.state.parts:
        pytest.skip(f"the cluster runs no {PARTS_OF[child]}")
    required_ = "queuer.dev/managed=required"
    kubectl(scene.cluster, "admin", "label", "namespace", scene.namespace, required_, "--overwrite")
    scene.database.apply(tree(scene.namespace))
    scene.start()
    scene.of_kind(child, "gang", pods=PODS)
    scene.wait_state("gang", "Running")


class TestMPIJob:
    """A kind of which one role is a Job, known by its owner alone."""

    def _launcher(self, scene: Scene, name: str) -> dict[str, Any]:
        path = f"/apis/{JOBS.group}/{JOBS.version}/namespaces/{scene.namespace}/jobs"
        items = read(scene.cluster, path, labelSelector=f"app={name}")["items"]
        return dict(items[0]) if items else {}

    def test_nobody_else_makes_changes_or_orphans_its_launcher(self, mpi: Scene) -> None:
        mpi.of_kind("MPIJob", "held", pods=PODS)
        wait_until(lambda: self._launcher(mpi, "held"), timeout=30, describe="its launcher is made")
        launcher = self._launcher(mpi, "held")
        name, meta = launcher["metadata"]["name"], launcher["metadata"]
        for change in (
            {"spec": {"suspend": False}},
            {"spec": {"template": {"metadata": {"labels": {"queuer.dev/workload": "another"}}}}},
            {"metadata": {"labels": {"app": None}}},
            {"metadata": {"ownerReferences": None}},
        ):
            with pytest.raises(Refused, match="queuer-guard-made"):
                patch_job(mpi, "Job", name, change)
        with pytest.raises(Refused, match="queuer-guard-deletion"):
            mpi.delete(name, "Job", "--cascade=orphan")
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
            create(mpi.cluster, forged)

    def test_its_launcher_never_queues_by_itself(self, mpi: Scene) -> None:
        """Not even where the namespace gives a queue to every job."""
        mpi.database.apply(tree(mpi.namespace))
        label = "queuer.dev/default-queue=root.research.team-a"
        kubectl(mpi.cluster, "admin", "label", "namespace", mpi.namespace, label)
        mpi.start()
        mpi.of_kind("MPIJob", "gang", pods=PODS, queue=None)
        mpi.wait_state("gang", "Running")
        rows = mpi.database.rows("SELECT name, kind FROM workload WHERE namespace = %s", mpi.namespace)
        assert [(row["name"], row["kind"]) for row in rows] == [("gang", "MPIJob")]

    def test_a_launcher_that_is_to_wait_for_workers_lands_with_them(self, mpi: Scene) -> None:
        """Its controller makes the launcher of a suspended job at once, whatever it says."""
        mpi.database.apply(tree(mpi.namespace))
        mpi.of_kind("MPIJob", "gang", pods=PODS)
        late = {"spec": {"launcherCreationPolicy": "WaitForWorkersReady", "runLauncherAsWorker": True}}
        patch_job(mpi, "MPIJob", "gang", late)
        mpi.start()
        mpi.wait_state("gang", "Running")
        assert len(mpi.pods("gang")) == PODS

    def test_one_write_starts_it_and_one_its_launcher_where_hosts_are_pinned(self, mpi: Scene) -> None:
        mpi.database.apply(tree(mpi.namespace))
        mpi.start()
        before = [mpi.writes(kind).get("200", 0) for kind in ("mpijobs", "jobs")]
        mpi.of_kind("MPIJob", "gang", pods=PODS, gpus=8, annotations=required("rack"))
        mpi.wait_state("gang", "Running")
        after = [mpi.writes(kind).get("200", 0) for kind in ("mpijobs", "jobs")]
        assert [now - then for now, then in zip(after, before, strict=True)] == [1, 1]

    def test_its_quota_is_returned_when_its_pods_are_gone(self, mpi: Scene) -> None:
        """The launcher's Job goes before its pod, also for a controller that has not seen it."""
        mpi.database.apply(tree(mpi.namespace))
        first = mpi.start()
        mpi.of_kind("MPIJob", "gang", pods=PODS, gpus=2)
        mpi.wait_state("gang", "Running")
        names = [p["metadata"]["name"] for p in mpi.pods("gang")]
        kept = next(name for name in names if "launcher" in name)
        finalizer = ("--type=merge", '-p={"metadata":{"finalizers":["example.org/kept"]}}')
        kubectl(mpi.cluster, "admin", "patch", "pod", kept, "-n", mpi.namespace, *finalizer)
        mpi.delete("gang", "MPIJob", "--wait=false")
        wait_until(lambda: not self._launcher(mpi, "gang"), timeout=60, describe="its launcher is gone")
        wait_until(lambda: mpi.database.used() == 2, timeout=30, describe=lambda: mpi.story("gang"))
        first.stop()
        mpi.start()
        assert mpi.database.used() == 2
        freed = ("--type=merge", '-p={"metadata":{"finalizers":null}}')
        kubectl(mpi.cluster, "admin", "patch", "pod", kept, "-n", mpi.namespace, *freed)
        mpi.wait_empty()


class TestRay:
    """Kinds whose pods hang below objects that their controller makes: RayJob → RayCluster, RayJob → Job."""

    @pytest.fixture(autouse=True)
    def _with_kuberay(self, scene: Scene) -> None:
        if RAY_OPERATOR not in scene.cluster.state.parts:
            pytest.skip("the cluster runs no KubeRay")

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
        _only(scene, "r01")
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

        _only(scene, "r02")
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

    def test_a_started_cluster_shrinks_and_never_grows(self, scene: Scene) -> None:
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
        write("replicas", 1)
        wait_until(
            lambda: scene.database.used() == 2 * (PODS - 1), timeout=60, describe=lambda: scene.story("gang")
        )
        assert len(scene.pods("gang")) == PODS - 1

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
