"""Installs Queuer in a cluster: CRDs, rights, policies; in a local cluster also namespaces and tenants.

Everything is applied server-side, so that doing it again changes nothing. A policy takes effect some seconds later,
when the API server has learnt the schemas that it names. The callers wait for the effect.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from queuer.domain.errors import Unavailable
from queuer.domain.keys import MANAGED, QUEUE
from queuer.domain.variables import read
from queuer.kube.operators import OPERATORS, USUAL
from queuer.kube.resources import CRDS, NAMESPACE, POLICIES, ROLES, manifests, objects, shipped
from queuer.kube.versions import Form, form_of
from queuer.local.controlplane import Layout, webhooks
from queuer.local.identities import TENANT_NAMESPACES
from queuer.local.kubectl import NO_SCHEMAS, Kubectl, KubectlError, asked_of

_POLICY_SECONDS = 60.0
_PROBE_NAME = "queuer-probe"


def install(kubectl: Kubectl) -> None:
    """Apply Queuer's CRDs, namespace, rights and policies; it knows nothing of local tenants.

    Raises KubernetesTooOld, InvalidInput where `QUEUER_OPERATORS` is wrong.
    """
    form = _form(kubectl)
    operators = read(os.environ, {"operators": OPERATORS}).get("operators", USUAL)
    policies = [d for _, d in objects(*POLICIES[form], operators=operators)]
    parts = (CRDS, NAMESPACE, *ROLES[form])
    kubectl.apply(files=[file for part in parts for file in manifests(part)], documents=policies)


def install_local(kubectl: Kubectl) -> None:
    """Apply what a local cluster has besides: rights of its parts, namespaces, tenants."""
    namespaces = [namespace(name) for name in TENANT_NAMESPACES.values()]
    bindings = [tenant_binding(tenant, where) for tenant, where in TENANT_NAMESPACES.items()]
    components = shipped("tools/control-plane/config/components.yaml")
    kubectl.apply(files=[components], documents=[*namespaces, *bindings])


def namespace(name: str) -> dict[str, Any]:
    """A namespace that opted in."""
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": {MANAGED: "true"}}}


def tenant_binding(tenant: str, where: str) -> dict[str, Any]:
    """Gives an ordinary user the built-in `edit` rights in one namespace."""
    group = "rbac.authorization.k8s.io"
    return {
        "apiVersion": f"{group}/v1",
        "kind": "RoleBinding",
        "metadata": {"name": tenant, "namespace": where},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "edit"},
        "subjects": [{"apiGroup": group, "kind": "User", "name": tenant}],
    }


def install_webhooks(kubectl: Kubectl, layout: Layout, part: str) -> None:
    """Apply a part's webhooks, once it serves them: nobody could create objects of its kinds before."""
    kubectl.apply(files=[], documents=webhooks(layout, part))


def install_job_kinds(kubectl: Kubectl, crds: Sequence[Path], *, known: Sequence[Path]) -> None:
    """Put the CRDs of job kinds, `known` ones excepted, and wait until they are served: the controllers exit before."""
    kubectl.put_crds(crds, known=known)
    for spec in (json.loads(file.read_text())["spec"] for file in crds):
        version = next(each["name"] for each in spec["versions"] if each["served"])
        path, plural = f"/apis/{spec['group']}/{version}", spec["names"]["plural"]
        _wait(partial(_serves, kubectl, path, plural), f"the API server does not serve {plural}")


def _serves(kubectl: Kubectl, path: str, plural: str) -> bool:
    try:
        resources = kubectl.get(path)["resources"]
    except KubectlError:
        return False
    return any(resource["name"] == plural for resource in resources)


def wait_policies(kubectl: Kubectl, *, where: str) -> None:
    """Wait until a new job of each kind comes back suspended in a dry run, or is asked in full for what it lacks."""
    form = _form(kubectl)
    for job in _probes(where):
        _wait(partial(_is_kept, kubectl, job, form), f"the policies have no effect on a {job['kind']}")


def _form(kubectl: Kubectl) -> Form:
    return form_of(str(kubectl.get("/version")["gitVersion"]))


def _is_kept(kubectl: Kubectl, job: dict[str, Any], form: Form) -> bool:
    try:
        answer = kubectl.run("create", "--dry-run=server", NO_SCHEMAS, "-f-", "-ojson", input=json.dumps(job))
    except KubectlError as error:  # or the API server does not know the schema yet: its policies fail closed
        return form is Form.REDUCED and asked_of(str(error)) is not None
    spec = json.loads(answer)["spec"]
    return bool(spec.get("suspend") or spec.get("runPolicy", {}).get("suspend"))


def _probes(where: str) -> Iterator[dict[str, Any]]:
    """A new job of each kind of policy: a Job, a PyTorchJob, a JobSet."""
    meta = {"name": _PROBE_NAME, "namespace": where, "labels": {QUEUE: "root.probe"}}
    pods = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "probe"}]}
    replica = {"replicas": 1, "restartPolicy": "Never", "template": {
        "spec": {"containers": [{"name": "pytorch", "image": "probe"}]}
    }}  # fmt: skip
    role = {"spec": {"template": {"spec": {**pods, "priorityClassName": "queuer-default"}}}}
    for version, kind, spec in (
        ("batch/v1", "Job", {"template": {"spec": pods}}),
        ("kubeflow.org/v1", "PyTorchJob", {"pytorchReplicaSpecs": {"Master": replica}}),
        ("jobset.x-k8s.io/v1alpha2", "JobSet", {"replicatedJobs": [{"name": "main", "template": role}]}),
    ):
        yield {"apiVersion": version, "kind": kind, "metadata": meta, "spec": spec}


def _wait(condition: Callable[[], bool], otherwise: str) -> None:
    deadline = time.monotonic() + _POLICY_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise Unavailable(f"{otherwise} after {_POLICY_SECONDS:.0f} s")
        time.sleep(0.1)
