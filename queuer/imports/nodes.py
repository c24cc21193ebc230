"""Nodes as a first tree: a flavor for each device product, the levels that labels tell, a leaf for each namespace.

Which labels name a product or a level is convention, so it stands in tables here and nowhere else. A leaf is
guaranteed an equal part of the devices that the nodes have, and may borrow the rest. It is a tree to edit.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from queuer.domain.fields import Reader
from queuer.domain.keys import MANAGED
from queuer.domain.nodes import HOSTNAME, Flavor, Toleration, Topology
from queuer.domain.queue import ROOT, Queue, QuotaRow
from queuer.domain.routing import RoutingRule
from queuer.imports.records import (
    Account,
    Fate,
    Findings,
    Imported,
    Manifest,
    child_path,
    free_name,
    nothing_found,
    opt_in,
    segment,
    text_of,
)

PRODUCTS = (
    "nvidia.com/gpu.product", "amd.com/gpu.product-name", "gpu.intel.com/product", "cloud.google.com/gke-accelerator",
    "cloud.google.com/gke-tpu-accelerator", "k8s.amazonaws.com/accelerator", "kubernetes.azure.com/accelerator",
)  # fmt: skip
"""Labels that name the device of a node; the first that it carries counts."""
DEVICES = (
    "nvidia.com/",
    "amd.com/",
    "gpu.intel.com/",
    "google.com/tpu",
    "aws.amazon.com/neuron",
    "habana.ai/",
)
"""How the resources of devices begin; others with a / count where a node has none of these."""
LEVELS = (
    "topology.kubernetes.io/region", "topology.kubernetes.io/zone", "topology.kubernetes.io/block",
    "topology.kubernetes.io/rack", "cloud.google.com/gce-topology-block", "cloud.google.com/gce-topology-subblock",
    "topology.k8s.aws/network-node-layer-1", "topology.k8s.aws/network-node-layer-2",
    "topology.k8s.aws/network-node-layer-3",
)  # fmt: skip
"""Labels that name a domain of the topology, the widest first."""
REST = "general"
"""The flavor of nodes without a product."""
_TRANSIENT = "node.kubernetes.io/"
"""Taints of this prefix come and go with the node's health."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Node:
    """A node as it is read here. `product`: (label, value); `taints`: (key, value, effect)."""

    labels: Mapping[str, str]
    amounts: Mapping[str, int]
    product: tuple[str, str] | None
    taints: frozenset[tuple[str, str, str]]


def read(manifests: Iterable[Manifest], *, namespaces: Collection[str] = (), label: str = "") -> Imported:
    """The tree of the Nodes, for these namespaces and those that opted in. `label`: one more that names a product.

    Raises InvalidInput naming every wrong field.
    """
    found, given = Findings(), [m for m in manifests if not m.group]
    keys = (label, *PRODUCTS) if label else PRODUCTS
    nodes = [_node(m, keys, found) for m in given if m.kind == "Node"]
    if not nodes:
        raise nothing_found("Node", "kubectl get nodes,namespaces -o json | queuer import nodes -")
    managed = {
        m.name for m in given if m.kind == "Namespace" and m.labels().get(MANAGED) in ("true", "required")
    }
    flavors, capacity = _flavors(nodes, found)
    topology = _topology(nodes, found)
    queues = _queues(managed | set(namespaces), capacity, found)
    opt_in(set(namespaces) - managed, found)
    return found.done(queues, flavors=flavors or None, topology=topology)


def _node(manifest: Manifest, keys: Sequence[str], found: Findings) -> _Node:
    labels, at = manifest.labels(), manifest.place
    status, spec = manifest.body.get("status"), manifest.body.get("spec")
    body = {"allocatable": status.get("allocatable")} if isinstance(status, Mapping) else {}
    amounts = found.amounts(
        Reader(body, at=f"{at} status", known=tuple(body), problems=found.problems), "allocatable"
    )
    taints = spec.get("taints") if isinstance(spec, Mapping) else None
    own = [key for key in keys if labels.get(key)]
    return _Node(
        labels=labels,
        amounts={name: amount for name, amount in amounts.items() if amount},
        product=(own[0], labels[own[0]]) if own else None,
        taints=frozenset(
            (str(taint.get("key")), str(taint.get("value") or ""), str(taint.get("effect") or ""))
            for taint in (taints if isinstance(taints, list) else ())
            if isinstance(taint, Mapping) and not str(taint.get("key")).startswith(_TRANSIENT)
        ),
    )


def _flavors(nodes: Sequence[_Node], found: Findings) -> tuple[tuple[Flavor, ...], dict[Account, int]]:
    """The flavors, and what can be shared out: devices by flavor; without any, CPU and memory of all nodes."""
    of = defaultdict[tuple[str, str] | None, list[_Node]](list)
    for node in nodes:
        of[node.product].append(node)
    flavors, capacity = list[Flavor](), defaultdict[Account, int](int)
    for product, members in sorted(of.items(), key=lambda item: item[0] or ("~", "")):
        if product is None:
            continue
        key, value = product
        tolerations = tuple(
            Toleration(key=name, operator="Equal" if said else "Exists", value=said, effect=effect)
            for name, said, effect in sorted(frozenset.intersection(*(node.taints for node in members)))
        )
        name = free_name(segment(value), {REST, *(flavor.name for flavor in flavors)})
        flavor = Flavor(name=name, node_labels={key: value}, tolerations=tolerations)
        flavors.append(flavor)
        for node in members:
            for resource in _devices(node.amounts):
                capacity[flavor.name, resource] += node.amounts[resource]
        has = [text_of(n, r) for (name, r), n in capacity.items() if name == flavor.name]
        text = f"{len(members)} nodes, {', '.join(has) or 'no devices yet'}"
        found.tell(Fate.MAPPED, f"Flavor {flavor.name}", text, f"{key}={value}")
    plain = of.get(None, [])
    rest = REST if flavors and plain else None
    for node in plain:
        for resource in filter(_known, node.amounts):
            capacity[rest, resource] += node.amounts[resource]
    if rest:
        flavors.append(Flavor(name=rest))
        found.tell(Fate.MAPPED, f"Flavor {rest}", f"{len(plain)} nodes without a product")
    if not flavors:
        text, hint = (
            "no node carries a label that names a device",
            f"--label KEY; known: {', '.join(PRODUCTS)}",
        )
        found.tell(Fate.NO_EQUAL, "all nodes", text, hint)
    if not capacity:
        for node in nodes:
            for resource in ("cpu", "memory"):
                capacity[None, resource] += node.amounts.get(resource, 0)
    return tuple(flavors), dict(capacity)


def _known(resource: str) -> bool:
    return resource.startswith(DEVICES)


def _devices(amounts: Mapping[str, int]) -> list[str]:
    """The resources of a product's node that are its devices."""
    return sorted(filter(_known, amounts)) or sorted(name for name in amounts if "/" in name)


def _topology(nodes: Sequence[_Node], found: Findings) -> Topology | None:
    """The levels that tell nodes apart. A domain lies in one domain of each wider level, else its level is left out."""
    chosen: list[str] = []
    for key in LEVELS:
        homes = defaultdict[str, set[tuple[str, ...]]](set)
        for node in nodes:
            if domain := node.labels.get(key):
                homes[domain].add(tuple(node.labels.get(wider, "") for wider in chosen))
        split = [(domain, len(above)) for domain, above in homes.items() if len(above) > 1]
        carry = sum(key in node.labels for node in nodes)
        text = f"{len(homes)} domains, {carry} of {len(nodes)} nodes carry it"
        if split:
            text = "left out: {} lies in {} domains of wider levels".format(*split[0])
            found.tell(
                Fate.REFUSED, f"Level {key}", text, "label the nodes anew, or write another order of levels"
            )
        elif len(homes) > 1:
            chosen.append(key)
            found.tell(Fate.MAPPED, f"Level {key}", text)
        elif homes:
            found.tell(Fate.APPROXIMATED, f"Level {key}", f"left out: {text}", "it tells no nodes apart")
    return Topology(keys=(*chosen, HOSTNAME)) if chosen else None


def _queues(namespaces: Collection[str], capacity: Mapping[Account, int], found: Findings) -> list[Queue]:
    """A leaf for each namespace with an equal part of the capacity, and rules that lead there."""
    queues: dict[str, Queue] = {}
    rules = []
    for namespace in sorted(namespaces):
        about = f"Namespace {namespace}"
        path = child_path(ROOT, namespace, queues, about=about, findings=found)
        parts = [
            QuotaRow(flavor=flavor, resource=resource, guaranteed=amount // len(namespaces))
            for (flavor, resource), amount in capacity.items()
        ]
        queues[path] = Queue(path=path, quota=tuple(parts), namespaces=(namespace,))
        rules.append(RoutingRule(namespace=namespace, queue=path))
        said = [
            text_of(row.guaranteed or 0, row.resource) + (f" on {row.flavor}" if row.flavor else "")
            for row in parts
        ]
        found.tell(Fate.MAPPED, about, f"{path}, guaranteed {', '.join(said)}")
    if queues:
        text = (
            f"guaranteed 1/{len(queues)} of what the nodes have, rounded down; what is idle may be borrowed"
        )
        found.tell(Fate.APPROXIMATED, "all queues", text, "edit the amounts, then queuer apply")
    else:
        hint = f"give --namespace, or kubectl label namespace NAME {MANAGED}=true"
        found.tell(Fate.NO_EQUAL, "all queues", "no namespace opted in: there is no queue yet", hint)
    return [Queue(path=ROOT, placement=tuple(rules)), *(queues[path] for path in sorted(queues))]
