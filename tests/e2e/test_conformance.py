"""The life of a job of each kind under the controller that really runs it. What is peculiar to one kind: `kinds_*.py`.

`make test` runs the kinds of `OFTEN`, `make conformance` (`--kinds=all`) all of them. The life of a Job is told by most
other files here.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from queuer.kube.kinds import BY_NAME
from queuer.kube.objects import JOBS
from tests.e2e.controller import GPU, tree
from tests.e2e.ray import dashboard
from tests.e2e.scene import KINDS, TEAM_A, Scene, required
from tests.e2e.support import Refused, create, jobset_manifest, kubectl, kubectl_list, read, wait_until

ENDLESS = ("RayCluster",)
OFTEN = ("PyTorchJob", "JobSet")
PODS = 3
FEWER = {
    "Job": ("/spec/parallelism", 2),
    "JobSet": ("/spec/replicatedJobs/1/replicas", 1),
    "PyTorchJob": ("/spec/pytorchReplicaSpecs/Worker/replicas", 1),
    "TFJob": ("/spec/tfReplicaSpecs/Worker/replicas", 1),
    "XGBoostJob": ("/spec/xgbReplicaSpecs/Worker/replicas", 1),
    "PaddleJob": ("/spec/paddleReplicaSpecs/Worker/replicas", 1),
    "JAXJob": ("/spec/jaxReplicaSpecs/Worker/replicas", 2),
    "MPIJob": ("/spec/mpiReplicaSpecs/Worker/replicas", 1),
    "TrainJob": ("/spec/trainer/numNodes", 2),
    "RayJob": ("/spec/rayClusterSpec/workerGroupSpecs/0/replicas", 1),
    "RayCluster": ("/spec/workerGroupSpecs/0/replicas", 1),
}
"""Where a gang of `PODS` is made smaller by one pod, and the number there."""
WHOLE = {
    "JobSet": r"spec\.replicatedJobs: .*immutable",
    "TrainJob": r"spec\.trainer: .*immutable",
    "TFJob": "a started TFJob or XGBoostJob keeps its replicas",
    "XGBoostJob": "a started TFJob or XGBoostJob keeps its replicas",
    "MPIJob": "a started MPIJob stays as it is, replicas too",
    "RayJob": "a started RayJob stays as it is, replicas in rayClusterSpec too",
}
"""Kinds whose controller cannot do that, and the refusal of its webhook or of our policy."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test a kind."""
    if "kind" in metafunc.fixturenames:
        said = metafunc.config.getoption("--kinds")
        every = tuple(
            name for name, kind in BY_NAME.items() if kind.gates is None
        )  # the others: test_queued_pods
        names = {"all": every, "often": OFTEN}.get(said, tuple(said.split(",")))
        ends = "_ends_" in metafunc.function.__name__
        metafunc.parametrize("kind", [name for name in names if not ends or name not in ENDLESS])


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


def is_suspended(kind: str, found: Any) -> bool:
    """Whether a job as stored is suspended."""
    for key in BY_NAME[kind].suspend_path:
        found = found.get(key, {})
    return found is True


def made_jobs(scene: Scene, name: str) -> list[dict[str, Any]]:
    """The Jobs that the controller of a JobSet made."""
    path = f"/apis/{JOBS.group}/{JOBS.version}/namespaces/{scene.namespace}/jobs"
    selector = f"jobset.sigs.k8s.io/jobset-name={name}"
    return list(read(scene.cluster, path, labelSelector=selector)["items"])


def only_rack(scene: Scene, rack: str) -> None:
    """Leave the nodes of one rack open."""
    nodes = scene.nodes()
    scene.uncordon(sorted(n for n, r in nodes.items() if r == rack))
    scene.cordon(sorted(n for n, r in nodes.items() if r != rack))


def test_a_gang_is_held_lands_inside_its_pins_and_goes_elsewhere(scene: Scene, kind: str) -> None:
    """Three pods of a host each, in racks of four: hosts are pinned, not the rack."""
    scene.database.apply(tree(scene.namespace))
    only_rack(scene, "r01")
    created = scene.of_kind(kind, "gang", pods=PODS, gpus=8, annotations=required("rack"))
    assert is_suspended(kind, created), "a policy holds it while no controller is there"
    scene.start()
    scene.wait_state("gang", "Running")
    assert scene.racks("gang") == {"r01"}
    assert scene.database.used() == 8 * PODS
    first = {p["metadata"]["uid"]: p for p in scene.pods("gang")}
    assert len(first) == PODS
    assert all("kubernetes.io/hostname" in json.dumps(p["spec"]["affinity"]) for p in first.values())

    only_rack(scene, "r02")
    patch_job(scene, kind, "gang", suspend_patch(kind, True))
    wait_until(
        lambda: scene.database.workload("gang", scene.namespace)["attempt"] == 2, timeout=60,
        describe=lambda: scene.story("gang"),
    )  # fmt: skip
    scene.wait_state("gang", "Running")
    assert scene.racks("gang") == {"r02"}
    assert not first.keys() & {p["metadata"]["uid"] for p in scene.pods("gang")}
    written = json.dumps([scene.read("gang", kind)["spec"], [j["spec"] for j in made_jobs(scene, "gang")]])
    assert not [n for n, rack in scene.nodes().items() if rack == "r01" and f'"{n}"' in written]
    assert scene.database.used() == 8 * PODS

    scene.delete("gang", kind)
    scene.wait_empty()


def test_a_gang_ends_and_gives_back_all(scene: Scene, kind: str) -> None:
    scene.database.apply(tree(scene.namespace))
    scene.start()
    scene.of_kind(kind, "short", pods=PODS, gpus=1, run_for="1s")
    if kind == "RayJob":
        with dashboard(scene.cluster, "short", scene.namespace, status="SUCCEEDED"):
            scene.wait_state("short", "Succeeded", timeout=60)
    scene.wait_state("short", "Succeeded", timeout=60)
    scene.wait_empty()


def test_pods_that_are_refused_end_the_try_and_are_told(scene: Scene, kind: str) -> None:
    """Its controller tells that in an Event on the job, or on what it made of it. The deadline is far away."""
    scene.database.apply(tree(scene.namespace))
    scene.start(QUEUER_LANDING_DEADLINE="300")
    label = "pod-security.kubernetes.io/enforce=restricted"
    kubectl(scene.cluster, "admin", "label", "namespace", scene.namespace, label)
    scene.of_kind(kind, "refused", pods=PODS, gpus=1)
    wait_until(
        lambda: "pods were refused" in str(scene.reason("refused").get("text")), timeout=75,
        describe=lambda: f"the refusal is told: {scene.story('refused')}",
    )  # fmt: skip
    assert "violates PodSecurity" in scene.reason("refused")["text"]
    scene.delete("refused", kind)
    scene.wait_empty()


def test_a_running_gang_gives_up_a_pod_or_is_refused_with_the_field(scene: Scene, kind: str) -> None:
    """What it gives up is returned."""
    scene.database.apply(tree(scene.namespace))
    scene.start()
    scene.of_kind(kind, "gang", pods=PODS, gpus=2)
    scene.wait_state("gang", "Running", timeout=60)
    path, size = FEWER[kind]
    change = json.dumps([{"op": "replace", "path": path, "value": size}])
    patch = ("patch", KINDS[kind], "gang", "-n", scene.namespace, "--type=json", f"-p={change}")
    if kind in WHOLE:
        with pytest.raises(Refused, match=WHOLE[kind]):
            kubectl(scene.cluster, "alice", *patch)
    else:
        kubectl(scene.cluster, "alice", *patch)
    left = PODS if kind in WHOLE else PODS - 1
    wait_until(lambda: scene.database.used() == 2 * left, timeout=60, describe=lambda: scene.story("gang"))
    assert len(scene.pods("gang")) == left
    assert (scene.state("gang"), scene.database.workload("gang", scene.namespace)["attempt"]) == (
        "Running",
        1,
    )
    scene.delete("gang", kind)
    scene.wait_empty()


def test_a_gang_that_waits_is_deleted(scene: Scene, kind: str) -> None:
    scene.database.apply(tree(scene.namespace))
    only_rack(scene, "r01")
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
        wait_until(lambda: len(made_jobs(scene, "held")) == PODS, timeout=30, describe="its Jobs are made")
        job = made_jobs(scene, "held")[0]
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
        assert len(made_jobs(scene, "held")) == PODS
        assert is_suspended("JobSet", held)

    def test_a_job_of_one_that_runs_is_deleted_by_controllers_alone(self, scene: Scene) -> None:
        """The set would make it anew, or go on without it. With the set all go."""
        scene.database.apply(tree(scene.namespace))
        scene.start()
        scene.of_kind("JobSet", "gang", pods=PODS)
        scene.wait_state("gang", "Running")
        name = made_jobs(scene, "gang")[0]["metadata"]["name"]
        for options in ((), ("--cascade=foreground",)):
            with pytest.raises(Refused, match="delete or suspend that job"):
                scene.delete(name, "Job", *options)
        scene.delete("gang", "JobSet")
        scene.wait_empty()

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
        wait_until(lambda: not made_jobs(scene, "gang"), timeout=60, describe="its Jobs are gone")
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
        only_rack(scene, "r01")
        scene.of_kind("JobSet", "gang", pods=PODS, gpus=8, annotations=required("rack"))
        wait_until(lambda: len(made_jobs(scene, "gang")) == PODS, timeout=30, describe="its Jobs are made")
        other = next(node for node, rack in scene.nodes().items() if rack == "r04")
        for job in made_jobs(scene, "gang"):
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
        asked = scene.database.workload("gang", scene.namespace)["pod_sets"]
        assert [(each["name"], each["count"]) for each in asked] == [("workers", PODS - 1)]

    def test_it_keeps_its_quota_while_it_may_run_all_again(self, scene: Scene) -> None:
        """Its driver has long ended when a worker fails: all are made anew, and nobody has taken the driver's GPUs."""
        scene.database.apply(tree(scene.namespace, team_a={"quota": [{"resource": GPU, "limit": 2 * PODS}]}))
        scene.start()
        scene.of_kind("JobSet", "gang", pods=PODS, gpus=2, restarts=1)
        scene.wait_state("gang", "Running")
        scene.job("next", pods=1, gpus=2)
        driver, worker, _ = sorted(p["metadata"]["name"] for p in scene.pods("gang"))
        scene.end(driver)
        later = ("annotate", "pod", worker, "-n", scene.namespace, "sim/fail-after=18s")
        kubectl(scene.cluster, "admin", *later)
        wait_until(
            lambda: scene.read("gang", "JobSet")["status"].get("restarts") == 1, timeout=60,
            describe=lambda: f"it is made anew: {scene.story('gang')}",
        )  # fmt: skip
        wait_until(
            lambda: len([p for p in scene.pods("gang") if p["spec"].get("nodeName")]) >= PODS, timeout=60,
            describe=lambda: scene.story("gang"),
        )  # fmt: skip
        assert (scene.state("next"), scene.database.used()) == ("Queued", 2 * PODS)
        assert scene.database.workload("gang", scene.namespace)["attempt"] == 1

    def test_a_burst_of_them_starts_at_the_first_try(self, scene: Scene) -> None:
        """Their controller makes Jobs one by one: a start that waited for them would hold up all others."""
        scene.database.apply(tree(scene.namespace))
        scene.start()
        names = [f"burst-{i}" for i in range(25)]
        wanted: Any = {
            "namespace": scene.namespace,
            "queue": TEAM_A,
            "workers": 2,
            "annotations": required("rack"),
        }
        items = [jobset_manifest(name, **wanted) for name in names]
        kubectl_list(scene.cluster, "alice", items, "create")
        wait_until(
            lambda: all(scene.state(name) == "Running" for name in names), timeout=120,
            describe=lambda: str([(name, scene.state(name)) for name in names]),
        )  # fmt: skip
        again = [scene.story(n) for n in names if scene.database.workload(n, scene.namespace)["attempt"] > 1]
        assert not again

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
