"""Kueue's ClusterQueues, Cohorts, LocalQueues, ResourceFlavors, Topologies and WorkloadPriorityClasses as a tree.

A Cohort is an inner queue, a ClusterQueue a leaf, a LocalQueue a placement rule at root by namespace; where a namespace
has several, by the label `kueue.x-k8s.io/queue-name` too, so that manifests of jobs stay as they are. A ClusterQueue
without Cohort and a Cohort at the top borrow from nobody: their limit is their nominal quota.

A pod set uses one flavor here. So one resource group of a ClusterQueue keeps its flavors; other groups, and flavors
that name the same nodes, are counted together. Semantics: Kueue v1beta1 and v1beta2, `resource_node.go`.
"""

from __future__ import annotations

import shlex
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping

from queuer.domain.queue import (
    HIGHEST_PRIORITY,
    ROOT,
    SYSTEM_CLASSES,
    Order,
    Policy,
    Preempt,
    Queue,
    QueueState,
    QuotaRow,
)
from queuer.imports.kueue_flavors import Flavors
from queuer.imports.kueue_notes import note_cluster_queue
from queuer.imports.kueue_owners import Owner, read_cluster_queue, read_cohort
from queuer.imports.kueue_routing import NAME, local_queues
from queuer.imports.records import (
    Account,
    Fate,
    Findings,
    Imported,
    Manifest,
    child_path,
    nothing_found,
    opt_in,
    text_of,
)

GROUP = "kueue.x-k8s.io"
_READ = ("ClusterQueue", "Cohort", "LocalQueue", "ResourceFlavor", "Topology", "WorkloadPriorityClass")
_WITHOUT_EQUAL = ("AdmissionCheck", "ProvisioningRequestConfig", "MultiKueueConfig", "MultiKueueCluster")
KINDS = "clusterqueues,cohorts,localqueues,resourceflavors,topologies.kueue.x-k8s.io,workloadpriorityclasses,namespaces"


def read(manifests: Iterable[Manifest]) -> Imported:
    """The tree of Kueue's objects. Other kinds are told and left out. Raises InvalidInput naming every wrong field."""
    found = Findings()
    by_kind = _by_kind(manifests, found)
    cohorts = {m.name: read_cohort(m, found) for m in by_kind["Cohort"]}
    queues = {m.name: read_cluster_queue(m, found) for m in by_kind["ClusterQueue"]}
    declared = Flavors(by_kind["ResourceFlavor"], by_kind["Topology"], found)
    if not (queues or cohorts or declared.flavors or by_kind["Topology"] or by_kind["WorkloadPriorityClass"]):
        raise nothing_found("ClusterQueue", f"kubectl get {KINDS} -A -o yaml | queuer import kueue -")
    for owner in [*queues.values(), *cohorts.values()]:
        if owner.above and owner.above not in cohorts:
            cohorts[owner.above] = Owner(about=f"Cohort {owner.above}", name=owner.above, above=None)
    _place(cohorts, queues, found)
    declared.count([*queues.values(), *cohorts.values()])
    labels = {m.name: {**m.labels(), NAME: m.name} for m in by_kind["Namespace"]}
    served, rules = local_queues(by_kind["LocalQueue"], queues, labels, found)
    tree = [*_inner(cohorts, queues, found), *(_leaf(q, served[q.name], found) for q in queues.values())]
    if rules:
        tree.append(Queue(path=ROOT, placement=tuple(rules)))
    opt_in({rule.namespace for rule in rules if rule.namespace}, found)
    for manifest in by_kind["WorkloadPriorityClass"]:
        _priority_class(manifest, found)
    if queues:
        hint = "a row with limit: 0 refuses the resource"
        text = "a resource that no group covers is refused by Kueue; here limits above and the nodes bound it"
        found.tell(Fate.APPROXIMATED, "all ClusterQueues", text, hint)
    flavors = declared.offered(everything=not queues)
    return found.done(
        sorted(tree, key=lambda queue: queue.path), flavors=flavors or None, topology=declared.topology()
    )


def _by_kind(manifests: Iterable[Manifest], found: Findings) -> defaultdict[str, list[Manifest]]:
    """The objects that are read, each once; what is left out is told."""
    by_kind, others = defaultdict[str, list[Manifest]](list), Counter[str]()
    first: dict[tuple[str, str, str], Manifest] = {}
    for manifest in manifests:
        kind, kueue = manifest.kind, manifest.group == GROUP
        if kueue and kind in _WITHOUT_EQUAL:
            hint = "leave it out: capacity is what nodes have, and jobs run on this cluster"
            found.tell(Fate.NO_EQUAL, f"{kind} {manifest.name}", "there are no admission checks", hint)
        elif not (kind in _READ if kueue else (manifest.group, kind) == ("", "Namespace")):
            others[f"{kind or 'objects without kind'} of {manifest.group or 'no group'}"] += 1
        elif (there := first.setdefault((kind, manifest.namespace, manifest.name), manifest)) is manifest:
            by_kind[kind].append(manifest)
        elif any(there.body.get(key) != manifest.body.get(key) for key in ("spec", "value")) or (
            kind == "Namespace" and there.labels() != manifest.labels()
        ):
            found.problems.note(manifest.place, f"differs from {there.place}", "leave one of them out")
    for other, count in others.items():
        found.tell(Fate.NO_EQUAL, other, f"{count} left out: this import does not read them")
    return by_kind


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
    """The Cohorts as queues. A Cohort adds its own quota to the nominal quota below it."""
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
    if shared:
        _tell_entitled(queue, found)
    preemption = spec.values.get("preemption")
    said = preemption if isinstance(preemption, Mapping) else {}
    within, reclaim = (said.get(key) or "Never" for key in ("withinClusterQueue", "reclaimWithinCohort"))
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


def _tell_entitled(queue: Owner, found: Findings) -> None:
    """Tell where guarantees of other resources entitle jobs to what the ClusterQueue has no nominal quota of."""
    for (flavor, resource), row in queue.rows.items():
        beside = [r for (f, r), other in queue.rows.items() if other.nominal and f in (None, flavor)]
        if beside and not row.nominal:
            of = f"{resource} on {flavor}" if flavor else resource
            text = f"nominalQuota 0 of {of}: jobs that ask for {', '.join(beside)} too are entitled by that"
            hint = "they go before jobs that borrow, where Kueue ranks them as borrowers"
            found.tell(Fate.APPROXIMATED, queue.about, text, hint)


def _rows(rows: Iterable[QuotaRow]) -> str:
    amounts = [text_of(row.guaranteed, row.resource) + (f" on {row.flavor}" if row.flavor else "")
               for row in rows if row.guaranteed is not None]  # fmt: skip
    return f"guaranteed {', '.join(amounts)}" if amounts else "no guarantee of its own"


def _priority_class(manifest: Manifest, found: Findings) -> None:
    value, about = manifest.body.get("value"), f"WorkloadPriorityClass {manifest.name}"
    if not isinstance(value, int) or isinstance(value, bool):
        found.problems.note(f"{manifest.place} value", f"{value!r} is no whole number", "give its value")
        return
    if manifest.name.startswith(SYSTEM_CLASSES):
        text = f"a PriorityClass of this name is refused: {SYSTEM_CLASSES}* is Kubernetes' own"
        found.tell(Fate.REFUSED, about, text, f"create one of value {value} under another name")
        return
    if value > HIGHEST_PRIORITY:
        text = f"a PriorityClass of value {value} is refused: {HIGHEST_PRIORITY} is the highest"
        found.tell(Fate.REFUSED, about, text, "create one of a lower value")
        return
    text = f"a tree has no classes: a PriorityClass of value {value} orders jobs that name it"
    hint = f"label such jobs queuer.dev/priority-class={manifest.name}"
    found.tell(Fate.NO_EQUAL, about, text, hint)
    name = shlex.quote(manifest.name)
    found.commands.append(f"kubectl create priorityclass {name} --value={value} --preemption-policy=Never")
