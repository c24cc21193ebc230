"""The schema is brought up while the servers of the older version still run: they serve or refuse, and harm nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2

from queuer.store import migrate
from tests import newer
from tests.e2e.controller import Controller, tree
from tests.e2e.scene import Scene
from tests.e2e.support import wait_until
from tests.waiting import PATIENCE

OLDER, NEWER = "queuer", "tests.newer"
UNKNOWN = (
    f"the database is at schema {newer.REVISION}, which this version does not know; it needs {migrate.head()}"
)
BEHIND = f"the database is at schema {migrate.head()}, this version needs {newer.REVISION}"


def _environment(scene: Scene, folder: Path) -> dict[str, str]:
    given = {"QUEUER_DATABASE_URL": scene.database.url, newer.VARIABLE: str(folder)}
    return {**os.environ, **given, "QUEUER_AUTH": "none", "QUEUER_PORT": "0"}


def _run(scene: Scene, folder: Path, module: str, *arguments: str) -> tuple[int, str]:
    """Exit code, and all that it said."""
    ran = subprocess.run(
        [sys.executable, "-m", module, *arguments], env=_environment(scene, folder), capture_output=True,
        text=True, check=False, timeout=120,
    )  # fmt: skip
    return ran.returncode, ran.stdout + ran.stderr


@contextmanager
def _api(scene: Scene, folder: Path, module: str) -> Iterator[httpx2.Client]:
    """An API of that version, once it listens."""
    process = subprocess.Popen(
        [sys.executable, "-m", module, "serve", "api"], env=_environment(scene, folder), stderr=subprocess.PIPE,
        text=True,
    )  # fmt: skip
    assert process.stderr is not None
    try:
        url = json.loads(process.stderr.readline())["url"]
        with httpx2.Client(base_url=url, trust_env=False, timeout=PATIENCE) as client:
            yield client
    finally:
        process.terminate()
        process.communicate(timeout=120)


def test_servers_of_two_versions_beside_one_database(scene: Scene, tmp_path: Path) -> None:
    folder = newer.write(tmp_path / "migrations")
    document = tree(scene.namespace)
    scene.database.apply(document)
    old = scene.start()
    scene.job("runs", pods=2, gpus=8)
    scene.wait_state("runs", "Running")
    pods = {p["metadata"]["uid"] for p in scene.pods("runs")}
    new = Controller(
        cluster=scene.cluster,
        database_url=scene.database.url,
        module=NEWER,
        settings={newer.VARIABLE: str(folder)},
    )
    scene.exits.callback(new.stop)

    with _api(scene, folder, OLDER) as api:
        new.start_without_waiting()
        new.wait_gone()
        assert new.log_has(BEHIND)
        assert new.log_has("run `queuer db upgrade`")
        ended, said = _run(scene, folder, NEWER, "serve", "api")
        assert (ended != 0, BEHIND in said) == (True, True), said
        assert old.leads(), "a newer version that is too early changes nothing"

        ended, said = _run(scene, folder, NEWER, "db", "upgrade")
        assert (ended, said) == (0, f"schema {migrate.head()} -> {newer.REVISION}\n")
        old.wait_gone()
        assert old.log_has(UNKNOWN)
        assert old.log_has("install the version that made it")
        ready = api.get("/readyz")
        assert (ready.status_code, UNKNOWN in ready.text) == (503, True), "no Service leads to it any more"
        assert api.get("/api/v1/overview").status_code == 200, "it reads on"
        wrote = api.put(
            "/api/v1/queue-tree", params={"reason": "x"}, headers={"If-Match": "*"},
            json={**document, "queues": {"root.research.team-a": {"weight": 7}}},
        )  # fmt: skip
        assert (wrote.status_code, UNKNOWN in wrote.text) == (503, True), wrote.text

    ended, said = _run(scene, folder, OLDER, "db", "upgrade")
    assert (ended != 0, UNKNOWN in said) == (True, True), "a rollback ends before anything is changed"
    scene.job("waits", pods=1, gpus=8)
    assert scene.read("waits")["spec"]["suspend"]
    new.start().wait_leading()
    scene.wait_state("waits", "Running")
    assert scene.state("runs") == "Running"
    assert {p["metadata"]["uid"] for p in scene.pods("runs")} == pods
    with _api(scene, folder, NEWER) as api:
        wait_until(lambda: api.get("/readyz").status_code == 200, timeout=20, describe="it is ready")
        found = api.get("/api/v1/overview").json()["controller"]
        assert found["state"] in ("leading", "idle"), found
