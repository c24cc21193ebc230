"""Does the cluster fit the configuration: nodes to levels and flavors, namespaces to queues?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from difflib import get_close_matches

import msgspec

from queuer.domain.finding import Finding, odd, ok, wrong
from queuer.domain.nodes import HOSTNAME, Flavor, Node, flavor_of
from queuer.kube.client import Client
from queuer.kube.objects import NAMESPACES, NODES, Meta

MANAGED = "queuer.dev/managed"
_VALUES = ("true", "required", "false")
_OURS = (MANAGED, "queuer.dev/default-queue")
_NEAR = 0.85
"""How like ours a key must be to count as misspelled; `queuer.io/managed` is, `example.com/managed` is not."""
_NAMED = 3


class _Object(msgspec.Struct, frozen=True):
    metadata: Meta


async def metas(client: Client, *, nodes: bool) -> list[Meta]:
    """The metadata of all nodes, else of all namespaces."""
    resource = NODES if nodes else NAMESPACES
    return [
        msgspec.json.decode(item, type=_Object).metadata
        async for page in client.pages(resource.collection)
        for item in page.items or ()
    ]


def levels(nodes: Sequence[Meta], keys: Sequence[str]) -> Iterator[Finding]:
    """Whether nodes carry the labels of the topology's levels. `keys`: label keys."""
    asked = [key for key in keys if key != HOSTNAME]
    for key in asked:
        without = [node.name for node in nodes if key not in node.labels]
        fix = f"kubectl label node NAME {key}=VALUE, or mend the level in the tree's topology"
        if nodes and len(without) == len(nodes):
            yield wrong("topology", f"no node has the label {key} of the topology", fix)
        elif without:
            text = f"{len(without)} of {len(nodes)} nodes lack the label {key}: {_some(without)}"
            yield odd("topology", f"{text}; jobs that ask for this level do not go there", fix)
        else:
            yield ok("topology", f"all {len(nodes)} nodes have the label {key}")
    if not asked:
        yield ok("topology", "no level is configured beside the host")


def flavors(nodes: Sequence[Meta], declared: Sequence[Flavor]) -> Iterator[Finding]:
    """Whether each node has a flavor and each flavor a node."""
    made = [Node(name=node.name, labels=node.labels, allocatable={}) for node in nodes]
    by_node = {node.name: flavor_of(node, declared) for node in made}
    counts = Counter(by_node.values())
    left = [name for name, flavor in by_node.items() if flavor is None]
    if left:
        text = f"{len(left)} of {len(nodes)} nodes belong to no flavor: {_some(left)}; no job goes there"
        yield odd(
            "flavors", text, "label them, or add a flavor: queuer export, then queuer apply -f tree.yaml"
        )
    for flavor in declared:
        if not counts[flavor.name]:
            wanted = ", ".join(f"{key}={value}" for key, value in flavor.node_labels.items())
            text = f"no node belongs to flavor {flavor.name}, which asks for {wanted or 'any label'}"
            fix = "label nodes so; where an earlier flavor takes them, put this one first"
            yield odd("flavors", text, fix)
    if not left and all(counts[flavor.name] for flavor in declared):
        which = f"one of {len(declared)} flavors" if declared else "the flavor default"
        yield ok("flavors", f"each of {len(nodes)} nodes belongs to {which}")


def namespaces(there: Sequence[Meta], named: Collection[str] | None) -> Iterator[Finding]:
    """Whether opting in is spelled right, and leads to a queue. `named`: namespaces of queues; None = not known."""
    strange = [finding for space in there for finding in _spelling(space)]
    yield from strange
    managed = [space.name for space in there if space.labels.get(MANAGED) in ("true", "required")]
    missing = [name for name in managed if named is not None and name not in named]
    for name in missing:
        text = f"namespace {name} is managed, and no queue names it: no job of it can start"
        yield odd(
            "namespaces", text, f"add {name} to `namespaces` of a queue: queuer export, queuer apply -f"
        )
    if not strange and not missing:
        yield ok("namespaces", f"{len(managed)} of {len(there)} namespaces are managed")


def _spelling(space: Meta) -> Iterator[Finding]:
    value = space.labels.get(MANAGED)
    if value is not None and value not in _VALUES:
        text = f'namespace {space.name} has {MANAGED}: "{value}", which is neither "true" nor "required"'
        yield wrong("namespaces", text, f"kubectl label namespace {space.name} --overwrite {MANAGED}=true")
    for key in space.labels:
        if key not in _OURS and get_close_matches(key, [MANAGED], cutoff=_NEAR):
            fix = f"kubectl label namespace {space.name} {key}- {MANAGED}=true"
            yield wrong("namespaces", f"namespace {space.name} has the label {key}, not {MANAGED}", fix)


def _some(names: Sequence[str]) -> str:
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")
