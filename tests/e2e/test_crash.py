"""Work that goes on while controller or database are away, and its handling when they are back.

That the controller may die anywhere is the subject of `test_chaos`.
"""

from __future__ import annotations

from tests.e2e.controller import GPU, tree
from tests.e2e.scene import Scene
from tests.e2e.support import wait_until

LIMIT = {"team_a": {"quota": [{"resource": GPU, "limit": 16}]}}


def test_jobs_that_finished_while_nobody_watched_are_paid_back(scene: Scene) -> None:
    scene.database.apply(tree(scene.namespace, **LIMIT))
    process = scene.start()
    scene.job("one", pods=2, gpus=8)
    scene.wait_state("one", "Running")
    process.kill()
    scene.end_all("one")
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
