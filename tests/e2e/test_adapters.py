"""One PATCH admits, one evicts, one admits again elsewhere, on the real API server with the real controllers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import msgspec
import pytest

from queuer.kube.client import Client, ConflictError, InvalidError
from queuer.kube.config import load_access
from queuer.kube.kinds import JOB, PYTORCHJOB, JobKind, object_path
from queuer.kube.patches import AdmissionMark, admit_patch, evict_patch, firm_patch, own_roles
from queuer.kube.template import Pin
from queuer.local.cluster import Cluster
from tests import waiting
from tests.e2e.support import create, get, job_manifest, kubectl, pytorchjob_manifest, wait_until

HOST = "kubernetes.io/hostname"
PLURALS = {"Job": "jobs.batch", "PyTorchJob": "pytorchjobs.kubeflow.org"}


def _manifest(kind: JobKind, namespace: str) -> dict[str, Any]:
    if kind is JOB:
        return job_manifest("gang", namespace=namespace, queue="root.a", pods=2)
    return pytorchjob_manifest("gang", namespace=namespace, queue="root.a", workers=1)


def _pods(cluster: Cluster, namespace: str) -> list[Mapping[str, Any]]:
    found: list[Mapping[str, Any]] = get(cluster, "pods", "-n", namespace)["items"]
    return found


def _places(cluster: Cluster, namespace: str) -> list[str]:
    """Hosts of the pods, none while one is unbound or leaving."""
    pods = _pods(cluster, namespace)
    if any("deletionTimestamp" in pod["metadata"] or "nodeName" not in pod["spec"] for pod in pods):
        return []
    return [pod["spec"]["nodeName"] for pod in pods]


@pytest.mark.parametrize("kind", [JOB, PYTORCHJOB], ids=lambda kind: kind.name)
async def test_admit_evict_and_admit_elsewhere(kind: JobKind, cluster: Cluster, namespace: str) -> None:
    """Pods only on the pinned hosts each time; a PATCH for an older version of the job is refused."""
    created = await asyncio.to_thread(create, cluster, _manifest(kind, namespace))
    hosts = sorted(node["metadata"]["labels"][HOST] for node in get(cluster, "nodes")["items"])
    path = f"{kind.resource.collection.rpartition('/')[0]}/namespaces/{namespace}/{kind.resource.plural}/gang"
    decode = msgspec.json.Decoder[Any](kind.type).decode
    async with Client(await load_access(cluster.kubeconfig("queuer-controller"))) as client:

        async def job() -> Any:
            return decode(await client.get(path))

        async def quiet() -> Any:
            async def found() -> Any:
                return now if kind.quiet(now := await job()) and not _pods(cluster, namespace) else None

            return await waiting.until(found, every=0.1)

        async def patched(patch: Callable[[Any], Mapping[str, Any]], *, resource: str) -> None:
            """Send ``patch`` of the newest version: it may meet a status write of the job's controller."""
            async with asyncio.timeout(waiting.PATIENCE):
                while True:
                    try:
                        await client.merge_patch(path, patch(await job()), resource=resource)
                        return
                    except ConflictError:
                        continue

        fresh = await quiet()
        assert object_path(kind, fresh.metadata) == path
        assert fresh.metadata.uid == created["metadata"]["uid"]
        user = [own.scheduling for own in own_roles(kind, fresh)]
        view = fresh
        for round, chosen in enumerate((hosts[:2], hosts[-2:])):
            pins = [
                Pin(pod_set=role.name, count=role.count, selector={}, hosts=tuple(chosen))
                for role in kind.roles(view)
            ]
            mark = AdmissionMark(id=f"a{round}", epoch=1, cycle=round)
            await patched(partial(admit_patch, kind, pins=pins, mark=mark), resource="admit")
            with pytest.raises(ConflictError):
                await client.merge_patch(path, evict_patch(kind, view, admission="first"), resource="stale")
            places = await asyncio.to_thread(
                wait_until,
                lambda: found if len(found := _places(cluster, namespace)) == 2 else [],
                timeout=30,
                describe="both pods bound",
            )
            assert set(places) <= set(chosen)
            shown = await job()
            body = firm_patch(evict_patch(kind, shown, admission="first"), shown)
            assert not isinstance(body, Mapping)
            await client.merge_patch(
                path, {"metadata": {"annotations": {"busy": str(round)}}}, resource="other"
            )
            await client.json_patch(path, body, resource="evict")
            with pytest.raises(InvalidError):
                await client.json_patch(path, body, resource="again")
            view = await quiet()
            assert [own.scheduling for own in own_roles(kind, view)] == user
    if kind is JOB:
        assert not get(cluster, "jobs", "gang", "-n", namespace)["status"].get("failed")
    kubectl(cluster, "admin", "delete", PLURALS[kind.name], "gang", "-n", namespace, "--wait=false")
