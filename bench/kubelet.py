"""Pods for the API server in memory: those of a started job are bound at once and run, those of a suspended one go."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bench.api_server import ApiServer
from queuer.domain.keys import WORKLOAD
from queuer.kube.objects import JOBS, NODES, PODS

GPU = "nvidia.com/gpu"
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_RUNS = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}


class Kubelet:
    """Of all nodes. A pod goes to the first host inside its pins that has as many GPUs free, else it stays unbound."""

    def __init__(self, server: ApiServer) -> None:
        self._server = server
        self._free: dict[str, int] = {}
        self._labels: dict[str, Mapping[str, str]] = {}
        self._hosts: dict[tuple[tuple[str, str], ...], list[str]] = {}
        self._pods: dict[str, list[dict[str, Any]]] = {}
        for node in server.there(NODES):
            name = node["metadata"]["name"]
            self._free[name] = int(node["status"]["allocatable"][GPU])
            self._labels[name] = node["metadata"]["labels"]
        server.on_job = self.follow

    @property
    def running(self) -> list[str]:
        """Uids of the jobs that have pods, the longest running first."""
        return list(self._pods)

    def follow(self, job: dict[str, Any]) -> None:
        """Bring the pods of a job in line with what it says."""
        uid, suspended = job["metadata"]["uid"], job["spec"]["suspend"]
        if suspended:
            self._clear(uid)
        elif uid not in self._pods and not job["status"].get("conditions"):
            self._pods[uid] = [self._pod(job, number) for number in range(job["spec"]["parallelism"])]

    def finish(self, job: dict[str, Any]) -> None:
        """The job has succeeded."""
        job["status"]["conditions"] = [{"type": "Complete", "status": "True"}]
        self._server.put(JOBS, job)
        self._clear(job["metadata"]["uid"])

    def _clear(self, uid: str) -> None:
        for pod in self._pods.pop(uid, []):
            host = pod["spec"].get("nodeName")
            if host is not None:
                self._free[host] += _gpus(pod["spec"])
            self._server.remove(PODS, pod)

    def _pod(self, job: dict[str, Any], number: int) -> dict[str, Any]:
        meta, template = job["metadata"], job["spec"]["template"]
        spec, name = dict(template["spec"]), f"{meta['name']}-{number}"
        host = next((h for h in self._inside(spec) if self._free[h] >= _gpus(spec)), None)
        if host is not None:
            self._free[host] -= _gpus(spec)
            spec["nodeName"] = host
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": meta["name"], "uid": meta["uid"]}
        pod = {
            "metadata": {
                "name": name, "namespace": meta["namespace"], "uid": f"{name}-{meta['resourceVersion']}",
                "labels": {WORKLOAD: meta["uid"]}, "ownerReferences": [{**owner, "controller": True}],
            },
            "spec": spec,
            "status": _RUNS if host is not None else {"phase": "Pending"},
        }  # fmt: skip
        self._server.put(PODS, pod)
        return pod

    def _inside(self, spec: Mapping[str, Any]) -> list[str]:
        terms = (
            spec.get("affinity", {}).get("nodeAffinity", {}).get(_REQUIRED, {}).get("nodeSelectorTerms", [])
        )
        if terms:
            return list(terms[0]["matchExpressions"][-1]["values"])
        key = tuple(sorted(spec.get("nodeSelector", {}).items()))
        if key not in self._hosts:
            self._hosts[key] = [n for n, has in self._labels.items() if all(has.get(k) == v for k, v in key)]
        return self._hosts[key]


def _gpus(spec: Mapping[str, Any]) -> int:
    return int(spec["containers"][0]["resources"]["limits"].get(GPU, 0))
