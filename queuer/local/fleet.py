"""The nodes of a local cluster: a regular fleet of GPU hosts in racks and blocks, played by kwok."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import httpx2

from queuer.domain.errors import FieldProblem, InvalidInput, Unavailable

RACK = "topology.kubernetes.io/rack"
BLOCK = "topology.kubernetes.io/block"
_PARALLEL_REQUESTS = 8
_READY_SECONDS = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """`nodes` hosts spread evenly over `racks`, the racks evenly over `blocks`; each host has `gpus` GPUs."""

    nodes: int = 160
    blocks: int = 4
    racks: int = 20
    gpus: int = 8

    def __post_init__(self) -> None:
        problems = [
            FieldProblem(field=f"--{field}", message=f"must be at least {least}, got {value}")
            for field, value, least in (
                ("nodes", self.nodes, 1),
                ("blocks", self.blocks, 1),
                ("racks", self.racks, 1),
                ("gpus", self.gpus, 0),
            )
            if value < least
        ]
        if not problems and self.racks < self.blocks:
            problems.append(
                FieldProblem(field="--racks", message=f"{self.racks} racks cannot fill {self.blocks} blocks")
            )
        if not problems and self.nodes < self.racks:
            problems.append(
                FieldProblem(field="--nodes", message=f"{self.nodes} nodes cannot fill {self.racks} racks")
            )
        if problems:
            raise InvalidInput(*problems)

    def manifests(self) -> list[dict[str, Any]]:
        """Node objects `node-001…`, racks `r01…`, blocks `b1…`; neighbours by number are so by topology."""
        return [self._node(number) for number in range(self.nodes)]

    def _node(self, number: int) -> dict[str, Any]:
        rack = number * self.racks // self.nodes
        block = rack * self.blocks // self.racks
        name = f"node-{number + 1:03d}"
        resources = {"cpu": "96", "memory": "1Ti", "pods": "110"}
        if self.gpus:
            resources["nvidia.com/gpu"] = str(self.gpus)
        return {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": name,
                "labels": {
                    "kubernetes.io/hostname": name,
                    "kubernetes.io/os": "linux",
                    RACK: f"r{rack + 1:02d}",
                    BLOCK: f"b{block + 1}",
                },
            },
            "status": {"capacity": resources, "allocatable": resources},
        }


def create_nodes(fleet: Fleet, client: httpx2.Client) -> None:
    """Create the nodes that are not there yet and wait until all are Ready. `client` is an admin's."""
    with ThreadPoolExecutor(_PARALLEL_REQUESTS) as pool:
        for response in pool.map(lambda node: client.post("/api/v1/nodes", json=node), fleet.manifests()):
            if response.status_code not in (httpx2.codes.CREATED, httpx2.codes.CONFLICT):
                raise Unavailable(f"a node was refused by the API server: {response.text}")
    deadline = time.monotonic() + _READY_SECONDS
    while (ready := _ready_nodes(client)) < fleet.nodes:
        if time.monotonic() > deadline:
            raise Unavailable(f"{ready} of {fleet.nodes} nodes are Ready after {_READY_SECONDS:.0f} s")
        time.sleep(0.1)


def _ready_nodes(client: httpx2.Client) -> int:
    nodes = client.get("/api/v1/nodes", params={"resourceVersion": "0"}).raise_for_status().json()["items"]
    return sum(
        condition["type"] == "Ready" and condition["status"] == "True"
        for node in nodes
        for condition in node["status"].get("conditions", ())
    )
