"""The service accounts hold what `deploy/helm/queuer/files/rbac.yaml` says, and nothing that would let them do more."""

from __future__ import annotations

import pytest

from queuer.local.cluster import Cluster
from queuer.local.kubectl import KubectlError
from tests.e2e.tenancy import CONTROLLER


@pytest.mark.parametrize(
    ("verb", "resource", "expected"),
    [
        *[
            (verb, what, "yes")
            for what in ("jobs.batch", "pytorchjobs.kubeflow.org")
            for verb in ("list", "patch")
        ],
        *[
            ("watch", what, "yes")
            for what in ("pods", "nodes", "namespaces", "limitranges", "resourcequotas")
        ],
        ("list", "priorityclasses.scheduling.k8s.io", "yes"),
        ("list", "runtimeclasses.node.k8s.io", "yes"),
        ("create", "events.events.k8s.io", "yes"),
        ("list", "events", "yes"),
        ("watch", "queues.queuer.dev", "yes"),
        ("patch", "queues.queuer.dev/status", "yes"),
        *[
            ("create", what, "no")
            for what in ("jobs.batch", "pods", "pytorchjobs.kubeflow.org", "queues.queuer.dev")
        ],
        ("delete", "jobs.batch", "no"),
        ("patch", "pods", "yes"),
        ("delete", "pods", "yes"),  # those that queue by themselves are evicted so
        ("patch", "queues.queuer.dev", "no"),
        ("patch", "namespaces", "no"),
        ("get", "secrets", "no"),
        ("break-glass", "queues.queuer.dev", "no"),
    ],
)
def test_rights_of_the_controller(cluster: Cluster, verb: str, resource: str, expected: str) -> None:
    assert _can(cluster, CONTROLLER, verb, resource) == expected


@pytest.mark.parametrize(
    ("verb", "resource", "expected"),
    [
        ("create", "tokenreviews.authentication.k8s.io", "yes"),
        ("create", "subjectaccessreviews.authorization.k8s.io", "yes"),
        ("list", "queues.queuer.dev", "no"),
        ("patch", "jobs.batch", "no"),
        ("list", "pods", "no"),
    ],
)
def test_rights_of_the_api(cluster: Cluster, verb: str, resource: str, expected: str) -> None:
    assert _can(cluster, "queuer-api", verb, resource) == expected


def _can(cluster: Cluster, identity: str, verb: str, resource: str) -> str:
    """`yes` or `no`, in all namespaces."""
    name, _, part = resource.partition("/")
    options = ["--all-namespaces", f"--subresource={part}"]
    try:
        return cluster.kubectl(identity).run("auth", "can-i", verb, name, *options).strip()
    except KubectlError as error:
        return str(error).rsplit(maxsplit=1)[-1]
