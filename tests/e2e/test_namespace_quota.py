"""A namespace's ResourceQuota is asked before a gang is started: half a gang must not come to be."""

from __future__ import annotations

from tests.e2e.controller import tree
from tests.e2e.scene import Scene
from tests.e2e.support import create, kubectl, wait_until


def test_a_gang_that_its_namespace_does_not_allow_waits_whole(scene: Scene) -> None:
    quota = {
        "apiVersion": "v1", "kind": "ResourceQuota",
        "metadata": {"name": "fair-use", "namespace": scene.namespace},
        "spec": {"hard": {"requests.nvidia.com/gpu": "24"}},
    }  # fmt: skip
    create(scene.cluster, quota, identity="admin")
    scene.database.apply(tree(scene.namespace))
    scene.start()
    scene.job("huge", pods=4, gpus=8)
    reason = scene.wait_reason("huge", "ExceedsMaxQuota")
    assert "fair-use" in reason["text"]
    assert "24" in reason["text"]
    for name in ("one", "two"):  # at once: what is admitted and not created yet counts already
        scene.job(name, pods=2, gpus=8)
    wait_until(
        lambda: "Running" in (scene.state("one"), scene.state("two")), timeout=30,
        describe=lambda: f"one of them runs: {scene.story('one')} {scene.story('two')}",
    )  # fmt: skip
    running, waiting = ("one", "two") if scene.state("one") == "Running" else ("two", "one")
    assert scene.wait_reason(waiting, "WaitingForQuota")["params"]["resourceQuota"] == "fair-use"
    assert scene.pods(waiting) == []
    kubectl(
        scene.cluster, "admin", "patch", "resourcequota", "fair-use", "-n", scene.namespace, "--type=merge",
        '-p={"spec":{"hard":{"requests.nvidia.com/gpu":"32"}}}',
    )  # fmt: skip
    scene.wait_state(waiting, "Running")
    assert scene.state(running) == "Running"
