"""The stage of the demo: runs the commands a user would type, shows their output, waits for facts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import textwrap
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO, TypeVar

import httpx2
import yaml

from queuer.domain.errors import QueuerError
from queuer.local.cluster import Cluster
from queuer.local.fleet import RACK
from queuer.local.identities import ADMIN, TENANT_NAMESPACES
from queuer.local.kubectl import KubectlError, asked_of
from queuer.local.manifests import GPU, STORY

T = TypeVar("T")

POLL_SECONDS = 0.2
WIDTH = 96
NAMES = 3
"""Jobs and other owners of pods that are in the way and named."""
_ENDED = ("Succeeded", "Failed")


class DemoFailed(QueuerError):
    """A beat did not reach what it waits for."""

    code = "demo_failed"


class Stage:
    """A cluster to play on and a stream to narrate to. Methods raise DemoFailed or KubectlError."""

    def __init__(self, cluster: Cluster, *, out: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self.cluster = cluster
        self._out = out
        self._clock = clock
        self._began = clock()
        self._earlier: set[str] = set()
        self._http = httpx2.Client(
            base_url=f"{cluster.queuer_url}/api/v1", timeout=10, trust_env=False,
            headers={"Authorization": f"Bearer {cluster.token(ADMIN)}"},
        )  # fmt: skip

    def close(self) -> None:
        """Let go of the connections."""
        self._http.close()

    # Narration

    def beat(self, title: str, text: str) -> None:
        """Begin a beat: what happens now, and why."""
        stamp = f"{self._clock() - self._began:4.0f} s"
        self.write(f"\n── {title} {'─' * max(3, WIDTH - len(title) - len(stamp) - 5)} {stamp}")
        self.say(text)

    def say(self, text: str) -> None:
        """A paragraph of narration."""
        self.write(textwrap.fill(" ".join(text.split()), WIDTH))

    def write(self, text: str) -> None:
        """Lines as they are."""
        self._out.write(text.rstrip() + "\n")
        self._out.flush()

    def show_yaml(self, document: Mapping[str, Any]) -> None:
        """A document as the user would write it."""
        self.write(
            textwrap.indent(
                yaml.safe_dump(document, sort_keys=False, default_flow_style=None, width=WIDTH), "    "
            )
        )

    def output(self, command: str, text: str, *, lines: int = 40) -> None:
        """A command and what it printed."""
        found = text.rstrip().splitlines()
        left = [f"    … {len(found) - lines} more"] if len(found) > lines else []
        self.write("\n".join([f"  $ {command}", *(f"    {line}" for line in found[:lines]), *left]))

    # Commands that the audience could type

    def queuer(self, *arguments: str, directory: Path | None = None) -> str:
        """Run `queuer` and show it."""
        environment = os.environ | {
            "QUEUER_API": self.cluster.queuer_url,
            "QUEUER_TOKEN": self.cluster.token(ADMIN),
            "NO_COLOR": "1",
        }
        done = subprocess.run(
            [sys.executable, "-m", "queuer", *arguments], env=environment, stdin=subprocess.DEVNULL, cwd=directory,
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        command = " ".join(("queuer", *arguments))
        if done.returncode:
            raise DemoFailed(f"`{command}` failed: {done.stderr.strip()}")
        said = done.stdout + done.stderr
        self.output(command, said)
        return done.stdout

    def apply(self, document: Mapping[str, Any], *, file: str) -> None:
        """Apply a document from a file of that name."""
        with tempfile.TemporaryDirectory() as directory:
            (Path(directory) / file).write_text(yaml.safe_dump(document, sort_keys=False))
            self.queuer("apply", "-f", file, "-y", directory=Path(directory))

    def create(self, tenant: str, documents: Sequence[Mapping[str, Any]], *, file: str) -> None:
        """Create objects as a tenant, as `kubectl create -f FILE` does, and show it."""
        items = [
            {**d, "metadata": {**d["metadata"], "namespace": TENANT_NAMESPACES[tenant]}} for d in documents
        ]
        text, kubectl = (
            json.dumps({"apiVersion": "v1", "kind": "List", "items": items}),
            self.cluster.kubectl(tenant),
        )
        try:
            said = kubectl.run("create", "-f", "-", input=text)
        except KubectlError as refusal:
            if asked_of(str(refusal)) is None:
                raise
            said = "".join(map(kubectl.create, items))  # each is asked for lines of its own
        self.output(f"kubectl create -f {file}    # as {tenant}", said, lines=4)

    def clean(self) -> None:
        """Remove what an earlier play left, and wait until its capacity is back. Raises DemoFailed where work of others
        is in the way, and leaves them alone.
        """
        self._require_alone()
        for tenant, namespace in TENANT_NAMESPACES.items():
            kubectl = self.cluster.kubectl(tenant)
            kubectl.run("delete", "jobs,pytorchjobs", "-l", STORY, "-n", namespace, "--wait=false")
        self.until(
            "the pods of an earlier play to be gone",
            lambda: not any(self.pods(tenant) for tenant in TENANT_NAMESPACES),
            timeout=60,
        )
        self._earlier = {job["uid"] for tenant in TENANT_NAMESPACES for job in self._workloads(tenant)}

    def _require_alone(self) -> None:
        kubectl = self.cluster.kubectl(ADMIN)
        shown = json.loads(kubectl.run("get", "jobs,pytorchjobs", "-A", "-l", STORY, "-o", "json"))["items"]
        ours = {(each["metadata"]["namespace"], each["metadata"]["name"]) for each in shown}
        jobs = [
            job for job in self.get("/workloads", limit="1000")["items"]
            if job["state"] not in _ENDED and not job["deleted"]
        ]  # fmt: skip
        outside = [
            each for each in self.get("/overview")["outside"] if each["name"] and GPU in each["amounts"]
        ]
        others = [each for each in (*jobs, *outside) if (each["namespace"], each["name"]) not in ours]
        if others:
            remove = [
                f"kubectl delete {each['kind'].lower()} {each['name']} -n {each['namespace']}"
                for each in others[:NAMES]
            ]
            more = (
                f"; and {len(others) - NAMES} more: queuer jobs, queuer status" if len(others) > NAMES else ""
            )
            raise DemoFailed(
                "work of somebody else would be in the way of the demo", hint="; ".join(remove) + more
            )

    # Facts

    def until(self, what: str, condition: Callable[[], T], *, timeout: float = 60) -> T:
        """Wait for a fact. Raises DemoFailed with `what` after `timeout` seconds."""
        deadline = self._clock() + timeout
        while not (answer := condition()):
            if self._clock() > deadline:
                raise DemoFailed(
                    f"waited {timeout:.0f} s for {what}, in vain",
                    hint=f"queuer local status; queuer local logs controller; {self.cluster.queuer_url}",
                )
            time.sleep(POLL_SECONDS)
        return answer

    def get(self, path: str, **params: str) -> Any:
        """An answer of the REST API."""
        try:
            return self._http.get(path, params=params).raise_for_status().json()
        except httpx2.HTTPError as error:
            raise DemoFailed(f"the API does not answer: {error}", hint="queuer local status") from error

    def workload(self, tenant: str, name: str) -> Mapping[str, Any] | None:
        """The newest workload of that name, None while it is not recorded."""
        return next(iter(self._workloads(tenant, name=name)), None)

    def state(self, tenant: str, name: str) -> str:
        """Its state, "" while it is not recorded."""
        found = self.workload(tenant, name)
        return found["state"] if found else ""

    def live(self, tenant: str) -> dict[str, Mapping[str, Any]]:
        """Workloads of a tenant that have not ended, by name."""
        return {job["name"]: job for job in self._workloads(tenant) if job["state"] not in _ENDED}

    def _workloads(self, tenant: str, **filters: str) -> list[Mapping[str, Any]]:
        """Workloads of this play, newest first: those of an earlier one are history, some under the same names."""
        page = self.get("/workloads", namespace=TENANT_NAMESPACES[tenant], limit="1000", **filters)
        return [job for job in page["items"] if job["uid"] not in self._earlier]

    def pods(self, tenant: str, selector: str = STORY) -> list[Any]:
        """Pods of the story that are not done."""
        said = self.cluster.kubectl(tenant).run(
            "get", "pods", "-n", TENANT_NAMESPACES[tenant], "-l", selector, "-o", "json"
        )
        return [p for p in json.loads(said)["items"] if p["status"].get("phase") not in _ENDED]

    def nodes_by_rack(self) -> Counter[str]:
        """How many nodes with GPUs each rack has."""
        return Counter(self.rack_of_node().values())

    def rack_of_node(self) -> dict[str, str]:
        """The rack of each node that has GPUs."""
        nodes = self.cluster.kubectl(ADMIN).get("/api/v1/nodes")["items"]
        return {
            node["metadata"]["name"]: node["metadata"]["labels"][RACK]
            for node in nodes
            if RACK in node["metadata"].get("labels", {}) and GPU in node["status"].get("allocatable", {})
        }

    def gpus_per_node(self) -> int:
        """The smallest number of GPUs of a node that has any."""
        nodes = self.cluster.kubectl(ADMIN).get("/api/v1/nodes")["items"]
        amounts = [int(node["status"].get("allocatable", {}).get(GPU, 0)) for node in nodes]
        return min((amount for amount in amounts if amount), default=0)
