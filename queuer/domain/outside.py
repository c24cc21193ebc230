"""Pods on nodes that no queue pays for: jobs without the label, services, and the cluster's own pods.

They take room that nothing in the queue tree shows. A record names their owner, so that whoever lacks the room knows
whom to ask. The controller counts them, a stored cycle and the record of a cycle carry them; no decision reads them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import reduce
from types import MappingProxyType
from typing import Any

from queuer.domain.quantity import NOTHING, Resources, add, capped

NAMED = 10
"""Owners that are told by name, the largest; the others are one sum."""
_MOST = 2**61
_SYSTEM_NAMESPACES = "kube-"
_SYSTEM_KINDS = frozenset({"DaemonSet", "Node"})  # pods of a Node are static ones
NOWHERE: Mapping[str, Resources] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Outside:
    """The pods of one owner, or of `owners` together; a sum has no `kind` and `name`.

    `system`: pods that every cluster has. `amounts`: their requests in base units, `pods` included; `nodes`: the same
    by node name, empty for system pods.
    """

    namespace: str = ""
    kind: str = ""
    name: str = ""
    owners: int = 1
    system: bool = False
    amounts: Resources = field(default_factory=lambda: NOTHING)
    nodes: Mapping[str, Resources] = field(default_factory=lambda: NOWHERE)

    @property
    def pods(self) -> int:
        """How many pods they are."""
        return self.amounts.get("pods", 0)

    def on(self, nodes: Iterable[str]) -> Outside:
        """Those on some nodes alone."""
        there = {node: self.nodes[node] for node in nodes if node in self.nodes}
        return replace(self, amounts=reduce(add, there.values(), NOTHING), nodes=there)

    def without_nodes(self) -> Outside:
        """The same for a record that is read often."""
        return replace(self, nodes=NOWHERE)


def is_system(namespace: str, kind: str) -> bool:
    """Whether pods of this namespace and kind of owner belong to the cluster itself."""
    return namespace.startswith(_SYSTEM_NAMESPACES) or kind in _SYSTEM_KINDS


def bounded(found: Iterable[Outside]) -> tuple[Outside, ...]:
    """The largest owners by their dominant share of what all hold, then the sum of the others, then system pods."""
    known, system = list[Outside](), list[Outside]()
    for each in found:
        (system if is_system(each.namespace, each.kind) else known).append(each)

    held = total(known)

    def largest_first(each: Outside) -> tuple[float, str, str, str]:
        shares = (n / held[r] for r, n in each.amounts.items() if r != "pods" and n)
        return -max(shares, default=0.0), each.namespace, each.kind, each.name

    known.sort(key=largest_first)
    rest = [_sum(known[NAMED:], nodes=_by_node(known[NAMED:]))] if len(known) > NAMED else []
    return (*known[:NAMED], *rest, *([_sum(system, system=True)] if system else []))


def _sum(many: Collection[Outside], **fields: Any) -> Outside:
    amounts = capped(total(many), _MOST)
    return Outside(owners=sum(each.owners for each in many), amounts=amounts, **fields)


def _by_node(many: Iterable[Outside]) -> dict[str, Resources]:
    """Of thousands of owners: what is counted here is counted in place."""
    found: dict[str, dict[str, int]] = {}
    for each in many:
        for node, amounts in each.nodes.items():
            there = found.setdefault(node, {})
            for resource, amount in amounts.items():
                there[resource] = there.get(resource, 0) + amount
    return {node: capped(there, _MOST) for node, there in found.items()}


def total(found: Iterable[Outside]) -> Resources:
    """The amounts of all of them."""
    return reduce(add, (each.amounts for each in found), NOTHING)
