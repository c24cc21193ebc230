"""The job of a pod, by its owner and by the labels that policies keep true."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from queuer.kube.kinds import BY_NAME, Member, member_of
from queuer.kube.objects import Pod

UID, ROLE = "jobset.sigs.k8s.io/jobset-uid", "jobset.sigs.k8s.io/replicatedjob-name"
OURS = "queuer.dev/workload"


def pod(owner: tuple[str, str, str] | None, **labels: str) -> Any:
    version, kind, uid = owner or ("", "", "")
    reference = {"apiVersion": version, "kind": kind, "name": "o", "uid": uid, "controller": True}
    named = {{"ours": OURS, "uid": UID, "role": ROLE}[key]: value for key, value in labels.items()}
    meta = {"name": "p", "namespace": "n", "labels": named, "ownerReferences": [reference] if owner else []}
    return msgspec.convert({"metadata": meta, "spec": {}}, Pod)


JOB = ("batch/v1", "Job", "job")


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
    ],
)
def test_whose_a_pod_is(found: Pod, whose: Member | None) -> None:
    assert member_of(found) == whose


def test_kinds_whose_pods_are_made_by_jobs_are_known() -> None:
    """A job of these is released in silence only once its Jobs are suspended."""
    found = {name for name, kind in BY_NAME.items() if kind.makes_jobs}
    assert found == {"JobSet", "MPIJob", "RayJob", "TrainJob"}
