"""RayJobs and RayClusters for tests, and a stand-in for the dashboard of Ray, which no pod of kwok serves."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from queuer.local.cluster import Cluster
from tests.e2e.support import QUEUE_LABEL, kubectl, read, wait_until

GPU = "nvidia.com/gpu"


def ray_manifest(
    kind: str,
    name: str,
    *,
    namespace: str,
    queue: str | None = None,
    pods: int = 3,
    gpus: int = 1,
    cpu: str = "1",
    mode: str = "HTTPMode",
    run_for: str | None = None,
    annotations: Mapping[str, str] | None = None,
    cluster: Mapping[str, Any] | None = None,
    **spec: Any,
) -> dict[str, Any]:
    """A RayJob or RayCluster of so many pods: a head, and workers in the group `gpu`.

    `run_for`: how long the pod beside them runs that submits.
    """
    workers = {
        "groupName": "gpu",
        "replicas": pods - 1,
        "minReplicas": 0,
        "maxReplicas": 8,
        "rayStartParams": {},
    }
    ray = {
        "rayVersion": "2.52.0",
        "headGroupSpec": {"rayStartParams": {}, "template": _template(gpus, cpu)},
        "workerGroupSpecs": [{**workers, "template": _template(gpus, cpu)}],
        **(cluster or {}),
    }
    if kind == "RayJob":
        ray = {"rayClusterSpec": ray, "entrypoint": "python x.py", "submissionMode": mode}
    if run_for and mode == "K8sJobMode":
        notes = {"metadata": {"annotations": {"sim/run-for": run_for}}}
        submitter = _template(0, "250m")
        submitter["spec"]["restartPolicy"] = "Never"
        ray["submitterPodTemplate"] = {**submitter, **notes}
    labels = {QUEUE_LABEL: queue} if queue else {}
    meta = {"name": name, "namespace": namespace, "labels": labels, "annotations": dict(annotations or {})}
    return {"apiVersion": "ray.io/v1", "kind": kind, "metadata": meta, "spec": {**ray, **spec}}


def _template(gpus: int, cpu: str) -> dict[str, Any]:
    amounts = {"cpu": cpu, "memory": "1Gi"} | ({GPU: str(gpus)} if gpus else {})
    resources = {"requests": amounts, "limits": amounts}
    return {"spec": {"containers": [{"name": "ray", "image": "ray:2", "resources": resources}]}}


class _Jobs(BaseHTTPRequestHandler):
    """Any job that is asked for has the status of the server."""

    def do_GET(self) -> None:
        status: str = getattr(self.server, "status", "")
        body = json.dumps({"submission_id": self.path.rpartition("/")[2], "status": status}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_GET  # noqa: N815

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


@contextmanager
def dashboard(cluster: Cluster, name: str, namespace: str, *, status: str) -> Iterator[None]:
    """A RayJob's dashboard that says `status`, once the job runs: its address is a field of the job's status."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Jobs)
    server.status = status  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    path = f"/apis/ray.io/v1/namespaces/{namespace}/rayjobs/{name}"
    try:
        wait_until(
            lambda: read(cluster, path).get("status", {}).get("jobDeploymentStatus") == "Running", timeout=60,
            describe=lambda: f"KubeRay calls it running: {read(cluster, path).get('status')}",
        )  # fmt: skip
        body = json.dumps({"status": {"dashboardURL": f"127.0.0.1:{server.server_port}"}})
        where = ("-n", namespace, "--subresource=status", "--type=merge", f"-p={body}")
        kubectl(cluster, "admin", "patch", "rayjobs.ray.io", name, *where)
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
