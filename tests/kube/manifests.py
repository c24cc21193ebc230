"""Jobs of both kinds as the API server gives them."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

Manifest = dict[str, Any]


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
