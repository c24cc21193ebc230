"""Shared by end-to-end tests: kubectl under an identity, waiting for a condition, manifests of jobs."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any, TypeVar

import httpx2

from queuer.kube.kinds import BY_NAME
from queuer.local.cluster import Cluster
from queuer.local.kubectl import KubectlError, asked_of
from tests.waiting import PATIENCE

T = TypeVar("T")

QUEUE_LABEL = "queuer.dev/queue"
TRAINER = "trainer.kubeflow.org/v1alpha1"
_NOT_YET = "There can be a delay between when CustomResourceDefinitions are created"
"""What the API server says of a kind whose definition another test has just made anew."""


class Refused(AssertionError):
    """kubectl failed where the test expected it to succeed; the message is what the API server said."""


def kubectl(
    cluster: Cluster, identity: str, *arguments: str, input: str | None = None, check: bool = True
) -> str:
    """Run kubectl as an identity. Returns stdout; with `check=False` stdout and stderr whatever comes."""
    command = [
        str(cluster.state.programs["kubectl"]),
        f"--kubeconfig={cluster.kubeconfig(identity)}",
        *arguments,
    ]
    result = subprocess.run(command, input=input, capture_output=True, text=True, check=False, timeout=120)
    if check and result.returncode:
        raise Refused(f"kubectl {' '.join(arguments)} as {identity}: {result.stderr.strip()}")
    return result.stdout if check else result.stdout + result.stderr


def kubectl_list(
    cluster: Cluster, identity: str, objects: Iterable[Mapping[str, Any]], *arguments: str
) -> str:
    """Run kubectl on these objects in one call, such as `apply`."""
    document = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
    return kubectl(cluster, identity, *arguments, "-f", "-", input=json.dumps(document))


def get(cluster: Cluster, *arguments: str, identity: str = "admin") -> Any:
    """`kubectl get … -o json`, decoded."""
    return json.loads(kubectl(cluster, identity, "get", *arguments, "-o", "json"))


def send(cluster: Cluster, identity: str, method: str, path: str, body: Any = None, **params: str) -> Any:
    """Ask the API server as an identity, and decode its answer; `body` of a PATCH is a merge patch.

    Each kubectl costs 0.1 s of CPU and more. Raises `KubectlError` with what the API server said.
    """
    kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
    headers = {"Authorization": f"Bearer {cluster.token(identity)}", "Content-Type": kind}
    content = None if body is None else json.dumps(body)
    answer = _client(cluster.api_url).request(method, path, params=params, headers=headers, content=content)
    if answer.is_success:
        return answer.json()
    said = answer.json() if answer.headers["content-type"] == "application/json" else {}
    told = f"{said.get('reason', answer.status_code)}: {said.get('message', answer.text)}"
    raise KubectlError(f"{method} {path} as {identity}: {told}")


@cache
def _client(url: str) -> httpx2.Client:
    return httpx2.Client(base_url=url, verify=False, trust_env=False, timeout=60)


def read(cluster: Cluster, path: str, *, identity: str = "admin", **params: str) -> Any:
    """GET a path of the API server as an identity, decoded."""
    try:
        return send(cluster, identity, "GET", path, **params)
    except KubectlError as error:
        raise Refused(str(error)) from error


def collection(cluster: Cluster, made: Mapping[str, Any], *, namespace: str | None = None) -> str:
    """Where objects like this one are. `namespace`: its own, unless it says another."""
    version, kind = made.get("apiVersion", "v1"), made["kind"]
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    for each in send(cluster, "admin", "GET", root)["resources"]:
        if each["kind"] == kind and "/" not in each["name"]:
            where = (
                f"/namespaces/{made['metadata'].get('namespace', namespace)}" if each["namespaced"] else ""
            )
            return f"{root}{where}/{each['name']}"
    raise KubectlError(f"no matches for kind {kind} in version {version}")


def create(cluster: Cluster, manifest: Mapping[str, Any], *, identity: str = "alice") -> Any:
    """Create one object and return it as the API server stored it."""
    made = list[Any]()

    def created() -> bool:
        try:
            path = collection(cluster, manifest)
            made.append(send(cluster, identity, "POST", path, manifest, fieldValidation="Strict"))
        except KubectlError as error:
            if asked_of(str(error)) is not None:
                made.append(json.loads(cluster.kubectl(identity).create(manifest, "--output=json")))
            elif _NOT_YET not in str(error):
                raise Refused(str(error)) from error
        return bool(made)

    wait_until(created, timeout=60, describe="its kind is served")
    return made[0]


def remove(cluster: Cluster, path: str, *, identity: str = "admin", now: bool = False) -> None:
    """Delete an object with what it owns, and wait until it is gone. `now`: a pod, without its grace."""

    def gone() -> bool:
        try:
            send(cluster, identity, "GET", path)
        except KubectlError as error:
            return "NotFound" in str(error)
        return False

    if not gone():
        try:
            grace = {"gracePeriodSeconds": "0"} if now else {}
            send(cluster, identity, "DELETE", path, propagationPolicy="Background", **grace)
        except KubectlError as error:
            raise Refused(str(error)) from error
    wait_until(gone, timeout=60, describe=f"{path} is gone")


def crash(cluster: Cluster, part: str) -> None:
    """End a part at once and wait until its port is free: the API server's own end waits 15 s for its watchers."""
    pid, port = cluster.pid(part), cluster.state.ports[part]
    assert pid is not None, f"{part} runs"
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: _free(port), timeout=20, describe=f"port {port} is free")


def _free(port: int) -> bool:
    """Whether a server may listen there; the last one's goes a moment after its process."""
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True


def wait_until(
    condition: Callable[[], T],
    *,
    timeout: float = PATIENCE,
    describe: str | Callable[[], str],
    interval: float = 0.1,
) -> T:
    """Ask until the answer is true and return it; fail after `timeout` seconds, PATIENCE at least, and say what was
    awaited. It measures nothing: a test of how soon something happens has a clock of its own.
    """
    timeout = max(timeout, PATIENCE)
    deadline = time.monotonic() + timeout
    while not (answer := condition()):
        if time.monotonic() > deadline:
            said = describe() if callable(describe) else describe
            raise AssertionError(f"not within {timeout:.0f} s: {said} (last answer: {answer!r})")
        time.sleep(interval)
    return answer


def slow_to_end() -> dict[str, Any]:
    """A template whose pods take an hour to terminate, unless a test lets them go."""
    limits = {"nvidia.com/gpu": "8", "cpu": "1"}
    container = {"name": "main", "image": "x", "resources": {"limits": limits}}
    return {
        "template": {
            "metadata": {"annotations": {"sim/terminate-after": "1h"}},
            "spec": {"restartPolicy": "Never", "containers": [container]},
        }
    }


def job_manifest(
    name: str,
    *,
    namespace: str,
    queue: str | None = None,
    pods: int = 1,
    gpus: int = 1,
    cpu: str = "1",
    run_for: str | None = None,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    spec: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """A batch/v1 Job of `pods` equal pods that run together. `run_for` (e.g. "2s") makes kwok finish them."""
    own = {
        "parallelism": pods,
        "completions": pods,
        "backoffLimit": 0,
        "template": _template("main", gpus=gpus, cpu=cpu, run_for=run_for, restart="Never"),
    }
    metadata = _metadata(name, namespace, queue, labels, annotations)
    return _object("batch/v1", "Job", metadata, {**own, **(spec or {})})


def pytorchjob_manifest(
    name: str,
    *,
    namespace: str,
    queue: str | None = None,
    workers: int = 3,
    gpus: int = 1,
    cpu: str = "1",
    run_for: str | None = None,
    restart: str = "Never",
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """A kubeflow.org/v1 PyTorchJob of one master and `workers` workers."""

    def replica(count: int) -> dict[str, Any]:
        template = _template("pytorch", gpus=gpus, cpu=cpu, run_for=run_for, restart=None)
        return {"replicas": count, "restartPolicy": restart, "template": template}

    replicas = {"Master": replica(1)} | ({"Worker": replica(workers)} if workers else {})
    spec = {"runPolicy": {"cleanPodPolicy": "None"}, "pytorchReplicaSpecs": replicas}
    metadata = _metadata(name, namespace, queue, labels, annotations)
    return _object("kubeflow.org/v1", "PyTorchJob", metadata, spec)


def training_manifest(
    kind: str, key: str, roles: Mapping[str, int], *, name: str, namespace: str, queue: str | None = None,
    gpus: int = 1, cpu: str = "1", run_for: str | None = None, annotations: Mapping[str, str] | None = None,
) -> dict[str, Any]:  # fmt: skip
    """A job of another of the training-operator's kinds: so many pods a role, under `spec.<key>`."""
    container = {
        "TFJob": "tensorflow",
        "XGBoostJob": "xgboost",
        "PaddleJob": "paddle",
        "JAXJob": "jax",
        "MPIJob": "mpi",
    }[kind]
    template = _template(container, gpus=gpus, cpu=cpu, run_for=run_for, restart=None)
    replicas = {r: {"replicas": n, "restartPolicy": "Never", "template": template} for r, n in roles.items()}
    metadata = _metadata(name, namespace, queue, None, annotations)
    return _object(BY_NAME[kind].api_version, kind, metadata, {key: replicas})


def pod_manifest(
    name: str, *, namespace: str, queue: str | None, group: str | None = None, size: int = 1, gpus: int = 1,
    cpu: str = "1", run_for: str | None = None, labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
) -> dict[str, Any]:  # fmt: skip
    """A pod that queues by itself, alone or in a group of `size`."""
    made = _template("main", gpus=gpus, cpu=cpu, run_for=run_for, restart="Never")
    own = {} if group is None else {"queuer.dev/pod-group": group}
    notes = {} if group is None else {"queuer.dev/pod-group-size": str(size)}
    notes |= {**made["metadata"].get("annotations", {}), **(annotations or {})}
    metadata = _metadata(name, namespace, queue, {**own, **(labels or {})}, notes)
    return _object("v1", "Pod", metadata, made["spec"])


def deployment_manifest(name: str, pod: Mapping[str, Any], *, pods: int) -> dict[str, Any]:
    """A Deployment whose pods are like `pod` but for their names."""
    template = _endless(name, pod)
    spec = {"replicas": pods, "selector": {"matchLabels": {"app": name}}, "template": template}
    return _object("apps/v1", "Deployment", {"name": name, "namespace": pod["metadata"]["namespace"]}, spec)


def lws_manifest(name: str, pod: Mapping[str, Any], *, pods: int) -> dict[str, Any]:
    """A LeaderWorkerSet of one group of so many pods that are like `pod` but for their names."""
    template = _endless(name, pod)
    group = {"size": pods, "leaderTemplate": template, "workerTemplate": template}
    spec = {"replicas": 1, "leaderWorkerTemplate": group}
    return _object(
        "leaderworkerset.x-k8s.io/v1",
        "LeaderWorkerSet",
        {"name": name, "namespace": pod["metadata"]["namespace"]},
        spec,
    )


def _endless(name: str, pod: Mapping[str, Any]) -> dict[str, Any]:
    """A template of pods like this one, labelled with the name of what makes them anew."""
    labels = {**pod["metadata"]["labels"], "app": name}
    metadata = {"labels": labels, "annotations": pod["metadata"]["annotations"]}
    return {"metadata": metadata, "spec": {**pod["spec"], "restartPolicy": "Always"}}


def jobset_manifest(
    name: str,
    *,
    namespace: str,
    queue: str | None = None,
    workers: int = 2,
    gpus: int = 1,
    cpu: str = "1",
    run_for: str | None = None,
    driver_runs_for: str | None = None,
    restarts: int = 0,
    priority_class: str = "queuer-default",
    annotations: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """A JobSet of a driver of one pod and `workers` Jobs of one pod each, made anew so often where one fails."""

    def role(of: str, replicas: int, runs: str | None) -> dict[str, Any]:
        template = _template("main", gpus=gpus, cpu=cpu, run_for=runs, restart="Never")
        template["spec"] |= {"priorityClassName": priority_class} if priority_class else {}
        spec = {"parallelism": 1, "completions": 1, "backoffLimit": 0, "template": template}
        return {"name": of, "replicas": replicas, "template": {"spec": spec}}

    roles = [role("driver", 1, driver_runs_for or run_for), role("workers", workers, run_for)]
    spec = {"replicatedJobs": roles, "failurePolicy": {"maxRestarts": restarts}}
    metadata = _metadata(name, namespace, queue, None, annotations)
    return _object("jobset.x-k8s.io/v1alpha2", "JobSet", metadata, spec)


def runtime_manifest(
    name: str, *, namespace: str, gpus: int = 1, cpu: str = "1", run_for: str | None = None,
    spec: Mapping[str, Any] | None = None,
) -> dict[str, Any]:  # fmt: skip
    """A TrainingRuntime of one role, `node`; `spec`: what else its pods say."""
    template = _template("node", gpus=gpus, cpu=cpu, run_for=run_for, restart="Never")
    template["spec"] |= dict(spec or {})
    job = {"backoffLimit": 0, "template": template}
    labels = {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
    role = {"name": "node", "template": {"metadata": {"labels": labels}, "spec": job}}
    framework = {"trainer.kubeflow.org/framework": "torch"}
    metadata = {"name": name, "namespace": namespace, "labels": framework}
    whole = {"mlPolicy": {"numNodes": 1, "torch": {}}, "template": {"spec": {"replicatedJobs": [role]}}}
    return _object(TRAINER, "TrainingRuntime", metadata, whole)


def trainjob_manifest(
    name: str, *, namespace: str, queue: str | None = None, pods: int = 3,
    annotations: Mapping[str, str] | None = None, labels: Mapping[str, str] | None = None,
) -> dict[str, Any]:  # fmt: skip
    """A TrainJob of so many nodes by the TrainingRuntime of its name.

    It has a quantity that is a number, which nothing may write as a text.
    """
    spec = {
        "runtimeRef": {"kind": "TrainingRuntime", "name": name},
        "trainer": {"numNodes": pods, "resourcesPerNode": {"requests": {"cpu": 1}}},
    }
    return _object(TRAINER, "TrainJob", _metadata(name, namespace, queue, labels, annotations), spec)


def _object(version: str, kind: str, metadata: Mapping[str, Any], spec: Mapping[str, Any]) -> dict[str, Any]:
    return {"apiVersion": version, "kind": kind, "metadata": dict(metadata), "spec": dict(spec)}


def _metadata(
    name: str,
    namespace: str,
    queue: str | None,
    labels: Mapping[str, str] | None,
    annotations: Mapping[str, str] | None,
) -> dict[str, Any]:
    queue_label = {QUEUE_LABEL: queue} if queue else {}
    return {
        "name": name,
        "namespace": namespace,
        "labels": {**queue_label, **(labels or {})},
        "annotations": dict(annotations or {}),
    }


def _template(
    container: str, *, gpus: int, cpu: str, run_for: str | None, restart: str | None
) -> dict[str, Any]:
    resources = {"cpu": cpu, "memory": "1Gi"} | ({"nvidia.com/gpu": str(gpus)} if gpus else {})
    spec: dict[str, Any] = {
        "containers": [
            {
                "name": container,
                "image": "training:1",
                "resources": {"requests": resources, "limits": resources},
            }
        ]
    }
    if restart:
        spec["restartPolicy"] = restart
    return {"metadata": {"annotations": {"sim/run-for": run_for} if run_for else {}}, "spec": spec}
