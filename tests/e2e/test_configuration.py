"""Queues kept as objects of the cluster: what they say is in force, also what was deleted while nobody looked."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.controller import GPU
from tests.e2e.scene import Scene
from tests.e2e.support import get, kubectl, kubectl_list, wait_until


def _queue(path: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "queuer.dev/v1",
        "kind": "Queue",
        "metadata": {"name": path},
        "spec": {"path": path, **spec},
    }


@pytest.fixture
def crs(scene: Scene) -> Iterator[Scene]:
    """A scene without leftovers of Queue objects."""
    yield scene
    kubectl(
        scene.cluster, "admin", "delete", "queues.queuer.dev,topologies.queuer.dev", "--all", "--wait=true"
    )


def _apply(scene: Scene, *objects: dict[str, Any]) -> None:
    kubectl_list(scene.cluster, "admin", objects, "apply")


def test_queue_objects_are_applied_answered_and_taken_back(crs: Scene) -> None:
    crs_on = {"QUEUER_CONFIG_CRS": "true"}
    _apply(
        crs,
        _queue("root.lab", namespaces=[crs.namespace], quota=[{"resource": GPU, "limit": 16}]),
        _queue("root.lab.one"),
        _queue("root.lab.two"),
    )
    process = crs.start(**crs_on)
    crs.job("train", pods=2, gpus=8, queue="root.lab.one")
    crs.wait_state("train", "Running")

    def status(path: str) -> dict[str, Any]:
        found = get(crs.cluster, "queues.queuer.dev", path).get("status", {})
        return {c["type"]: c["status"] for c in found.get("conditions", [])} | {"used": found.get("used", {})}

    wait_until(
        lambda: status("root.lab") == {"Accepted": "True", "used": status("root.lab")["used"]}
        and status("root.lab")["used"].get(GPU) == "16",
        timeout=30, describe=lambda: f"the object shows what it holds: {status('root.lab')}",
    )  # fmt: skip

    process.stop()
    kubectl(crs.cluster, "admin", "delete", "queues.queuer.dev", "root.lab.two")
    process.start(**crs_on).wait_leading()
    crs.job("late", queue="root.lab.two")
    reason = crs.wait_reason("late", "Misconfigured")
    assert "root.lab.one" in reason["text"], (
        "the queue that was deleted meanwhile is gone, its sibling is offered"
    )
    assert crs.state("train") == "Running"


def test_sigterm_ends_the_process_in_time_with_configuration_objects_watched(crs: Scene) -> None:
    process = crs.start(QUEUER_CONFIG_CRS="true")
    began = time.monotonic()
    process.stop()
    assert time.monotonic() - began < 25, "Kubernetes kills after 30 s"
    assert process.log_has('"event": "stopped"')
