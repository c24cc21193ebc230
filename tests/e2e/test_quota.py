"""Limits at three heights of the tree give three different answers, each with the queue and the amounts."""

from __future__ import annotations

import pytest

from tests.e2e.controller import GPU, tree
from tests.e2e.scene import TEAM_A, Scene


@pytest.mark.parametrize(
    ("bodies", "stopped_by"),
    [
        ({"team_a": {"quota": [{"resource": GPU, "limit": 16}]}}, TEAM_A),
        ({"research": {"quota": [{"resource": GPU, "limit": 16}]}}, "root.research"),
        ({"root": {"quota": [{"resource": GPU, "limit": 16}]}}, "root"),
    ],
    ids=["own limit", "parent's limit", "root's limit"],
)
def test_a_limit_on_the_path_stops_a_job_and_is_named_with_its_amounts(
    scene: Scene, bodies: dict[str, object], stopped_by: str
) -> None:
    scene.database.apply(tree(scene.namespace, **bodies))
    scene.start()
    scene.job("first", pods=1, gpus=8)
    scene.wait_state("first", "Running")
    scene.job("second", pods=2, gpus=8)
    scene.wait_state("second", "Queued")
    reason = scene.wait_reason("second", "WaitingForQuota")
    assert reason["params"]["queue"] == stopped_by
    assert f"{stopped_by} " in f"{reason['text']} "
    assert all(number in reason["text"] for number in ("16", "8")), reason["text"]
    assert scene.pods("second") == []
    scene.delete("first")
    scene.wait_state("second", "Running")
