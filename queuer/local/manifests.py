"""The tree and the jobs of the demo, sized to the fleet they run on: what a user would write."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from queuer.domain.errors import Unavailable
from queuer.local.fleet import BLOCK, RACK

GPU = "nvidia.com/gpu"
RESEARCH = "root.research"
TEAM_A = f"{RESEARCH}.team-a"
TEAM_B = f"{RESEARCH}.team-b"
STORY_LABEL = "queuer.dev/story"
STORY = f"{STORY_LABEL}=demo"
GANG = "llama-70b"
TORCH = "resnet-ft"
GANG_RUNS = "12s"
TORCH_RUNS = "3s"
PROTECTED = "15m"
UNPROTECTED = "1s"
LEAST_RACKS = 4
LEAST_NODES_PER_RACK = 6
FRAGMENTS = 3
"""Racks that team-b leaves partly free: together more GPUs than the gang asks for, in no rack enough."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """How large the jobs are: `racks` racks of `nodes` nodes with `gpus` GPUs each, all equal."""

    racks: int
    nodes: int
    gpus: int

    @classmethod
    def of(cls, nodes_by_rack: Mapping[str, int], gpus: int) -> Sizes:
        """Sizes for a fleet. Raises Unavailable where the story would not fit."""
        smallest = min(nodes_by_rack.values(), default=0)
        if len(nodes_by_rack) < LEAST_RACKS or smallest < LEAST_NODES_PER_RACK or gpus < 1:
            raise Unavailable(
                f"the demo needs {LEAST_RACKS} racks of {LEAST_NODES_PER_RACK} nodes with GPUs, "
                f"this cluster has {len(nodes_by_rack)} racks, the smallest of {smallest} nodes",
                hint="queuer local reset, then queuer local up --nodes 160 --racks 20",
            )
        return cls(racks=len(nodes_by_rack), nodes=smallest, gpus=gpus)

    @property
    def partial(self) -> int:
        """Nodes of a job that leaves a part of its rack free."""
        return self.nodes // 2 + 1

    @property
    def free(self) -> int:
        """GPUs that are free once team-b runs."""
        return FRAGMENTS * (self.nodes - self.partial) * self.gpus

    @property
    def total(self) -> int:
        """All GPUs."""
        return self.racks * self.nodes * self.gpus


def tree(sizes: Sizes, *, min_runtime: str) -> dict[str, Any]:
    """Two teams, each guaranteed half; what one does not use the other may borrow.

    `min_runtime`: how long team-b's jobs are safe from eviction.
    """
    half = sizes.total // 2

    def team(namespace: str, **policy: Any) -> dict[str, Any]:
        return {
            "namespaces": [namespace],
            "quota": [{"resource": GPU, "guaranteed": half}],
            **({"policy": policy} if policy else {}),
        }

    return {
        "apiVersion": "queuer.dev/v1",
        "kind": "QueueTree",
        "queues": {
            RESEARCH: {"quota": [{"resource": GPU, "guaranteed": 2 * half}]},
            TEAM_A: team("team-a"),
            TEAM_B: team("team-b", minRuntime=min_runtime),
        },
        "topology": {"levels": [BLOCK, RACK]},
    }


def partial_jobs(sizes: Sizes) -> list[dict[str, Any]]:
    """team-b's smaller trainings, one rack each, which leaves a part of that rack free."""
    return [_rack_job(f"eval-{n}", sizes.partial, sizes.gpus) for n in range(1, FRAGMENTS + 1)]


def full_jobs(sizes: Sizes) -> list[dict[str, Any]]:
    """team-b's large trainings: a whole rack each, as many as racks are left."""
    return [
        _rack_job(f"train-{n:02d}", sizes.nodes, sizes.gpus) for n in range(1, sizes.racks - FRAGMENTS + 1)
    ]


def _rack_job(name: str, pods: int, gpus: int) -> dict[str, Any]:
    return job(name, queue=TEAM_B, pods=pods, gpus=gpus, rack=True)


def gang(sizes: Sizes) -> dict[str, Any]:
    """team-a's gang: a whole rack or nothing."""
    return job(GANG, queue=TEAM_A, pods=sizes.nodes, gpus=sizes.gpus, rack=True, run_for=GANG_RUNS)


def job(
    name: str, *, queue: str, pods: int, gpus: int, rack: bool = False, run_for: str | None = None
) -> dict[str, Any]:
    """An ordinary Job with our queue label, and if wanted all its pods in one rack."""
    annotations = {"annotations": {"queuer.dev/topology-required": "rack"}} if rack else {}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "labels": _labels(queue), **annotations},
        "spec": {
            "parallelism": pods,
            "completions": pods,
            "backoffLimit": 0,
            "template": _template("main", gpus=gpus, run_for=run_for, spec={"restartPolicy": "Never"}),
        },
    }


def pytorchjob(sizes: Sizes, *, workers: int = 3) -> dict[str, Any]:
    """A PyTorchJob of one master and `workers` workers without a wish for topology."""

    def replica(count: int) -> dict[str, Any]:
        template = _template("pytorch", gpus=sizes.gpus, run_for=TORCH_RUNS)
        return {"replicas": count, "restartPolicy": "Never", "template": template}

    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": TORCH, "labels": _labels(TEAM_A)},
        "spec": {
            "runPolicy": {"cleanPodPolicy": "None"},
            "pytorchReplicaSpecs": {"Master": replica(1), "Worker": replica(workers)},
        },
    }


def _labels(queue: str) -> dict[str, str]:
    return {"queuer.dev/queue": queue, STORY_LABEL: "demo"}


def _template(
    container: str, *, gpus: int, run_for: str | None, spec: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    amounts = {"cpu": "32", "memory": "256Gi", GPU: gpus}
    metadata: dict[str, Any] = {"labels": {STORY_LABEL: "demo"}}
    if run_for is not None:
        metadata["annotations"] = {
            "sim/run-for": run_for
        }  # there is no kubelet: kwok ends the pods after this
    containers = [
        {"name": container, "image": "train:1", "resources": {"requests": amounts, "limits": dict(amounts)}}
    ]
    return {"metadata": metadata, "spec": {**(spec or {}), "containers": containers}}
