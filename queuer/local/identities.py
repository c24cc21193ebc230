"""The identities of the local API server: one static token and one kubeconfig for each.

Separate identities make RBAC, admission policies and the API's fair queueing see who is who, as in a real
cluster. Queuer's own are ordinary service accounts with the rights of the chart's `rbac.yaml` and nothing more.
"""

from __future__ import annotations

import csv
import json
import secrets
from dataclasses import dataclass
from pathlib import Path

import yaml

from queuer.domain.errors import NotFound
from queuer.kube.resources import SYSTEM_NAMESPACE
from queuer.local.kubectl import Kubectl

ADMIN = "admin"
CONTROLLER = "queuer-controller"
API = "queuer-api"
TENANT_NAMESPACES = {"alice": "team-a", "bob": "team-b"}
AUDIENCES = ("queuer", "https://kubernetes.default.svc")
"""Whom the tokens that Queuer's API takes are for: the second is the API server itself, for which static tokens are."""
TOKEN_DURATION = "720h"  # asked for; a cluster may grant less. Each `queuer local up` asks anew
_COMPONENTS = "control-plane:components"


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """A user name and groups as the API server sees them."""

    user: str
    groups: tuple[str, ...] = ()


def _service_account(namespace: str, name: str, *groups: str) -> Identity:
    common = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}")
    return Identity(user=f"system:serviceaccount:{namespace}:{name}", groups=(*common, *groups))


IDENTITIES = {
    ADMIN: Identity(user="admin", groups=("system:masters",)),
    "kube-controller-manager": Identity(user="system:kube-controller-manager", groups=(_COMPONENTS,)),
    "kube-scheduler": Identity(user="system:kube-scheduler", groups=(_COMPONENTS,)),
    "kwok": Identity(user="kwok", groups=(_COMPONENTS,)),
    "training-operator": _service_account("kubeflow", "training-operator", _COMPONENTS),
    "jobset-controller": _service_account("jobset-system", "jobset-controller-manager", _COMPONENTS),
    "trainer": _service_account("kubeflow-system", "kubeflow-trainer-controller-manager", _COMPONENTS),
    "mpi-operator": _service_account("mpi-operator", "mpi-operator", _COMPONENTS),
    "ray-operator": _service_account("kuberay-system", "kuberay-operator", _COMPONENTS),
    "lws": _service_account("lws-system", "lws-controller-manager", _COMPONENTS),
    CONTROLLER: _service_account(SYSTEM_NAMESPACE, "queuer-controller"),
    API: _service_account(SYSTEM_NAMESPACE, "queuer-api"),
    **{tenant: Identity(user=tenant) for tenant in TENANT_NAMESPACES},
}


def write_tokens(path: Path) -> None:
    """Write the API server's token file: known tokens stay, identities without one get one."""
    known = read_tokens(path) if path.exists() else {}
    path.touch(mode=0o600)
    with path.open("w", newline="") as handle:
        writer = csv.writer(handle)
        for name, identity in IDENTITIES.items():
            # Without groups there is no fourth column: an empty one is a group whose name is empty.
            groups = [",".join(identity.groups)] if identity.groups else []
            writer.writerow([known.get(name) or secrets.token_hex(16), identity.user, name, *groups])


def read_tokens(path: Path) -> dict[str, str]:
    """Identity name → token, from the API server's token file."""
    with path.open(newline="") as handle:
        return {row[2]: row[0] for row in csv.reader(handle)}


def token_of(path: Path, identity: str) -> str:
    """The token of one identity. Raises `NotFound` for an unknown name."""
    tokens = read_tokens(path) if path.exists() else {}
    if identity not in tokens:
        raise NotFound(f"there is no identity {identity!r}", hint=f"known are {', '.join(tokens)}")
    return tokens[identity]


def write_kubeconfigs(directory: Path, *, tokens: Path, server: str, ca_file: Path) -> None:
    """Write one kubeconfig per identity of the token file into `directory`, named after it."""
    cluster = {"server": server, "certificate-authority": str(ca_file)}
    for name, token in read_tokens(tokens).items():
        _write_kubeconfig(directory, name=name, cluster=cluster, token=token)


def borrow_identities(kubectl: Kubectl, directory: Path) -> None:
    """In an existing cluster: write kubeconfigs of Queuer's service accounts, with tokens that the cluster issues.

    The policies let nobody but the controller's own account start a job, the cluster's admin included.
    """
    view = json.loads(kubectl.run("config", "view", "--raw", "--minify", "--flatten", "--output=json"))
    for name in (CONTROLLER, API):
        wish = (f"--namespace={SYSTEM_NAMESPACE}", f"--duration={TOKEN_DURATION}")
        token = kubectl.run("create", "token", name, *wish).strip()
        _write_kubeconfig(directory, name=name, cluster=view["clusters"][0]["cluster"], token=token)


def _write_kubeconfig(directory: Path, *, name: str, cluster: dict[str, str], token: str) -> None:
    directory.mkdir(exist_ok=True)
    context = {"cluster": "queuer-local", "user": name}
    if name in TENANT_NAMESPACES:
        context["namespace"] = TENANT_NAMESPACES[name]
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "queuer-local", "cluster": cluster}],
        "users": [{"name": name, "user": {"token": token}}],
        "contexts": [{"name": "queuer-local", "context": context}],
        "current-context": "queuer-local",
    }
    path = directory / name
    path.touch(mode=0o600)
    path.write_text(yaml.safe_dump(document, sort_keys=False))
