"""A namespace with a database and, where started, a controller: what a test of the main path does and sees
there.

Jobs are created with the token of the tenant `alice`. The end undoes node changes (cordons, fillers) and
waits for the test's pods, so that the next test finds a free fleet.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from typing import Any

import pytest

from queuer.kube.kinds import BY_NAME
from queuer.local.cluster import Cluster
from queuer.local.fleet import RACK
from queuer.local.kubectl import KubectlError
from tests.e2e.controller import GPU, Controller, Database, controller
from tests.e2e.ray import ray_manifest
from tests.e2e.support import (
    Refused,
    create,
    job_manifest,
    jobset_manifest,
    kubectl,
    pytorchjob_manifest,
    read,
    remove,
    runtime_manifest,
    send,
    training_manifest,
    trainjob_manifest,
    wait_until,
)

TEAM_A, TEAM_B = "root.research.team-a", "root.research.team-b"
HIGH = {
    "apiVersion": "scheduling.k8s.io/v1",
    "kind": "PriorityClass",
    "metadata": {"name": "queuer-high"},
    "value": 1000,
    "preemptionPolicy": "Never",
}
KINDS = {name: kind.resource.full_name for name, kind in BY_NAME.items()}
ROLES: dict[str, tuple[str, ...]] = {
    "TFJob": ("tfReplicaSpecs", "Chief", "Worker"),
    "XGBoostJob": ("xgbReplicaSpecs", "Master", "Worker"),
    "PaddleJob": ("paddleReplicaSpecs", "Master", "Worker"),
    "JAXJob": ("jaxReplicaSpecs", "Worker"),
}
"""The field of the roles and their names, the first of one pod where there are two."""
OPTIONAL_ROLES = {"MPIJob": ("mpiReplicaSpecs", "Launcher", "Worker")}
"""The same of kinds that run only where their optional part does."""


@dataclass(slots=True, kw_only=True)
class Scene:
    """Where a test plays."""

    cluster: Cluster
    namespace: str
    database: Database
    exits: ExitStack = field(default_factory=ExitStack)

    # -- the controller

    def start(self, **settings: str) -> Controller:
        """A controller that leads, stopped at the end of the test."""
        return self.exits.enter_context(controller(self.cluster, self.database.url, **settings))

    def another(self, **settings: str) -> Controller:
        """A controller that is not started yet, stopped at the end of the test."""
        made = Controller(cluster=self.cluster, database_url=self.database.url, settings=settings)
        self.exits.callback(made.stop)
        return made

    # -- jobs

    def job(self, name: str, *, queue: str | None = TEAM_A, **wanted: Any) -> dict[str, Any]:
        """Create a Job as alice; returns it as stored."""
        return dict(create(self.cluster, job_manifest(name, namespace=self.namespace, queue=queue, **wanted)))

    def pytorchjob(self, name: str, *, queue: str | None = TEAM_A, **wanted: Any) -> dict[str, Any]:
        """Create a PyTorchJob as alice; returns it as stored."""
        manifest = pytorchjob_manifest(name, namespace=self.namespace, queue=queue, **wanted)
        return dict(create(self.cluster, manifest))

    def of_kind(self, kind: str, name: str, *, pods: int, **wanted: Any) -> dict[str, Any]:
        """A job of `pods` pods, of a leader and the rest workers where its kind has roles."""
        if kind == "Job":
            return self.job(name, pods=pods, **wanted)
        if kind == "PyTorchJob":
            return self.pytorchjob(name, workers=pods - 1, **wanted)
        if kind == "TrainJob":
            return self.trainjob(name, pods=pods, **wanted)
        wanted = {"namespace": self.namespace, "queue": TEAM_A, **wanted}
        if kind in ("RayJob", "RayCluster"):
            return dict(create(self.cluster, ray_manifest(kind, name, pods=pods, **wanted)))
        if kind == "JobSet":
            return dict(create(self.cluster, jobset_manifest(name, workers=pods - 1, **wanted)))
        key, *roles = (ROLES | OPTIONAL_ROLES)[kind]
        counts = dict.fromkeys(roles, 1) | {roles[-1]: pods - len(roles) + 1}
        return dict(create(self.cluster, training_manifest(kind, key, counts, name=name, **wanted)))

    def trainjob(
        self, name: str, *, pods: int, queue: str | None = TEAM_A,
        annotations: Mapping[str, str] | None = None, **runtime: Any,
    ) -> dict[str, Any]:  # fmt: skip
        """A TrainJob by a TrainingRuntime of its own, which is made as an administrator."""
        create(self.cluster, runtime_manifest(name, namespace=self.namespace, **runtime), identity="admin")
        return self.train(name, pods=pods, queue=queue, annotations=annotations)

    def train(self, name: str, *, queue: str | None = TEAM_A, **wanted: Any) -> dict[str, Any]:
        """A TrainJob by the TrainingRuntime of its name, once its controller has heard of that."""
        manifest = trainjob_manifest(name, namespace=self.namespace, queue=queue, **wanted)

        def made() -> dict[str, Any] | None:
            try:
                return dict(create(self.cluster, manifest))
            except Refused as error:
                if "must be created before" in str(error):
                    return None
                raise

        return wait_until(made, timeout=10, describe="the Trainer knows the runtime") or {}

    def read(self, name: str, kind: str = "Job") -> dict[str, Any]:
        """The object as it is now."""
        return dict(read(self.cluster, BY_NAME[kind].resource.path(name, namespace=self.namespace)))

    def delete(self, name: str, kind: str = "Job", *options: str) -> None:
        """Delete a job as alice, and wait until it is gone. `options`: of kubectl, which says whether it waits."""
        if options:
            kubectl(self.cluster, "alice", "delete", KINDS[kind], name, "-n", self.namespace, *options)
        else:
            path = BY_NAME[kind].resource.path(name, namespace=self.namespace)
            remove(self.cluster, path, identity="alice")

    def pods(self, name: str | None = None) -> list[dict[str, Any]]:
        """Pods of a job of any kind, or all of the namespace; those that are going included."""
        items: list[dict[str, Any]] = read(self.cluster, f"/api/v1/namespaces/{self.namespace}/pods")["items"]
        keys = (
            "batch.kubernetes.io/job-name",
            "training.kubeflow.org/job-name",
            "jobset.sigs.k8s.io/jobset-name",
            "queuer.dev/pod-group",
            "ray.io/cluster",
        )
        return [
            p for p in items
            if name is None or name in (p["metadata"].get("labels", {}).get(key) for key in keys)
            or p["metadata"].get("labels", {}).get("ray.io/cluster", "").rpartition("-")[0] == name
        ]  # fmt: skip

    def end(self, *pods: str, phase: str = "Succeeded") -> None:
        """End these pods, by name, as their kubelet would."""
        for pod in pods:
            path = f"/api/v1/namespaces/{self.namespace}/pods/{pod}/status"
            send(self.cluster, "admin", "PATCH", path, {"status": {"phase": phase}})

    def end_all(self, name: str) -> None:
        """End the pods of a job, all well."""
        self.end(*(pod["metadata"]["name"] for pod in self.pods(name)))

    def let_go(self, name: str) -> None:
        """All pods of a job, once they terminate, are gone, however much time they have left."""
        path = f"/api/v1/namespaces/{self.namespace}/pods"
        for pod in self.wait_leaving(name):
            remove(self.cluster, f"{path}/{pod['metadata']['name']}", now=True)

    def racks(self, name: str) -> set[str]:
        """Racks in which a job has bound pods."""
        return {self.rack_of(p["spec"]["nodeName"]) for p in self.pods(name) if p["spec"].get("nodeName")}

    # -- what the controller wrote

    def state(self, name: str) -> str:
        """The workload's state."""
        return self.database.state(name, self.namespace)

    def wait_state(self, name: str, *states: str, timeout: float = 30) -> None:
        """Wait until the workload is in one of these states."""
        wait_until(
            lambda: self.state(name) in states, timeout=timeout,
            describe=lambda: f"{name} is {' or '.join(states)}: {self.story(name)}",
        )  # fmt: skip

    def wait_reason(self, name: str, token: str, *, timeout: float = 30) -> dict[str, Any]:
        """Wait until the workload waits for this reason; returns it as it was then."""
        seen: list[dict[str, Any]] = []

        def told() -> bool:
            seen.append(self.reason(name))
            return seen[-1].get("token") == token

        wait_until(
            told, timeout=timeout,
            describe=lambda: f"{name} waits as {token}: {self.story(name)}",
        )  # fmt: skip
        return seen[-1]

    def wait_event(self, name: str, reason: str, *, timeout: float = 15) -> str:
        """The message of an Event of ours about the job; alice may read it."""
        selector = f"involvedObject.name={name},reason={reason}"

        def found() -> list[dict[str, Any]]:
            path = f"/api/v1/namespaces/{self.namespace}/events"
            return list(read(self.cluster, path, identity="alice", fieldSelector=selector)["items"])

        wait_until(lambda: bool(found()), timeout=timeout, describe=f"an Event {reason} about {name}")
        return str(found()[-1]["message"])

    def reason(self, name: str) -> dict[str, Any]:
        """Its primary reason `{token, text, params}`."""
        return self.database.reason(name, self.namespace)

    def wait_leaving(self, name: str) -> list[dict[str, Any]]:
        """Wait until all pods of a job terminate; returns them."""

        def leaving() -> list[dict[str, Any]]:
            pods = self.pods(name)
            return pods if all("deletionTimestamp" in pod["metadata"] for pod in pods) else []

        return wait_until(leaving, describe=lambda: f"all its pods terminate: {self.story(name)}")

    def wait_empty(self, *, timeout: float = 30) -> None:
        """Wait until the ledger is back to zero."""
        wait_until(
            lambda: not self.database.open_rows(), timeout=timeout,
            describe=lambda: f"the ledger is empty: {self.database.open_rows()}",
        )  # fmt: skip

    def story(self, name: str) -> str:
        """All facts about a workload, for messages."""
        row = self.database.workload(name, self.namespace)
        told = {key: row.get(key) for key in ("state", "attempt", "token", "explanation")}
        nodes = [
            (p["metadata"]["name"], p["spec"].get("nodeName"), p["status"]["phase"]) for p in self.pods(name)
        ]
        events = self.database.rows("SELECT type, data FROM event WHERE uid = %s ORDER BY id", row.get("uid"))
        return json.dumps({"workload": told, "pods": nodes, "events": events}, default=str)

    # -- nodes

    def rack_of(self, node: str) -> str:
        """The rack of a node."""
        return self.nodes()[node]

    def nodes(self) -> dict[str, str]:
        """Rack by node name."""
        items = read(self.cluster, "/api/v1/nodes")["items"]
        return {node["metadata"]["name"]: node["metadata"]["labels"][RACK] for node in items}

    def cordon(self, nodes: Sequence[str]) -> None:
        """Cordon nodes until the end of the test."""
        self.exits.callback(self.uncordon, nodes)
        self._close(nodes, True)

    def uncordon(self, nodes: Sequence[str]) -> None:
        """Uncordon nodes."""
        self._close(nodes, None)

    def _close(self, nodes: Sequence[str], value: bool | None) -> None:
        for node in nodes:
            send(self.cluster, "admin", "PATCH", f"/api/v1/nodes/{node}", {"spec": {"unschedulable": value}})

    def remove_node(self, node: str) -> None:
        """Delete a node object until the end of the test; its pods stay until something deletes them."""
        found = self.node(node)
        manifest = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": node, "labels": found["metadata"]["labels"]},
            "status": {key: found["status"][key] for key in ("capacity", "allocatable")},
        }
        remove(self.cluster, f"/api/v1/nodes/{node}")
        self.exits.callback(create, self.cluster, manifest, identity="admin")

    def node(self, name: str) -> dict[str, Any]:
        """A node as it is now."""
        return dict(read(self.cluster, f"/api/v1/nodes/{name}"))

    def fill(self, node: str, gpus: int, *, name: str | None = None, namespace: str = "default") -> str:
        """A pod beside all queues that takes GPUs of a node until it is removed or the test ends."""
        name = name or f"filler-{node}"
        manifest = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {
                "nodeName": node,
                "containers": [{"name": "main", "image": "x", "resources": {"limits": {GPU: str(gpus)}}}],
            },
        }
        create(self.cluster, manifest, identity="admin")
        self.exits.callback(self.unfill, name, namespace=namespace)
        return name

    def unfill(self, name: str, *, namespace: str = "default") -> None:
        """Remove a filler."""
        remove(self.cluster, f"/api/v1/namespaces/{namespace}/pods/{name}")

    def scheduler(self, *, running: bool) -> None:
        """Stop kube-scheduler, so that pods stay unbound, or start it again."""
        self.part("kube-scheduler", running=running)

    def part(self, name: str, *, running: bool) -> None:
        """Stop a part of the control plane until the end of the test, or start it again."""
        if running:
            self.cluster.start([name])
        else:
            self.exits.callback(self.part, name, running=True)
            self.cluster.stop([name])

    def writes(self, resource: str) -> dict[str, float]:
        """PATCHes of a resource's objects that the API server has counted, by HTTP code."""
        text = kubectl(self.cluster, "admin", "get", "--raw", "/metrics")
        found: dict[str, float] = {}
        for line in text.splitlines():
            if line.startswith("apiserver_request_total{") and 'verb="PATCH"' in line:
                labels = dict(
                    part.split("=", 1) for part in line[line.index("{") + 1 : line.index("}")].split(",")
                )
                if labels["resource"] == f'"{resource}"' and labels["subresource"] == '""':
                    code = labels["code"].strip('"')
                    found[code] = found.get(code, 0.0) + float(line.rsplit(" ", 1)[1])
        return found


def required(level: str) -> Mapping[str, str]:
    """Annotation for `topology-required`."""
    return {"queuer.dev/topology-required": level}


def preferred(level: str) -> Mapping[str, str]:
    """Annotation for `topology-preferred`."""
    return {"queuer.dev/topology-preferred": level}


def _delete_all(scene: Scene) -> None:
    """Delete jobs and, without their grace, pods of all kinds; what a job has made goes with it alone."""
    ours = [kind.resource.path("", namespace=scene.namespace).rstrip("/") for kind in BY_NAME.values()]
    for path in (f"/apis/apps/v1/namespaces/{scene.namespace}/deployments", *dict.fromkeys(ours)):
        with suppress(KubectlError):  # a kind that the cluster does not serve
            for item in send(scene.cluster, "admin", "GET", path)["items"]:
                meta = item["metadata"]
                if path.endswith("/pods") or not meta.get("ownerReferences"):
                    with suppress(KubectlError):  # it has gone meanwhile
                        send(
                            scene.cluster,
                            "admin",
                            "DELETE",
                            f"{path}/{meta['name']}",
                            propagationPolicy="Background",
                            **({"gracePeriodSeconds": "0"} if path.endswith("/pods") else {}),
                        )


@pytest.fixture
def scene(cluster: Cluster, namespace: str, database_url: str) -> Iterator[Scene]:
    """A scene; at its end all jobs and pods of the namespace are gone and the fleet is as before."""
    made = Scene(cluster=cluster, namespace=namespace, database=Database(url=database_url))
    with suppress(Refused):  # it is there
        create(cluster, HIGH, identity="admin")
    with made.exits:
        yield made
    _delete_all(made)
    wait_until(
        lambda: not made.pods(),
        timeout=60,
        describe=lambda: f"pods are gone: {[p['metadata']['name'] for p in made.pods()]}",
    )
