"""A job that an administrator forces past the queue is charged as it runs, and reported. The queue goes on
with the rest.
"""

from __future__ import annotations

from queuer.store import migrate
from tests.e2e.controller import GPU, tree
from tests.e2e.scene import Scene
from tests.e2e.support import kubectl, wait_until

LIMIT = {"team_a": {"quota": [{"resource": GPU, "limit": 16}]}}


def _force(scene: Scene, name: str) -> None:
    patch = '-p={"metadata":{"annotations":{"queuer.dev/break-glass":"incident"}},"spec":{"suspend":false}}'
    kubectl(scene.cluster, "admin", "patch", "job", name, "-n", scene.namespace, "--type=merge", patch)


def test_a_job_that_is_forced_to_start_is_charged_and_reported(scene: Scene) -> None:
    scene.database.apply(tree(scene.namespace, **LIMIT))
    process = scene.start()
    scene.job("first", pods=2, gpus=8)
    scene.wait_state("first", "Running")
    scene.job("forced", pods=1, gpus=8)
    scene.wait_reason("forced", "WaitingForQuota")
    _force(scene, "forced")
    scene.wait_state("forced", "Running")
    assert scene.database.used() == 24, "above the limit, and said so"
    assert process.metric("queuer_adopted_total") == 1
    cycles = scene.database.rows("SELECT trigger FROM cycle WHERE admitted > 0 ORDER BY id")
    assert cycles[-1]["trigger"] == "adopted"
    scene.job("next", pods=1, gpus=8)
    scene.wait_reason("next", "WaitingForQuota")
    assert scene.state("first") == "Running"
    scene.delete("first")
    scene.wait_state("next", "Running")
    assert scene.database.used() == 16


def test_a_held_job_that_is_forced_to_start_is_charged_too(scene: Scene) -> None:
    """The hold said that it should not start; that it did costs what it costs, and is paid back."""
    scene.database.apply(tree(scene.namespace, **LIMIT))
    scene.start()
    scene.job("held", pods=2, gpus=8, annotations={"queuer.dev/hold": "true"}, run_for="5s")
    scene.wait_state("held", "Held")
    _force(scene, "held")
    scene.wait_state("held", "Running")
    assert scene.database.used() == 16
    scene.wait_state("held", "Succeeded")
    wait_until(lambda: scene.database.used() == 0, timeout=15, describe="what ran is paid back")


def test_work_that_runs_under_an_empty_database_is_charged_again(scene: Scene) -> None:
    """A lost database costs the history, not the truth about what runs."""
    scene.database.apply(tree(scene.namespace, **LIMIT))
    process = scene.start()
    scene.job("running", pods=2, gpus=8)
    scene.wait_state("running", "Running")
    process.stop()
    scene.database.execute("TRUNCATE workload, admission, ledger, outbox, bond, reservation CASCADE")
    process.start().wait_leading()
    scene.wait_state("running", "Running")
    assert scene.database.used() == 16
    scene.job("next", pods=1, gpus=8)
    scene.wait_reason("next", "WaitingForQuota")
    scene.delete("running")
    scene.wait_state("next", "Running")
    wait_until(lambda: scene.database.used() == 8, timeout=15, describe="what ran is paid back")


def test_work_that_runs_is_not_said_to_never_start_before_the_tree_is_back(scene: Scene) -> None:
    """The database was emptied and brought to the schema again, as `queuer db upgrade` does it."""
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
