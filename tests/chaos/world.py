"""Where a story plays: a control plane, a PostgreSQL that may be stopped, two namespaces, one of which may go.

It speaks to the API server directly, as the tenant for what users do and as the administrator for what happens to a
cluster. `excused` notes the workloads whose pods the story touched. All others must come through unharmed.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx2

from queuer.local import bootstrap, postgres
from queuer.local.cluster import Cluster
from queuer.local.identities import ADMIN
from queuer.store import migrate
from tests.chaos import clock
from tests.e2e.controller import GPU, Controller, Database
from tests.e2e.support import job_manifest, pytorchjob_manifest, wait_until
from tests.waiting import PATIENCE

Manifest = dict[str, Any]
Undo = Callable[[], None]
"""Ends a fault."""

TEAM_A, TEAM_B = "root.research.team-a", "root.research.team-b"
EXPRESS, BESIDE = "root.research.express", "root.beside"
LIMITS = {"root.research": 112, EXPRESS: 16}
"""GPUs. The fleet has 128; in `root.beside` is what limits say nothing about."""
GUARANTEED = {TEAM_A: 48, TEAM_B: 16, EXPRESS: 16}
RESOURCES = {
    "Job": ("batch/v1", "jobs"),
    "PyTorchJob": ("kubeflow.org/v1", "pytorchjobs"),
    "Pod": ("v1", "pods"),
}
REFUSED = "chaos-refused"
"""Label of jobs that the API server refuses to start."""
_NOT_YET = (httpx2.codes.TOO_MANY_REQUESTS, httpx2.codes.SERVICE_UNAVAILABLE)
SETTINGS = {
    "QUEUER_LANDING_DEADLINE": "5",
    "QUEUER_AVOID": "5",
    "QUEUER_AVOID_LIMIT": "20",  # a gang that failed to land is tried again while all settles
    "QUEUER_FORECAST": "0",
}


@dataclass(slots=True, kw_only=True)
class World:
    """One story's place. `postgres`: directory of its server; `excused`: uids of jobs whose pods the story touched;
    `forgotten`: uids of those that a replica never heard of.
    """

    cluster: Cluster
    postgres: Path
    database: Database
    namespace: str
    doomed: str
    admin: httpx2.Client
    tenant: httpx2.Client
    excused: set[str] = field(default_factory=set)
    forgotten: set[str] = field(default_factory=set)
    numbers: dict[str, int] = field(default_factory=dict)

    @property
    def namespaces(self) -> tuple[str, str]:
        return self.namespace, self.doomed

    # -- objects

    def path(self, kind: str, namespace: str, name: str = "") -> str:
        """Of an object, or of all of a kind in a namespace."""
        version, plural = RESOURCES[kind]
        root = "/api" if version == "v1" else "/apis"
        return f"{root}/{version}/namespaces/{namespace}/{plural}" + (f"/{name}" if name else "")

    def every(self, kind: str) -> list[Manifest]:
        """All objects of a kind in both namespaces."""
        return [
            {"kind": kind, **item}
            for namespace in self.namespaces
            for item in _answer(self.admin.get(self.path(kind, namespace)))["items"]
        ]

    def jobs(self) -> list[Manifest]:
        """All jobs of all kinds."""
        return [*self.every("Job"), *self.every("PyTorchJob")]

    def job(self, label: str, *, queue: str, namespace: str | None = None, **wanted: Any) -> Manifest:
        """Create a Job as the tenant, under a name that begins with `label`."""
        wanted = {"pods": 2, "gpus": 1, **wanted}
        spec = {"backoffLimit": 6, **wanted.pop("spec", {})}
        return self.create(
            job_manifest(
                self._name(label), namespace=namespace or self.namespace, queue=queue, spec=spec, **wanted
            )
        )

    def pytorchjob(self, label: str, *, queue: str, **wanted: Any) -> Manifest:
        """Create a PyTorchJob as the tenant, under a name that begins with `label`."""
        wanted = {"restart": "OnFailure", **wanted}
        return self.create(
            pytorchjob_manifest(self._name(label), namespace=self.namespace, queue=queue, **wanted)
        )

    def create(self, manifest: Manifest) -> Manifest:
        """Create a job as the tenant; answers it as it is stored."""
        path = self.path(manifest["kind"], manifest["metadata"]["namespace"])
        return dict(_answer(self.tenant.post(path, json=manifest)))

    def patch(self, found: Manifest, change: Mapping[str, Any], *, admin: bool = False) -> None:
        """Merge-patch an object; one that is gone, or does not allow it any more, is left alone."""
        response = (self.admin if admin else self.tenant).patch(
            self._path_of(found), content=json.dumps(change),
            headers={"Content-Type": "application/merge-patch+json"},
        )  # fmt: skip
        if response.status_code not in (404, 409, 422):
            _answer(response)

    def delete(self, found: Manifest, *, grace: int | None = None) -> None:
        """Delete an object and what it owns; one that is gone is left alone."""
        options = {"propagationPolicy": "Background"} | (
            {} if grace is None else {"gracePeriodSeconds": grace}
        )
        response = self.admin.request("DELETE", self._path_of(found), json=options)
        if response.status_code != 404:
            _answer(response)

    def excuse(self, job: Manifest) -> None:
        """From here on the story itself acts on its pods."""
        self.excused.add(job["metadata"]["uid"])

    def state(self, job: Manifest) -> str:
        """The workload's state in the database, "" where it is not known there."""
        rows = self.database.rows("SELECT state FROM workload WHERE uid = %s", job["metadata"]["uid"])
        return str(rows[0]["state"]) if rows else ""

    def live(self) -> dict[str, str]:
        """The workloads that wait or run, by uid: name, state, why it waits, and until when it rests."""
        rows = self.database.rows(
            "SELECT uid, concat_ws(' ', name, state, token, 'rests until ' || rest) AS told FROM workload"
            " WHERE deleted_at IS NULL AND state NOT IN ('Succeeded', 'Failed') ORDER BY name"
        )
        return {row["uid"]: row["told"] for row in rows}

    def _path_of(self, found: Manifest) -> str:
        meta = found["metadata"]
        return self.path(found["kind"], meta["namespace"], meta["name"])

    def _name(self, label: str) -> str:
        self.numbers[label] = self.numbers.get(label, 0) + 1
        return f"{label}-{self.numbers[label]}"

    # -- parts

    @property
    def clock(self) -> Path:
        """How many seconds the controllers' clock is put forward."""
        return self.postgres / "clock"

    def controller(self, **settings: str) -> Controller:
        """A controller that is not started yet."""
        return Controller(
            cluster=self.cluster, database_url=self.database.url, module="tests.chaos.clock",
            settings={**SETTINGS, clock.FILE: str(self.clock), **settings},
        )  # fmt: skip

    def stop_database(self) -> None:
        """PostgreSQL ends all sessions and goes."""
        if server := postgres.running(self.postgres):
            server.stop()

    def start_database(self) -> None:
        """PostgreSQL is there again, at the same address."""
        postgres.start(self.postgres, fsync=False)

    def open_namespace(self, name: str) -> None:
        """A namespace that opted in, in which the tenant may edit; one that is just going is waited for."""
        created = self.admin.post("/api/v1/namespaces", json=bootstrap.namespace(name))
        if created.status_code != httpx2.codes.CONFLICT:
            _answer(created)
        path = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{name}/rolebindings"
        _answer(self.admin.post(path, json=bootstrap.tenant_binding("alice", name)))

    def close_namespace(self, name: str) -> None:
        """Delete a namespace with all in it, and wait until it is gone."""
        path = f"/api/v1/namespaces/{name}"
        self.admin.delete(path)
        wait_until(
            lambda: self.admin.get(path).status_code == httpx2.codes.NOT_FOUND, timeout=60,
            describe=lambda: f"{name} is gone: {self.admin.get(path).text}",
        )  # fmt: skip


def tree(namespaces: tuple[str, ...]) -> Manifest:
    """A tree in which team-b lives on what team-a lends, and an express queue has room for what is short."""
    queues: dict[str, Any] = {"root": {"namespaces": list(namespaces)}, BESIDE: {}}
    for path in (*LIMITS, *GUARANTEED):
        row: dict[str, Any] = {"resource": GPU}
        row |= {"limit": LIMITS[path]} if path in LIMITS else {}
        row |= {"guaranteed": GUARANTEED[path]} if path in GUARANTEED else {}
        queues[path] = {"quota": [row]}
    levels = ["topology.kubernetes.io/block", "topology.kubernetes.io/rack"]
    return {
        "apiVersion": "queuer.dev/v1",
        "kind": "QueueTree",
        "topology": {"levels": levels},
        "queues": queues,
    }


@contextmanager
def world(cluster: Cluster) -> Iterator[World]:
    """A place with an empty database; at its end jobs, pods and database are gone, and its namespaces are going."""
    memory = Path("/dev/shm")
    home = Path(tempfile.mkdtemp(prefix="queuer-chaos-", dir=memory if memory.is_dir() else None))
    home.chmod(0o755)  # the account of PostgreSQL must enter it
    name = f"chaos-{uuid4().hex[:6]}"
    try:
        url = postgres.start(home, fsync=False).url
        migrate.upgrade(url)
        with _client(cluster, ADMIN) as admin, _client(cluster, "alice") as tenant, _refusal(admin):
            made = World(
                cluster=cluster, postgres=home, database=Database(url=url), namespace=name,
                doomed=f"{name}-doomed", admin=admin, tenant=tenant,
            )  # fmt: skip
            made.database.apply(tree(made.namespaces))
            try:
                for namespace in made.namespaces:
                    made.open_namespace(namespace)
                yield made
            finally:
                for namespace in made.namespaces:
                    admin.delete(f"/api/v1/namespaces/{namespace}")
                wait_until(
                    lambda: not made.jobs() and not made.every("Pod"), timeout=180,
                    describe=lambda: f"all is gone from {made.namespaces}: {made.jobs()} {made.every('Pod')}",
                )  # fmt: skip
    finally:
        if server := postgres.running(home):
            server.stop()
        shutil.rmtree(home)


@contextmanager
def _client(cluster: Cluster, identity: str) -> Iterator[httpx2.Client]:
    headers = {"Authorization": f"Bearer {cluster.token(identity)}"}
    with httpx2.Client(
        base_url=cluster.api_url, headers=headers, transport=_Patient(verify=False), timeout=PATIENCE
    ) as client:
        yield client


@contextmanager
def _refusal(admin: httpx2.Client) -> Iterator[None]:
    """The API server refuses to start what carries the label `REFUSED`, as it would an invalid change."""
    root = "/apis/admissionregistration.k8s.io/v1"
    rule = {"apiGroups": ["batch"], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["jobs"]}
    documents = {
        "validatingadmissionpolicies": {
            "matchConstraints": {
                "resourceRules": [rule],
                "objectSelector": {"matchLabels": {REFUSED: "true"}},
            },
            "validations": [{"expression": "object.spec.suspend == true", "message": "refused by the story"}],
        },
        "validatingadmissionpolicybindings": {"policyName": REFUSED, "validationActions": ["Deny"]},
    }
    try:
        for plural, spec in documents.items():
            kind = {"validatingadmissionpolicies": "ValidatingAdmissionPolicy"}.get(
                plural, "ValidatingAdmissionPolicyBinding"
            )
            body = {
                "apiVersion": "admissionregistration.k8s.io/v1",
                "kind": kind,
                "metadata": {"name": REFUSED},
                "spec": spec,
            }
            _answer(admin.post(f"{root}/{plural}", json=body))
        yield
    finally:
        for plural in documents:
            with suppress(httpx2.HTTPError):
                admin.delete(f"{root}/{plural}/{REFUSED}")


class _Patient(httpx2.HTTPTransport):
    """Waits for an API server that was just started."""

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        until = time.monotonic() + PATIENCE
        while True:
            with suppress(httpx2.ConnectError):
                response = super().handle_request(request)
                if response.status_code not in _NOT_YET or time.monotonic() > until:
                    return response
                response.close()
            if time.monotonic() > until:
                raise httpx2.ConnectError(f"no answer for {PATIENCE:.0f} s", request=request)
            time.sleep(0.2)


def _answer(response: httpx2.Response) -> Any:
    if response.is_error:
        raise AssertionError(f"{response.request.method} {response.request.url}: {response.text}")
    return response.json()
