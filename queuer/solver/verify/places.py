"""The verifier's look at nodes: whole gangs inside levels and pins, with room for all, that land whatever
kube-scheduler picks.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from queuer.solver.verify.case import Group, Rule, VerifierCase, Violation, add, alike, least, slots


def check_gangs(case: VerifierCase) -> Iterator[Violation]:
    """Each pod set once, in a permitted size, on allowed flavors and nodes; required levels kept."""
    for uid, groups in case.coming.items():
        workload, named = case.workload(uid), {group.pod_set.name for group in groups}
        if not len(groups) == len(named) == len(workload.pod_sets):
            yield Violation(Rule.GANG, uid, f"{named} are assigned, {len(workload.pod_sets)} sets are asked")
        for group in groups:
            yield from _check_size(group)
            yield from _check_nodes(case, group)
            yield from _check_level(case, uid, group.pod_set.required, [group])
        yield from _check_level(case, uid, workload.required, groups)
        for row in case.started.get(uid, ()):
            shut = [name for name in case.pinned(row) if not case.states[name].node.schedulable]
            if shut and row.hosts is None:
                text = f"{shut[0]} is cordoned or not ready, and pods that tolerate everything may go there"
                yield Violation(Rule.NODE, uid, text)


def _check_size(group: Group) -> Iterator[Violation]:
    pod_set, counts = group.pod_set, group.nodes.values()
    if not least(pod_set) <= group.count <= pod_set.count or min(counts) < 1:
        text = f"{pod_set.name} has {group.count} pods, {least(pod_set)} to {pod_set.count} are asked"
        yield Violation(Rule.GANG, group.uid, text)
    if pod_set.exclusive_host and max(counts, default=0) > 1:
        yield Violation(Rule.GANG, group.uid, f"several pods of {pod_set.name} share a host, one is asked")


def _check_nodes(case: VerifierCase, group: Group) -> Iterator[Violation]:
    """The planned nodes, and all that the pin leaves open, take these pods."""
    uid, what, queue = group.uid, group.pod_set.name, case.workload(group.uid).queue
    for resource, amount in group.pod_set.requests.items():
        allowed = case.book.flavors_for(queue, resource) if amount else None
        if allowed is not None and group.flavor not in allowed:
            yield Violation(Rule.FLAVOR, uid, f"{queue} does not allow {group.flavor} for {resource}")
    for name in dict.fromkeys((*group.nodes, *group.hosts)):
        if case.flavor_at(name) != group.flavor:
            text = f"{name} is of flavor {case.flavor_at(name)}, not {group.flavor}"
            yield Violation(Rule.FLAVOR, uid, text)
        if name in case.pending[uid].avoid or name not in group.hosts:
            text = f"{name} is avoided, accepts no pod of {what}, or is outside its pin"
            yield Violation(Rule.NODE, uid, text)


def _check_level(
    case: VerifierCase, uid: str, level: str | None, groups: Sequence[Group]
) -> Iterator[Violation]:
    """All planned nodes, and all that the pins leave open, are in one domain."""
    if level is None:
        return
    index = case.snapshot.topology.find(level)
    names = {name for group in groups for name in (*group.nodes, *group.hosts)}
    found = {None if index is None else case.domain(name, index) for name in names}
    if len(found) > 1 or None in found:
        yield Violation(Rule.LEVEL, uid, f"in {len(found)} or no domains of level {level}, one is asked")


def check_capacity(case: VerifierCase) -> Iterator[Violation]:
    """Node by node: what starts fits beside every pod; where something is held, all fits once the victims are gone."""
    yield from _over(case, case.started, set(), "now")
    if case.bound:
        yield from _over(case, case.rows, case.gone, "with the victims gone")


def _over(
    case: VerifierCase, among: Collection[str], gone: Collection[str], when: str
) -> Iterator[Violation]:
    totals = case.sums(group for uid in among for group in case.coming[uid])
    for name, room in case.room(totals, gone).items():
        for resource, amount in totals[name].items():
            if amount > (have := room.get(resource, 0)):
                text = f"{name} has {have} {resource} {when}, {amount} are planned"
                yield Violation(Rule.CAPACITY, case.last(name, resource, among), text)


# Landing


def check_landing(case: VerifierCase) -> Iterator[Violation]:
    """A pod set with a choice shares its hosts with no other gang; sets of one gang find room beside each other."""
    for uid, groups in case.coming.items():
        for group in groups if len(groups) > 1 and uid in case.started else ():
            same = [o for o in groups if alike(group.pod_set, group.hosts, o.pod_set, o.hosts)]
            count = sum(o.count for o in same)
            if (found := _beside(case, group, [o for o in groups if o not in same])) < count:
                text = (
                    f"{group.pod_set.name} may find only {found} of {count} places beside its gang's others"
                )
                yield Violation(Rule.LANDING, uid, text)
    for host, there in _by_host(case).items():
        before: list[tuple[str, bool]] = []
        for uid, choice in there.items():
            near = (o for o, c in before if (choice or c) and not (uid in case.bound and o in case.gone))
            decided = uid in case.started or uid in case.new
            if decided and (other := next(near, None)) is not None:
                text = f"it shares {host} with {other}, and pods there have a choice of hosts"
                yield Violation(Rule.LANDING, uid, text)
            else:
                before.append((uid, choice))


def _beside(case: VerifierCase, group: Group, others: Sequence[Group]) -> int:
    """Slots of a pod set once as many pods of its gang's others as could come to its hosts are there."""
    found = 0
    for host in group.hosts:
        left = dict(case.open(host))
        for other in others:
            if host in other.hosts:
                add(left, other.pod_set.requests, -min(other.count, other.slots.get(host, 0)))
        found += slots(left, group.pod_set)
    return found


def _by_host(case: VerifierCase) -> Mapping[str, Mapping[str, bool]]:
    """For each host where pods with a choice may land: by uid, whether a gang that is there or comes has a
    choice. Pods of earlier cycles come first, then the plan's in turn.
    """
    pods = [group for there in (*case.landing.values(), *case.coming.values()) for group in there]
    found: dict[str, dict[str, bool]] = {host: {} for group in pods if group.choice for host in group.slots}
    for group in pods if found else ():
        for host in found.keys() & group.slots.keys():
            found[host][group.uid] = group.choice or found[host].get(group.uid, False)
    return found
