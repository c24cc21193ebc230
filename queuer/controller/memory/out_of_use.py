"""Nodes that take no pods, for the overview: how many, and what is free on them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from queuer.controller.memory.state import ClusterState
from queuer.domain.nodes import flavor_of
from queuer.domain.quantity import add


def out_of_use(state: ClusterState) -> Mapping[str, Any]:
    """`{cordoned, notReady, free}` of the nodes of flavors; one that is both is not ready.

    `free`: by resource, base units.
    """
    out = [
        node
        for node in state.nodes.values()
        if (node.unschedulable or not node.ready) and flavor_of(node, state.rules.flavors) is not None
    ]
    free: dict[str, int] = {}
    for node in out:
        used = state.pods.used(node.name)
        free = add(free, {r: max(0, n - used.get(r, 0)) for r, n in node.allocatable.items()})
    ready = sum(node.ready for node in out)
    return {"cordoned": ready, "notReady": len(out) - ready, "free": free}
