"""The verifier's look at nodes: whole gangs on nodes that take them, inside levels and pins, with room for all."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from queuer.core.records import Assignment
from queuer.core.verify.case import Case, Group, Rule, Violation, add
from queuer.domain.quantity import Resources
from queuer.domain.workload import PodSet, Workload


def check_gangs(case: Case) -> Iterator[Violation]:
    """Each pod set once, in a permitted size, on allowed flavors and nodes; required levels kept."""
    for uid, rows in case.coming.items():
        workload, named = case.workload(uid), [row.pod_set for row, _ in rows]
        if len(named) != len(workload.pod_sets) or len(set(named)) < len(named):
            text = f"{named} are assigned, not once each of {[p.name for p in workload.pod_sets]}"
            yield Violation(rule=Rule.GANG, uid=uid, text=text)
        for row, group in rows:
            yield from _check_size(uid, group.pod_set, row)
            yield from _check_flavor(case, workload, group.pod_set, row)
            yield from _check_nodes(case, uid, group, row)
            yield from _check_level(case, uid, group.pod_set.required, [(row, group)])
        yield from _check_level(case, uid, workload.required, rows)


def _check_size(uid: str, pod_set: PodSet, row: Assignment) -> Iterator[Violation]:
    least = pod_set.count if pod_set.min_count is None else pod_set.min_count
    counts = row.nodes.values()
    if not least <= row.count <= pod_set.count or any(type(n) is not int or n <= 0 for n in counts):
        text = f"pod set {pod_set.name}: {dict(row.nodes)}, wanted {least} to {pod_set.count}"
        yield Violation(rule=Rule.GANG, uid=uid, text=text)
    if pod_set.exclusive_host and any(n > 1 for n in counts):
        text = f"pod set {pod_set.name}: {dict(row.nodes)}, one per host is asked"
        yield Violation(rule=Rule.EXCLUSIVE, uid=uid, text=text)


def _check_flavor(case: Case, gang: Workload, pod_set: PodSet, row: Assignment) -> Iterator[Violation]:
    if row.flavor not in case.tolerations:
        yield Violation(rule=Rule.FLAVOR, uid=gang.uid, text=f"there is no flavor {row.flavor}")
    queue = gang.queue
    for resource, amount in pod_set.requests.items():
        allowed = case.book.flavors_for(queue, resource) if amount else None
        if allowed is not None and row.flavor not in allowed:
            text = f"{queue} does not allow {row.flavor} for {resource}"
            yield Violation(rule=Rule.FLAVOR, uid=gang.uid, text=text, at=queue)


def _check_nodes(case: Case, uid: str, group: Group, row: Assignment) -> Iterator[Violation]:
    avoid, pin, what = case.pending[uid].avoid, group.hosts, group.pod_set.name
    for name in row.nodes:
        if case.flavor_at(name) != row.flavor:
            text = f"{name} is of flavor {case.flavor_at(name)}, not {row.flavor}"
            yield Violation(rule=Rule.FLAVOR, uid=uid, text=text, at=name)
        if name not in pin or name in avoid:
            takes = case.states[name].node.accepts(case.terms(group.pod_set, row.flavor, {}))
            rule = Rule.PIN if takes and name not in avoid else Rule.NODE
            text = (
                f"{name} is outside the pin of {what}"
                if rule is Rule.PIN
                else f"{name} takes no pod of {what}"
            )
            yield Violation(rule=rule, uid=uid, text=text, at=name)
    for name in pin:
        if name not in row.nodes and (case.flavor_at(name) != row.flavor or name in avoid):
            text = f"the pin of {what} lets pods onto {name}"
            yield Violation(rule=Rule.PIN, uid=uid, text=text, at=name)


def _check_level(
    case: Case, uid: str, level: str | None, rows: Sequence[tuple[Assignment, Group]]
) -> Iterator[Violation]:
    """All planned nodes, and all that the pins leave open, are in one domain."""
    index = None if level is None else case.snapshot.topology.find(level)
    if level is not None and index is None:
        yield Violation(rule=Rule.LEVEL, uid=uid, text=f"there is no level {level}")
    if index is None:
        return
    planned = {name for row, _ in rows for name in row.nodes}
    for rule, names in ((Rule.LEVEL, planned), (Rule.PIN, {name for _, g in rows for name in g.hosts})):
        found = {case.domain(name, index) for name in names}
        if len(found) > 1 or None in found:
            text = f"{len(found)} domains of level {level}, one is asked"
            yield Violation(rule=rule, uid=uid, text=text)


def check_capacity(case: Case) -> Iterator[Violation]:
    """Node by node: what starts fits beside every pod; where something is held, all fits once the victims are gone."""
    starts = {n: pods for n, pods in case.on_node.items() if any(uid in case.started for uid, _, _ in pods)}
    rooms = case.room(starts)
    for name, pods in starts.items():
        there = [row for row in pods if row[0] in case.started]
        yield from _short(case, name, there, rooms[name], when="now")
    held = {
        name: pods
        for name, pods in case.on_node.items()
        if any(uid in case.bound for uid, _, _ in pods) and any(uid in case.new for uid, _, _ in pods)
    }
    rooms = case.room(held, case.gone)
    for name, pods in held.items():
        yield from _short(case, name, pods, rooms[name], when="with the victims gone")


def _short(
    case: Case, name: str, pods: Sequence[tuple[str, PodSet, int]], room: Resources, *, when: str
) -> Iterator[Violation]:
    total: dict[str, int] = {}
    for _, pod_set, count in pods:
        add(total, pod_set.requests, count)
    for resource, amount in total.items():
        if amount > room.get(resource, 0):
            asking = [uid for uid, p, _ in pods if p.requests.get(resource) and uid in case.new]
            if asking:
                text = f"{name} has {room.get(resource, 0)} {resource} free {when}, {amount} are planned"
                yield Violation(rule=Rule.CAPACITY, uid=case.last(asking), text=text, at=name)
