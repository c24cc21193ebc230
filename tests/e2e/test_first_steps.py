"""docs/first-steps.md is typed from top to bottom, on a cluster that has never heard of Queuer."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from uuid import uuid4

import pytest

from queuer.local.binaries import default_cache, ensure_binaries
from queuer.local.cluster import Cluster
from queuer.local.progress import Reporter
from tests.docs.shell import Shell, type_page
from tests.e2e.pods import NOWHERE, Pods, playing

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "first-steps.md"
HOME = "queuer-system"
PORT = "http://127.0.0.1:8787"
SERVER = "postgresql://postgres:trial@postgres.queuer-trial-db:5432/postgres"
HERE = {
    "listen": "$(POD_IP)",
    "controller": {"nodeSelector": NOWHERE, "replicas": 1},
    "api": {"nodeSelector": NOWHERE, "replicas": 1},
}
"""Beside the page's values: the pods of the release are processes of this machine."""


@pytest.mark.timeout(600)
def test_a_stranger_gets_there(empty: Cluster, database: str, tmp_path: Path) -> None:
    home = f"release-{uuid4().hex[:6]}"  # the namespace on the page is that of the other tests
    work = tmp_path / "work"
    work.mkdir()
    (work / "deploy").symlink_to(ROOT / "deploy")
    (work / "here.yaml").write_text(json.dumps(HERE))
    shell = Shell(work, _environment(empty, tmp_path))
    try:
        with playing(empty, home, tmp_path) as pods:

            def here(command: str) -> str:
                command = command.replace("-f values.yaml", "-f values.yaml -f here.yaml")
                command = command.replace(SERVER, database)
                return command.replace(PORT, _address(pods)) if PORT in command else command

            page = PAGE.read_text().replace(HOME, home)
            type_page(page, shell, work, become=lambda user: "true", here=here)
    finally:
        shell.close()


def _environment(cluster: Cluster, home: Path) -> dict[str, str]:
    programs = ensure_binaries(default_cache(), reporter=Reporter())
    folders = (Path(sys.executable).parent, *(programs[name].parent for name in ("kubectl", "helm")))
    return {
        "PATH": ":".join([*map(str, folders), os.environ["PATH"]]), "PYTHONPATH": str(ROOT),
        "HOME": str(home), "NO_COLOR": "1", "TZ": "UTC", "PYTHONUNBUFFERED": "1",
        "KUBECONFIG": str(cluster.kubeconfig("admin")),
    }  # fmt: skip


def _address(pods: Pods) -> str:
    """Where the API listens; a port-forward would lead there."""
    log = next(pods.folder.glob("queuer-api-*.log")).read_text()
    return log.split('"url": "')[1].split('"')[0]
