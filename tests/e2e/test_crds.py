"""The configuration objects in `crds/`: what the API server accepts, what it refuses and with which words.

The tree as a whole is judged by the controller; here stands what one object alone can get wrong.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest

from queuer.domain.document import export_queue, parse_queue
from queuer.domain.queue import Order, Preempt, QueueState, Sharing
from queuer.local.cluster import Cluster
from queuer.local.kubectl import KubectlError
from tests.e2e.tenancy import CONTROLLER, Manifest, Place, merged

API_VERSION = "queuer.dev/v1"


@pytest.fixture(scope="module")
def admin(cluster: Cluster) -> Place:
    """Configuration objects belong to no namespace."""
    return Place(cluster=cluster, namespace="default", user="admin")


@pytest.fixture
def team(admin: Place) -> Iterator[Manifest]:
    """A queue that says everything a queue can say."""
    created = admin.create(_object("Queue", path=f"root.team-{uuid4().hex[:8]}", **FULL_QUEUE))
    yield created
    admin.delete(created)


FULL_QUEUE: dict[str, Any] = {
    "weight": 2,
    "state": "open",
    "namespaces": ["team-a", "team-b"],
    "quota": [
        {"resource": "nvidia.com/gpu", "flavor": "h100", "guaranteed": 64, "limit": "96", "lend": 8},
        {"resource": "memory", "limit": "1.5Ti"},
        {"resource": "nvidia.com/gpu", "flavor": "a100", "limit": 0},
    ],
    "policy": {
        "order": "strict",
        "sharing": "priority",
        "preempt": "never",
        "reclaim": False,
        "minRuntime": "90s",
        "maxWait": "1h30m",
        "halfLife": "1.5d",
        "reservations": 2,
    },
    "placement": [
        {"namespace": "team-a", "user": "alice", "group": "ml", "queue": "root.research.team-a.x"},
        {"queue": "root.research.team-a.y"},
    ],
    "access": {
        "users": ["alice", "oidc:bob"],
        "groups": ["ml"],
        "maxPriority": "high",
        "maxRuntime": "12h",
        "maxPending": 500,
        "perUser": {"limits": {"nvidia.com/gpu": 16, "memory": "1Ti"}, "maxRunning": 4},
    },
}


def _object(kind: str, **spec: Any) -> Manifest:
    metadata = {"name": f"test-{uuid4().hex[:8]}"}
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": metadata, "spec": spec}


def _told(admin: Place, manifest: Manifest) -> str:
    """The API server's objection to an object."""
    with pytest.raises(KubectlError) as refusal:
        admin.try_create(manifest)
    return str(refusal.value)


def test_a_queue_keeps_everything_that_it_says_and_the_domain_understands_it(team: Manifest) -> None:
    kept = {key: value for key, value in team["spec"].items() if key != "path"}
    assert kept == FULL_QUEUE
    assert export_queue(parse_queue(team["spec"]["path"], kept)).keys() == FULL_QUEUE.keys() - {"state"}


def test_a_queue_needs_a_path_only(admin: Place) -> None:
    assert admin.try_create(_object("Queue", path="root"))["spec"] == {
        "path": "root",
        "weight": 1,
        "state": "open",
    }


@pytest.mark.parametrize(
    "path", ["research", "root.", "root..a", "root.Team", "root.-a", "root.a-", "root.a b", ""]
)
def test_a_malformed_path_is_refused_with_an_example(admin: Place, path: str) -> None:
    told = _told(admin, _object("Queue", path=path))
    assert "spec.path" in told
    assert "such as root.research.team-a" in told


def test_a_path_fits_into_a_label(admin: Place) -> None:
    admin.try_create(_object("Queue", path="root." + "a" * 58))
    assert "spec.path: Too long" in _told(admin, _object("Queue", path="root." + "a" * 59))


def test_a_path_cannot_change(admin: Place, team: Manifest) -> None:
    with pytest.raises(KubectlError, match=r"spec\.path.*create a queue with the new path"):
        admin.patch(team, {"spec": {"path": "root.elsewhere"}})


@pytest.mark.parametrize(
    ("spec", "field", "fix"),
    [
        ({"weight": 0}, "spec.weight", "set state to held"),
        ({"weight": -1}, "spec.weight", "must be above 0"),
        ({"state": "paused"}, "spec.state", 'supported values: "open", "held", "draining"'),
        ({"namespaces": ["Team A"]}, "spec.namespaces[0]", "should match"),
        ({"quota": [{"resource": "cpu"}]}, "spec.quota[0]", "give guaranteed, limit or lend"),
        ({"quota": [{"limit": 1}]}, "spec.quota[0].resource", "Required value"),
        ({"quota": [{"resource": "cpu", "limit": "lots"}]}, "spec.quota[0].limit", "such as 8, 500m or 64Gi"),
        ({"quota": [{"resource": "cpu", "guaranteed": -1}]}, "spec.quota[0].guaranteed", "0 or more"),
        ({"quota": [{"resource": "cpu", "guaranteed": 1, "lend": "-1"}]}, "spec.quota[0].lend", "0 or more"),
        ({"policy": {"minRuntime": "soon"}}, "spec.policy.minRuntime", "such as 90s, 30m or 1h30m"),
        ({"policy": {"maxWait": ""}}, "spec.policy.maxWait", "must be a duration"),
        (
            {"access": {"maxPriority": "system-node-critical"}},
            "spec.access.maxPriority",
            "a class of your own",
        ),
        ({"access": {"maxPending": 0}}, "spec.access.maxPending", "greater than or equal to 1"),
        ({"access": {"users": ["bob", "bob"]}}, "spec.access.users[1]", "Duplicate value"),
        ({"access": {"maxRuntime": "long"}}, "spec.access.maxRuntime", "such as 90s, 30m or 1h30m"),
        ({"access": {"perUser": {}}}, "spec.access.perUser", "at least 1"),
        (
            {"access": {"perUser": {"maxRunning": 0}}},
            "spec.access.perUser.maxRunning",
            "greater than or equal to 1",
        ),
        ({"policy": {"reservations": -1}}, "spec.policy.reservations", "greater than or equal to 0"),
    ],
)
def test_a_wrong_field_is_named_with_its_fix(
    admin: Place, spec: dict[str, Any], field: str, fix: str
) -> None:
    told = _told(admin, _object("Queue", path="root.a", **spec))
    assert field in told
    assert fix in told


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("state", list(QueueState)),
        ("policy.order", list(Order)),
        ("policy.sharing", list(Sharing)),
        ("policy.preempt", list(Preempt)),
    ],
)
def test_the_choices_are_those_of_the_domain(admin: Place, field: str, values: list[str]) -> None:
    def queue(value: str) -> Manifest:
        spec = {"policy": {field.removeprefix("policy."): value}} if "." in field else {field: value}
        return _object("Queue", path="root.a", **spec)

    for value in values:
        admin.try_create(queue(value))
    supported = re.search(r"supported values: (.*)", _told(admin, queue("none-of-these")))
    assert supported is not None
    assert re.findall(r'"(.+?)"', supported.group(1)) == values


def test_kubectl_shows_the_state_and_whether_it_is_in_force(admin: Place, team: Manifest) -> None:
    name, path = team["metadata"]["name"], team["spec"]["path"]
    condition = {
        "type": "Accepted",
        "status": "False",
        "reason": "GuaranteeAboveParent",
        "message": "children are guaranteed 96, more than 64",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    status = {
        "conditions": [condition],
        "revision": 7,
        "observedGeneration": 1,
        "used": {"cpu": "4", "pods": 2},
    }
    kept = admin.entered_by(CONTROLLER).patch(team, {"status": status}, "--subresource=status")
    assert kept["status"] == status
    heading, row = admin.run("get", "queues", f"--field-selector=spec.path={path}").splitlines()
    assert heading.split() == ["NAME", "PATH", "WEIGHT", "STATE", "ACCEPTED", "AGE"]
    assert row.split()[:-1] == [name, path, "2", "open", "False"]
    assert condition["message"] in admin.run("get", "queue", name, "--output=wide")


def test_the_controller_writes_status_and_nothing_else(admin: Place, team: Manifest) -> None:
    both = merged({"spec": {"weight": 9}}, {"status": {"revision": 3}})
    kept = admin.entered_by(CONTROLLER).patch(team, both, "--subresource=status")
    assert (kept["spec"]["weight"], kept["status"]["revision"]) == (2, 3)
    with pytest.raises(KubectlError, match="Forbidden"):
        admin.entered_by(CONTROLLER).patch(team, {"spec": {"weight": 9}})


def test_tenants_do_not_see_or_write_configuration(admin: Place, team: Manifest) -> None:
    alice = admin.entered_by("alice")
    for attempt in (lambda: alice.run("get", "queues"), lambda: alice.patch(team, {"spec": {"weight": 9}})):
        with pytest.raises(KubectlError, match="Forbidden"):
            attempt()


def test_a_flavor(admin: Place) -> None:
    anything = {"operator": "Exists"}
    spec = {"nodeLabels": {"gpu": "h100"}, "tolerations": [anything, {"key": "gpu", "value": "h100"}]}
    kept = admin.try_create(_object("Flavor", **spec))["spec"]
    assert kept["tolerations"] == [anything, {"key": "gpu", "value": "h100", "operator": "Equal"}]
    told = _told(admin, _object("Flavor", nodeLabels={}, tolerations=[{"value": "x"}]))
    assert "spec.tolerations[0]" in told
    assert "give key, or set operator to Exists" in told
    told = _told(admin, _object("Flavor", nodeLabels={}, tolerations=[{**anything, "value": "x"}]))
    assert "leave value out" in told
    dotted = _object("Flavor", nodeLabels={})
    dotted["metadata"]["name"] = "nvidia.h100"
    assert "such as h100" in _told(admin, dotted)


@pytest.mark.parametrize(
    ("levels", "fix"),
    [
        ([], "should have at least 1 items"),
        (["a/rack", "a/rack"], "names a label key twice"),
        (["kubernetes.io/hostname", "a/rack"], "put it last or leave it out"),
        (["a/host"], "choose another label key"),
        (["a/rack", "b/rack"], "choose keys whose last parts differ"),
        (["no label key"], "should match"),
    ],
)
def test_a_wrong_topology_is_refused_with_its_fix(admin: Place, levels: list[str], fix: str) -> None:
    told = _told(admin, _object("Topology", levels=levels))
    assert "spec.levels" in told
    assert fix in told


def test_a_topology(admin: Place) -> None:
    levels = ["topology.kubernetes.io/block", "topology.kubernetes.io/rack", "kubernetes.io/hostname"]
    for given in (levels, levels[:-1]):
        assert admin.try_create(_object("Topology", levels=given))["spec"]["levels"] == given
