"""Whole or not at all: two gangs that do not fit together never each hold a part of what is free."""

from __future__ import annotations

from tests.e2e.controller import tree
from tests.e2e.scene import Scene
from tests.e2e.support import wait_until


def test_ten_free_gpus_an_eight_pod_gang_and_a_five_gpu_job(scene: Scene) -> None:
    """The seed of the project: pods of both would otherwise share the ten GPUs and neither would ever run."""
    nodes = sorted(scene.nodes())
    scene.cordon(nodes[2:])
    scene.fill(nodes[1], 6)
    scene.database.apply(tree(scene.namespace))
    scene.job("gang", pods=8, gpus=1)
    scene.job("five", pods=5, gpus=1)
    scene.start()
    wait_until(
        lambda: "Running" in (scene.state("gang"), scene.state("five")), timeout=30,
        describe=lambda: f"one of them runs: {scene.story('gang')} {scene.story('five')}",
    )  # fmt: skip
    runs, waits = ("gang", "five") if scene.state("gang") == "Running" else ("five", "gang")
    assert len(scene.pods(runs)) == {"gang": 8, "five": 5}[runs]
    assert scene.pods(waits) == []
    wait_until(lambda: scene.reason(waits), timeout=15, describe="the other one says why it waits")
    scene.delete(runs)
    scene.wait_state(waits, "Running")
    assert len(scene.pods(waits)) == {"gang": 8, "five": 5}[waits]
