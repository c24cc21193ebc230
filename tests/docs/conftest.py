"""A whole local cluster for the file that types pages: 4 racks of 8 nodes of 8 GPUs, two teams with half each."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest

from queuer.local import stack
from queuer.local.cluster import ALL_PARTS, Cluster
from queuer.local.controlplane import MPI_OPERATOR, RAY_OPERATOR, TRAINER
from queuer.local.fleet import BLOCK, RACK, Fleet
from queuer.local.postgres_programs import find_binaries
from queuer.local.progress import Reporter
from tests.e2e.conftest import optional
from tests.e2e.support import kubectl, wait_until

ROOT = Path(__file__).resolve().parents[2]
FLEET = Fleet(nodes=32, blocks=2, racks=4, gpus=8)
GPU = "nvidia.com/gpu"


def _team(namespace: str) -> dict[str, Any]:
    return {"namespaces": [namespace], "quota": [{"resource": GPU, "guaranteed": 128}]}


TREE: dict[str, Any] = {
    "apiVersion": "queuer.dev/v1",
    "kind": "QueueTree",
    "prune": True,
    "queues": {
        "root.research": {"quota": [{"resource": GPU, "guaranteed": 256}]},
        "root.research.team-a": _team("team-a"),
        "root.research.team-b": _team("team-b"),
    },
    "topology": {"levels": [BLOCK, RACK]},
}

MADE = (
    "namespace/team-c", "namespace/ci", "clusterrole/queuer-tree", "clusterrolebinding/queuer-tree",
    "clusterrole/queuer-research", "clusterrolebinding/queuer-research", "rolebinding/robot",
)  # fmt: skip
"""What pages create beside jobs: on a cluster that is kept it is there when they come again."""
OWNERS = "deployments,jobsets,jaxjobs,pytorchjobs"
"""Jobs of other kinds than Kubernetes' own that pages create."""
OPTIONAL_OWNERS = {TRAINER: "trainjobs", MPI_OPERATOR: "mpijobs", RAY_OPERATOR: "rayjobs"}
"""The same of those that an optional part runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where pages are played. Each begins with an empty cluster and the same tree."""

    cluster: Cluster

    def environment(self, home: Path) -> Mapping[str, str]:
        """The environment of a session; whose it is comes with each command."""
        programs = (
            Path(sys.executable).parent,
            self.cluster.state.programs["kubectl"].parent,
            find_binaries(),
        )
        return {
            "PATH": ":".join([*map(str, programs), os.environ["PATH"]]),
            "HOME": str(home),
            "NO_COLOR": "1",
            "TZ": "UTC",
            "PYTHONPATH": str(ROOT),
            "PYTHONUNBUFFERED": "1",  # output and errors in the order in which a terminal has them
            "QUEUER_API": self.cluster.queuer_url,
            "QUEUER_DATABASE_URL": self.cluster.database_url,
            "CONTROLLER": self.cluster.controller_url,
        }

    def become(self, user: str) -> str:
        """The command with which a user takes over."""
        return f"export KUBECONFIG={self.cluster.kubeconfig(user)}"

    def clean(self) -> None:
        """Nothing runs, nothing waits, and the tree is the first one."""
        kubectl(self.cluster, "admin", "delete", *MADE, "-n", "team-a", "--ignore-not-found", "--wait=false")
        there = [kinds for part, kinds in OPTIONAL_OWNERS.items() if part in self.cluster.state.parts]
        for namespace in ("team-a", "team-b"):
            options = ("--all", "-n", namespace, "--force", "--grace-period=0")
            for kinds in (OWNERS, *there):  # with what they have made, which nobody else may delete
                kubectl(self.cluster, "admin", "delete", kinds, *options, "--cascade=foreground")
            kubectl(self.cluster, "admin", "delete", "jobs,pods,serviceaccounts", *options)
        headers = {"Authorization": f"Bearer {self.cluster.token('admin')}", "If-Match": "*"}
        with httpx2.Client(
            base_url=f"{self.cluster.queuer_url}/api/v1", headers=headers, trust_env=False, timeout=60
        ) as api:
            states = "Queued,Held,Admitted,Placing,Running,Evicting"
            wait_until(
                lambda: not api.get("/workloads", params={"state": states}).json()["items"],
                timeout=30, describe="no job is left",
            )  # fmt: skip
            answer = api.put("/queue-tree", params={"reason": "the next page begins"}, json=TREE)
            assert answer.is_success, answer.text


@pytest.fixture(scope="module")
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    """The cluster of `QUEUER_TEST_DOCS`, else a new one."""
    os.environ["PYTHONPATH"] = str(ROOT)  # of the processes, which are started from `/`
    kept = os.environ.get("QUEUER_TEST_DOCS")
    directory = Path(kept or tempfile.mkdtemp(prefix="queuer-docs-"))
    directory.chmod(0o755)  # the account of PostgreSQL must enter it
    try:
        parts = (*ALL_PARTS, *optional(request.config.getoption("--kinds")))
        options = stack.Options(dir=directory / "local", fleet=FLEET, parts=parts)
        yield Place(cluster=stack.up(options, reporter=Reporter()))
    finally:
        if not kept:
            if (directory / "local" / "state.json").exists():
                stack.reset(Cluster.load(directory / "local"))
            shutil.rmtree(directory)
