"""A namespace as one user sees it, and the jobs that the policy tests create there.

Everything is asked with that user's own token: what is refused here is refused to anyone with the same rights,
whatever client they use.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any
from uuid import uuid4

import pytest

from queuer.local.cluster import Cluster
from queuer.local.kubectl import KubectlError, asked_of
from tests.e2e.support import collection, kubectl, send, wait_until
from tests.waiting import PATIENCE

Manifest = dict[str, Any]

QUEUE = "queuer.dev/queue"
ADMISSION = "queuer.dev/admission"
MANAGED = {"queuer.dev/managed": "true"}
BREAK_GLASS = "queuer.dev/break-glass"
CONTROLLER = "queuer-controller"
CONTROLLER_MANAGER = "kube-controller-manager"
OPERATOR = "training-operator"
KINDS = ("job", "pytorchjob")
_numbers = itertools.count(1)


def let_change(cluster: Cluster, queue: str, user: str, *, role: str) -> None:
    """Let a user change a queue, by a role and a binding of this name."""
    kubectl(cluster, "admin", "create", "clusterrole", role, "--verb=update", "--resource=queues.queuer.dev",
            f"--resource-name={queue}")  # fmt: skip
    kubectl(cluster, "admin", "create", "clusterrolebinding", role, f"--clusterrole={role}", f"--user={user}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A namespace, entered as `user` (an identity of the cluster)."""

    cluster: Cluster
    namespace: str
    user: str = "alice"

    def entered_by(self, user: str) -> Place:
        """The same namespace as somebody else sees it."""
        return replace(self, user=user)

    def run(self, *arguments: str, manifest: Manifest | None = None) -> str:
        """kubectl in this namespace. Raises `KubectlError` with what the API server said."""
        text = None if manifest is None else json.dumps(manifest)
        return self.cluster.kubectl(self.user).run("--namespace", self.namespace, *arguments, input=text)

    def create(self, manifest: Manifest, *options: str) -> Manifest:
        """The object as the API server keeps it. `options`: of kubectl."""
        if options:
            return self._object("create", "--filename=-", *options, manifest=manifest)
        return self._created(manifest)

    def start_from_cron_job(self, name: str) -> Manifest:
        """`kubectl create job --from`: the job that the CronJob would create now."""
        return self._object("create", "job", f"{name}-{next(_numbers)}", f"--from=cronjob/{name}")

    def try_create(self, manifest: Manifest) -> Manifest:
        """The object as the API server would keep it: admission runs, nothing is stored."""
        return self._created(manifest, dryRun="All")

    def accepts(self, manifest: Manifest) -> bool:
        """Whether the API server would keep it."""
        try:
            self.try_create(manifest)
        except KubectlError:
            return False
        return True

    def may_create(self, manifest: Manifest) -> bool:
        """Whether only a manifest of which the cluster asks more could be refused."""
        try:
            self.try_create(manifest)
        except KubectlError as error:
            return asked_of(str(error)) is not None
        return True

    def replace(self, manifest: Manifest) -> Manifest:
        """PUT: everything that the manifest leaves out is gone."""
        return self._object("replace", "--filename=-", manifest=manifest)

    def get(self, kind: str, name: str) -> Manifest:
        return self._object("get", kind, name)

    def patch(self, target: Manifest, change: Manifest, *options: str) -> Manifest:
        """Merge patch of an object that was created before. `options`: of kubectl."""
        if options:
            said = ("--type=merge", f"--patch={json.dumps(change)}", *options)
            return self._object("patch", *_address(target), *said)
        path = collection(self.cluster, target, namespace=self.namespace)
        return dict(send(self.cluster, self.user, "PATCH", f"{path}/{target['metadata']['name']}", change))

    def delete(self, target: Manifest, *options: str) -> None:
        self.run("delete", *_address(target), "--wait=true", f"--timeout={PATIENCE:.0f}s", *options)

    def pods(self, job: Manifest) -> list[Manifest]:
        """The pods that the job owns, those that are going included."""
        path = f"/api/v1/namespaces/{self.namespace}/pods"
        found = send(self.cluster, self.user, "GET", path)["items"]
        uid = job["metadata"]["uid"]
        return [p for p in found if any(o["uid"] == uid for o in p["metadata"].get("ownerReferences", []))]

    def running(self, job: Manifest) -> int:
        """How many pods of the job run."""
        return sum(p["status"].get("phase") == "Running" for p in self.pods(job))

    def _created(self, manifest: Manifest, **params: str) -> Manifest:
        path = collection(self.cluster, manifest, namespace=self.namespace)
        params |= {"fieldValidation": "Strict"}
        return dict(send(self.cluster, self.user, "POST", path, manifest, **params))

    def _object(self, *arguments: str, manifest: Manifest | None = None) -> Manifest:
        answer: Manifest = json.loads(self.run(*arguments, "--output=json", manifest=manifest))
        return answer


@contextmanager
def opened(
    cluster: Cluster, *, labels: Mapping[str, str], annotations: Mapping[str, str] | None = None
) -> Iterator[Place]:
    """A new namespace in which alice and bob hold `edit` and may do everything with PyTorchJobs."""
    admin = Place(cluster=cluster, namespace=f"policies-{uuid4().hex[:8]}", user="admin")
    metadata = {"name": admin.namespace, "labels": labels, "annotations": annotations or {}}
    admin.create({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    resources = "pytorchjobs.kubeflow.org,pytorchjobs.kubeflow.org/scale"
    admin.run("create", "role", "pytorch", "--verb=*", f"--resource={resources}")
    admin.run("create", "rolebinding", "edit", "--clusterrole=edit", "--user=alice", "--user=bob")
    admin.run("create", "rolebinding", "pytorch", "--role=pytorch", "--user=alice", "--user=bob")
    alice = admin.entered_by("alice")
    wait_until(
        lambda: all(alice.may_create(job(kind)) for kind in KINDS), timeout=30, describe="the tenant's rights"
    )
    yield alice
    admin.run("delete", "namespace", admin.namespace, "--wait=false")


def _address(target: Manifest) -> tuple[str, str]:
    return target["kind"].lower(), target["metadata"]["name"]


def refused(policy: str, sentence: str) -> pytest.RaisesExc[KubectlError]:
    """Expects that what is done inside is refused by this policy, with this sentence in the answer."""
    return pytest.raises(KubectlError, match=rf"(?s)forbidden.*'{policy}'.*{re.escape(sentence)}")


def warned(*parts: str) -> pytest.RaisesExc[KubectlError]:
    """Expects a warning with these parts, in this order, from a kubectl that takes warnings for errors."""
    return pytest.raises(KubectlError, match=r"(?s)Warning.*" + ".*".join(map(re.escape, parts)))


def job(kind: str, *, queue: str | None = "root.test", **spec: Any) -> Manifest:
    """A job of two pods, in a queue unless `queue` is None; `spec` is merged over its spec."""
    labels = {} if queue is None else {QUEUE: queue}
    metadata = {"name": f"{kind}-{next(_numbers)}", "labels": labels, "annotations": {}}
    if kind == "job":
        body = {"parallelism": 2, "completions": 2, "template": {"spec": pod_spec("main")}}
        return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": {**body, **spec}}
    replicas = {"Master": replica(1), "Worker": replica(1)}
    body = {"pytorchReplicaSpecs": replicas}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": metadata,
        "spec": {**body, **spec},
    }


def replica(count: int, **pod: Any) -> Manifest:
    """A replica spec of a PyTorchJob."""
    return {"replicas": count, "restartPolicy": "Never", "template": {"spec": {**pod_spec("pytorch"), **pod}}}


def pod_spec(container: str) -> Manifest:
    return {"restartPolicy": "Never", "containers": [{"name": container, "image": "example.org/none"}]}


def pod() -> Manifest:
    metadata = {"name": f"pod-{next(_numbers)}", "annotations": {}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": pod_spec("main")}


def workers(count: int) -> Manifest:
    """A change of a PyTorchJob's size."""
    return {"spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": count}}}}


def suspend(kind: str, value: bool) -> Manifest:
    """A change of the job's suspend field, wherever its kind has it."""
    return {"spec": {"suspend": value} if kind == "job" else {"runPolicy": {"suspend": value}}}


def is_suspended(manifest: Manifest) -> bool:
    spec = manifest["spec"]
    return bool(spec.get("suspend") or spec.get("runPolicy", {}).get("suspend"))


def templates(manifest: Manifest) -> list[Manifest]:
    """The pod templates of a job of any kind."""
    spec = manifest["spec"]
    if "template" in spec:
        return [spec["template"]]
    return [each["template"] for each in spec["pytorchReplicaSpecs"].values()]


def label(value: str | None) -> Manifest:
    """A change of the queue label; None removes it."""
    return {"metadata": {"labels": {QUEUE: value}}}


def annotation(key: str, value: str | None) -> Manifest:
    return {"metadata": {"annotations": {key: value}}}


def owner(owning: Manifest, *, controller: bool = True) -> list[Manifest]:
    """Owner references that name an existing object by its real uid."""
    metadata = owning["metadata"]
    named = {"apiVersion": owning["apiVersion"], "kind": owning["kind"], "name": metadata["name"]}
    return [{**named, "uid": metadata["uid"], "controller": controller}]


def merged(*changes: Manifest) -> Manifest:
    """Several changes as one merge patch."""
    result: Manifest = {}
    for change in changes:
        for key, value in change.items():
            known = result.get(key)
            result[key] = (
                merged(known, value) if isinstance(known, dict) and isinstance(value, dict) else value
            )
    return result


def start(place: Place, kind: str, **spec: Any) -> Manifest:
    """A job that the user created and Queuer's controller started, in the one patch that it uses."""
    created = place.create(job(kind, **spec))
    return admit(place, created)


def admit(place: Place, target: Manifest) -> Manifest:
    """The controller's patch: annotation and suspend together."""
    change = merged(annotation(ADMISSION, "a1"), suspend(target["kind"].lower(), False))
    return place.entered_by(CONTROLLER).patch(target, change)
