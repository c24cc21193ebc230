"""Live capacity: the allocatable of the nodes, and what our work still uses on a node beyond that (DESIGN 3.1).

A GPU that died under a running pod, or a node object that is gone, is missing on that node alone. Work that still uses
it is charged for it; without that part the charge would be taken from the free room of all other nodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from queuer.domain.nodes import Flavor, Node, flavor_of
from queuer.domain.quantity import Resources, add
from queuer.domain.workload import Workload


class Use(NamedTuple):
    """The use of a workload: `flavors` by pod set, `bound` by node name."""

    workload: Workload
    flavors: Mapping[str, str]
    bound: Mapping[str, Resources]

    def flavor_for(self, resource: str) -> str:
        """The flavor of its first pod set that asks for a resource."""
        asking = (self.flavors.get(p.name, "") for p in self.workload.pod_sets if p.requests.get(resource))
        return next(asking, next(iter(self.flavors.values()), ""))


def exceeds(used: Resources, node: Node | None) -> bool:
    """Whether more is used on a node than it has; of a node that is gone, whether anything is."""
    there = {} if node is None else node.allocatable
    return any(amount > there.get(resource, 0) for resource, amount in used.items())


def lost_in_use(
    nodes: Mapping[str, Node], flavors: Sequence[Flavor], uses: Iterable[Use]
) -> dict[str, dict[str, int]]:
    """By flavor what work uses beyond the allocatable of its nodes; all that it uses on nodes that are gone."""
    here, found = dict[str, dict[str, int]](), dict[str, dict[str, int]]()
    for use in uses:
        for name, amounts in use.bound.items():
            if name in nodes:
                here[name] = add(here.get(name, {}), amounts)
                continue
            for resource, amount in amounts.items():
                flavor = use.flavor_for(resource)
                found[flavor] = add(found.get(flavor, {}), {resource: amount})
    for name, amounts in here.items():
        flavor_there = flavor_of(nodes[name], flavors)
        there = nodes[name].allocatable
        if flavor_there is not None and exceeds(amounts, nodes[name]):
            over = {r: n - there.get(r, 0) for r, n in amounts.items() if n > there.get(r, 0)}
            found[flavor_there] = add(found.get(flavor_there, {}), over)
    return found


def allocatable(nodes: Iterable[Node], flavors: Sequence[Flavor]) -> dict[str, Resources]:
    """The sum by flavor. Nodes without a flavor are not counted."""
    found = dict[str, Resources]()
    for node in nodes:
        flavor = flavor_of(node, flavors)
        if flavor is not None:
            found[flavor] = add(found.get(flavor, {}), node.allocatable)
    return found


def live_capacity(there: Mapping[str, Resources], lost: Mapping[str, Resources]) -> dict[str, dict[str, int]]:
    """Allocatable and what is lost in use together, by flavor."""
    return {f: add(there.get(f, {}), lost.get(f, {})) for f in (*there, *(lost.keys() - there))}
