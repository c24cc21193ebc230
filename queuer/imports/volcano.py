"""Volcano's Queues as a tree and its HyperNodes as a topology.

`deserved` is what a queue reclaims, `guarantee` the part of it that nobody else may use, `capability` its limit. The
tree is that of `spec.parent`, else of the annotation `volcano.sh/hierarchy`. A HyperNode becomes a node label by tier.
"""

from __future__ import annotations

import shlex
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from queuer.domain.fields import Reader
from queuer.domain.nodes import Topology
from queuer.domain.queue import ROOT, Order, Policy, Queue, QueueState, QuotaRow
from queuer.imports.records import (
    Fate,
    Findings,
    Imported,
    Manifest,
    bound,
    child_path,
    consistent,
    nothing_found,
    segment,
    text_of,
)

_HIERARCHY, _WEIGHTS = "volcano.sh/hierarchy", "volcano.sh/hierarchy-weights"
_TIER = "topology.volcano.sh/"
_QUEUE = (
    "weight", "capability", "deserved", "guarantee", "parent", "reclaimable", "priority", "dequeueStrategy", "affinity",
    "extendClusters", "type",
)  # fmt: skip
_NO_EQUAL = {
    "affinity": ("node groups of a queue", "make a flavor of the group's nodes and name it in the rows"),
    "extendClusters": ("other clusters", "jobs run on this cluster"),
    "type": ("queue types", "leave it out"),
}


def read(manifests: Iterable[Manifest], *, namespaces: Collection[str] = ()) -> Imported:
    """The tree of the Queues, usable from these namespaces. Raises InvalidInput naming every wrong field."""
    found, given = Findings(), list(manifests)
    mine = {m.name: m for m in given if m.kind == "Queue" and m.group == "scheduling.volcano.sh"}
    hyper = {m.name: m for m in given if m.kind == "HyperNode" and m.group == "topology.volcano.sh"}
    if not (mine or hyper):
        command = "kubectl get queues.scheduling.volcano.sh,hypernodes -o json | queuer import volcano -"
        raise nothing_found("Queue or HyperNode of Volcano", command)
    queues: dict[str, Queue] = {}
    specs = {name: found.spec(manifest, known=_QUEUE) for name, manifest in mine.items()}
    for name in mine:
        _add(name, mine, specs, queues, found, above=())
    if mine:
        root = queues.get(ROOT, Queue(path=ROOT))
        queues[ROOT] = replace(root, namespaces=bound(namespaces, found))
    tree = sorted(consistent(queues.values(), found), key=lambda queue: queue.path)
    return found.done(tree, topology=_topology(hyper, found) if hyper else None)


def _add(
    name: str,
    mine: Mapping[str, Manifest],
    specs: Mapping[str, Reader],
    queues: dict[str, Queue],
    found: Findings,
    *,
    above: tuple[str, ...],
) -> str:
    """Put a Queue and what is above it into `queues`; its path."""
    about = f"Queue {name}"
    if name == ROOT:
        if name in mine and ROOT not in queues:
            queues[ROOT] = _queue(ROOT, mine[name], specs[name], found)
        return ROOT
    parent, notes = specs[name].text("parent") if name in specs else None, {}
    if name in mine:
        notes = mine[name].labels("annotations")
    if parent in above or parent == name:
        found.problems.note(
            about, f"parents form a circle: {' -> '.join((*above, name, str(parent)))}", "cut it"
        )
        return ROOT
    if parent is None and _HIERARCHY in notes:
        wanted = _hierarchy(notes, queues, about, found)
    else:
        over = ROOT if parent is None else _add(parent, mine, specs, queues, found, above=(*above, name))
        wanted = f"{over}.{segment(name)}"
    if wanted not in queues:
        path = child_path(
            wanted.rpartition(".")[0], wanted.rpartition(".")[2], queues, about=about, findings=found
        )
        queues[path] = Queue(path=path) if name not in mine else _queue(path, mine[name], specs[name], found)
        if name not in mine:
            found.tell(Fate.APPROXIMATED, about, f"is not in the input: {path} has no amounts", "add it")
    return wanted


def _hierarchy(notes: Mapping[str, str], queues: dict[str, Queue], about: str, found: Findings) -> str:
    """The path that the annotation names; inner queues get their weights."""
    names = notes[_HIERARCHY].split("/")
    weights = notes.get(_WEIGHTS, "").split("/")
    path = ROOT
    for n, name in enumerate(names[1:], 1):
        path = f"{path}.{segment(name)}"
        weight = float(weights[n]) if n < len(weights) and weights[n].isdecimal() else 1.0
        if n < len(names) - 1:
            queues.setdefault(path, Queue(path=path, weight=weight or 1.0))
    found.tell(Fate.MAPPED, about, f"{_HIERARCHY} {notes[_HIERARCHY]} is {path}")
    return path


def _queue(path: str, manifest: Manifest, spec: Reader, found: Findings) -> Queue:
    about = f"Queue {manifest.name}"
    for key, (text, hint) in _NO_EQUAL.items():
        if spec.said(key):
            found.tell(Fate.NO_EQUAL, about, f"{key}: {text}", hint)
    if spec.flag("reclaimable") is False:
        text, hint = (
            "reclaimable false: others may reclaim what it borrows",
            f"policy.minRuntime on {path} delays it",
        )
        found.tell(Fate.NO_EQUAL, about, text, hint)
    if spec.whole("priority"):
        text = f"priority {spec.whole('priority')}: queues have none"
        found.tell(Fate.NO_EQUAL, about, text, "weight orders queues that borrow, priority orders jobs")
    weight = spec.number("weight") or 1.0
    weights = manifest.labels("annotations").get(_WEIGHTS, "").split("/")
    if weights[-1].isdecimal() and int(weights[-1]):
        weight = float(weights[-1])
    rows = tuple(_rows(spec, manifest, found))
    if path != ROOT and not any(row.guaranteed for row in rows):
        text = f"weight {weight:g} orders it among those that borrow; a share by weight is not reclaimed"
        found.tell(Fate.APPROXIMATED, about, text, "write guaranteed to let it reclaim")
    status = manifest.body.get("status")
    closed = isinstance(status, Mapping) and status.get("state") in ("Closed", "Closing")
    strict = spec.text("dequeueStrategy") == "fifo"
    amounts = ", ".join(text_of(row.guaranteed, row.resource) for row in rows if row.guaranteed)
    found.tell(Fate.MAPPED, about, f"{path}, guaranteed {amounts or 'nothing'}")
    return Queue(
        path=path, weight=weight, quota=rows, policy=Policy(order=Order.STRICT if strict else None),
        state=QueueState.DRAINING if closed else QueueState.OPEN,
    )  # fmt: skip


def _rows(spec: Reader, manifest: Manifest, found: Findings) -> Iterator[QuotaRow]:
    about = f"Queue {manifest.name}"
    held = found.open(
        spec.values.get("guarantee"), at=spec.path("guarantee"), about=about, known=("resource",)
    )
    kept, deserved = found.amounts(held, "resource"), found.amounts(spec, "deserved")
    capability = found.amounts(spec, "capability")
    for resource in sorted({*kept, *deserved, *capability}):
        own, share = kept.get(resource), deserved.get(resource)
        guaranteed = None if own is None and share is None else max(own or 0, share or 0)
        lend = None if own is None or guaranteed is None else guaranteed - own
        yield QuotaRow(resource=resource, guaranteed=guaranteed, limit=capability.get(resource), lend=lend)


# HyperNodes


@dataclass(frozen=True, slots=True)
class _HyperNode:
    tier: int
    level: str
    nodes: tuple[str, ...]
    """Ways to name its nodes to kubectl."""
    below: tuple[str, ...]


def _topology(manifests: Mapping[str, Manifest], found: Findings) -> Topology:
    """Levels by tier, the highest first; commands that label nodes, as a HyperNode has no label of its own."""
    hyper = {name: _hyper_node(manifest, found) for name, manifest in manifests.items()}
    above = defaultdict[str, list[str]](list)
    for name, each in hyper.items():
        for below in each.below:
            above[below].append(name)
    for name, each in hyper.items():
        lineage, left = {name}, [name]
        while left:
            new = [up for up in above[left.pop()] if up not in lineage]
            lineage.update(new)
            left += new
        labels = " ".join(
            shlex.quote(f"{_TIER}{hyper[up].level}={up}")
            for up in sorted(lineage, key=lambda up: -hyper[up].tier)
        )
        found.commands += [command.format(labels=labels) for command in each.nodes]
        found.tell(Fate.APPROXIMATED, f"HyperNode {name}", f"label {_TIER}{each.level}={name} of its nodes",
                   "run the commands beside the tree, again for new nodes")  # fmt: skip
    tiers = {each.tier: each.level for each in hyper.values()}
    return Topology(keys=tuple(f"{_TIER}{tiers[tier]}" for tier in sorted(tiers, reverse=True)))


def _hyper_node(manifest: Manifest, found: Findings) -> _HyperNode:
    about = f"HyperNode {manifest.name}"
    spec = found.spec(manifest, known=("tier", "tierName", "members"))
    tier = (spec.whole("tier") if spec.need("tier") else None) or 0
    exact, nodes, below = list[str](), list[str](), list[str]()
    for n, item in enumerate(spec.items("members")):
        at = f"{spec.path('members')}[{n}]"
        member = found.open(item, at=at, about=about, known=("type", "selector"))
        known = ("exactMatch", "regexMatch", "labelMatch")
        selector = found.open(member.values.get("selector"), at=f"{at}.selector", about=about, known=known)
        one, pattern, labels = (
            found.open(
                selector.values.get(key),
                at=f"{at}.selector.{key}",
                about=about,
                known=(inner, "matchExpressions"),
            )
            for key, inner in zip(known, ("name", "pattern", "matchLabels"), strict=True)
        )
        name, regex, equal = one.text("name"), pattern.text("pattern"), labels.labels("matchLabels")
        if name:
            (below if member.text("type") == "HyperNode" else exact).append(name)
        elif regex and member.text("type") == "Node":
            listed = f"kubectl get nodes -o name | grep -E {shlex.quote(f'^node/({regex})$')}"
            nodes.append(_braced(f"{listed} | xargs -I% kubectl label --overwrite % ") + "{labels}")
        elif equal and not labels.said("matchExpressions"):
            selector_text = ",".join(f"{key}={value}" for key, value in equal.items())
            nodes.append(
                _braced(f"kubectl label --overwrite nodes -l {shlex.quote(selector_text)} ") + "{labels}"
            )
        else:
            found.tell(
                Fate.REFUSED, about, f"member {n} is named by no name, node pattern or matchLabels", "name it"
            )
    if exact:
        nodes.append(
            _braced(f"kubectl label --overwrite node {' '.join(map(shlex.quote, exact))} ") + "{labels}"
        )
    return _HyperNode(tier, segment(spec.text("tierName") or f"tier-{tier}"), tuple(nodes), tuple(below))


def _braced(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")
