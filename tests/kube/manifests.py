"""Jobs of both kinds as the API server gives them, and as they are read."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import msgspec

from queuer.domain.workload import Workload
from queuer.kube.kinds import JOB, JobKind
from queuer.kube.workloads import NamespaceFacts, workload_of

Manifest = dict[str, Any]

CRITICAL = {"system-node-critical": 2_000_001_000, "system-cluster-critical": 2_000_000_000}
FACTS = NamespaceFacts(priorities={"high": 100, "batch": -5, **CRITICAL}, default_priority=7)


def job(
    spec: Manifest | None = None, *, parallelism: int | None = 4, completions: int | None = None
) -> Manifest:
    counts = {"parallelism": parallelism, "completions": completions}
    return {
        "metadata": {"name": "j", "namespace": "n", "uid": "u", "resourceVersion": "1", "annotations": {}},
        "spec": {
            "suspend": True,
            **{key: value for key, value in counts.items() if value is not None},
            "template": {"spec": {"containers": [{"name": "c"}], **(spec or {})}},
        },
    }


def pytorchjob(spec: Manifest | None = None, *, workers: int | None = 3) -> Manifest:
    def replica(count: int | None) -> Manifest:
        said = {} if count is None else {"replicas": count}
        return {**said, "template": {"spec": {"containers": [{"name": "pytorch"}], **deepcopy(spec or {})}}}

    found = job()
    found["spec"] = {
        "runPolicy": {"suspend": True},
        "pytorchReplicaSpecs": {"Worker": replica(workers), "Master": replica(1)},
    }
    return found


def read(manifest: Manifest, *, kind: JobKind = JOB, label: str = "root.a", **labels: str) -> Workload:
    """The workload of a job in queue `label`; `labels`: further ones of ours."""
    labels = {f"queuer.dev/{key.replace('_', '-')}": value for key, value in labels.items()}
    manifest["metadata"]["labels"] = {"queuer.dev/queue": label, **labels}
    manifest["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"
    return workload_of(kind, msgspec.convert(manifest, kind.type), facts=FACTS)
