"""Plays the kubelet for the pods of one namespace: each runs as a process of this machine, as its manifest says.

Arguments and environment are the rendered ones. Each pod has a loopback address of its own and the token that the API
server issues for its service account, bound to the pod; a kubeconfig stands for the mounted token. The pods must ask
for a node that does not exist, so that nobody else runs them.
"""

from __future__ import annotations

import base64
import itertools
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import httpx2

from queuer.local.cluster import Cluster
from tests.waiting import PATIENCE

NOWHERE = {"queuer.test/runs": "as-a-process"}
"""A node selector that no node has."""

Document = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """The program of every container: command and environment, to which the pod adds, account and working folder."""

    command: tuple[str, ...]
    environment: Mapping[str, str]
    user: int | None = None
    folder: Path = Path("/")

    def start(
        self, *arguments: str, env: Mapping[str, str] | None = None, **streams: IO[bytes] | int
    ) -> subprocess.Popen[bytes]:
        """Start it. `env`: what the pod says beside the environment of the image."""
        return subprocess.Popen(
            [*self.command, *arguments], env={**self.environment, **(env or {})}, cwd=self.folder,
            user=self.user, group=self.user, extra_groups=None if self.user is None else (),
            stdin=streams.get("stdin"), stdout=streams["stdout"], stderr=streams["stderr"],
        )  # fmt: skip


def beside(folder: Path) -> Program:
    """The Queuer of the checkout that these tests belong to, at home in `folder`."""
    checkout = str(Path(__file__).parents[2])
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": checkout, "HOME": str(folder)}
    return Program(command=(sys.executable, "-m", "queuer"), environment=environment)


@dataclass(slots=True, kw_only=True)
class Pods:
    """The pods of `namespace` and their processes, by uid. Logs and kubeconfigs are files of `folder`."""

    cluster: Cluster
    namespace: str
    folder: Path
    client: httpx2.Client
    probes: httpx2.Client
    program: Program
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    addresses: dict[str, str] = field(default_factory=dict)
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def step(self) -> None:
        """Start what is new, tell how it is, end what is gone."""
        there = {pod["metadata"]["uid"]: pod for pod in self._get("pods")["items"]}
        for uid, pod in there.items():
            if uid not in self.processes:
                self._start(uid, pod)
            self._tell(uid, pod)
        for uid in set(self.processes) - set(there):
            self._end(uid)

    def stop(self) -> None:
        """End all."""
        for uid in list(self.processes):
            self._end(uid)

    def kubeconfig(self, account: str) -> Path:
        """The kubeconfig of a running pod of a service account."""
        return next(self.folder.glob(f"{account}-*.kubeconfig"))

    def logs(self) -> str:
        """The ends of all logs."""
        return "\n".join(f"{log.name}: {log.read_text()[-1500:]}" for log in self.folder.glob("*.log"))

    def _end(self, uid: str) -> None:
        process = self.processes.pop(uid)
        process.terminate()
        try:
            process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            process.kill()

    def _start(self, uid: str, pod: Document) -> None:
        (container,) = pod["spec"]["containers"]
        name, self.addresses[uid] = (
            pod["metadata"]["name"],
            f"127.77.{os.getpid() % 250}.{next(self._numbers)}",
        )
        environment: dict[str, str] = {}
        for each in container["env"]:
            environment[each["name"]] = self._value(each, pod, environment)
        if pod["spec"]["automountServiceAccountToken"]:
            environment["KUBECONFIG"] = str(self._kubeconfig(pod))
        arguments = [_expanded(text, environment) for text in container["args"]]
        with (self.folder / f"{name}.log").open("wb") as log:
            self.processes[uid] = self.program.start(*arguments, env=environment, stdout=log, stderr=log)

    def _value(self, entry: Document, pod: Document, known: dict[str, str]) -> str:
        source = entry.get("valueFrom", {})
        if secret := source.get("secretKeyRef"):
            return base64.b64decode(self._get(f"secrets/{secret['name']}")["data"][secret["key"]]).decode()
        if "fieldRef" in source:
            own: dict[str, str] = {
                "status.podIP": self.addresses[pod["metadata"]["uid"]],
                "metadata.name": pod["metadata"]["name"],
            }
            return own[source["fieldRef"]["fieldPath"]]
        return _expanded(entry.get("value", ""), known)

    def _kubeconfig(self, pod: Document) -> Path:
        meta, account = pod["metadata"], pod["spec"]["serviceAccountName"]
        bound = {"apiVersion": "v1", "kind": "Pod", "name": meta["name"], "uid": meta["uid"]}
        answer = self.client.post(
            self._path(f"serviceaccounts/{account}/token"),
            json={"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"boundObjectRef": bound}},
        )  # fmt: skip
        answer.raise_for_status()
        authority = base64.b64encode(self.cluster.ca_file.read_bytes()).decode()
        server = {"server": self.cluster.api_url, "certificate-authority-data": authority}
        config = {
            "apiVersion": "v1", "kind": "Config", "current-context": "pod",
            "clusters": [{"name": "pod", "cluster": server}],
            "users": [{"name": "pod", "user": {"token": answer.json()["status"]["token"]}}],
            "contexts": [{"name": "pod", "context": {"cluster": "pod", "user": "pod"}}],
        }  # fmt: skip
        path = self.folder / f"{account}-{meta['name']}.kubeconfig"
        path.write_text(json.dumps(config))
        return path

    def _tell(self, uid: str, pod: Document) -> None:
        ended = self.processes[uid].poll()
        if ended is not None:
            phase, ready = ("Failed" if ended else "Succeeded"), False
        else:
            phase, ready = "Running", self._ready(uid, pod)
        known = {each["type"]: each["status"] for each in pod["status"].get("conditions", [])}
        if (pod["status"]["phase"], known.get("Ready")) == (phase, str(ready)):
            return
        condition = {"type": "Ready", "status": str(ready)}
        status = {"phase": phase, "podIP": self.addresses[uid], "conditions": [condition]}
        self.client.patch(
            self._path(f"pods/{pod['metadata']['name']}/status"), json={"status": status},
            headers={"Content-Type": "application/merge-patch+json"},
        )  # fmt: skip

    def _ready(self, uid: str, pod: Document) -> bool:
        (container,) = pod["spec"]["containers"]
        if "readinessProbe" not in container:
            return True
        probe, (port,) = container["readinessProbe"]["httpGet"], container["ports"]
        assert probe["port"] == port["name"]
        url = f"http://{self.addresses[uid]}:{port['containerPort']}{probe['path']}"
        try:
            return self.probes.get(url, timeout=5).status_code == 200
        except httpx2.HTTPError:
            return False

    def _get(self, what: str) -> Document:
        found: Document = self.client.get(self._path(what)).json()
        return found

    def _path(self, what: str) -> str:
        return f"/api/v1/namespaces/{self.namespace}/{what}"


def _expanded(text: str, environment: dict[str, str]) -> str:
    """`$(NAME)` as Kubernetes expands it."""
    return re.sub(r"\$\((\w+)\)", lambda found: environment.get(found[1], found[0]), text)


@contextmanager
def playing(
    cluster: Cluster, namespace: str, folder: Path, *, program: Program | None = None
) -> Iterator[Pods]:
    """Pods of the namespace run while the block does, all by `program`: the checkout's unless one is given."""
    headers = {"Authorization": f"Bearer {cluster.token('admin')}"}
    done = threading.Event()
    with (
        httpx2.Client(
            base_url=cluster.api_url, headers=headers, verify=False, trust_env=False, timeout=PATIENCE
        ) as client,
        httpx2.Client(trust_env=False) as probes,
    ):
        pods = Pods(
            cluster=cluster, namespace=namespace, folder=folder, client=client, probes=probes,
            program=program or beside(folder),
        )  # fmt: skip

        def play() -> None:
            while not done.wait(0.3):
                pods.step()

        thread = threading.Thread(target=play, name="pods")
        thread.start()
        try:
            yield pods
        finally:
            done.set()
            thread.join()
            pods.stop()
