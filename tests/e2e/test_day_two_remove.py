"""Queuer is removed while jobs wait and run: the verb says what would be stuck, and its commands let all of it go."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from queuer.local import bootstrap
from queuer.local.cluster import Cluster
from tests.e2e.controller import GPU, tree
from tests.e2e.scene import Scene
from tests.e2e.support import get, wait_until

HIGH = {"queuer.dev/priority-class": "queuer-high"}
HOLD = {"queuer.dev/hold": "true"}


@pytest.fixture
def policies(cluster: Cluster) -> Iterator[None]:
    """The test may delete the policies; afterwards they are there as before."""
    yield
    admin = cluster.kubectl("admin")
    bootstrap.install(admin)
    bootstrap.wait_policies(admin, where="team-a")


def _ask(scene: Scene, *options: str) -> tuple[int, str]:
    """Exit code and output of the verb, as an administrator types it where no API and no database answers."""
    given = {"KUBECONFIG": str(scene.cluster.kubeconfig("admin")), "QUEUER_API": "http://127.0.0.1:1"}
    ran = subprocess.run(
        [sys.executable, "-m", "queuer", "uninstall-check", *options], env={**os.environ, **given},
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert ran.stdout, ran.stderr
    return ran.returncode, ran.stdout


Findings = dict[tuple[str, str], dict[str, str]]


def _found(scene: Scene) -> tuple[int, Findings]:
    """Exit code, and the findings by check and health."""
    ended, said = _ask(scene, "-o", "json")
    return ended, {(f["check"], f["health"]): f for f in json.loads(said)["findings"]}


def _typed(scene: Scene, command: str) -> bool:
    """Whether an administrator's command goes through."""
    program = scene.cluster.state.programs["kubectl"]
    environment = {**os.environ, "KUBECONFIG": str(scene.cluster.kubeconfig("admin"))}
    environment["PATH"] = f"{program.parent}:{os.environ['PATH']}"
    return subprocess.run(["sh", "-c", command], env=environment, check=False).returncode == 0


@pytest.mark.usefixtures("policies")
def test_nothing_stays_suspended_when_queuer_goes(scene: Scene) -> None:
    elsewhere = ("-A", "-l", "queuer.dev/queue")
    wait_until(
        lambda: not get(scene.cluster, "jobs,pytorchjobs", *elsewhere)["items"], timeout=60, interval=1,
        describe="the namespaces of other tests are gone",
    )  # fmt: skip
    scene.database.apply(tree(scene.namespace, team_a={"quota": [{"resource": GPU, "limit": 8}]}))
    process = scene.start()
    scene.job("first", gpus=8)
    scene.wait_state("first", "Running")
    scene.job("urgent", gpus=8, labels=HIGH)
    scene.wait_state("urgent", "Running")
    scene.wait_state("first", "Queued")  # its template still has the pins of its start
    assert "kubernetes.io/hostname" in json.dumps(scene.read("first")["spec"]["template"]["spec"])
    scene.job("held", gpus=8, annotations=HOLD)
    scene.wait_state("held", "Held")
    process.stop()

    ended, found = _found(scene)
    where = scene.namespace
    assert ended == 1
    assert found["jobs", "wrong"]["text"] == f"1 job waits and would not start: {where}/first"
    assert found["jobs", "warning"]["text"] == f"1 job is held: {where}/held"
    assert found["jobs", "ok"]["text"] == f"1 job runs and would run on: {where}/urgent"
    assert "would go on to suspend new jobs" in found["policies", "wrong"]["text"]
    assert "3 jobs name the class queuer-default, which stays" in found["classes", "warning"]["text"]
    assert found["definitions", "warning"]["text"].startswith("3 definitions stay, with ")
    assert found["roles", "warning"]["text"].startswith("10 objects with rights stay: ")
    assert where in found["namespaces", "warning"]["fix"]

    ended, commands = _ask(scene, "--release")
    assert (ended, len(commands.splitlines())) == (0, 1)
    assert _typed(scene, found["policies", "wrong"]["fix"])
    assert _typed(scene, found["roles", "warning"]["fix"])
    # A policy holds for a moment after it is deleted.
    wait_until(lambda: _typed(scene, commands), timeout=30, describe="the command goes through")
    spec = scene.read("first")["spec"]
    assert not spec["suspend"]
    assert "kubernetes.io/hostname" not in json.dumps(spec["template"]["spec"])
    wait_until(
        lambda: [p["status"]["phase"] for p in scene.pods("first")] == ["Running"], timeout=30,
        describe=lambda: f"it runs without Queuer: {scene.read('first')} {scene.pods('first')}",
    )  # fmt: skip
    assert [p["status"]["phase"] for p in scene.pods("urgent")] == ["Running"]
    ended, found = _found(scene)
    assert (ended, found["policies", "ok"]["text"]) == (0, "no policy of Queuer is there")
    assert ("jobs", "wrong") not in found
    assert found["roles", "ok"]["text"] == "no role of Queuer is there"
    assert _typed(scene, "kubectl delete priorityclass queuer-default")
    ended, found = _found(scene)
    assert ended == 1
    assert found["classes", "wrong"]["text"].startswith(
        "the class queuer-default is gone, and no pod can be made of 3 jobs"
    )
    assert _typed(scene, found["classes", "wrong"]["fix"])
    assert _found(scene)[0] == 0
