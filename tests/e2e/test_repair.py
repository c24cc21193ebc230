"""A node dies under a running gang: what is lost is replaced inside the pin, or the gang goes elsewhere whole."""

from __future__ import annotations

import json

import pytest

from tests.e2e.controller import tree
from tests.e2e.scene import Scene
from tests.e2e.support import get, kubectl, wait_until


def _lose(scene: Scene, node: str) -> None:
    """The node is gone with its pods, until the end of the test; the pods go as pod garbage collection does it."""
    scene.remove_node(node)
    for pod in get(scene.cluster, "pods", "-A")["items"]:
        if pod["spec"].get("nodeName") == node:
            where = ("-n", pod["metadata"]["namespace"])
            kubectl(
                scene.cluster, "admin", "delete", "pod", pod["metadata"]["name"], *where,
                "--force", "--grace-period=0", "--ignore-not-found",
            )  # fmt: skip


def _bound(scene: Scene) -> dict[str, str]:
    """Nodes by uid of the gang's pods that are on one and live, a master's aside."""
    return {
        p["metadata"]["uid"]: p["spec"]["nodeName"]
        for p in scene.pods("gang")
        if p["spec"].get("nodeName")
        and p["status"]["phase"] in ("Pending", "Running")
        and p["metadata"]["labels"].get("training.kubeflow.org/replica-type") != "master"
    }


def _gang(scene: Scene, kind: str, *, gpus: int) -> None:
    """Two pods of one set, a master's aside, of a job whose own controller replaces what it loses."""
    if kind == "Job":
        scene.job("gang", pods=2, gpus=gpus, spec={"backoffLimit": 6})
    else:
        scene.pytorchjob("gang", workers=2, gpus=gpus, restart="OnFailure")


@pytest.mark.parametrize("kind", ["Job", "PyTorchJob"])
def test_a_lost_pod_is_replaced_inside_the_pin_while_the_healthy_stay(scene: Scene, kind: str) -> None:
    """The room there is kept for it: a job that fits where the replacement must go does not start."""
    pods = 2 if kind == "Job" else 3
    nodes = sorted(scene.nodes())
    scene.cordon(nodes[pods:])
    scene.database.apply(tree(scene.namespace))
    scene.start(QUEUER_LANDING_DEADLINE="30")
    for node in nodes[:pods]:
        scene.fill(node, 6)
    _gang(scene, kind, gpus=2)
    scene.wait_state("gang", "Running")
    before = _bound(scene)
    (_, lost), (healthy, left) = before.items()
    assert lost != left

    scene.unfill(f"filler-{left}")
    _lose(scene, lost)
    scene.job("rival", gpus=6)
    wait_until(
        lambda: len(_bound(scene)) == 2, timeout=60,
        describe=lambda: f"the gang is whole again: {scene.story('gang')}",
    )  # fmt: skip
    after = _bound(scene)
    assert set(after.values()) == {left}
    assert healthy in after
    assert scene.database.workload("gang", scene.namespace)["attempt"] == 1
    assert scene.state("gang") == "Running"
    wait_until(
        lambda: scene.reason("rival") or scene.state("rival") == "Running", timeout=30,
        describe="the rival was read, perhaps after the gang was whole again",
    )  # fmt: skip
    assert scene.state("rival") == "Queued", json.dumps(scene.reason("rival"))


def test_a_gang_without_room_for_what_it_lost_goes_elsewhere_whole_and_first(scene: Scene) -> None:
    """The hosts that are left to it are full."""
    nodes = sorted(scene.nodes())
    spare = nodes[3]
    scene.cordon(nodes[3:])
    scene.database.apply(tree(scene.namespace))
    scene.start(QUEUER_LANDING_DEADLINE="10")
    _gang(scene, "PyTorchJob", gpus=8)
    scene.wait_state("gang", "Running")
    before = _bound(scene)
    lost = min(before.values())

    _lose(scene, lost)
    wait_until(
        lambda: scene.database.workload("gang", scene.namespace)["attempt"] == 2, timeout=60,
        describe=lambda: f"the gang is evicted: {scene.story('gang')}",
    )  # fmt: skip
    assert scene.database.workload("gang", scene.namespace)["first"]
    ended = scene.database.rows("SELECT end_cause FROM admission WHERE ended_at IS NOT NULL")
    assert [row["end_cause"] for row in ended] == ["lost-pods"]
    scene.uncordon([spare])
    scene.wait_state("gang", "Running")
    assert {p["spec"]["nodeName"] for p in scene.pods("gang")} == {*nodes[:4]} - {lost}
    assert not before.keys() & _bound(scene).keys(), "no pod of the first landing is left"
