"""The jobs of landing cases, as users write them, and the pods that their controllers make once they are started."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from random import Random
from typing import Any

import msgspec

from queuer.domain.keys import MIN_COUNT, TOPOLOGY_PREFERRED, TOPOLOGY_REQUIRED
from queuer.domain.nodes import HOSTNAME
from queuer.domain.quantity import format_resources
from queuer.kube.kinds import JOB, JOBSET, PYTORCHJOB, JobKind
from queuer.kube.made import PINS
from tests.kube.merge_patch import merged

Manifest = dict[str, Any]

NAMESPACE = "landing-cases"
CASE, POOL, DISK = "queuer.test/case", "queuer.test/pool", "queuer.test/disk"
TEAM, AGE = "queuer.test/team", "queuer.test/age"
"""Key of a taint that no flavor tolerates, and some templates do; key of a label with a number."""
GANG, ROLE = "queuer.test/gang", "queuer.test/role"
GPU = "nvidia.com/gpu"
RACK = "topology.kubernetes.io/rack"
GIB = 2**30
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_SCHEDULING = ("nodeSelector", "tolerations", "affinity")
_TOLERATIONS: Sequence[Manifest] = (
    {"operator": "Exists"},
    {"key": TEAM, "operator": "Exists"},
    {"key": TEAM, "value": "x"},
    {"key": TEAM, "value": "y"},
    {"key": TEAM, "operator": "Exists", "effect": "NoExecute"},
)
_LEVELS = (None, None, None, "host", "rack", "rack", "block")

Pods = Mapping[str, Sequence[Manifest]]
"""Pods of a gang by pod set."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Jobs:
    """Draws the jobs of one case. `even`: they ask for half a host or a whole one, as large gangs do."""

    random: Random
    case: str
    scheduler: str
    even: bool

    def job(self, uid: str) -> tuple[JobKind, Manifest]:
        """A Job of one pod set, a PyTorchJob of a master and workers, or a JobSet of two or three roles.

        The roles of half of them have one template.
        """
        draw = self.random
        notes: dict[str, str] = {}
        level = draw.choice(_LEVELS)
        if level is not None:
            notes[draw.choice((TOPOLOGY_REQUIRED, TOPOLOGY_PREFERRED))] = level
        kind = draw.choice((JOB, JOB, PYTORCHJOB, JOBSET))
        count = draw.choice((2, 4, 8)) if self.even else draw.randint(1, 6)
        if kind is not JOBSET and draw.random() < 0.2:
            notes[f"{MIN_COUNT}{'main' if kind is JOB else 'worker'}"] = str(draw.randint(1, count))
        spec: Manifest = {"suspend": True}
        if kind is JOB:
            spec |= {"parallelism": count, "completions": count, "template": self._templates(uid, "main")[0]}
        elif kind is PYTORCHJOB:
            master, worker = self._templates(uid, "Master", "Worker")
            roles = {
                "Master": {"replicas": 1, "template": master},
                "Worker": {"replicas": count, "template": worker},
            }
            spec = {"runPolicy": spec, "pytorchReplicaSpecs": roles}
        else:
            names = ("driver", "worker", "reader")[: draw.randint(2, 3)]
            spec["replicatedJobs"] = [
                {"name": name, "replicas": draw.randint(1, 2), "template": {"spec": _indexed(draw, template)}}
                for name, template in zip(names, self._templates(uid, *names), strict=True)
            ]
        labels = {"queuer.dev/queue": draw.choice(("root.a", "root.b"))}
        meta = {"name": uid, "uid": uid, "namespace": NAMESPACE, "labels": labels, "annotations": notes}
        return kind, {"apiVersion": kind.api_version, "kind": kind.name, "metadata": meta, "spec": spec}

    def pods(self, uid: str, kind: JobKind, job: Manifest, patch: Mapping[str, Any]) -> Pods:
        """The pods that the job makes once it is patched."""
        started = _started(kind, job, patch)
        return {
            role.name: [
                self.pod(
                    f"{self.case}-{uid}-{role.name}-{i}", template["metadata"]["labels"], template["spec"]
                )
                for i in range(role.count)
            ]
            for role in kind.roles(msgspec.convert(started, kind.type))
            for template in [_at(started, role.template_path)]
        }

    def pod(self, name: str, labels: Mapping[str, str], spec: Manifest) -> Manifest:
        """A pod of this case."""
        meta = {"name": name, "namespace": NAMESPACE, "labels": {**labels, CASE: self.case}}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": deepcopy(spec)}

    def _templates(self, uid: str, *roles: str) -> list[Manifest]:
        draw = self.random
        same, before, found = draw.random() < 0.5, draw.getstate(), []
        for role in roles:
            if same:
                draw.setstate(before)
            found.append(self._template(uid, role.lower()))
        return found

    def _terms(self) -> list[Manifest]:
        """Terms of node affinity, one with each operator."""
        rows = [
            {"key": RACK, "operator": "In", "values": ["r0", "r3"]},
            {"key": RACK, "operator": "NotIn", "values": ["r0", "r3"]},
            {"key": DISK, "operator": "Exists"},
            {"key": DISK, "operator": "DoesNotExist"},
            {"key": AGE, "operator": "Gt", "values": ["1"]},
            {"key": AGE, "operator": "Lt", "values": ["2"]},
        ]
        name = {"key": "metadata.name", "values": [f"{self.case}-n0"]}
        both = {"matchExpressions": rows[2:3], "matchFields": [{**name, "operator": "NotIn"}]}
        by_name = {"matchFields": [{**name, "operator": "In"}]}
        return [*({"matchExpressions": [row]} for row in rows), by_name, both]

    def _template(self, uid: str, role: str) -> Manifest:
        draw = self.random
        ask = {
            GPU: draw.choice((4, 8, 8)) if self.even else draw.choice((0, 1, 1, 2, 2, 4)),
            "cpu": 500 * draw.randint(1, 8),
            "memory": GIB * draw.choice((1, 2, 4, 12)),
        }
        spec: Manifest = {"containers": [container(ask)], "schedulerName": self.scheduler}
        if draw.random() < 0.15:  # before the others, or beside them
            before = container({"cpu": 500 * draw.randint(1, 12), "memory": GIB * draw.choice((1, 8))})
            beside = draw.choice(({}, {"restartPolicy": "Always"}))
            spec["initContainers"] = [{**before, "name": "before", **beside}]
        if draw.random() < 0.1:
            spec["resources"] = {"requests": {"cpu": "12"}}
        if draw.random() < 0.15:
            spec["nodeSelector"] = {DISK: "ssd"}
        if draw.random() < 0.15:
            spec["tolerations"] = [draw.choice(_TOLERATIONS)]
        if draw.random() < 0.15:
            required = {"nodeSelectorTerms": draw.sample(self._terms(), draw.randint(1, 2))}
            spec["affinity"] = {"nodeAffinity": {_REQUIRED: required}}
        labels = {GANG: f"{self.case}-{uid}", ROLE: role}
        if draw.random() < 0.15:
            apart = {"topologyKey": HOSTNAME, "labelSelector": {"matchLabels": labels}}
            spec.setdefault("affinity", {})["podAntiAffinity"] = {_REQUIRED: [apart]}
        return {"metadata": {"labels": labels}, "spec": spec}


def container(ask: Mapping[str, int]) -> Manifest:
    """A container that requests these amounts, and is limited to them."""
    amounts = format_resources({resource: amount for resource, amount in ask.items() if amount})
    return {"name": "main", "image": "training:1", "resources": {"requests": amounts, "limits": amounts}}


def _indexed(draw: Random, template: Manifest) -> Manifest:
    pods = draw.randint(1, 3)
    return {"parallelism": pods, "completions": pods, "completionMode": "Indexed", "template": template}


def _started(kind: JobKind, job: Manifest, patch: Mapping[str, Any]) -> Manifest:
    """The job as its pods see it: of a kind that makes Jobs, these have the pins."""
    if kind.made is None:
        started: Manifest = merged(job, patch)
        return started
    started = deepcopy(job)
    for role in kind.roles(msgspec.convert(started, kind.type)):
        spec = _at(started, role.template_path)["spec"]
        for key in _SCHEDULING:
            spec.pop(key, None)
        spec.update(patch[PINS][role.name])
    return started


def _at(document: Any, path: Sequence[str]) -> Any:
    for key in path:
        document = document[int(key) if isinstance(document, list) else key]
    return document
