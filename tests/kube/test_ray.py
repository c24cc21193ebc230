"""RayJobs and RayClusters as they are read, pinned and told apart by the labels of their pods."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import jsonpatch
import pytest

from queuer.domain.keys import QUEUE, WORKLOAD
from queuer.domain.workload import State
from queuer.kube.kinds import BY_NAME, JOB, JobKind, maker_of
from queuer.kube.made import OPERATIONS, as_json_patch
from queuer.kube.patches import AdmissionMark, admit_patch, evict_patch, free_patch, own_roles
from queuer.kube.template import Pin, scheduling_of
from tests.kube.manifests import Manifest, decoded, faults, meta, read
from tests.kube.merge_patch import merged

RAYJOB, RAYCLUSTER = BY_NAME["RayJob"], BY_NAME["RayCluster"]
MARK = AdmissionMark(id="a1", epoch=3, cycle=9, domains=("r07",))


def template(cpu: str = "1", **spec: Any) -> Manifest:
    resources = {"requests": {"cpu": cpu, "memory": "1Gi"}}
    return {
        "spec": {"containers": [{"name": "ray", "image": "ray:2", "resources": resources}], **deepcopy(spec)}
    }


def cluster_spec(**more: Any) -> Manifest:
    """A head, and two workers on GPUs."""
    group = {"groupName": "gpu", "replicas": 2, "minReplicas": 0, "maxReplicas": 5, "template": template("4")}
    return {"headGroupSpec": {"template": template("2")}, "workerGroupSpecs": [group], **more}


def named(group: str) -> Manifest:
    """A cluster whose workers are in a group of that name."""
    spec = cluster_spec()
    spec["workerGroupSpecs"][0]["groupName"] = group
    return spec


def cluster(**more: Any) -> Manifest:
    return {"metadata": meta("c"), "spec": {"suspend": True, **cluster_spec(**more)}}


def job(**more: Any) -> Manifest:
    spec = {"suspend": True, "shutdownAfterJobFinishes": True, "rayClusterSpec": cluster_spec(), **more}
    return {"metadata": meta("j"), "spec": spec}


def refused(found: Manifest, kind: JobKind = RAYJOB) -> list[str]:
    return [fault.field for fault in faults(found, kind=kind)]


class TestReading:
    def test_pods_are_head_workers_and_the_one_that_submits(self) -> None:
        sets = {p.name: (p.count, p.requests["cpu"]) for p in read(job(), kind=RAYJOB).pod_sets}
        assert sets == {"headgroup": (1, 2000), "gpu": (2, 4000), "submitter": (1, 500)}

    def test_a_cluster_has_nobody_who_submits(self) -> None:
        assert [p.name for p in read(cluster(), kind=RAYCLUSTER).pod_sets] == ["headgroup", "gpu"]

    @pytest.mark.parametrize(
        ("mode", "head", "sets"),
        [("HTTPMode", 2000, 2), ("SidecarMode", 2500, 2), ("K8sJobMode", 2000, 3)],
    )
    def test_the_way_of_submission_decides_who_does(self, mode: str, head: int, sets: int) -> None:
        found = read(job(submissionMode=mode), kind=RAYJOB).pod_sets
        assert (found[0].requests["cpu"], len(found)) == (head, sets)

    @pytest.mark.parametrize(
        ("said", "pods"),
        [
            ({"replicas": 9}, 5),
            ({"replicas": 1, "minReplicas": 3}, 3),
            ({"replicas": None, "minReplicas": 1}, 1),
            ({"numOfHosts": 4}, 8),
            ({"numOfHosts": 0}, 2),
        ],
    )
    def test_workers_are_counted_as_kuberay_counts_them(self, said: Manifest, pods: int) -> None:
        found = cluster()
        found["spec"]["workerGroupSpecs"][0].update(said)
        assert {p.name: p.count for p in read(found, kind=RAYCLUSTER).pod_sets}["gpu"] == pods

    def test_a_worker_asks_for_what_its_init_container_does(self) -> None:
        found = cluster()
        found["spec"]["workerGroupSpecs"][0]["template"] = template("100m")
        assert read(found, kind=RAYCLUSTER).pod_sets[1].requests["cpu"] == 200

    @pytest.mark.parametrize(
        ("found", "field"),
        [
            (job(clusterSelector={"ray.io/cluster": "c"}), "spec.clusterSelector"),
            (job(shutdownAfterJobFinishes=False), "spec.shutdownAfterJobFinishes"),
            (job(deletionStrategy={}), "spec.deletionStrategy"),
            (job(submissionMode="InteractiveMode"), "spec.submissionMode"),
            (job(submissionMode="HttpMode"), "spec.submissionMode"),
            (job(rayClusterSpec=None), "spec.rayClusterSpec"),
            (job(rayClusterSpec=cluster_spec(suspend=True)), "spec.rayClusterSpec.suspend"),
            (
                job(rayClusterSpec=cluster_spec(enableInTreeAutoscaling=True)),
                "spec.rayClusterSpec.enableInTreeAutoscaling",
            ),
            (
                job(rayClusterSpec=cluster_spec(gcsFaultToleranceOptions={})),
                "spec.rayClusterSpec.gcsFaultToleranceOptions",
            ),
        ],
    )
    def test_fields_that_cannot_be_done_right_are_named(self, found: Manifest, field: str) -> None:
        assert field in refused(found)

    @pytest.mark.parametrize(
        ("found", "kind", "refuses"),
        [
            (job(rayClusterSpec=named("headgroup")), RAYJOB, "spec.rayClusterSpec.workerGroupSpecs[0]"),
            (job(rayClusterSpec=named("submitter")), RAYJOB, "spec.rayClusterSpec.workerGroupSpecs[0]"),
            (job(rayClusterSpec=named("submitter"), submissionMode="HTTPMode"), RAYJOB, None),
            (cluster(**named("HeadGroup")), RAYCLUSTER, "spec.workerGroupSpecs[0]"),
            (cluster(**named("submitter")), RAYCLUSTER, None),
        ],
        ids=["head", "submitter", "no submitter", "head of a cluster", "cluster"],
    )
    def test_a_worker_group_has_a_name_of_its_own(
        self, found: Manifest, kind: Any, refuses: str | None
    ) -> None:
        """Else its pods would be taken for those of the head, or for the one that submits."""
        if refuses is None:
            assert "submitter" in {p.name for p in read(found, kind=kind).pod_sets}
        else:
            assert refused(found, kind) == [f"{refuses}.groupName"]

    def test_a_cluster_that_scales_itself_is_refused(self) -> None:
        assert refused(cluster(enableInTreeAutoscaling=True), RAYCLUSTER) == ["spec.enableInTreeAutoscaling"]

    def test_an_owner_may_leave_out_that_the_cluster_goes(self) -> None:
        """A policy writes it."""
        found = job()
        del found["spec"]["shutdownAfterJobFinishes"]
        assert read(found, kind=RAYJOB).pod_sets


@pytest.mark.parametrize(
    ("state", "work", "outcome", "quiet"),
    [
        ("", "", None, True),
        ("Initializing", "", None, False),
        ("Running", "RUNNING", None, False),
        ("Suspending", "", None, False),
        ("Suspended", "", None, True),
        ("Retrying", "", None, False),
        ("Complete", "SUCCEEDED", State.SUCCEEDED, False),
        ("Complete", "STOPPED", State.FAILED, False),
        ("Failed", "FAILED", State.FAILED, False),
        ("ValidationFailed", "", State.FAILED, False),
    ],
)
def test_states_of_a_job(state: str, work: str, outcome: State | None, *, quiet: bool) -> None:
    found = decoded(RAYJOB, {**job(), "status": {"jobDeploymentStatus": state, "jobStatus": work}})
    assert (RAYJOB.outcome(found), RAYJOB.quiet(found)) == (outcome, quiet)


@pytest.mark.parametrize(
    ("suspended", "suspending", "quiet"),
    [("True", "False", True), ("False", "True", False), ("False", "False", False)],
)
def test_a_cluster_is_quiet_once_it_says_that_its_pods_are_gone(
    suspended: str, suspending: str, *, quiet: bool
) -> None:
    said = {"RayClusterSuspended": suspended, "RayClusterSuspending": suspending}
    conditions = [{"type": kind, "status": status} for kind, status in said.items()]
    assert RAYCLUSTER.quiet(decoded(RAYCLUSTER, {**cluster(), "status": {"conditions": conditions}})) is quiet


PINS = [
    Pin(pod_set=name, count=count, selector={"rack": "r1"}, hosts=hosts)
    for name, count, hosts in (("headgroup", 1, None), ("gpu", 2, ("h1", "h2")), ("submitter", 1, ("h1",)))
]


def started(found: Manifest) -> Manifest:
    of = decoded(RAYJOB, found)
    patch = admit_patch(RAYJOB, of, pins=PINS, mark=MARK)
    after: Manifest = jsonpatch.apply_patch(found, as_json_patch(patch, of))
    return after


class TestStart:
    def test_templates_have_the_pins_and_say_who_pays(self) -> None:
        after = started(job())["spec"]
        assert after["suspend"] is False
        spec = after["rayClusterSpec"]
        for found in (spec["headGroupSpec"], spec["workerGroupSpecs"][0]):
            assert found["template"]["metadata"]["labels"] == {WORKLOAD: "u"}
            assert found["template"]["spec"]["nodeSelector"] == {"rack": "r1"}
        assert "h2" in str(spec["workerGroupSpecs"][0]["template"]["spec"]["affinity"])
        assert "initContainers" not in spec["workerGroupSpecs"][0]["template"]["spec"]

    def test_a_template_that_is_missing_is_written_whole(self) -> None:
        found = started(job())["spec"]["submitterPodTemplate"]
        assert found["metadata"]["labels"] == {WORKLOAD: "u", "ray.io/group": "submitter"}
        container = found["spec"]["containers"][0]
        assert container["image"] == "ray:2"
        assert container["resources"]["requests"] == {"cpu": "500m", "memory": "200Mi"}
        assert found["spec"]["restartPolicy"] == "Never"
        assert found["spec"]["nodeSelector"] == {"rack": "r1"}

    def test_the_owners_template_keeps_the_rest(self) -> None:
        own = {"metadata": {"labels": {"team": "a"}}, **template("250m", serviceAccountName="s")}
        found = started(job(submitterPodTemplate=own))["spec"]["submitterPodTemplate"]
        assert found["metadata"]["labels"] == {"team": "a", WORKLOAD: "u", "ray.io/group": "submitter"}
        assert found["spec"]["serviceAccountName"] == "s"

    @pytest.mark.parametrize("own", [None, template("250m", nodeSelector={"rack": "r9", "disk": "ssd"})])
    def test_an_eviction_gives_the_owners_terms_back(self, own: Manifest | None) -> None:
        first = job(**({"submitterPodTemplate": own} if own else {}))
        after = merged(started(first), evict_patch(RAYJOB, decoded(RAYJOB, started(first)), admission="a1"))
        assert after["spec"]["suspend"] is True
        terms = [own.scheduling for own in own_roles(RAYJOB, decoded(RAYJOB, after))]
        assert terms == [scheduling_of(role.template.spec) for role in RAYJOB.roles(decoded(RAYJOB, first))]
        again = started(after)
        assert again["spec"] == started(first)["spec"]

    def test_whoever_removes_queuer_gets_them_back_too(self) -> None:
        first = job(submitterPodTemplate=template("250m"))
        after = decoded(RAYJOB, started(first))
        patch = free_patch(RAYJOB, after)
        assert patch[OPERATIONS]
        freed = jsonpatch.apply_patch(started(first), as_json_patch(patch, after))
        terms = [scheduling_of(role.template.spec) for role in RAYJOB.roles(decoded(RAYJOB, freed))]
        assert terms == [{}, {}, {}]

    def test_after_its_end_an_eviction_takes_its_cluster(self) -> None:
        found = decoded(
            RAYJOB, {**job(ttlSecondsAfterFinished=600), "status": {"jobDeploymentStatus": "Complete"}}
        )
        assert RAYJOB.lingers(found)
        assert evict_patch(RAYJOB, found, admission="a1")["spec"] == {"ttlSecondsAfterFinished": 0}


def test_a_cluster_of_a_job_is_never_queued_by_itself() -> None:
    """It has the labels and annotations of its job."""
    owner = {"apiVersion": "ray.io/v1", "kind": "RayJob", "name": "j", "uid": "u", "controller": True}
    found = cluster()
    found["metadata"] |= {"labels": {QUEUE: "root.a"}, "ownerReferences": [owner]}
    made = decoded(RAYCLUSTER, found).metadata
    assert maker_of(RAYCLUSTER, made) is RAYJOB
    assert maker_of(JOB, made) is RAYJOB
    assert maker_of(RAYCLUSTER, decoded(RAYCLUSTER, cluster()).metadata) is None
