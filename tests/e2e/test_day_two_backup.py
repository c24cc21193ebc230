"""An older backup is restored while jobs run: nothing is started, suspended or promised twice by what it lacks."""

from __future__ import annotations

import subprocess
from pathlib import Path

from queuer.local.postgres_programs import find_binaries, unprivileged
from queuer.store.engine import conninfo
from tests.conftest import DatabaseServer
from tests.e2e.controller import GPU, Database, tree
from tests.e2e.scene import Scene
from tests.e2e.support import kubectl, wait_until

LIMIT = 40
HIGH = {"queuer.dev/priority-class": "queuer-high"}
HOLD = "queuer.dev/hold"
_TERM = "SELECT epoch, term::text FROM leader"
_DECIDED = """
    SELECT count(*) FILTER (WHERE kind = 'admit' AND NOT patch->'spec' IS NULL) AS started,
        count(*) FILTER (WHERE kind = 'evict') AS evicted
    FROM outbox
"""
"""PATCHes that start or suspend a job. One that marks what runs already has no spec."""


def _run(program: str, *arguments: str) -> None:
    ran = subprocess.run(
        [str(find_binaries(unprivileged()) / program), *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr


def _restore(server: DatabaseServer, database: Database, dump: Path) -> None:
    """The database is lost, and filled anew from the dump."""
    name = database.url.rpartition("/")[2]
    server.drop(name)
    server.create(name, template="template0")
    _run(
        "pg_restore",
        f"--dbname={conninfo(database.url)}",
        "--exit-on-error",
        "--single-transaction",
        str(dump),
    )


def test_jobs_run_on_through_the_restore_of_an_older_backup(
    scene: Scene, database_server: DatabaseServer, tmp_path: Path
) -> None:
    """After the dump one gang is evicted, one has moved, one has ended, two have started: the backup says otherwise."""
    scene.database.apply(tree(scene.namespace, team_a={"quota": [{"resource": GPU, "limit": LIMIT}]}))
    process = scene.start()
    scene.job("stays", pods=2, gpus=8, labels=HIGH)
    scene.job("moves", gpus=8, labels=HIGH)
    scene.job("evicted", gpus=8)
    scene.job("later", gpus=8, labels=HIGH, annotations={HOLD: "true"})
    for name in ("stays", "moves", "evicted"):
        scene.wait_state(name, "Running")
    scene.wait_state("later", "Held")
    scene.job("ends", gpus=8, labels=HIGH)
    scene.wait_state("ends", "Running")
    decided = scene.database.rows(_DECIDED)
    dump = tmp_path / "queuer.dump"
    _run("pg_dump", "--format=custom", f"--file={dump}", conninfo(scene.database.url))
    [before] = scene.database.rows(_TERM)

    scene.database.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'queuer-leader%'"
    )
    wait_until(lambda: scene.database.rows(_TERM) != [before], timeout=20, describe="a new term begins")
    [lost] = scene.database.rows(_TERM)
    kubectl(
        scene.cluster, "alice", "patch", "job", "moves", "-n", scene.namespace, "--type=merge",
        '-p={"spec":{"suspend":true}}',
    )  # fmt: skip
    wait_until(
        lambda: scene.database.workload("moves", scene.namespace)["attempt"] == 2, timeout=30,
        describe=lambda: scene.story("moves"),
    )  # fmt: skip
    scene.wait_state("moves", "Running")
    scene.end_all("ends")
    scene.wait_state("ends", "Succeeded")
    kubectl(scene.cluster, "alice", "annotate", "job", "later", "-n", scene.namespace, f"{HOLD}-")
    scene.wait_state("later", "Running")
    scene.job("new", gpus=8, labels=HIGH)
    scene.wait_state("new", "Running")
    scene.wait_state("evicted", "Queued")
    running = ("stays", "moves", "later", "new")
    pods = {name: {p["metadata"]["uid"] for p in scene.pods(name)} for name in running}

    _restore(database_server, scene.database, dump)
    wait_until(lambda: scene.database.rows(_TERM) != [before], timeout=30, describe="it leads again")
    [after] = scene.database.rows(_TERM)
    assert after["epoch"] == lost["epoch"], "the backup has forgotten a term, so its number comes again"
    assert after["term"] not in (before["term"], lost["term"])
    for name in running:
        scene.wait_state(name, "Running")
        assert {p["metadata"]["uid"] for p in scene.pods(name)} == pods[name], f"{name} runs on untouched"
    scene.wait_state("ends", "Succeeded")
    scene.wait_state("evicted", "Queued")
    scene.wait_reason("evicted", "WaitingForQuota")
    assert scene.pods("evicted") == []
    wait_until(
        lambda: scene.database.used() == LIMIT, timeout=15,
        describe=lambda: f"each is charged once: {scene.database.open_rows()}",
    )  # fmt: skip
    assert scene.database.rows(_DECIDED) == decided, (
        "nothing was started or suspended for what the backup lacks"
    )
    assert process.log_has("the database lost what became of it")
    for name in running:
        [held] = scene.database.rows(
            "SELECT a.id::text FROM admission a JOIN workload w USING (uid) WHERE w.name = %s AND a.ended_at IS NULL",
            name,
        )
        assert held["id"] in scene.read(name)["metadata"]["annotations"]["queuer.dev/admission"]
    scene.delete("stays")
    scene.wait_state("evicted", "Running")
