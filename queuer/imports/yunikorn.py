"""YuniKorn's `queues.yaml` as a tree: the queues of a partition, their amounts, who may use them, placement rules.

`guaranteed` and `max` are `guaranteed` and `limit` here; `vcore` is cpu. YuniKorn evicts only for a queue below its
guarantee, so priority evicts nobody within a queue. Semantics: YuniKorn 1.8-dev, `pkg/common/configs`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from queuer.domain.queue import ROOT, Policy, Preempt
from queuer.imports.records import (
    Fate,
    Findings,
    Imported,
    Manifest,
    bound,
    consistent,
    nothing_found,
    opt_in,
)
from queuer.imports.yunikorn_queues import Tree, found_name
from queuer.imports.yunikorn_routing import rules

DEFAULTS = "yunikorn-defaults"
"""The ConfigMap whose queues.yaml counts where no other has one."""
_PARTITION = (
    "name", "queues", "placementrules", "limits", "preemption", "nodesortpolicy", "usergroupresolver",
)  # fmt: skip


def read(manifests: Iterable[Manifest], *, namespaces: Collection[str] = ()) -> Imported:
    """The tree of the first partition, usable from these namespaces. Raises InvalidInput naming every wrong field.

    A manifest is the content of a queues.yaml; others are passed over.
    """
    found = Findings()
    manifest = _chosen([m for m in manifests if "partitions" in m.body], found)
    whole = found.open(manifest.body, at=manifest.file, about="queues.yaml", known=("partitions", "checksum"))
    partitions = whole.items("partitions")
    for n, other in enumerate(partitions[1:], 1):
        name = other.get("name") if isinstance(other, Mapping) else n
        text = "a second partition: here all nodes are one cluster, told apart by flavors"
        found.tell(Fate.NO_EQUAL, f"Partition {name}", text, "import a file with that partition alone")
    first = partitions[0] if partitions else None
    partition = found.open(
        first, at=f"{whole.path('partitions')}[0]", about="Partition default", known=_PARTITION
    )
    tree = Tree(found=found)
    listed = partition.items("queues")
    if [found_name(item).lower() for item in listed] == [ROOT]:
        tree.read(listed[0], at=f"{partition.path('queues')}[0]")
    else:
        tree.read({"name": ROOT, "queues": listed}, at=partition.at)
    policy = _policy(partition.values, found)
    tree.limits(ROOT, partition, about="Partition default")
    routing = rules(partition, tree, namespaces)
    root = tree.queues[ROOT]
    tree.queues[ROOT] = replace(
        root, policy=root.policy.over(policy), placement=tuple(routing), namespaces=bound(namespaces, found)
    )
    opt_in(namespaces if routing else (), found)
    text = "a job with higher priority goes first in its queue; between queues, guarantees and shares do"
    hint = "policy {sharing: priority} on root lets priority count among queues that borrow"
    found.tell(Fate.APPROXIMATED, "all queues", text, hint)
    return found.done(sorted(consistent(tree.whole(), found), key=lambda queue: queue.path))


def _chosen(given: Sequence[Manifest], found: Findings) -> Manifest:
    if not given:
        command = "kubectl get configmap -n yunikorn -o yaml | queuer import yunikorn -"
        raise nothing_found("queues.yaml of YuniKorn", command)
    *others, chosen = sorted(given, key=lambda manifest: DEFAULTS not in manifest.file)
    for other in others:
        text = f"left out: {chosen.file} counts"
        found.tell(Fate.APPROXIMATED, other.file, text, "import the files one by one")
    return chosen


def _policy(partition: Mapping[str, object], found: Findings) -> Policy:
    """Root's policy, and what of the partition has no equal."""
    about = "Partition default"
    preemption, nodes = partition.get("preemption"), partition.get("nodesortpolicy")
    said = preemption if isinstance(preemption, Mapping) else {}
    if said.get("quotapreemptionenabled"):
        text = "quotapreemptionenabled: a lower limit evicts nobody; what runs ends by itself"
        found.tell(Fate.NO_EQUAL, about, text, "queuer evict the jobs that have to go")
    if isinstance(nodes, Mapping) and nodes.get("type") == "fair":
        text = "nodesortpolicy fair: pods are packed, so that whole nodes stay free for gangs"
        found.tell(Fate.NO_EQUAL, about, text, "kube-scheduler's profile spreads what is not queued")
    if partition.get("usergroupresolver"):
        text = "usergroupresolver: groups are those that the API server knows of a user"
        found.tell(Fate.NO_EQUAL, about, text, "give them to users where they log in to the cluster")
    return Policy(preempt=Preempt.NEVER, reclaim=False if said.get("enabled") is False else None)
