"""The controller's forecasts and records: start ranges, stored cycles, decayed use."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from queuer.solver.stored import again, decode, difference
from tests.e2e.controller import GPU, tree
from tests.e2e.scene import TEAM_A, Scene
from tests.e2e.support import wait_until


def estimate(scene: Scene, name: str) -> dict[str, Any] | None:
    explanation = scene.database.workload(name, scene.namespace).get("explanation") or {}
    found: dict[str, Any] | None = explanation.get("detail", {}).get("estimate")
    return found


def heartbeat(scene: Scene) -> dict[str, Any]:
    (row,) = scene.database.rows("SELECT * FROM heartbeat")
    return row


def test_the_nodes_are_kept_before_there_is_a_tree_or_a_job(scene: Scene) -> None:
    """What a first tree is warned about comes from them."""
    scene.start()

    def kept() -> list[dict[str, Any]]:
        return scene.database.rows("SELECT body FROM stored_cycle")

    (row,) = wait_until(kept, timeout=30, describe="a decision is kept")
    assert len(decode(row["body"]).snapshot.nodes) == len(scene.nodes())


def test_a_start_is_foretold_and_decisions_can_be_made_again(scene: Scene, tmp_path: Path) -> None:
    kept = tmp_path / "cycles"
    root = {"policy": {"halfLife": "1h"}}
    scene.database.apply(tree(scene.namespace, root=root, team_a={"quota": [{"resource": GPU, "limit": 16}]}))
    controller = scene.start(QUEUER_FORECAST="1", QUEUER_CYCLES_DIR=str(kept))
    scene.job("first", pods=2, gpus=8, annotations={"queuer.dev/max-runtime": "1h"})
    scene.wait_state("first", "Running")
    scene.job("second", pods=1, gpus=8)
    scene.wait_reason("second", "WaitingForQuota")
    wait_until(lambda: estimate(scene, "second"), timeout=100, describe=lambda: scene.story("second"))
    told = estimate(scene, "second")
    assert told is not None
    submitted = scene.database.workload("first", scene.namespace)["submitted"].timestamp()
    assert submitted - 60 <= told["from"] <= told["likely"] <= told["to"] <= submitted + 3_700
    scene.delete("first")
    scene.wait_state("second", "Running")
    assert controller.metric("queuer_estimates_total") == 1
    files = sorted(kept.glob("*.cycle"))
    assert files
    for file in files:
        cycle = decode(file.read_bytes(), name=file.name)
        assert cycle.plan is not None
        assert difference(cycle.plan, again(cycle)) == ""
    last = decode(files[-1].read_bytes())
    assert last.snapshot.tree.policy(TEAM_A).half_life == 3600.0
    wait_until(lambda: heartbeat(scene)["waiting"] == 0, describe="nobody waits after the last cycle")
    beat = heartbeat(scene)
    assert (beat["holder"], beat["phase"]) == (controller.name, "leading")
    wait_until(lambda: heartbeat(scene)["at"] > beat["at"], describe="the next beat")
    assert scene.database.rows("SELECT 1 FROM usage_rollup WHERE queue = 'root' AND seconds = 60")
