"""The cluster's part of `queuer doctor`: what is shipped beside the code is compared with what the cluster has."""

from __future__ import annotations

import time
from pathlib import Path

from queuer.domain.document import TreeDocument
from queuer.domain.errors import QueuerError
from queuer.domain.finding import Finding, barred, ok, unknown, wrong
from queuer.kube.client import ApiError, Client, KubernetesTooOld
from queuer.kube.config import load_access
from queuer.kube.doctor.installed import installed, shipped
from queuer.kube.doctor.rights import rights
from queuer.kube.doctor.surroundings import flavors, levels, metas, namespaces
from queuer.local.resources import manifests

_WITHIN = 10.0
_CHECK = "kubernetes"


async def examine(
    kubeconfig: Path | None, tree: TreeDocument | None, offsets: dict[str, float]
) -> list[Finding]:
    """All findings about a cluster. `tree`: the configuration, None = not known; its clock is put into `offsets`."""
    try:
        async with Client(await load_access(kubeconfig), timeout=_WITHIN) as cluster:
            first = await _version(cluster, offsets)
            return [first, *await _installed(cluster), *await _fitting(cluster, tree)]
    except ApiError as error:
        return [unknown(_CHECK, f"the API server lets nobody in so: {error}", "log in to the cluster anew")]
    except QueuerError as error:
        return [
            wrong(_CHECK, error.message, error.hint or "is it the right KUBECONFIG, and the server well?")
        ]


async def _version(cluster: Client, offsets: dict[str, float]) -> Finding:
    before = time.time()
    there = await cluster.server_time()
    if there is not None:
        offsets["the cluster"] = there - (before + time.time()) / 2
    try:
        await cluster.check_version()
    except KubernetesTooOld as error:
        return wrong(_CHECK, error.message, error.hint)
    return ok(_CHECK, "it answers, and is new enough")


async def _installed(cluster: Client) -> list[Finding]:
    roles = shipped([*manifests("deploy/namespace.yaml"), *manifests("deploy/rbac.yaml")])
    return [
        *await installed(cluster, shipped(manifests("crds")), check="definitions"),
        *await installed(cluster, shipped(manifests("deploy/policies")), check="policies"),
        *await installed(cluster, roles, check="roles"),
        *await rights(cluster, roles),
    ]


async def _fitting(cluster: Client, tree: TreeDocument | None) -> list[Finding]:
    return [*await _nodes(cluster, tree), *await _namespaces(cluster, tree)]


async def _nodes(cluster: Client, tree: TreeDocument | None) -> list[Finding]:
    if tree is None:
        text = "the API does not tell the configuration"
        return [unknown(check, text, "mend the API first") for check in ("topology", "flavors")]
    try:
        nodes = await metas(cluster, nodes=True)
    except ApiError as error:
        text = f"nodes cannot be listed: {error}"
        return [barred(check, text) for check in ("topology", "flavors")]
    keys = tree.topology.keys if tree.topology else ()
    return [*levels(nodes, keys), *flavors(nodes, tree.flavors or ())]


async def _namespaces(cluster: Client, tree: TreeDocument | None) -> list[Finding]:
    try:
        there = await metas(cluster, nodes=False)
    except ApiError as error:
        return [barred("namespaces", f"namespaces cannot be listed: {error}")]
    named = None if tree is None else {name for queue in tree.queues for name in queue.namespaces}
    return list(namespaces(there, named))
