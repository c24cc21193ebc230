"""Kueue's ClusterQueues, Cohorts, LocalQueues, ResourceFlavors, Topologies and WorkloadPriorityClasses as a tree.

A Cohort is an inner queue, a ClusterQueue a leaf, a LocalQueue a placement rule at root by namespace; where a namespace
has several, by the label `kueue.x-k8s.io/queue-name` too, so that manifests of jobs stay as they are. What is outside
a Cohort, or the Cohort at the top, borrows from nobody: its limit is its nominal quota.

A pod set uses one flavor here. So one resource group of a ClusterQueue keeps its flavors; other groups, and flavors
that name the same nodes, are counted together. Semantics: Kueue v1beta1 and v1beta2, `resource_node.go`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from queuer.domain.fields import Reader
from queuer.domain.nodes import HOSTNAME, Flavor, Requirement, Toleration, Topology
from queuer.domain.queue import ROOT, Order, Policy, Preempt, Queue, QueueState, QuotaRow
from queuer.domain.routing import RoutingRule
from queuer.imports.kueue_notes import CLUSTER_QUEUE, note_cluster_queue, note_local_queue
from queuer.imports.records import (
    Account,
    Fate,
    Findings,
    Imported,
    Manifest,
    child_path,
    nothing_found,
    opt_in,
    segment,
    text_of,
)

GROUP = "kueue.x-k8s.io"
QUEUE_NAME = "kueue.x-k8s.io/queue-name"
KINDS = "clusterqueues,cohorts,localqueues,resourceflavors,topologies,workloadpriorityclasses,namespaces"
LEAST_WEIGHT = 0.001
"""For a weight of 0, which Kueue takes for "after everybody else"."""
_NAME = "kubernetes.io/metadata.name"
_FLAVOR = ("nodeLabels", "nodeTaints", "tolerations", "topologyName")


@dataclass(frozen=True, slots=True, kw_only=True)
class Amounts:
    """Kueue's amounts of one resource in one flavor, base units; None = not given."""

    nominal: int
    borrowing: int | None
    lending: int | None


Group = list[tuple[str, dict[str, Amounts]]]
"""A resource group: flavors in their order, each with its amounts by resource."""


@dataclass(slots=True, kw_only=True)
class Owner:
    """A ClusterQueue or a Cohort. `above`: name of its Cohort."""

    about: str
    name: str
    above: str | None
    spec: Reader | None = None
    groups: list[Group] = field(default_factory=list)
    weight: float = 1.0
    path: str = ""
    rows: dict[Account, Amounts] = field(default_factory=dict)

    def main(self, labelled: Collection[str]) -> int:
        """Which of its groups keeps its flavors: the one that tells most nodes apart, then the one with devices.
        `labelled`: the flavors that name some nodes.
        """

        def rank(index: int) -> tuple[int, bool, int]:
            flavors = self.groups[index]
            named = sum(name in labelled for name, _ in flavors)
            return named, any("/" in name for _, amounts in flavors for name in amounts), -index

        return max(range(len(self.groups)), key=rank, default=0)


def read(manifests: Iterable[Manifest]) -> Imported:
    """The tree of Kueue's objects. Other kinds are told and left out. Raises InvalidInput naming every wrong field."""
    found, by_kind = Findings(), defaultdict[str, list[Manifest]](list)
    for manifest in manifests:
        known = manifest.group == GROUP or (manifest.kind == "Namespace" and not manifest.group)
        by_kind[manifest.kind if known else ""].append(manifest)
    for kind in ("AdmissionCheck", "ProvisioningRequestConfig", "MultiKueueConfig", "MultiKueueCluster"):
        for manifest in by_kind.pop(kind, ()):
            hint = "leave it out: capacity is what nodes have, and jobs run on this cluster"
            found.tell(Fate.NO_EQUAL, f"{kind} {manifest.name}", "there are no admission checks", hint)
    cohorts = {m.name: _cohort(m, found) for m in by_kind["Cohort"]}
    queues = {m.name: _cluster_queue(m, found) for m in by_kind["ClusterQueue"]}
    declared = _Flavors(by_kind["ResourceFlavor"], by_kind["Topology"], found)
    if not (queues or cohorts or declared.flavors or by_kind["Topology"] or by_kind["WorkloadPriorityClass"]):
        raise nothing_found("ClusterQueue", f"kubectl get {KINDS} -A -o yaml | queuer import kueue -")
    for owner in [*queues.values(), *cohorts.values()]:
        if owner.above and owner.above not in cohorts:
            cohorts[owner.above] = Owner(about=f"Cohort {owner.above}", name=owner.above, above=None)
    _place(cohorts, queues, found)
    declared.count([*queues.values(), *cohorts.values()])
    labels = {m.name: {**m.labels(), _NAME: m.name} for m in by_kind["Namespace"]}
    served, rules = _local_queues(by_kind["LocalQueue"], queues, labels, found)
    tree = [*_inner(cohorts, queues, found), *(_leaf(q, served[q.name], found) for q in queues.values())]
    if rules:
        tree.append(Queue(path=ROOT, placement=tuple(rules)))
    opt_in({rule.namespace for rule in rules if rule.namespace}, found)
    for manifest in by_kind["WorkloadPriorityClass"]:
        _priority_class(manifest, found)
    if queues:
        hint = "a row with limit: 0 refuses the resource"
        text = "a resource that no group covers is refused by Kueue; here capacity alone bounds it"
        found.tell(Fate.APPROXIMATED, "all ClusterQueues", text, hint)
    flavors = declared.offered(everything=not queues)
    return found.done(
        sorted(tree, key=lambda queue: queue.path), flavors=flavors or None, topology=declared.topology()
    )


# Queues


def _cluster_queue(manifest: Manifest, found: Findings) -> Owner:
    spec = found.spec(manifest, known=CLUSTER_QUEUE)
    above = spec.text("cohortName") or spec.text("cohort")
    return _owner(manifest, spec, above, found)


def _cohort(manifest: Manifest, found: Findings) -> Owner:
    spec = found.spec(manifest, known=("parentName", "parent", "resourceGroups", "fairSharing"))
    return _owner(manifest, spec, spec.text("parentName") or spec.text("parent"), found)


def _owner(manifest: Manifest, spec: Reader, above: str | None, found: Findings) -> Owner:
    about = f"{manifest.kind} {manifest.name}"
    groups = [
        _group(item, f"{spec.path('resourceGroups')}[{n}]", about, found)
        for n, item in enumerate(spec.items("resourceGroups"))
    ]
    sharing = found.open(
        spec.values.get("fairSharing"), at=spec.path("fairSharing"), about=about, known=("weight",)
    )
    said = sharing.values.get("weight", 1)
    milli = found.amount(said, "cpu", sharing.path("weight"))  # a quantity such as "0.5" or 500m
    weight = 1.0 if milli is None else milli / 1000
    if not weight > 0:
        found.tell(Fate.APPROXIMATED, about, f"fairSharing.weight {said} became weight {LEAST_WEIGHT}")
        weight = LEAST_WEIGHT
    return Owner(about=about, name=manifest.name, above=above, spec=spec, groups=groups, weight=weight)


def _group(item: Any, at: str, about: str, found: Findings) -> Group:
    group = found.open(item, at=at, about=about, known=("coveredResources", "flavors"))
    flavors: Group = []
    for n, each in enumerate(group.items("flavors")):
        flavor = found.open(each, at=f"{at}.flavors[{n}]", about=about, known=("name", "resources"))
        amounts = {}
        for m, row in enumerate(flavor.items("resources")):
            known = ("name", "nominalQuota", "borrowingLimit", "lendingLimit")
            reader = found.open(row, at=f"{flavor.at}.resources[{m}]", about=about, known=known)
            name = (reader.text("name") if reader.need("name") else None) or ""
            nominal, borrowing, lending = (
                found.amount(reader.values[key], name, reader.path(key)) if reader.said(key) else None
                for key in known[1:]
            )
            amounts[name] = Amounts(nominal=nominal or 0, borrowing=borrowing, lending=lending)
        flavors.append(((flavor.text("name") if flavor.need("name") else None) or "", amounts))
    return flavors


def _place(cohorts: Mapping[str, Owner], queues: Mapping[str, Owner], found: Findings) -> None:
    """Give every owner its path."""
    taken: set[str] = set()

    def path_of(cohort: Owner, above: tuple[str, ...]) -> str:
        if cohort.name in above:
            circle = " -> ".join((*above, cohort.name))
            hint = "Kueue admits nothing in such Cohorts: give one of them no parentName"
            found.problems.note(cohort.about, f"Cohorts form a circle: {circle}", hint)
            return ROOT
        if not cohort.path:
            parent = path_of(cohorts[cohort.above], (*above, cohort.name)) if cohort.above else ROOT
            cohort.path = child_path(parent, cohort.name, taken, about=cohort.about, findings=found)
            taken.add(cohort.path)
        return cohort.path

    for cohort in cohorts.values():
        path_of(cohort, ())
    found.problems.settle()
    for queue in queues.values():
        parent = cohorts[queue.above].path if queue.above else ROOT
        queue.path = child_path(parent, queue.name, taken, about=queue.about, findings=found)
        taken.add(queue.path)


def _inner(cohorts: Mapping[str, Owner], queues: Mapping[str, Owner], found: Findings) -> Iterator[Queue]:
    """The Cohorts as queues. What a Cohort has of its own comes on top of what is nominal below it."""
    totals = defaultdict[str, defaultdict[Account, int]](lambda: defaultdict(int))
    for owner in [*queues.values(), *sorted(cohorts.values(), key=lambda cohort: -cohort.path.count("."))]:
        for account, amounts in owner.rows.items():
            totals[owner.path][account] += amounts.nominal
        for account, amount in totals[owner.path].items():
            totals[owner.path.rpartition(".")[0]][account] += amount
    for cohort in cohorts.values():
        rows = []
        for (flavor, resource), total in totals[cohort.path].items():
            own_row = cohort.rows.get((flavor, resource))
            borrowing, lending = (own_row.borrowing, own_row.lending) if own_row else (None, None)
            top = cohort.above is None
            limit = total if top else None if borrowing is None else total + borrowing
            stated = bool(own_row and own_row.nominal) or lending is not None
            row = QuotaRow(
                flavor=flavor, resource=resource, guaranteed=total if stated else None, limit=limit,
                lend=None if lending is None else min(lending, total),
            )  # fmt: skip
            if stated or limit is not None:
                rows.append(row)
        found.tell(Fate.MAPPED, cohort.about, f"{cohort.path}, {_rows(rows)}")
        yield Queue(path=cohort.path, weight=cohort.weight, quota=tuple(rows))


def _leaf(queue: Owner, namespaces: tuple[str, ...], found: Findings) -> Queue:
    spec, shared = queue.spec, queue.above is not None
    assert spec is not None
    rows = tuple(
        QuotaRow(
            flavor=flavor, resource=resource, guaranteed=row.nominal,
            limit=row.nominal + (row.borrowing or 0) if row.borrowing is not None or not shared else None,
            lend=None if row.lending is None or not shared else min(row.lending, row.nominal),
        )
        for (flavor, resource), row in queue.rows.items()
    )  # fmt: skip
    note_cluster_queue(
        spec,
        queue.about,
        queue.path,
        several=shared and max(map(len, queue.groups), default=0) > 1,
        found=found,
    )
    preemption = spec.values.get("preemption")
    said = preemption if isinstance(preemption, Mapping) else {}
    within, reclaim = said.get("withinClusterQueue", "Never"), said.get("reclaimWithinCohort", "Never")
    policy = Policy(
        order=Order.STRICT if spec.values.get("queueingStrategy") == "StrictFIFO" else None,
        preempt=Preempt.NEVER if within == "Never" else Preempt.WITHIN_QUEUE,
        reclaim=reclaim != "Never" if shared else None,
    )
    closed = spec.values.get("stopPolicy", "None") != "None"
    who = f"namespaces {', '.join(namespaces)}" if namespaces else "no namespace: nobody may use it"
    found.tell(Fate.MAPPED, queue.about, f"{queue.path}, {_rows(rows)}, {who}")
    return Queue(
        path=queue.path, weight=queue.weight, quota=rows, policy=policy, namespaces=namespaces,
        state=QueueState.HELD if closed else QueueState.OPEN,
    )  # fmt: skip


def _rows(rows: Iterable[QuotaRow]) -> str:
    amounts = [text_of(row.guaranteed, row.resource) + (f" on {row.flavor}" if row.flavor else "")
               for row in rows if row.guaranteed is not None]  # fmt: skip
    return f"guaranteed {', '.join(amounts)}" if amounts else "no guarantee of its own"


# LocalQueues


def _local_queues(
    manifests: Iterable[Manifest],
    queues: Mapping[str, Owner],
    labels: Mapping[str, Mapping[str, str]],
    found: Findings,
) -> tuple[defaultdict[str, tuple[str, ...]], list[RoutingRule]]:
    """The namespaces of each ClusterQueue, and the placement rules of root."""
    served = defaultdict[str, tuple[str, ...]](tuple)
    homes = defaultdict[str, dict[str, str]](dict)
    for manifest in manifests:
        spec = found.spec(manifest, known=("clusterQueue", "stopPolicy", "fairSharing"))
        about, space = f"LocalQueue {manifest.namespace}/{manifest.name}", manifest.namespace
        target = queues.get(spec.text("clusterQueue") or "")
        if target is None:
            text = f"its ClusterQueue {spec.text('clusterQueue')} is not in the input"
            found.tell(Fate.REFUSED, about, text, "add the ClusterQueue to the input")
            continue
        assert target.spec is not None
        if not _selected(target.spec, space, labels.get(space), about, found):
            text = f"the namespaceSelector of {target.about} does not select {space}"
            found.tell(Fate.REFUSED, about, text, f"Kueue admits nothing from it either; add {space} by hand")
            continue
        note_local_queue(spec, about, target.path, found)
        homes[space][manifest.name] = target.path
        served[target.name] = tuple(sorted({*served[target.name], space}))
        found.tell(Fate.MAPPED, about, f"jobs of namespace {space} go to {target.path} by a placement rule")
    return served, [rule for space in sorted(homes) for rule in _rules(space, homes[space], found)]


def _rules(space: str, homes: Mapping[str, str], found: Findings) -> Iterator[RoutingRule]:
    first = homes.get("default") or homes[min(homes)]
    for name, path in sorted(homes.items()):
        if path != first:
            yield RoutingRule(namespace=space, labels={QUEUE_NAME: name}, queue=path)
    text = f"its jobs without the label {QUEUE_NAME} go to {first}; Kueue starts them unqueued"
    found.tell(
        Fate.APPROXIMATED,
        f"Namespace {space}",
        text,
        "without default-queue on it, jobs need the label queuer.dev/queue",
    )
    yield RoutingRule(namespace=space, queue=first)


def _selected(
    spec: Reader, space: str, labels: Mapping[str, str] | None, about: str, found: Findings
) -> bool:
    """Whether the ClusterQueue's namespaceSelector takes a namespace. Without one it takes none."""
    if not spec.said("namespaceSelector"):
        return False
    at, known = spec.path("namespaceSelector"), ("matchLabels", "matchExpressions")
    selector = found.open(spec.values["namespaceSelector"], at=at, about=about, known=known)
    rows = [Requirement(key=k, operator="In", values=(v,)) for k, v in selector.labels("matchLabels").items()]
    for n, item in enumerate(selector.items("matchExpressions")):
        row = found.open(
            item, at=f"{at}.matchExpressions[{n}]", about=about, known=("key", "operator", "values")
        )
        key, operator = row.text("key") or "", row.text("operator") or ""
        rows.append(Requirement(key=key, operator=operator, values=row.texts("values")))
    if labels is None and any(row.key != _NAME for row in rows):
        text = f"the labels of namespace {space} are not in the input: taken as selected"
        found.tell(Fate.APPROXIMATED, about, text, "add `kubectl get namespaces -o yaml` to the input")
        rows = [row for row in rows if row.key == _NAME]
    return all(row.matches(labels or {_NAME: space}, name=space) for row in rows)


def _priority_class(manifest: Manifest, found: Findings) -> None:
    value, about = manifest.body.get("value"), f"WorkloadPriorityClass {manifest.name}"
    if not isinstance(value, int) or isinstance(value, bool):
        found.problems.note(f"{manifest.place} value", f"{value!r} is no whole number", "give its value")
        return
    text = f"a tree has no classes: a PriorityClass of value {value} orders jobs that name it"
    hint = f"label such jobs queuer.dev/priority-class={manifest.name}"
    found.tell(Fate.NO_EQUAL, about, text, hint)
    command = f"kubectl create priorityclass {manifest.name} --value={value} --preemption-policy=Never"
    found.commands.append(command)


# Flavors and topology


class _Flavors:
    """ResourceFlavors with the nodes that they name. Those that name the same nodes are one flavor here."""

    def __init__(self, flavors: Iterable[Manifest], topologies: Iterable[Manifest], found: Findings) -> None:
        self._found, self._used = found, dict[str, None]()
        self._first: dict[frozenset[tuple[str, str]], str] = {}
        self.flavors = {m.name: self._flavor(m) for m in flavors}
        self._topologies = {m.name: self._levels(m) for m in topologies}
        self._of: dict[str, str] = {}

    def _flavor(self, manifest: Manifest) -> tuple[Flavor, str | None]:
        spec, about = self._found.spec(manifest, known=_FLAVOR), f"ResourceFlavor {manifest.name}"
        keys = ("key", "operator", "value", "effect")
        rows = [
            self._found.open(item, at=f"{spec.path('tolerations')}[{n}]", about=about, known=keys)
            for n, item in enumerate(spec.items("tolerations"))
        ]
        tolerations = tuple(
            Toleration(
                key=row.text("key") or "", operator=row.text("operator") or "Equal",
                value=row.text("value") or "", effect=row.text("effect") or "",
            )
            for row in rows
        )  # fmt: skip
        flavor = Flavor(
            name=segment(manifest.name), node_labels=spec.labels("nodeLabels"), tolerations=tolerations
        )
        if spec.items("nodeTaints"):
            text = f"{len(spec.items('nodeTaints'))} nodeTaints need no entry: taints of the nodes themselves count"
            self._found.tell(Fate.MAPPED, about, text)
        return flavor, spec.text("topologyName")

    def _levels(self, manifest: Manifest) -> tuple[str, ...]:
        spec = self._found.spec(manifest, known=("levels",))
        about = f"Topology {manifest.name}"
        rows = [
            self._found.open(item, at=f"{spec.path('levels')}[{n}]", about=about, known=("nodeLabel",))
            for n, item in enumerate(spec.items("levels"))
        ]
        keys = tuple((row.text("nodeLabel") if row.need("nodeLabel") else None) or "" for row in rows)
        return tuple(key for key in keys if key != HOSTNAME)

    def _ours(self, name: str, about: str) -> str:
        """The flavor here that stands for one of Kueue's."""
        flavor, _ = self.flavors.get(name, (None, None))
        if flavor is None:
            text = f"ResourceFlavor {name} is not in the input: taken to name all nodes"
            self._found.tell(Fate.APPROXIMATED, about, text, "add the ResourceFlavor to the input")
        labels = flavor.node_labels if flavor else {}
        return self._first.setdefault(frozenset(labels.items()), segment(name))

    def count(self, owners: Iterable[Owner]) -> None:
        """Write the rows of every owner."""
        owners = list(owners)
        labelled = [name for name, (flavor, _) in self.flavors.items() if flavor.node_labels]
        together = {
            resource
            for owner in owners
            for n, group in enumerate(owner.groups)
            for _, amounts in group
            for resource in amounts
            if n != owner.main(labelled)
        }
        for owner in owners:
            parts: dict[Account, dict[str, Amounts]] = {}
            for group in owner.groups:
                for name, amounts in group:
                    ours = self._ours(name, owner.about)
                    self._used[ours] = None
                    for resource, row in amounts.items():
                        flavor = None if resource in together else ours
                        parts.setdefault((flavor, resource), {})[name] = row
            owner.rows = {account: self._sum(owner, account, rows) for account, rows in parts.items()}

    def _sum(self, owner: Owner, account: Account, rows: Mapping[str, Amounts]) -> Amounts:
        resource = account[1]
        nominal = sum(row.nominal for row in rows.values())
        if len(rows) > 1:
            terms = " + ".join(f"{text_of(row.nominal, resource)} on {name}" for name, row in rows.items())
            text = f"{text_of(nominal, resource)} together: {terms}"
            hint = "flavors of one group, with different nodeLabels, are counted each for itself"
            self._found.tell(Fate.APPROXIMATED, owner.about, text, hint)
        borrowing = [row.borrowing for row in rows.values() if row.borrowing is not None]
        lends = any(row.lending is not None for row in rows.values())
        lending = sum(row.nominal if row.lending is None else row.lending for row in rows.values())
        return Amounts(
            nominal=nominal,
            borrowing=sum(borrowing) if len(borrowing) == len(rows) else None,
            lending=lending if lends else None,
        )

    def offered(self, *, everything: bool) -> tuple[Flavor, ...]:
        """The flavors that queues name, those with most labels first: a node belongs to the first that matches."""
        flavors = {flavor.name: flavor for flavor, _ in self.flavors.values()}
        names = list(flavors) if everything else list(self._used)
        for name, (flavor, _) in self.flavors.items():
            about, ours = f"ResourceFlavor {name}", self._first.get(frozenset(flavor.node_labels.items()))
            if flavor.name in names:
                self._found.tell(Fate.MAPPED, about, f"flavor {flavor.name}")
            elif ours in names:
                self._found.tell(
                    Fate.APPROXIMATED, about, f"names the same nodes as flavor {ours}: counted there"
                )
            else:
                self._found.tell(Fate.APPROXIMATED, about, "left out: no queue names it")
        offered = sorted((flavors.get(n) or Flavor(name=n) for n in names), key=lambda f: -len(f.node_labels))
        rest = [flavor.name for flavor in offered if not flavor.node_labels]
        if len(offered) > len(rest) > 0:
            text = "takes the nodes that no other flavor names; in Kueue it names all nodes"
            self._found.tell(Fate.APPROXIMATED, f"ResourceFlavor {rest[0]}", text, "give it nodeLabels")
        return tuple(offered)

    def topology(self) -> Topology | None:
        """The one topology: that of most flavors. Others are told."""
        if not self._topologies:
            return None
        asked = [name for _, name in self.flavors.values() if name in self._topologies]
        chosen = max(self._topologies, key=asked.count)
        for name, levels in self._topologies.items():
            same = levels == self._topologies[chosen]
            text = f"levels {', '.join((*levels, 'host'))}"
            if same:
                self._found.tell(Fate.MAPPED, f"Topology {name}", text)
            else:
                hint = f"there is one topology for all nodes: {chosen}; add the levels that all nodes share"
                self._found.tell(Fate.NO_EQUAL, f"Topology {name}", text, hint)
        return Topology(keys=(*self._topologies[chosen], HOSTNAME))
