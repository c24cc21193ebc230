"""A controller that sleeps through the end of its leadership does no harm when it wakes. Memory is right even
after a watch missed events.
"""

from __future__ import annotations

import json

from queuer.local.controlplane import API_SERVER
from tests.e2e.controller import GPU, tree
from tests.e2e.scene import Scene
from tests.e2e.support import crash, kubectl, wait_until

LIMIT = {"team_a": {"quota": [{"resource": GPU, "limit": 16}]}}


def test_a_frozen_leader_wakes_after_its_admission_was_withdrawn(scene: Scene) -> None:
    scene.database.apply(tree(scene.namespace, **LIMIT))
    scene.job("stale", pods=2, gpus=8)
    frozen = scene.another().start_without_waiting(QUEUER_FAILPOINTS="committed=stop")
    frozen.wait_frozen()
    [admission] = scene.database.rows("SELECT id, assignments FROM admission")
    planned = [node for a in admission["assignments"] for node in a["nodes"]]
    scene.cordon(planned)  # what was decided does not hold any more, so the successor takes it back

    successor = scene.start()
    wait_until(
        lambda: scene.database.workload("stale", scene.namespace)["attempt"] == 2, timeout=40,
        describe=lambda: f"the admission is withdrawn: {scene.story('stale')}",
    )  # fmt: skip
    scene.wait_state("stale", "Running")
    before = scene.writes("jobs").get("200", 0)
    frozen.thaw()
    wait_until(lambda: not frozen.leads(), timeout=20, describe=lambda: f"it steps down: {frozen.log_tail()}")
    assert scene.writes("jobs").get("200", 0) == before, "whatever it sent on waking was refused"
    assert {p["spec"]["nodeName"] for p in scene.pods("stale")}.isdisjoint(planned)
    assert scene.database.used() == 16
    assert successor.leads()
    # Whether it came to send its PATCH before it noticed is chance, so the very same PATCH is sent here once more.
    [entry] = scene.database.rows(
        "SELECT patch FROM outbox WHERE admission_id = %s AND kind = 'admit'", admission["id"]
    )
    answer = kubectl(
        scene.cluster, "queuer-controller", "patch", "job", "stale", "-n", scene.namespace, "--type=merge",
        f"-p={json.dumps(entry['patch'])}", check=False,
    )  # fmt: skip
    assert "Conflict" in answer
    assert "the object has been modified" in answer


def test_a_frozen_leader_wakes_after_its_successor_has_finished_its_work(scene: Scene) -> None:
    scene.database.apply(tree(scene.namespace, **LIMIT))
    scene.job("one", pods=2, gpus=8)
    frozen = scene.another().start_without_waiting(QUEUER_FAILPOINTS="committed=stop")
    frozen.wait_frozen()
    successor = scene.start()
    scene.wait_state("one", "Running", timeout=40)
    frozen.thaw()
    wait_until(lambda: not frozen.leads(), timeout=20, describe="it finds that it does not lead")
    assert scene.database.workload("one", scene.namespace)["attempt"] == 1
    assert len(scene.pods("one")) == 2
    assert scene.database.used() == 16
    assert successor.leads()


def test_jobs_deleted_while_the_watch_was_away_and_its_history_compacted(scene: Scene) -> None:
    """The controller sleeps; jobs are deleted; etcd forgets the events.

    Then it must find out by listing again.
    """
    scene.database.apply(tree(scene.namespace))
    process = scene.start()
    for name in ("kept", "deleted", "waiting"):
        scene.job(
            name, pods=1, gpus=8, annotations={"queuer.dev/hold": "true"} if name == "waiting" else None
        )
    for name in ("kept", "deleted"):
        scene.wait_state(name, "Running")
    scene.wait_state("waiting", "Held")
    process.freeze()
    scene.delete("deleted")
    scene.delete("waiting")
    crash(scene.cluster, API_SERVER)  # cuts every watch, and forgets what its cache could replay
    scene.cluster.start([API_SERVER])
    _compact(scene)
    process.thaw()
    wait_until(
        lambda: all(scene.database.workload(n, scene.namespace)["deleted_at"] for n in ("deleted", "waiting")),
        timeout=60, describe=lambda: f"{scene.story('deleted')} {process.log_tail()}",
    )  # fmt: skip
    wait_until(lambda: scene.database.used() == 8, timeout=30, describe="what the deleted job held is free")
    assert scene.state("kept") == "Running"
    scene.job("after", pods=1, gpus=8)
    scene.wait_state("after", "Running", timeout=40)


def _compact(scene: Scene) -> None:
    """Drop etcd's history up to now."""

    import httpx2

    url = f"http://127.0.0.1:{scene.cluster.state.ports['etcd']}"
    with httpx2.Client(base_url=url, trust_env=False, timeout=60) as client:
        status = client.post("/v3/maintenance/status", json={}).raise_for_status().json()
        revision = status["header"]["revision"]
        client.post("/v3/kv/compaction", json={"revision": revision, "physical": True}).raise_for_status()
