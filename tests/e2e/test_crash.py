"""Whatever dies, nothing is lost, doubled or over-admitted, and running work is left alone."""

from __future__ import annotations

import pytest

from tests.e2e.controller import GPU, Controller, tree
from tests.e2e.scene import Scene
from tests.e2e.support import wait_until

LIMIT = {"team_a": {"quota": [{"resource": GPU, "limit": 16}]}}


def _dies(scene: Scene, point: str) -> Controller:
    """A controller that kills itself at a point; the caller makes it get there."""
    return scene.another().start_without_waiting(QUEUER_FAILPOINTS=f"{point}=kill")


def _consistent(scene: Scene, names: list[str]) -> None:
    """Nobody is charged who neither is admitted nor has just finished, and no more than the limit is."""
    assert scene.database.used() <= 16
    charged_for_nothing = scene.database.rows(
        "SELECT l.uid, w.state FROM ledger l LEFT JOIN workload w USING (uid) WHERE l.closed IS NULL"
        " AND coalesce(w.state, '') NOT IN ('Succeeded', 'Failed')"
        " AND NOT EXISTS (SELECT FROM admission a WHERE a.uid = l.uid AND a.ended_at IS NULL)"
    )
    assert charged_for_nothing == []
    for name in names:
        pods = [p for p in scene.pods(name) if p["status"]["phase"] in ("Pending", "Running")]
        assert len(pods) in (0, 2), f"{name} is whole or not there: {scene.story(name)}"


@pytest.mark.parametrize("point", ["taken-in", "decided", "committed", "admitted"])
def test_killed_on_the_way_to_an_admission(scene: Scene, point: str) -> None:
    scene.database.apply(tree(scene.namespace, **LIMIT))
    names = ["one", "two"]
    for name in names:
        scene.job(name, pods=2, gpus=8, run_for="2s")
    process = _dies(scene, point)
    process.wait_gone(timeout=30)
    _consistent(scene, names)
    successor = scene.start()
    for name in names:
        scene.wait_state(name, "Running", "Succeeded")
        _consistent(scene, names)
    for name in names:
        scene.wait_state(name, "Succeeded")
        assert scene.database.workload(name, scene.namespace)["attempt"] == 1
    scene.wait_empty()
    undone = scene.database.rows("SELECT * FROM outbox WHERE done_at IS NULL")
    assert undone == []
    assert successor.running


@pytest.mark.parametrize("point", ["before-release", "released"])
def test_killed_on_the_way_to_a_release(scene: Scene, point: str) -> None:
    scene.database.apply(tree(scene.namespace, **LIMIT))
    scene.job("one", pods=2, gpus=8, run_for="1s")
    process = _dies(scene, point)
    process.wait_gone(timeout=40)
    scene.start()
    scene.wait_state("one", "Succeeded")
    scene.wait_empty()


@pytest.mark.parametrize("point", ["committed", "suspended"])
def test_killed_while_it_evicts(scene: Scene, point: str) -> None:
    """Between commit and PATCH the job still runs and is charged; after the PATCH the database does not know."""
    scene.database.apply(tree(scene.namespace, **LIMIT))
    process = scene.start()
    scene.job("low", pods=2, gpus=8)
    scene.wait_state("low", "Running")
    process.stop()
    process.start_without_waiting(QUEUER_FAILPOINTS=f"{point}=kill")
    scene.job("high", pods=2, gpus=8, labels={"queuer.dev/priority-class": "queuer-high"})
    process.wait_gone(timeout=30)
    assert scene.read("low")["spec"]["suspend"] is (point == "suspended")
    assert scene.state("low") == "Evicting"
    scene.start()
    scene.wait_state("high", "Running")
    assert scene.state("low") == "Queued"
    _consistent(scene, ["low", "high"])


def test_jobs_that_finished_while_nobody_watched_are_paid_back(scene: Scene) -> None:
    scene.database.apply(tree(scene.namespace, **LIMIT))
    process = scene.start()
    scene.job("one", pods=2, gpus=8, run_for="3s")
    scene.wait_state("one", "Running")
    process.kill()
    wait_until(
        lambda: scene.read("one")["status"].get("succeeded") == 2,
        timeout=30,
        describe="it finishes on its own",
    )
    assert scene.database.used() == 16
    process.start().wait_leading()
    scene.wait_state("one", "Succeeded")
    scene.wait_empty()


def test_without_controller_and_database_only_queued_work_waits(scene: Scene) -> None:
    """The database is taken away by shutting its sessions out; unlabelled work must not notice anything."""
    scene.database.apply(tree(scene.namespace))
    process = scene.start()
    scene.job("running", pods=1, gpus=8)
    scene.wait_state("running", "Running")
    with scene.database.shut():
        scene.job("queued", pods=1, gpus=8)
        scene.job("plain", queue=None, run_for="1s")
        wait_until(
            lambda: scene.read("plain")["status"].get("succeeded") == 1,
            timeout=30,
            describe="unlabelled work runs",
        )
        process.stop()
        assert scene.pods("queued") == []
        assert [p["status"]["phase"] for p in scene.pods("running")] == ["Running"]
    process.start().wait_leading()
    scene.wait_state("queued", "Running")
    assert scene.state("running") == "Running"


def test_the_database_comes_back_under_a_controller_that_stayed(scene: Scene) -> None:
    scene.database.apply(tree(scene.namespace))
    process = scene.start()
    with scene.database.shut():
        scene.job("queued", pods=1, gpus=8)
        wait_until(
            lambda: not process.leads(), timeout=20, describe="it notices that it does not lead any more"
        )
        assert scene.pods("queued") == []
    scene.wait_state("queued", "Running", timeout=40)
    assert process.running
