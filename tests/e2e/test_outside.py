"""What is outside the queues is told: pods that no queue pays for, and jobs of a namespace that opted out."""

from __future__ import annotations

import json
from typing import Any

from queuer.domain.keys import MANAGED
from queuer.solver.after_cycle import AfterCycle
from queuer.solver.job_detail import explain
from queuer.solver.stored import decode
from tests.e2e.controller import GPU, tree
from tests.e2e.scene import Scene
from tests.e2e.support import kubectl, wait_until


def holders(scene: Scene, name: str) -> list[dict[str, Any]]:
    """Who holds what a waiting job lacks, by the newest stored cycle; none while it knows nothing of the job."""
    uid = scene.database.workload(name, scene.namespace)["uid"]
    for row in scene.database.rows("SELECT body FROM stored_cycle"):
        cycle = decode(bytes(row["body"]))
        told = None if cycle.plan is None else explain(AfterCycle.of(cycle), uid)
        return [] if told is None else list(told.detail.get("holders", []))
    return []


def seen_outside(scene: Scene) -> list[dict[str, Any]]:
    """Owners of the namespace's pods that no queue pays for, by the newest record of a cycle."""
    rows = scene.database.rows("SELECT stats->'outside' AS outside FROM cycle ORDER BY id DESC LIMIT 1")
    return [each for row in rows for each in row["outside"] or [] if each["namespace"] == scene.namespace]


def test_a_job_past_the_queues_is_named_by_who_lacks_its_room(scene: Scene) -> None:
    scene.database.apply(tree(scene.namespace))
    nodes = scene.nodes()
    scene.job("stranger", queue=None, pods=len(nodes), gpus=8)
    wait_until(
        lambda: sum(bool(p["spec"].get("nodeName")) for p in scene.pods("stranger")) == len(nodes),
        timeout=30, describe="it fills all nodes, as nobody holds it",
    )  # fmt: skip
    scene.start()
    wait_until(
        lambda: [each["name"] for each in seen_outside(scene)] == ["stranger"], timeout=90,
        describe=lambda: f"it is seen while nobody waits: {seen_outside(scene)}",
    )  # fmt: skip
    scene.job("mine", pods=len(nodes), gpus=8, run_for="1s")
    scene.wait_reason("mine", "TopologyPlacementFailed")
    [holder] = wait_until(lambda: holders(scene, "mine"), describe="the cycle is stored")
    told = {key: holder[key] for key in ("kind", "namespace", "name", "resource")}
    assert told == {"kind": "Job", "namespace": scene.namespace, "name": "stranger", "resource": GPU}
    assert (holder["amount"], holder["pods"]) == (str(8 * len(nodes)), len(nodes))
    assert scene.database.workload("stranger", scene.namespace) == {}
    assert "queuer.dev" not in json.dumps(scene.read("stranger")), (
        "no label of ours, and nothing is written on it"
    )
    scene.delete("stranger")
    scene.wait_state("mine", "Succeeded")
    assert seen_outside(scene) == [], "it is gone from the record, too"


def test_jobs_of_a_namespace_that_opts_out_and_in_again_keep_their_place(scene: Scene) -> None:
    scene.database.apply(tree(scene.namespace))
    process = scene.start()
    scene.job("held", annotations={"queuer.dev/hold": "true"})
    scene.job("later", pods=2, gpus=8, run_for="1s", annotations={"queuer.dev/topology-required": "rak"})
    scene.wait_reason("later", "Misconfigured")
    submitted = scene.database.workload("later", scene.namespace)["submitted"]

    def opt(word: str) -> None:
        kubectl(scene.cluster, "admin", "label", "namespace", scene.namespace, "--overwrite", word)

    scene.exits.callback(opt, f"{MANAGED}=true")
    opt(f"{MANAGED}-")
    for name, state in (("held", "Held"), ("later", "Queued")):
        text = scene.wait_reason(name, "Suspended")["text"]
        assert f"namespace {scene.namespace} lost {MANAGED}; the job stays suspended" in text
        row = scene.database.workload(name, scene.namespace)
        assert (row["state"], row["deleted_at"]) == (state, None)
    scene.job("stray", gpus=8)
    counted = "SELECT stats->'unmanaged' AS jobs FROM cycle ORDER BY id DESC LIMIT 1"
    wait_until(
        lambda: scene.database.rows(counted)[0]["jobs"] == 2, timeout=15,
        describe=lambda: f"those that wait are counted: {json.dumps(scene.database.rows(counted))}",
    )  # fmt: skip
    process.stop()
    process = scene.start()
    assert scene.wait_reason("later", "Suspended")["text"]

    opt(f"{MANAGED}=true")
    scene.wait_reason("later", "Misconfigured")
    kubectl(
        scene.cluster, "alice", "annotate", "job", "later", "-n", scene.namespace, "queuer.dev/topology-required-"
    )  # fmt: skip
    scene.wait_state("later", "Succeeded")
    assert scene.database.workload("later", scene.namespace)["submitted"] == submitted
    scene.wait_state("held", "Held")
    assert process.running
