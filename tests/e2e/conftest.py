"""A real control plane for the end-to-end tests, and an opted-in namespace per test that asks.

`QUEUER_TEST_CLUSTER=DIR` keeps the cluster of DIR running after the tests and uses it again the next time.
Where several processes test at once, each has its own below DIR.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import pytest

from queuer.kube.resources import CRDS, POLICIES, ROLES, manifests
from queuer.kube.versions import form_of
from queuer.local import bootstrap, stack
from queuer.local.bootstrap import namespace as namespace_manifest
from queuer.local.bootstrap import tenant_binding
from queuer.local.cluster import Cluster
from queuer.local.controlplane import KUBERNETES_PARTS, OPTIONAL_PARTS
from queuer.local.fleet import Fleet
from queuer.local.progress import Reporter
from tests.conftest import DatabaseServer
from tests.e2e import nursery
from tests.e2e.scene import scene
from tests.e2e.support import create, kubectl, send, wait_until
from tests.e2e.tenancy import ADMISSION, KINDS, MANAGED, Place, annotation, job, merged, opened

__all__ = ["scene"]  # a fixture for all tests here

os.environ["PYTHONPATH"] = str(Path(__file__).parents[2])
"""Processes are started from `/`: without it they would run an installed Queuer, not the one beside these tests."""
FLEET = Fleet(nodes=16, racks=4, blocks=2, gpus=8)
PARTS_OF = {
    "TrainJob": "trainer",
    "RayJob": "ray-operator",
    "RayCluster": "ray-operator",
    "MPIJob": "mpi-operator",
    "LeaderWorkerSet": "lws",
}
"""The optional part that runs a kind of job."""


def optional(kinds: str) -> set[str]:
    """The optional parts of a cluster for what `--kinds` says."""
    named = {PARTS_OF[kind] for kind in kinds.split(",") if kind in PARTS_OF}
    return {*OPTIONAL_PARTS} if kinds == "all" else named


@contextmanager
def kubernetes(directory: Path, *, kinds: str = "often") -> Iterator[Cluster]:
    """The cluster of `QUEUER_TEST_CLUSTER`, else one in `directory`, with the optional parts of these kinds of job."""
    kept = os.environ.get("QUEUER_TEST_CLUSTER")
    directory = Path(kept, os.environ.get("PYTEST_XDIST_WORKER", "")) if kept else directory
    parts = (*KUBERNETES_PARTS, *optional(kinds))
    options = stack.Options(dir=directory, fleet=FLEET, parts=parts)
    try:
        made = stack.up(options, reporter=Reporter())
        nursery.start(made)
        yield made
        nursery.stop(made)
    finally:
        if not kept and (directory / "state.json").exists():  # also when it came up in part
            stack.reset(Cluster.load(directory))


@pytest.fixture
def namespace(cluster: Cluster) -> Iterator[str]:
    """A new namespace that opted in, in which tenant `alice` may edit; its deletion is not waited for."""
    name = f"test-{uuid4().hex[:8]}"
    for made in (namespace_manifest(name), tenant_binding("alice", name)):
        create(cluster, made, identity="admin")
    yield name
    send(cluster, "admin", "DELETE", f"/api/v1/namespaces/{name}")


@pytest.fixture(scope="module")
def managed(cluster: Cluster) -> Iterator[Place]:
    """A namespace that opted in, under the policies."""
    with opened(cluster, labels=MANAGED) as place:
        forged = merged(job("job"), annotation(ADMISSION, "forged"))
        wait_until(lambda: not place.accepts(forged), timeout=30, describe="the policies are in force")
        yield place


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    """Each kind of job in turn."""
    return str(request.param)


@pytest.fixture
def empty(cluster: Cluster) -> Iterator[Cluster]:
    """The cluster before anybody installed Queuer; afterwards as the other tests expect it.

    Objects are listed first: an API server that has just started takes minutes to finish a definition whose storage
    nobody has used.
    """
    admin = cluster.kubectl("admin")
    kubectl(cluster, "admin", "get", "queuer", check=False)
    form = form_of(admin.get("/version")["gitVersion"])
    for parts, wait in (((*POLICIES[form], *ROLES[form]), False), ((CRDS,), True)):
        files = [f"--filename={file}" for part in parts for file in manifests(part)]
        kubectl(cluster, "admin", "delete", *files, "--ignore-not-found", f"--wait={str(wait).lower()}")
    fairness = ("flowschemas/queuer", "prioritylevelconfigurations/queuer")  # of a test that was broken off
    kubectl(cluster, "admin", "delete", *fairness, "--ignore-not-found")
    yield cluster
    bootstrap.install(admin)
    bootstrap.wait_policies(admin, where="team-a")


@pytest.fixture
def database(database_server: DatabaseServer) -> Iterator[str]:
    """A database without a schema."""
    name = f"queuer_chart_{uuid4().hex[:8]}"
    database_server.create(name, template="template0")
    yield database_server.url_of(name)
    database_server.drop(name)
