"""The controllers of the local cluster's job kinds do their work without Queuer: JobSet, and the training-operator's.

Each job is without a queue, so no policy of ours touches it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import pytest

from queuer.local.cluster import Cluster
from tests.e2e.support import Refused, create, kubectl, read, wait_until

JOBSET = "jobset.sigs.k8s.io/jobset-name"
ROLES = {"driver": (1, 1), "worker": (2, 2)}
"""Replicas and pods of each by role."""
RACK = "topology.kubernetes.io/rack"

KUBEFLOW = {
    "PyTorchJob": ("pytorchReplicaSpecs", "pytorch", ("Master", "Worker")),
    "TFJob": ("tfReplicaSpecs", "tensorflow", ("Chief", "PS", "Worker", "Evaluator")),
    "XGBoostJob": ("xgbReplicaSpecs", "xgboost", ("Master", "Worker")),
    "PaddleJob": ("paddleReplicaSpecs", "paddle", ("Master", "Worker")),
    "JAXJob": ("jaxReplicaSpecs", "jax", ("Worker",)),
}
"""Kind → the field of its replicas, the name of its container, its roles."""


def _template(container: str) -> dict[str, Any]:
    return {
        "metadata": {"annotations": {"sim/run-for": "1s"}},
        "spec": {"containers": [{"name": container, "image": "none"}]},
    }


def _jobset(namespace: str) -> dict[str, Any]:
    roles = [
        {
            "name": name,
            "replicas": replicas,
            "template": {"spec": {"parallelism": pods, "completions": pods, "template": _template("main")}},
        }
        for name, (replicas, pods) in ROLES.items()
    ]
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "gang", "namespace": namespace},
        "spec": {
            "suspend": True,
            "startupPolicy": {"startupPolicyOrder": "InOrder"},
            "replicatedJobs": roles,
        },
    }


def _children(cluster: Cluster, namespace: str) -> dict[str, Any]:
    path = f"/apis/batch/v1/namespaces/{namespace}/jobs"
    items = read(cluster, path, labelSelector=f"{JOBSET}=gang")["items"]
    return {job["metadata"]["name"]: job["spec"] for job in items}


def _pods(cluster: Cluster, namespace: str, selector: str) -> list[Mapping[str, Any]]:
    path = f"/api/v1/namespaces/{namespace}/pods"
    found: list[Mapping[str, Any]] = read(cluster, path, labelSelector=selector)["items"]
    return found


def _patch(cluster: Cluster, namespace: str, operations: Sequence[Mapping[str, Any]]) -> None:
    command = ("patch", "jobset", "gang", "-n", namespace, "--type=json", f"--patch={json.dumps(operations)}")
    kubectl(cluster, "alice", *command)


def _edit(index: int, field: str, value: object) -> dict[str, Any]:
    path = f"/spec/replicatedJobs/{index}/template/spec/template/spec/{field}"
    return {"op": "add", "path": path, "value": value}


def _ends(cluster: Cluster, path: str) -> bool:
    return _is(read(cluster, path), "Succeeded")


def _is(job: Mapping[str, Any], condition: str) -> bool:
    conditions = job.get("status", {}).get("conditions", ())
    return any(found["type"] == condition and found["status"] == "True" for found in conditions)


def test_a_jobset_waits_suspended_starts_where_it_is_told_and_ends(cluster: Cluster, namespace: str) -> None:
    """In order; sets in any order are those of test_conformance."""
    create(cluster, _jobset(namespace))
    path = f"/apis/jobset.x-k8s.io/v1alpha2/namespaces/{namespace}/jobsets/gang"
    wait_until(lambda: _is(read(cluster, path), "Suspended"), timeout=30, describe="the JobSet is suspended")
    waiting = _children(cluster, namespace)
    assert sorted(waiting) == ["gang-driver-0", "gang-worker-0", "gang-worker-1"]
    assert all(job["suspend"] for job in waiting.values())
    with pytest.raises(Refused, match=r"spec\.replicatedJobs.*field is immutable"):
        _patch(cluster, namespace, [_edit(0, "affinity", {})])

    selector = {RACK: "r02"}
    start = {"op": "replace", "path": "/spec/suspend", "value": False}
    _patch(cluster, namespace, [*(_edit(i, "nodeSelector", selector) for i in range(len(ROLES))), start])
    wait_until(
        lambda: _is(read(cluster, path), "Completed"), timeout=60, describe="the JobSet ends", interval=0.3
    )
    jobs = _children(cluster, namespace)
    assert [job["template"]["spec"]["nodeSelector"] for job in jobs.values()] == [selector] * 3
    pods = _pods(cluster, namespace, f"{JOBSET}=gang")
    assert len(pods) == sum(replicas * pods for replicas, pods in ROLES.values())
    assert {pod["status"]["phase"] for pod in pods} == {"Succeeded"}


def test_each_kind_of_the_training_operator_makes_its_pods(cluster: Cluster, namespace: str) -> None:
    for kind, (field, container, roles) in KUBEFLOW.items():
        spec = {field: {role: {"replicas": 1, "template": _template(container)} for role in roles}}
        meta = {"name": kind.lower(), "namespace": namespace}
        create(cluster, {"apiVersion": "kubeflow.org/v1", "kind": kind, "metadata": meta, "spec": spec})
    prefix = "training.kubeflow.org"
    for kind, (_, _, roles) in KUBEFLOW.items():
        path = f"/apis/kubeflow.org/v1/namespaces/{namespace}/{kind.lower()}s/{kind.lower()}"
        wait_until(partial(_ends, cluster, path), timeout=60, describe=f"the {kind} ends")
        selector = f"{prefix}/job-name={kind.lower()},{prefix}/operator-name={kind.lower()}-controller"
        labels = [pod["metadata"]["labels"] for pod in _pods(cluster, namespace, selector)]
        assert sorted(label[f"{prefix}/replica-type"] for label in labels) == sorted(map(str.lower, roles))
