"""Jobs of both kinds as the API server gives them, and as they are read."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import msgspec
import pytest

from queuer.domain.errors import FieldProblem, InvalidInput
from queuer.domain.workload import Workload
from queuer.kube.kinds import JOB, JobKind
from queuer.kube.template import Pin
from queuer.kube.workloads import NamespaceFacts, workload_of

Manifest = dict[str, Any]

CRITICAL = {"system-node-critical": 2_000_001_000, "system-cluster-critical": 2_000_000_000}
FACTS = NamespaceFacts(priorities={"high": 100, "batch": -5, **CRITICAL}, default_priority=7)


def meta(name: str) -> Manifest:
    return {"name": name, "namespace": "n", "uid": "u", "resourceVersion": "1", "annotations": {}}


def job(
    spec: Manifest | None = None, *, parallelism: int | None = 4, completions: int | None = None
) -> Manifest:
    counts = {"parallelism": parallelism, "completions": completions}
    return {
        "metadata": meta("j"),
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
    return workload_of(kind, decoded(kind, manifest), facts=FACTS)


def faults(manifest: Manifest, *, kind: JobKind = JOB, **labels: str) -> tuple[FieldProblem, ...]:
    """Of a job that is refused."""
    with pytest.raises(InvalidInput) as refused:
        read(manifest, kind=kind, **labels)
    return refused.value.problems


def decoded(kind: JobKind, manifest: Manifest) -> Any:
    return msgspec.convert(manifest, kind.type)


def pins_of(counts: Mapping[str, int], **said: Any) -> list[Pin]:
    """The same pin for each of these pod sets."""
    return [Pin(pod_set=name, count=count, **{"selector": {}, **said}) for name, count in counts.items()]
