"""A gang that must sit together waits for a place that exists, and is never sent where it cannot be bound."""

from __future__ import annotations

from tests.e2e.controller import tree
from tests.e2e.scene import Scene, preferred, required


def _racks(scene: Scene) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for node, rack in sorted(scene.nodes().items()):
        found.setdefault(rack, []).append(node)
    return found


def test_enough_gpus_but_no_rack_waits_with_the_best_rack_named_and_lands_when_one_frees(
    scene: Scene,
) -> None:
    racks = _racks(scene)
    for nodes in racks.values():
        scene.fill(nodes[0], 8)  # 3 of 4 hosts are free in each rack: 96 GPUs, but never 4 hosts together
    scene.database.apply(tree(scene.namespace))
    scene.start()
    scene.job("gang", pods=4, gpus=8, annotations=required("rack"))
    reason = scene.wait_reason("gang", "TopologyPlacementFailed")
    assert any(rack in reason["text"] for rack in racks), reason["text"]
    assert "3" in reason["text"], "how many of the 4 hosts the best rack offers"
    assert scene.pods("gang") == []
    scene.unfill(f"filler-{racks['r03'][0]}")
    scene.wait_state("gang", "Running")
    assert scene.racks("gang") == {"r03"}


def test_preferred_rack_lands_across_racks_at_once(scene: Scene) -> None:
    for nodes in _racks(scene).values():
        scene.fill(nodes[0], 8)
    scene.database.apply(tree(scene.namespace))
    scene.start()
    scene.job("gang", pods=4, gpus=8, annotations=preferred("rack"))
    scene.wait_state("gang", "Running")
    assert len(scene.racks("gang")) == 2


def test_pods_beside_the_queues_are_counted_node_by_node(scene: Scene) -> None:
    """Half of every host of a rack is taken by others.

    16 GPUs are free there, but no pod of 8 can be bound.
    """
    racks = _racks(scene)
    for node in racks["r01"]:
        scene.fill(node, 4)
    scene.cordon([*racks["r03"], *racks["r04"]])
    scene.database.apply(tree(scene.namespace))
    scene.start()
    scene.job("gang", pods=4, gpus=8, annotations=required("rack"))
    scene.wait_state("gang", "Running")
    assert scene.racks("gang") == {"r02"}
    scene.job("next", pods=2, gpus=8, annotations=required("rack"))
    scene.wait_reason("next", "TopologyPlacementFailed")
    assert scene.pods("next") == []
    scene.job("small", pods=4, gpus=4, annotations=required("rack"))
    scene.wait_state("small", "Running")
    assert scene.racks("small") == {"r01"}
