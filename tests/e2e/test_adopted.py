"""A job that an administrator forces past the queue is charged as it runs, and reported. The queue goes on
with the rest.
"""

from __future__ import annotations

from queuer.store import migrate
from tests.e2e.controller import GPU, tree
from tests.e2e.scene import TEAM_A, Scene
from tests.e2e.support import kubectl, wait_until

LIMIT = {"team_a": {"quota": [{"resource": GPU, "limit": 16}]}}


def _force(scene: Scene, name: str) -> None:
    patch = '-p={"metadata":{"annotations":{"queuer.dev/break-glass":"incident"}},"spec":{"suspend":false}}'
    kubectl(scene.cluster, "admin", "patch", "job", name, "-n", scene.namespace, "--type=merge", patch)


def test_a_job_that_is_forced_to_start_is_charged_and_reported(scene: Scene) -> None:
    """A held one, too: what it costs is paid back."""
    scene.database.apply(tree(scene.namespace, **LIMIT))
    process = scene.start()
    scene.job("first", pods=2, gpus=8)
    scene.wait_state("first", "Running")
    scene.job("forced", pods=1, gpus=8)
    scene.job("held", pods=1, gpus=8, annotations={"queuer.dev/hold": "true"})
    waits = scene.wait_reason("forced", "WaitingForQuota")
    assert (waits["params"]["queue"], "16" in waits["text"]) == (TEAM_A, True), (
        "the limit is named with its amounts"
    )
    scene.wait_state("held", "Held")
    for name in ("forced", "held"):
        _force(scene, name)
        scene.wait_state(name, "Running")
    assert scene.database.used() == 32, "above the limit, and said so"
    wait_until(lambda: process.metric("queuer_adopted_total") == 2, describe="both are counted")
    cycles = scene.database.rows("SELECT trigger FROM cycle WHERE admitted > 0 ORDER BY id")
    assert cycles[-1]["trigger"] == "adopted"
    scene.job("next", pods=1, gpus=8)
    scene.wait_reason("next", "WaitingForQuota")
    assert scene.state("first") == "Running"
    scene.delete("first")
    scene.delete("held")
    scene.wait_state("next", "Running")
    assert scene.database.used() == 16


def test_work_that_runs_under_an_empty_database_is_charged_again_once_the_tree_is_back(scene: Scene) -> None:
    """A lost database costs the history, not the truth about what runs. Until then it is not said to never start."""
    scene.database.apply(tree(scene.namespace, **LIMIT))
    process = scene.start()
    scene.job("running", pods=2, gpus=8)
    scene.wait_state("running", "Running")
    process.stop()
    scene.database.execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
    migrate.upgrade(scene.database.url)
    process.start().wait_leading()
    told = scene.wait_reason("running", "Misconfigured")
    assert told["text"].startswith("it runs, and no queue counts what it uses: queue root.research.team-a")
    scene.database.apply(tree(scene.namespace, **LIMIT))
    scene.wait_state("running", "Running")
    assert scene.database.used() == 16
    scene.job("next", pods=1, gpus=8)
    scene.wait_reason("next", "WaitingForQuota")
    scene.delete("running")
    scene.wait_state("next", "Running")
    wait_until(lambda: scene.database.used() == 8, timeout=15, describe="what ran is paid back")
