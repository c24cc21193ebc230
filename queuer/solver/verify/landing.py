"""The verifier's look at landing: pods find their places whatever kube-scheduler picks within the pins (DESIGN 3.5)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from queuer.solver.verify.case import Case, Group, Rule, Violation, add, slots


def check_landing(case: Case) -> Iterator[Violation]:
    """A pod set with a choice shares its hosts with no other gang; sets of one gang find room beside each other."""
    for uid, pods in case.coming.items():
        groups = [group for _, group in pods]
        for group in groups if len(groups) > 1 and uid in case.started else ():
            if (found := _beside(case, group, groups)) < group.count:
                text = f"{group.pod_set.name} may find only {found} of {group.count} places beside its gang's others"
                yield Violation(Rule.LANDING, uid, text)
    for host, there in _by_host(case).items():
        before: list[tuple[str, bool]] = []
        for uid, choice in there.items():
            near = (o for o, c in before if (choice or c) and not (uid in case.bound and o in case.gone))
            if uid in case.new and (other := next(near, None)) is not None:
                text = f"it shares {host} with {other}, and pods there have a choice of hosts"
                yield Violation(Rule.LANDING, uid, text, host)
            else:
                before.append((uid, choice))


def _beside(case: Case, group: Group, groups: Sequence[Group]) -> int:
    """Slots of a pod set once as many pods of its gang's others as could come to its hosts are there."""
    found = 0
    for host in group.hosts:
        left = dict(case.open(host))
        for other in groups:
            if other is not group and host in other.hosts:
                add(left, other.pod_set.requests, -min(other.count, other.slots.get(host, 0)))
        found += slots(left, group.pod_set)
    return found


def _by_host(case: Case) -> Mapping[str, Mapping[str, bool]]:
    """Of each host where pods with a choice may land, whether a gang that is there or comes has one, by uid: pods of
    earlier cycles, standing bonds, then what is new in turn.
    """
    landing = dict.fromkeys(group for groups in case.landing.values() for group in groups)
    entries = [(group.uid, group.slots, group.choice) for group in landing]
    entries += [(uid, row.nodes, False) for uid, rows in case.standing.items() for row in rows]
    for uid, pods in case.coming.items():
        starts = uid in case.started
        entries += [(uid, g.slots if starts else row.nodes, g.choice and starts) for row, g in pods]
    found: dict[str, dict[str, bool]] = {h: {} for _, hosts, choice in entries if choice for h in hosts}
    for uid, hosts, choice in entries if found else ():
        for host in found.keys() & hosts.keys():
            found[host][uid] = choice or found[host].get(uid, False)
    return found
