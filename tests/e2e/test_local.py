"""`queuer local` as a user drives it: up, a crash that is said and mended, down with the data kept, reset."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from queuer.kube.kinds import KINDS
from queuer.local.cluster import ALL_PARTS, CONTROLLER_PART, POSTGRES, QUEUER_PARTS, Cluster
from queuer.local.controlplane import ETCD
from queuer.local.kubectl import Kubectl
from queuer.local.processes import ProcessState
from tests.e2e.conftest import PARTS_OF
from tests.e2e.support import kubectl, wait_until


@pytest.fixture
def directory() -> Iterator[Path]:
    """A directory that PostgreSQL's account can enter; whatever runs in it is stopped after the test."""
    path = Path(tempfile.mkdtemp(prefix="queuer-test-"))
    path.chmod(0o755)
    yield path / "local"
    if (path / "local" / "state.json").exists():
        _queuer("reset", path / "local")
    shutil.rmtree(path)


def _queuer(verb: str, directory: Path, *options: str, expect: int = 0) -> str:
    command = [sys.executable, "-m", "queuer", "local", verb, f"--dir={directory}", *options]
    environment = {name: value for name, value in os.environ.items() if name != "QUEUER_DATABASE_URL"}
    result = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False, timeout=200
    )
    assert result.returncode == expect, f"{result.stdout}\n{result.stderr}"
    return result.stdout + result.stderr


def _up(directory: Path) -> str:
    return _queuer("up", directory, "--nodes=8", "--racks=4", "--blocks=2", "--gpus=4")


def _alive(pid: int | None) -> bool:
    assert pid is not None
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.mark.timeout(300)  # three starts of everything
def test_life_of_a_local_cluster(directory: Path) -> None:
    said = _up(directory)
    cluster = Cluster.load(directory)
    exports = [line for line in said.splitlines() if line.startswith("export ")]
    assert exports[0] == f"export KUBECONFIG={directory}/kubeconfig/admin"
    assert [line.partition("=")[0] for line in exports[1:]] == [
        "export QUEUER_API",
        "export CONTROLLER",
        "export PATH",
    ]
    assert set(exports) <= set(_queuer("status", directory).splitlines())  # for the next shell
    assert "kube-apiserver" in said  # the time that each part took
    for address in (cluster.queuer_url, cluster.api_url, cluster.controller_url, cluster.database_url):
        assert address in said
        assert address in _queuer("status", directory)
    nodes = kubectl(cluster, "admin", "get", "nodes", "-L", "topology.kubernetes.io/rack", "--no-headers")
    assert [line.split()[-1] for line in nodes.splitlines()] == [
        f"r{rack:02d}" for rack in (1, 1, 2, 2, 3, 3, 4, 4)
    ]
    kubectl(cluster, "alice", "create", "configmap", "kept", "-n", "team-a")

    crashed = cluster.pid(CONTROLLER_PART)
    assert crashed is not None
    os.kill(crashed, signal.SIGKILL)
    wait_until(
        lambda: cluster.status(CONTROLLER_PART).state is ProcessState.CRASHED,
        timeout=10,
        describe="the crash is noticed",
    )
    assert f"controller crashed; its log is at {cluster.log(CONTROLLER_PART)}" in _queuer(
        "status", directory, expect=1
    )
    _up(directory)
    assert "crashed" not in _queuer("status", directory)

    pids = {part: cluster.pid(part) for part in ALL_PARTS}
    _queuer("down", directory)
    assert all(cluster.status(part).state is ProcessState.STOPPED for part in ALL_PARTS)
    assert [part for part, pid in pids.items() if _alive(pid)] == []

    refused = _queuer("up", directory, "--nodes=16", "--racks=4", "--blocks=2", expect=5)
    assert "was made with 8 nodes, 4 racks, 2 blocks, 4 GPUs each" in refused
    assert "8 nodes" in _queuer("up", directory)  # as it was made
    assert "kept" in kubectl(cluster, "alice", "get", "configmaps", "-n", "team-a")

    _queuer("reset", directory)
    assert not directory.exists()
    assert not cluster.state.etcd_data.exists()


def test_reset_leaves_files_of_others(directory: Path) -> None:
    directory.mkdir()
    (directory / "thesis.tex").write_text("mine")
    _queuer("up", directory, f"--part={ETCD}")
    _queuer("reset", directory)
    assert [path.name for path in directory.iterdir()] == ["thesis.tex"]


def test_an_existing_cluster_is_used(
    directory: Path, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = cluster.state.programs["kubectl"].parent
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    kubeconfig = cluster.kubeconfig("admin")
    kubectl(cluster, "admin", "delete", "clusterrole", "queuer-api")
    parts = [f"--part={part}" for part in (POSTGRES, *QUEUER_PARTS)]
    said = _queuer("up", directory, f"--kubeconfig={kubeconfig}", *parts)
    assert f"export KUBECONFIG={kubeconfig}" in said
    assert "queuer-api" in kubectl(cluster, "admin", "get", "clusterrole", "queuer-api")
    # PostgreSQL, controller and API: no Kubernetes part of its own.
    assert _queuer("status", directory).count("running") == 3
    # The controller is its own service account, not the admin: policies let nobody else start a job.
    own = Kubectl(
        program=cluster.state.programs["kubectl"], kubeconfig=directory / "kubeconfig" / "queuer-controller"
    )
    assert "system:serviceaccount:queuer-system:queuer-controller" in own.run("auth", "whoami")
    _queuer("reset", directory)
    assert kubeconfig.exists()


def test_wrong_options_are_named_with_the_fix(directory: Path) -> None:
    assert "--racks: 2 racks cannot fill 4 blocks" in _queuer("up", directory, "--racks=2", expect=2)
    assert "no part is named 'kubelet'" in _queuer("up", directory, "--part=kubelet", expect=2)
    assert "`queuer local up` makes one" in _queuer("status", directory, expect=3)
    assert not directory.exists()


def test_tenants_are_confined_to_their_namespace(cluster: Cluster) -> None:
    def may(identity: str, *request: str) -> bool:
        return "yes" in kubectl(cluster, identity, "auth", "can-i", *request, check=False).split()

    for kind in (kind.resource.full_name for kind in KINDS if kind.name not in PARTS_OF):
        assert may("alice", "create", kind, "-n", "team-a")
        assert not may("alice", "create", kind, "-n", "team-b")
    assert not may("alice", "update", "namespaces", "-n", "team-a")
    assert not may("queuer-controller", "delete", "nodes")
    assert not may("queuer-api", "patch", "jobs.batch", "-n", "team-a")
