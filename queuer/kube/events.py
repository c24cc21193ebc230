"""Kubernetes Events about a job: what `kubectl describe` and `kubectl get events` show its owner."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from queuer.kube.kinds import Kind
from queuer.kube.objects import Meta

COMPONENT = "queuer-controller"
_LONGEST_MESSAGE = 1024  # more is refused
_LONGEST_NAME = 200


def events_path(namespace: str) -> str:
    """API path of a namespace's Events (core/v1)."""
    return f"/api/v1/namespaces/{namespace}/events"


def event_about(
    kind: Kind, job: Meta, *, reason: str, message: str, warning: bool, at: float, id: str
) -> dict[str, Any]:
    """A core/v1 Event about a job, at `at` seconds since the epoch. `id` makes its name unique."""
    moment = datetime.fromtimestamp(at, tz=UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{job.name[:_LONGEST_NAME]}.{id}", "namespace": job.namespace},
        "involvedObject": {
            "apiVersion": kind.api_version,
            "kind": kind.name,
            "namespace": job.namespace,
            "name": job.name,
            "uid": job.uid,
            "resourceVersion": job.resource_version,
        },
        "type": "Warning" if warning else "Normal",
        "reason": reason,
        "message": message[:_LONGEST_MESSAGE],
        "source": {"component": COMPONENT},
        "reportingComponent": COMPONENT,
        "reportingInstance": "",
        "firstTimestamp": moment,
        "lastTimestamp": moment,
        "count": 1,
    }
