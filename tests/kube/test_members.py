"""The job of a pod, by its owner and by the labels that policies keep true, and the conditions that end one."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from queuer.domain.workload import State
from queuer.kube.kinds import BY_NAME, JOBSET, TRAINJOB, JobKind, Member, member_of
from queuer.kube.objects import Pod
from tests.kube.manifests import Manifest, decoded
from tests.kube.test_jobset import jobset
from tests.kube.test_trainjob import trainjob

KEYS = {
    "ours": "queuer.dev/workload",
    "uid": "jobset.sigs.k8s.io/jobset-uid",
    "role": "jobset.sigs.k8s.io/replicatedjob-name",
    "group": "ray.io/group",
    "mpi": "training.kubeflow.org/job-role",
}


def pod(owner: tuple[str, str, str] | None, **labels: str) -> Any:
    version, kind, uid = owner or ("", "", "")
    reference = {"apiVersion": version, "kind": kind, "name": "o", "uid": uid, "controller": True}
    named = {KEYS[key]: value for key, value in labels.items()}
    meta = {"name": "p", "namespace": "n", "labels": named, "ownerReferences": [reference] if owner else []}
    return msgspec.convert({"metadata": meta, "spec": {}}, Pod)


JOB, CLUSTER = ("batch/v1", "Job", "job"), ("ray.io/v1", "RayCluster", "c")


@pytest.mark.parametrize(
    ("found", "whose"),
    [
        (pod(JOB), Member(owner="job", pod_set="main")),
        (pod(JOB, ours="job"), Member(owner="job", pod_set="main")),
        (pod(JOB, ours="set", uid="set", role="w"), Member(owner="set", pod_set="w")),
        (pod(None, ours="set", uid="set", role="w"), Member(owner="set", pod_set="w")),
        (pod(JOB, ours="set"), Member(owner="job", pod_set="main")),
        (pod(JOB, ours="train", uid="set", role="w"), Member(owner="train", pod_set="w")),
        (pod(("apps/v1", "ReplicaSet", "r")), None),
        (pod(("v1", "Pod", "victim")), None),
        (pod(CLUSTER, group="gpu"), Member(owner="c", pod_set="gpu")),
        (pod(CLUSTER, group="GPU", ours="c"), Member(owner="c", pod_set="gpu")),
        (pod(CLUSTER, group="headgroup", ours="ray"), Member(owner="ray", pod_set="headgroup")),
        (pod(JOB, group="submitter", ours="ray"), Member(owner="ray", pod_set="submitter")),
        (pod(JOB, ours="ray"), Member(owner="job", pod_set="main")),
        (pod(("kubeflow.org/v2beta1", "MPIJob", "m"), mpi="worker", ours="m"), Member(owner="m", pod_set="worker")),
        (pod(JOB, mpi="launcher", ours="m"), Member(owner="m", pod_set="launcher")),
        (pod(("kubeflow.org/v1", "MPIJob", "m"), mpi="worker"), None),
    ],
    ids=[
        "of a Job",
        "of an admitted Job",
        "of a JobSet's Job",
        "orphaned",
        "our label alone",
        "of a Job of a TrainJob's JobSet",
        "none",
        "of a pod, which makes none",
        "of a RayCluster beside the queue",
        "of a RayCluster",
        "of a RayJob's cluster",
        "that submits a RayJob",
        "of a RayJob's Job alone",
        "worker of an MPIJob",
        "launcher of an MPIJob",
        "of an MPIJob of another version",
    ],
)  # fmt: skip
def test_whose_a_pod_is(found: Pod, whose: Member | None) -> None:
    assert member_of(found) == whose


def test_kinds_whose_pods_are_made_by_jobs_are_known() -> None:
    """A job of these is released in silence only once its Jobs are suspended."""
    found = {name for name, kind in BY_NAME.items() if kind.makes_jobs}
    assert found == {"JobSet", "MPIJob", "RayJob", "TrainJob"}


@pytest.mark.parametrize(
    ("kind", "found", "condition", "state"),
    [
        (JOBSET, jobset(), "Completed", State.SUCCEEDED),
        (JOBSET, jobset(), "Failed", State.FAILED),
        (TRAINJOB, trainjob(), "Complete", State.SUCCEEDED),
        (TRAINJOB, trainjob(), "Failed", State.FAILED),
    ],
)
def test_a_condition_ends_it(kind: JobKind, found: Manifest, condition: str, state: State) -> None:
    status = {"conditions": [{"type": condition, "status": "True"}]}
    assert kind.outcome(decoded(kind, {**found, "status": status})) is state
