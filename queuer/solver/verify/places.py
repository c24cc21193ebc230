"""The verifier's look at nodes: whole gangs on nodes that take them, inside levels and pins, with room for all."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from queuer.domain.workload import PodSet, Workload
from queuer.solver.records import Assignment
from queuer.solver.verify.case import Case, Group, Rule, Violation, least


def check_gangs(case: Case) -> Iterator[Violation]:
    """Each pod set once, in a permitted size, on allowed flavors and nodes; required levels kept."""
    for uid, rows in case.coming.items():
        workload, named = case.workload(uid), [row.pod_set for row, _ in rows]
        if len(named) != len(workload.pod_sets) or len(set(named)) < len(named):
            yield Violation(Rule.GANG, uid, f"{named} are assigned, {len(workload.pod_sets)} sets are asked")
        for row, group in rows:
            yield from _check_size(uid, group.pod_set, row)
            yield from _check_flavor(case, workload, group.pod_set, row)
            yield from _check_nodes(case, uid, group, row)
            yield from _check_level(case, uid, group.pod_set.required, [(row, group)])
        yield from _check_level(case, uid, workload.required, rows)


def _check_size(uid: str, pod_set: PodSet, row: Assignment) -> Iterator[Violation]:
    counts = row.nodes.values()
    if not least(pod_set) <= row.count <= pod_set.count or any(type(n) is not int or n <= 0 for n in counts):
        text = f"{pod_set.name} has {row.count} pods, {least(pod_set)} to {pod_set.count} are asked"
        yield Violation(Rule.GANG, uid, text)
    if pod_set.exclusive_host and any(n > 1 for n in counts):
        yield Violation(Rule.EXCLUSIVE, uid, f"several pods of {pod_set.name} share a host, one is asked")


def _check_flavor(case: Case, gang: Workload, pod_set: PodSet, row: Assignment) -> Iterator[Violation]:
    for resource in case.book.flavored.intersection(pod_set.requests):
        allowed = case.book.flavors_for(gang.queue, resource) if pod_set.requests[resource] else None
        if allowed is not None and row.flavor not in allowed:
            text = f"{gang.queue} does not allow {row.flavor} for {resource}"
            yield Violation(Rule.FLAVOR, gang.uid, text, gang.queue)


def _check_nodes(case: Case, uid: str, group: Group, row: Assignment) -> Iterator[Violation]:
    avoid, what = case.pending[uid].avoid, group.pod_set.name
    for name in row.nodes:
        if case.flavor_at(name) != row.flavor:
            text = f"{name} is of flavor {case.flavor_at(name)}, not {row.flavor}"
            yield Violation(Rule.FLAVOR, uid, text, name)
        if name in avoid or name not in group.hosts:
            labels = case.states[name].node.labels
            pinned = name in (row.hosts or (name,)) and row.selector.items() <= labels.items()
            text = f"{name} takes no pod of {what}" if pinned else f"{name} is outside the pin of {what}"
            yield Violation(Rule.NODE if pinned else Rule.PIN, uid, text, name)
    for name in group.hosts:
        if name not in row.nodes and (case.flavor_at(name) != row.flavor or name in avoid):
            yield Violation(Rule.PIN, uid, f"the pin of {what} lets pods onto {name}", name)


def _check_level(
    case: Case, uid: str, level: str | None, rows: Sequence[tuple[Assignment, Group]]
) -> Iterator[Violation]:
    """All planned nodes, and all that the pins leave open, are in one domain."""
    if level is None:
        return
    index = case.snapshot.topology.find(level)
    names = {name for row, group in rows for name in (*row.nodes, *group.hosts)}
    found = {None if index is None else case.domain(name, index) for name in names}
    if len(found) > 1 or None in found:
        yield Violation(Rule.LEVEL, uid, f"in {len(found)} or no domains of level {level}, one is asked")


def check_capacity(case: Case) -> Iterator[Violation]:
    """Node by node: what starts fits beside every pod; where something is held, all fits once the victims are gone."""
    starts, both = case.sums(case.started.items()), case.sums(case.rows.items() if case.bound else ())
    later = {name: both[name] for rows in case.bound.values() for row in rows for name in row.nodes}
    moments = (
        (starts, set[str](), case.started, "now"),
        (later, case.gone, case.rows, "with the victims gone"),
    )
    for totals, gone, among, when in moments:
        for name, room in case.room(totals, gone).items():
            for resource, amount in totals[name].items():
                have = room.get(resource, 0)
                if amount > have and (asking := case.asking(name, resource, among)):
                    text = f"{name} has {have} {resource} {when}, {amount} are planned"
                    yield Violation(Rule.CAPACITY, asking[-1], text, name)
