"""The guard is compared with what is shipped: without it anybody may start a job."""

from __future__ import annotations

import json
from copy import deepcopy
from typing import Any, cast

import pytest
from aiohttp import web

from queuer.controller.apply.jobs import ClusterJobs
from queuer.controller.health.guard import GuardWatch
from queuer.controller.health.metrics import Metrics
from queuer.controller.health.probes import Health
from queuer.controller.memory.state import ClusterState
from queuer.controller.watch.views import Facts
from queuer.domain.errors import Unavailable
from queuer.domain.queue import QueueTree
from queuer.kube.client import RightsError
from queuer.kube.guard import differs, shipped_guard
from queuer.kube.objects import Job, JobSpec, JobStatus, Meta, PodTemplate
from queuer.kube.resources import POLICIES
from queuer.kube.versions import Form, form_of
from queuer.local.installed import shipped
from tests.kube.stub import Stub, serving
from tests.unit.make import job_view, sure

WARN = {"validationActions": ["Warn"]}


OLD = "v1.35.4"


class Cluster:
    """Its part of the guard; `error` instead, if there is one."""

    def __init__(self, version: str = "v1.36.4", *, installed: Form = Form.FULL) -> None:
        self.version = version
        guard = shipped_guard(form=installed)
        self.objects = {key: deepcopy(dict(document)) for key, document in guard.items()}
        self.error: Exception | None = None
        self.changes = 0

    async def form(self) -> Form:
        if self.error is not None and not isinstance(self.error, RightsError):  # /version is open to all
            raise self.error
        return form_of(self.version)

    async def get(self, path: str) -> bytes:
        if self.error is not None:
            raise self.error
        kind = (
            "ValidatingAdmissionPolicyBinding" if path.endswith("bindings") else "ValidatingAdmissionPolicy"
        )
        own = [{**d, "kind": None, "status": {}} for (k, _), d in self.objects.items() if k == kind]
        items = [{key: value for key, value in d.items() if key not in ("kind", "apiVersion")} for d in own]
        return json.dumps({"items": items}).encode()

    def changed(self) -> None:
        self.changes += 1


def watching(cluster: Cluster, **given: Any) -> tuple[GuardWatch, Health, Metrics]:
    health, metrics = Health(stalled=30.0), Metrics()
    return GuardWatch(cast(Any, cluster), health, metrics, changed=cluster.changed, **given), health, metrics


async def test_the_guard_trusts_the_controller_of_the_namespace_that_it_is_installed_in() -> None:
    cluster = Cluster()
    guard, health, _ = watching(cluster, namespace="batch")
    await guard.look()
    assert "it differs at spec.matchConditions" in (health.unguarded or "")
    cluster.objects = {key: deepcopy(dict(document)) for key, document in shipped_guard("batch").items()}
    await guard.look()
    assert health.unguarded is None


async def test_nothing_is_admitted_before_the_first_look() -> None:
    cluster = Cluster()
    guard, health, _ = watching(cluster)
    assert "were not looked at yet" in (health.unguarded or "")
    cluster.error = Unavailable("gone")
    await guard.look()
    assert "were not looked at yet" in (health.unguarded or "")
    cluster.error = None
    await guard.look()
    assert (health.unguarded, cluster.changes) == (None, 1)


@pytest.mark.parametrize("act", ["deleted", "changed", "hidden"])
async def test_a_policy_or_binding_that_is_missing_or_changed_is_named(act: str) -> None:
    """Until a look finds it as it was, and whatever a look says that got no answer."""
    cluster = Cluster()
    guard, health, metrics = watching(cluster)
    await guard.look()
    binding = "ValidatingAdmissionPolicyBinding", "queuer-guard"
    before = cluster.objects[binding]
    if act == "deleted":
        del cluster.objects[binding]
    elif act == "changed":
        cluster.objects[binding] = {**before, "spec": {**before["spec"], **WARN}}
    else:
        cluster.error = RightsError(status=403, reason="Forbidden", message="no")
    await guard.look()
    said = health.unguarded or ""
    expected = {
        "deleted": "Binding queuer-guard is missing: `queuer doctor` names",
        "changed": "queuer-guard has validationActions Warn",
        "hidden": "may not list validatingadmissionpolicies: apply deploy/helm/queuer/files/rbac.yaml",
    }
    assert expected[act] in said
    assert "queuer_guard_faults 1.0" in metrics.text((), QueueTree.of(())).decode()
    cluster.error = Unavailable("gone")
    await guard.look()
    assert (health.unguarded or "") == said
    cluster.error, cluster.objects[binding] = None, before
    await guard.look()
    assert [health.unguarded, cluster.changes] == [None, 3]


@pytest.mark.parametrize("version", ["v1.36.0", "v1.36.1+k3s1", "v1.33.9"])
async def test_nothing_is_admitted_on_a_version_that_queuer_refuses(version: str) -> None:
    """An upgrade of the cluster may pass through one while the controller runs, whatever policies are there."""
    cluster = Cluster()
    guard, health, metrics = watching(cluster)
    await guard.look()
    cluster.version = version
    await guard.look()
    said = health.unguarded or ""
    assert said.startswith(f"this cluster runs Kubernetes {version}; Queuer needs 1.34.2 or newer")
    assert said.endswith("(upgrade the cluster, best to 1.36.2 or newer)")
    assert "queuer_guard_faults 1.0" in metrics.text((), QueueTree.of(())).decode()
    cluster.version = "v1.36.2"
    await guard.look()
    assert (health.unguarded, cluster.changes) == (None, 3)


async def test_the_version_of_the_cluster_says_which_guard_must_be_there() -> None:
    """A cluster that is upgraded goes on to admit under the policies that it has; the full ones guard no older one."""
    cluster = Cluster(OLD, installed=Form.REDUCED)
    guard, health, _ = watching(cluster)
    for version in (OLD, "v1.36.4"):
        cluster.version = version
        await guard.look()
        assert (health.unguarded, cluster.changes) == (None, 1)
    del cluster.objects["ValidatingAdmissionPolicyBinding", "queuer-guard-entry"]
    await guard.look()
    assert "queuer-guard-entry" in (health.unguarded or "")
    cluster = Cluster(OLD)
    guard, health, _ = watching(cluster)
    await guard.look()
    said = sure(health.unguarded)
    assert "ValidatingAdmissionPolicy queuer-guard-entry is not the one of this version" in said


class Upgraded(Stub):
    """A cluster of version `git`, which notes what is patched."""

    git = OLD

    def __init__(self) -> None:
        super().__init__()
        self.patched: list[str] = []

    async def handle(self, request: web.Request) -> web.StreamResponse:
        if request.path == "/version":
            return web.json_response({"gitVersion": self.git})
        if request.method == "PATCH":
            self.patched.append(request.path.rpartition("/")[2])
            return web.json_response({"metadata": {"resourceVersion": "6"}})
        return web.json_response({"items": []})


async def test_a_look_after_an_upgrade_of_the_cluster_ends_the_second_write() -> None:
    """Else the controller would go on to patch `jobs/status`, and the upgraded chart gives no right to it."""
    status = JobStatus(start_time="2026-11-28T10:00:00Z")
    ran = Job(
        metadata=Meta(uid="u", name="j", namespace="n"), spec=JobSpec(template=PodTemplate()), status=status
    )
    start = {"metadata": {"uid": "u", "resourceVersion": "5"}, "spec": {"suspend": False}}
    cluster, memory = Upgraded(), ClusterState()
    memory.jobs["u"] = job_view(object=ran)
    async with serving(cluster) as client:
        guard = GuardWatch(client, Health(stalled=30.0), Metrics(), changed=lambda: None)
        jobs = ClusterJobs(client, memory, Facts())
        for version in (OLD, "v1.36.2"):
            cluster.git = version
            await guard.look()
            await jobs.patch("u", start)
    assert cluster.patched == ["status", "j", "j"]


def _guard(name: str = "queuer-guard", *, kind: str = "ValidatingAdmissionPolicy") -> Any:
    objects = shipped(*POLICIES[Form.FULL])
    return deepcopy(next(o.document for o in objects if o.name == f"{kind} {name}"))


def test_what_the_api_server_fills_in_is_no_difference() -> None:
    """Of a newer Kubernetes too, or its upgrade would end all admission."""
    live = _guard()
    live["metadata"]["uid"], live["status"] = "u", {"observedGeneration": 1}
    live["spec"]["matchConstraints"] |= {
        "matchPolicy": "Equivalent",
        "namespaceSelector": {},
        "objectSelector": {},
    }
    for rule in live["spec"]["matchConstraints"]["resourceRules"]:
        rule["scope"] = "*"
    live["spec"]["newOfThisMinor"] = "Default"
    live["spec"]["validations"][0]["newOfThisMinor"] = {"mode": "Default"}
    assert differs(_guard(), live) is None


NEVER = {"name": "never", "expression": "false"}


@pytest.mark.parametrize(
    ("name", "at", "value"),
    [
        ("queuer-guard", ("validations", 0, "expression"), "true"),
        ("queuer-guard", ("failurePolicy",), "Ignore"),
        ("queuer-guard", ("matchConditions",), [NEVER]),
        ("queuer-guard-pods-grace", ("matchConditions",), [NEVER]),
        ("queuer-guard", ("paramKind",), {"apiVersion": "v1", "kind": "ConfigMap"}),
        ("queuer-guard", ("matchConstraints", "namespaceSelector"), {"matchLabels": {"x": "y"}}),
        ("queuer-guard", ("matchConstraints", "matchPolicy"), "Exact"),
        ("queuer-guard", ("matchConstraints", "excludeResourceRules"), [{"resources": ["jobs"]}]),
        ("queuer-guard", ("matchConstraints", "resourceRules", 0, "resourceNames"), ["one"]),
        ("queuer-guard", ("matchConstraints", "resourceRules", 0, "scope"), "Cluster"),
    ],
)
def test_a_policy_that_guards_less_is_not_as_shipped(name: str, at: tuple[Any, ...], value: Any) -> None:
    live = _guard(name)
    inner = live["spec"]
    for step in at[:-1]:
        inner = inner[step]
    inner[at[-1]] = value
    assert "differs at spec." in (differs(_guard(name), live) or "")


@pytest.mark.parametrize("act", ["params", "a label more", "an expression more"])
def test_a_binding_that_binds_less_is_not_as_shipped(act: str) -> None:
    wanted = _guard("queuer-guard", kind="ValidatingAdmissionPolicyBinding")
    live = deepcopy(wanted)
    selector = live["spec"]["matchResources"]["namespaceSelector"]
    if act == "params":
        live["spec"]["paramRef"] = {"name": "x", "parameterNotFoundAction": "Allow"}
    elif act == "a label more":
        selector["matchLabels"] = {"x": "y"}
    else:
        selector["matchExpressions"].append({"key": "x", "operator": "Exists"})
    assert "differs at spec." in (differs(wanted, live) or "")
