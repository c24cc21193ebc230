"""Carrying out what a waiting gang is told would admit it."""

from __future__ import annotations

from dataclasses import replace

from queuer.domain.quantity import parse_quantity
from queuer.domain.queue import QueueTree, QuotaRow
from queuer.domain.workload import Workload


def changed(workload: Workload, change: str) -> Workload:
    """The workload after `topology=LEVEL`, `preemptible=true` or `PODSET.count<=N`; as it is after any other."""
    if " guaranteed " in change:
        return workload
    if change == "preemptible=true":
        return replace(workload, preemptible=True)
    if change.startswith("topology="):
        level = change.removeprefix("topology=")
        return replace(workload, required=None if level == "any" else level)
    name, _, count = change.partition(".count<=")
    sets = tuple(
        replace(p, count=int(count), min_count=None) if p.name == name else p for p in workload.pod_sets
    )
    return replace(workload, pod_sets=sets)


def changed_tree(tree: QueueTree, change: str) -> QueueTree:
    """A valid tree after `QUEUE guaranteed RESOURCE[ on FLAVOR]>=AMOUNT, ...`; as it is after any other."""
    path, said, told_rows = change.partition(" guaranteed ")
    if not said:
        return tree
    rows = {(row.flavor, row.resource): row for row in tree[path].quota}
    for told_row in told_rows.split(", "):
        account, _, amount = told_row.partition(">=")
        resource, _, flavor = account.partition(" on ")
        known = rows.get((flavor or None, resource), QuotaRow(resource=resource, flavor=flavor or None))
        guaranteed = parse_quantity(amount, resource=resource)
        rows[flavor or None, resource] = replace(known, guaranteed=guaranteed)
    grown = replace(tree[path], quota=tuple(rows.values()))
    return QueueTree.of(grown if queue.path == path else queue for queue in tree)
