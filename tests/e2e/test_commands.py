"""Commands over REST act on real jobs, survive a restart of the controller, and beat what the job says meanwhile."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx2
import pytest

from queuer.store import commands
from queuer.store.commands import NewCommand
from queuer.store.engine import begin, make_engine
from queuer.store.tables import CommandVerb
from tests.api.identity import open_to_all
from tests.e2e.controller import GPU, tree
from tests.e2e.scene import TEAM_A, Scene
from tests.e2e.support import Refused, kubectl, wait_until

HOLD = "queuer.dev/hold"


def test_a_hold_over_rest_survives_a_restart_and_the_jobs_own_words(scene: Scene) -> None:
    scene.database.apply(tree(scene.namespace))
    process = scene.start()
    scene.job("mine", pods=2, gpus=8, annotations={HOLD: "true"})
    scene.wait_state("mine", "Held")
    assert command(scene, "mine", ":hold")["message"] == "held"
    _annotate(scene, "mine", f"{HOLD}-")
    _wait_told(scene, "mine", "held by unauthenticated: node maintenance")
    assert scene.state("mine") == "Held"

    process.kill()
    process.start().wait_leading()
    scene.job("other", pods=1, gpus=8)
    scene.wait_state("other", "Running")
    assert scene.state("mine") == "Held", "it would fit"

    assert command(scene, "mine", ":release")["message"] == "released"
    scene.wait_state("mine", "Running")
    assert scene.database.workload("mine", scene.namespace)["override"] is None


def test_an_evicted_gang_is_back_in_its_queue_whole_and_held_where_that_was_asked(scene: Scene) -> None:
    quota = {"team_a": {"quota": [{"resource": GPU, "guaranteed": 16}]}}
    scene.database.apply(tree(scene.namespace, **quota))
    scene.start()
    scene.job("mine", pods=2, gpus=8, annotations={"queuer.dev/preemptible": "false"})
    scene.wait_state("mine", "Running")
    assert command(scene, "mine", ":evict", hold=True)["message"].endswith("; held until it is released")
    scene.wait_state("mine", "Held")
    assert scene.pods("mine") == []
    assert scene.database.used() == 0
    ended = scene.database.rows("SELECT end_cause FROM admission WHERE ended_at IS NOT NULL")
    assert [row["end_cause"] for row in ended] == ["command"]
    assert scene.wait_event("mine", "Evicted").startswith("evicted by unauthenticated: node maintenance")
    _annotate(scene, "mine", f"{HOLD}=false")
    command(scene, "mine", ":release")
    scene.wait_state("mine", "Running")
    assert scene.database.workload("mine", scene.namespace)["attempt"] == 2


def test_an_eviction_that_is_ordered_for_later_stands_on_the_running_job_until_then(scene: Scene) -> None:
    """As an Event and as the annotation `status`, which is gone with the eviction."""

    def attempt() -> int:
        return int(scene.database.workload("mine", scene.namespace)["attempt"])

    def status() -> str:
        return str(scene.read("mine")["metadata"]["annotations"].get("queuer.dev/status", ""))

    scene.database.apply(tree(scene.namespace))
    scene.start()
    scene.job("mine", pods=2, gpus=8)
    scene.wait_state("mine", "Running")
    uid = scene.database.workload("mine", scene.namespace)["uid"]
    order = NewCommand(verb=CommandVerb.EVICT, uid=uid, administers=TEAM_A, delay=10.0)
    asyncio.run(_order(scene.database.url, order))
    ordered = wait_until(status, describe=lambda: scene.story("mine"))
    assert ordered.startswith("EvictionOrdered: to be evicted at ")
    assert "by order of admin" in (told := scene.wait_event("mine", "EvictionOrdered"))
    assert "Save its work before " in told
    wait_until(lambda: attempt() == 2, timeout=40, describe=lambda: scene.story("mine"))
    scene.wait_state("mine", "Running", timeout=180)  # it rests for a minute first
    assert status() == ""


def test_a_job_that_runs_is_changed_on_the_way_that_its_refusal_names(scene: Scene) -> None:
    """Held, suspended, edited, released: it does not start at its old size meanwhile."""
    scene.database.apply(tree(scene.namespace))
    scene.start()
    scene.job("mine", pods=2, gpus=1, spec={"completions": 4})
    scene.wait_state("mine", "Running")
    larger = {"spec": {"parallelism": 4}}
    with pytest.raises(Refused, match=f"`queuer hold job/mine -n {scene.namespace}`, set suspend to true"):
        _patch(scene, "mine", larger)
    command(scene, "mine", ":hold")
    _patch(scene, "mine", {"spec": {"suspend": True}})
    scene.wait_state("mine", "Held")
    scene.wait_empty()
    _patch(scene, "mine", larger)
    command(scene, "mine", ":release")
    scene.wait_state("mine", "Running")
    assert scene.database.used() == 4


def _patch(scene: Scene, name: str, change: dict[str, Any]) -> None:
    where = ("-n", scene.namespace, "--type=merge", f"-p={json.dumps(change)}")
    kubectl(scene.cluster, "alice", "patch", "job", name, *where)


def _annotate(scene: Scene, name: str, note: str) -> None:
    kubectl(scene.cluster, "alice", "annotate", "job", name, "-n", scene.namespace, note, "--overwrite")


def _wait_told(scene: Scene, name: str, text: str) -> None:
    wait_until(
        lambda: str(scene.reason(name).get("text", "")).startswith(text), timeout=15,
        describe=lambda: scene.story(name),
    )  # fmt: skip


def command(scene: Scene, name: str, verb: str, **body: Any) -> dict[str, Any]:
    """The controller's answer."""
    uid = scene.database.workload(name, scene.namespace)["uid"]
    return asyncio.run(_post(scene.database.url, f"/api/v1/workloads/{uid}{verb}", body))


async def _post(url: str, path: str, body: dict[str, Any]) -> dict[str, Any]:
    engine = make_engine(url, name="test")
    try:
        transport = httpx2.ASGITransport(app=open_to_all(engine, url))
        async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1:8787") as client:
            sent = {"reason": "node maintenance", **body}
            found = await client.post(path, json=sent, params={"wait": "10s"})
            assert found.status_code == 200, found.text
            return dict(found.json())
    finally:
        await engine.dispose()


async def _order(url: str, order: NewCommand) -> None:
    engine = make_engine(url, name="test")
    try:
        async with begin(engine) as connection:
            await commands.add(connection, [order], actor="admin", source="test", reason="node maintenance")
    finally:
        await engine.dispose()
