"""Queuer comes to a cluster whose jobs run already: it touches none of them, in namespaces that opt in later either."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import pytest

from queuer.local import bootstrap
from queuer.local.cluster import Cluster
from tests.e2e.controller import tree
from tests.e2e.scene import TEAM_A, Scene
from tests.e2e.support import create, job_manifest, kubectl, pytorchjob_manifest, read, wait_until

NAMED = ("named-runs", "named-waits")
"""Jobs whose owner named a queue before there was one."""


@pytest.fixture
def later(empty: Cluster) -> Iterator[str]:
    """A namespace that nobody has heard of Queuer in."""
    name = f"later-{uuid4().hex[:6]}"
    kubectl(empty, "admin", "create", "namespace", name)
    yield name
    kubectl(empty, "admin", "delete", "namespace", name, "--wait=false")


def test_jobs_from_before_are_touched_by_nobody(empty: Cluster, later: str, scene: Scene) -> None:
    def add(name: str, queue: str | None = None, *, suspend: bool = False) -> None:
        manifest = job_manifest(name, namespace=later, queue=queue, spec={"suspend": suspend})
        create(empty, manifest, identity="admin")

    add("runs")
    add("waits", suspend=True)
    add(NAMED[0], TEAM_A)
    add(NAMED[1], TEAM_A, suspend=True)
    create(empty, pytorchjob_manifest("trains", namespace=later, workers=1), identity="admin")
    wait_until(lambda: _settled(empty, later), timeout=60, describe="the jobs of the cluster run")
    before, pods = _jobs(empty, later), _pods(empty, later)
    assert len(pods) == 4

    admin = empty.kubectl("admin")
    bootstrap.install(admin)
    bootstrap.wait_policies(admin, where=scene.namespace)
    scene.database.apply(tree(scene.namespace, root={"namespaces": [scene.namespace, later]}))
    scene.start()
    scene.job("first")
    scene.wait_state("first", "Running")
    assert _jobs(empty, later) == before

    kubectl(empty, "admin", "label", "namespace", later, "queuer.dev/managed=true")
    wait_until(
        lambda: {scene.database.state(name, later) for name in NAMED} == {"Running"}, timeout=60,
        describe="jobs whose owner named a queue are charged, and started",
    )  # fmt: skip
    after = _jobs(empty, later)
    others = {key: seen for key, seen in before.items() if key[1] not in NAMED}
    assert {key: after[key] for key in others} == others
    assert after["Job", NAMED[0]][0] == before["Job", NAMED[0]][0], "its spec is as it was"
    assert pods <= _pods(empty, later), "whatever ran runs on"


def _jobs(cluster: Cluster, namespace: str) -> dict[tuple[str, str], tuple[int, str]]:
    """Generation and resourceVersion of all jobs, by kind and name."""
    found = {}
    for kind, group in (("Job", "batch"), ("PyTorchJob", "kubeflow.org")):
        for item in read(cluster, f"/apis/{group}/v1/namespaces/{namespace}/{kind.lower()}s")["items"]:
            meta = item["metadata"]
            found[kind, meta["name"]] = meta["generation"], meta["resourceVersion"]
    return found


def _pods(cluster: Cluster, namespace: str) -> set[str]:
    """Uids of the pods that run."""
    items = read(cluster, f"/api/v1/namespaces/{namespace}/pods")["items"]
    return {item["metadata"]["uid"] for item in items if item["status"].get("phase") == "Running"}


def _settled(cluster: Cluster, namespace: str) -> bool:
    """Whether the jobs' own controllers have written all that they know."""
    jobs = read(cluster, f"/apis/batch/v1/namespaces/{namespace}/jobs")["items"]
    trains = read(cluster, f"/apis/kubeflow.org/v1/namespaces/{namespace}/pytorchjobs/trains").get(
        "status", {}
    )
    told = [
        job["status"].get("ready") == 1
        if not job["spec"].get("suspend")
        else any(each["type"] == "Suspended" for each in job["status"].get("conditions", ()))
        for job in jobs
    ]
    active = [role.get("active") for role in trains.get("replicaStatuses", {}).values()]
    return len(told) == 4 and all(told) and active == [1, 1]
