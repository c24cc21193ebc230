"""A first tree from the nodes: flavors and levels by labels, an equal part of the devices for each namespace."""

from __future__ import annotations

import json

import pytest

from queuer.domain.document import export, parse
from queuer.domain.errors import InvalidInput
from queuer.domain.nodes import Toleration
from queuer.imports import nodes
from queuer.imports.records import Fate, Imported
from tests.unit.imports.given import manifests, routes, rows, told

H100 = {"nvidia.com/gpu.product": "NVIDIA-H100-80GB"}
ZONE, BLOCK, RACK = (f"topology.kubernetes.io/{level}" for level in ("zone", "block", "rack"))


def node(name: str, labels: dict[str, str], devices: dict[str, int] | None = None, *, taint: str = "") -> str:
    taints = (
        [{"key": taint, "effect": "NoSchedule"}, {"key": "node.kubernetes.io/not-ready"}] if taint else []
    )
    amounts = {"cpu": "64", "memory": "256Gi", **(devices or {})}
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": labels},
            "spec": {"taints": taints},
            "status": {"allocatable": amounts},
        }
    )


def read(*objects: str, **options: object) -> Imported:
    return nodes.read(manifests("\n---\n".join(objects)), **options)  # type: ignore[arg-type]


def placed(number: int, rack: str) -> dict[str, str]:
    return {**H100, ZONE: "z", BLOCK: f"b{number // 2}", RACK: rack}


DEVICES = {"nvidia.com/gpu": 8, "vpc.example/eni": 9}
FLEET = [
    *(node(f"n{n}", placed(n, f"r{n}"), DEVICES, taint="nvidia.com/gpu") for n in range(4)),
    node("a0", {"amd.com/gpu.product-name": "MI300X"}, {"amd.com/gpu": 8}),
    node("plain", {}),
    "{apiVersion: v1, kind: Namespace, metadata: {name: team-a, labels: {queuer.dev/managed: 'true'}}}",
    "{apiVersion: v1, kind: Namespace, metadata: {name: other}}",
]


def test_a_product_is_a_flavor_with_the_taints_that_all_its_nodes_have() -> None:
    imported = read(*FLEET)
    flavors = {flavor.name: flavor for flavor in imported.document.flavors or ()}
    assert list(flavors) == ["mi300x", "nvidia-h100-80gb", "general"]
    assert flavors["nvidia-h100-80gb"].node_labels == H100
    gpu = Toleration(key="nvidia.com/gpu", operator="Exists", effect="NoSchedule")
    assert flavors["nvidia-h100-80gb"].tolerations == (gpu,)
    assert not flavors["general"].node_labels
    assert parse(export(imported.document)) == imported.document


def test_products_of_names_that_become_one_here_stay_two() -> None:
    """Their devices were summed in two flavors of one name, a document that is refused."""
    names = ("H100.SXM", "h100-sxm", "general")
    imported = read(
        *(node(f"n{n}", {"nvidia.com/gpu.product": name}, DEVICES) for n, name in enumerate(names)),
        node("plain", {}),
    )
    flavors = imported.document.flavors or ()
    assert [flavor.name for flavor in flavors] == ["h100-sxm", "general-2", "h100-sxm-2", "general"]
    assert parse(export(imported.document)) == imported.document


def test_levels_are_those_that_tell_nodes_apart_and_lie_in_each_other() -> None:
    topology = read(*FLEET).document.topology
    assert topology is not None
    assert topology.levels == ("block", "rack", "host")
    assert "Level topology.kubernetes.io/zone: left out: 1 domains, 4 of 6 nodes carry it" in told(
        read(*FLEET), Fate.APPROXIMATED
    )
    twisted = read(*(node(f"n{n}", placed(n, f"r{n % 2}")) for n in range(4)))
    assert told(twisted, Fate.REFUSED) == [
        "Level topology.kubernetes.io/rack: left out: r0 lies in 2 domains of wider levels"
    ]
    assert twisted.document.topology is not None
    assert twisted.document.topology.levels == ("block", "host")


def test_each_namespace_gets_an_equal_part_of_the_devices() -> None:
    imported = read(*FLEET, namespaces=["team-b", "team-c"])
    assert rows(imported, "root.team-a") == [
        "mi300x amd.com/gpu 2/None/None",
        "nvidia-h100-80gb nvidia.com/gpu 10/None/None",
    ]
    assert [rule["namespace"] for rule in routes(imported)] == ["team-a", "team-b", "team-c"]
    assert imported.commands == (
        "kubectl label namespace team-b team-c queuer.dev/managed=true queuer.dev/default-queue=root",
    )


def test_a_cluster_without_devices_shares_cpu_and_memory_and_hears_how_to_name_a_label() -> None:
    plain = [node("p0", {"example.com/board": "x9"}, {"example.com/x9": 4}), node("p1", {})]
    imported = read(*plain, namespaces=["a"])
    assert rows(imported, "root.a") == ["None cpu 128000/None/None", f"None memory {512 * 2**30}/None/None"]
    assert told(imported, Fate.NO_EQUAL) == ["all nodes: no node carries a label that names a device"]
    named = read(*plain, namespaces=["a"], label="example.com/board")
    assert rows(named, "root.a") == ["x9 example.com/x9 4/None/None"]


def test_devices_of_nodes_without_a_product_are_shared_too() -> None:
    bare = read(node("n", {}, DEVICES), namespaces=["a"])
    assert rows(bare, "root.a") == ["None nvidia.com/gpu 8/None/None"]
    mixed = read(*FLEET, node("n9", {}, DEVICES))
    assert "general nvidia.com/gpu 8/None/None" in rows(mixed, "root.team-a")


def test_without_a_namespace_there_are_flavors_alone_and_without_a_node_nothing() -> None:
    imported = read(FLEET[0])
    assert [queue.path for queue in imported.document.queues] == ["root"]
    assert "all queues: no namespace opted in: there is no queue yet" in told(imported, Fate.NO_EQUAL)
    with pytest.raises(InvalidInput, match="holds no Node"):
        read("{apiVersion: v1, kind: Pod, metadata: {name: p}}")
