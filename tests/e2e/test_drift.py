"""A ledger that somebody changed is put right while the controller runs, and everybody can see it."""

from __future__ import annotations

from typing import Any

from tests.chaos.drift import put_right
from tests.e2e.controller import tree
from tests.e2e.scene import TEAM_A, Scene
from tests.soak.quiet import REPAIRED

AUDIT = 24
"""Seconds between two looks. A drift is shown for a quarter of that."""


def test_a_changed_ledger_is_put_right(scene: Scene, record_property: Any) -> None:
    """Amounts edited, a row removed, a row added for nobody. By default an audit is each 60 s."""
    scene.database.apply(tree(scene.namespace))
    process = scene.start(QUEUER_AUDIT=str(AUDIT))
    jobs = [scene.job(name, pods=2) for name in ("edited", "removed")]
    for job in jobs:
        scene.wait_state(job["metadata"]["name"], "Running")
    edited, removed = (job["metadata"]["uid"] for job in jobs)
    told = put_right(process, scene.database, edited=edited, removed=removed, queue=TEAM_A)
    record_property("figures", str(told))
    assert told.repaired <= 2 * AUDIT
    assert scene.database.rows(REPAIRED, 0) == [{"n": 3}], "a soak would count them"
