"""Where pods are still landing, and whether a pod set has a choice among its hosts.

A pod set without a choice counts on each host exactly and may share it. One with a choice has its hosts to itself until
all its pods are bound. Pod sets of a gang that nothing tells apart are one here: they share a pin, and a choice.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import numpy as np

from queuer.domain.assignments import Assignment
from queuer.domain.workload import PodSet, Workload
from queuer.solver.nodes import Mask, Matrix, Need, Nodes
from queuer.solver.placement import Spreads, landing_key
from queuer.solver.records import Admitted


class Landing:
    """Hosts on which pods land in this cycle. Masks of N. `here`: hosts of any gang. `owned`: hosts of pod
    sets with a choice, and of gangs that wait for others to land there. `held`: hosts where room is held for
    a gang that has not started.
    """

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes
        count = len(nodes.names)
        self.here: Mask = np.zeros(count, dtype=bool)
        self.owned: Mask = np.zeros(count, dtype=bool)
        self.held: Mask = np.zeros(count, dtype=bool)
        self._uids: dict[int, list[str]] = {}
        self._owners: dict[int, list[str]] = {}
        self._holders: dict[int, list[str]] = {}

    def on(self, hosts: Iterable[int]) -> list[str]:
        """Uids of gangs that are landing on these hosts or waiting to land there."""
        return list(dict.fromkeys(uid for host in hosts for uid in self._uids.get(host, ())))

    def holders(self, hosts: Iterable[int]) -> list[str]:
        """Uids of gangs for which room is held on these hosts."""
        return list(dict.fromkeys(uid for host in hosts for uid in self._holders.get(host, ())))

    def closed_by_others(self, uid: str, hosts: Iterable[int]) -> bool:
        """Whether somebody else than this workload has one of these hosts to itself."""
        return any(other != uid for host in hosts for other in self._owners.get(host, ()))

    @property
    def any_owned(self) -> bool:
        """Whether some pod set has hosts to itself."""
        return bool(self._owners)

    def has_choice(self, need: Need, count: int, hosts: Collection[int]) -> bool:
        """Whether so many pods may land on these hosts in more than one way, the room of whatever lands there open."""
        if len(hosts) < 2:
            return False
        at = np.fromiter(hosts, dtype=np.intp, count=len(hosts))
        return int(need.slots(self._nodes.bound_free[at]).sum()) > count

    def choices(self, workload: Workload, flavors: Mapping[str, str], spreads: Spreads) -> frozenset[int]:
        """The hosts of those pod sets of a placement that have a choice."""
        found: set[int] = set()
        for sets in united(self._nodes, workload, flavors, spreads):
            hosts = {host for pod_set in sets for host in spreads[pod_set.name]}
            count = sum(sum(spreads[pod_set.name].values()) for pod_set in sets)
            if self.has_choice(self._nodes.need(sets[0]), count, hosts):
                found.update(hosts)
        return frozenset(found)

    def may_start(
        self, workload: Workload, flavors: Mapping[str, str], spreads: Spreads, held: Mask | None = None
    ) -> bool:
        """Whether a placement keeps the rule beside all that lands: nobody else is where it has a choice. `held`: where
        room is held that counts (N); None = all.
        """
        held = self.held if held is None else held
        chosen = self.choices(workload, flavors, spreads)
        if chosen:
            at = np.fromiter(chosen, dtype=np.intp, count=len(chosen))
            if bool((self.here[at] | held[at]).any()):
                return False
        return not any(bool(self.owned[list(spread)].any()) for spread in spreads.values())

    def add(self, uid: str, hosts: Iterable[int], owned: Collection[int], times: int = 1) -> None:
        """Pods of this workload land on these hosts, of which some are `owned`; `times=-1`: they do not after all."""
        _note(self._uids, self.here, uid, hosts, times)
        _note(self._owners, self.owned, uid, owned, times)

    def hold(self, uid: str, hosts: Iterable[int], *, times: int = 1) -> None:
        """Room on these hosts is held for this workload; `times=-1`: no more."""
        _note(self._holders, self.held, uid, hosts, times)

    def expected(self, admitted: Admitted, free: Matrix) -> dict[int, Matrix]:
        """Amounts that the unbound pods of an admitted gang will take, by node (vectors of R). `free`: free amounts (N
        x R). The pods are noted as landing.
        """
        rows: dict[int, Matrix] = {}
        counts: dict[object, tuple[PodSet, tuple[str, ...], int]] = {}
        for part in admitted.unbound:
            pod_set = set_named(admitted.workload, part.pod_set)
            key = (
                landing_key(self._nodes, pod_set, admitted.flavors.get(part.pod_set, "")),
                frozenset(part.hosts),
            )
            counts[key] = pod_set, part.hosts, part.count + (counts[key][2] if key in counts else 0)
        for pod_set, names, count in counts.values():
            hosts = [self._nodes.index[h] for h in names if h in self._nodes.index]
            need, row, left = self._nodes.need(pod_set), self._nodes.row(pod_set.requests), count
            choice = self.has_choice(need, count, hosts)
            for host in hosts:
                come = min(left, int(need.slots(free[[host]])[0]))
                if come:
                    rows[host] = rows.get(host, 0) + row * come
                    left -= come
            self.add(admitted.workload.uid, hosts, hosts if choice else ())
        return rows


def _note(whose: dict[int, list[str]], mask: Mask, uid: str, hosts: Iterable[int], times: int) -> None:
    for host in hosts:
        there = whose.setdefault(host, [])
        if times > 0:
            there.append(uid)
        else:
            there.remove(uid)
        mask[host] = bool(there)


def set_named(workload: Workload, name: str) -> PodSet:
    """The pod set of this name."""
    return next(p for p in workload.pod_sets if p.name == name)


def united(
    nodes: Nodes, workload: Workload, flavors: Mapping[str, str], spreads: Spreads
) -> list[list[PodSet]]:
    """The pod sets that a placement has pods of; those that are one for landing together."""
    found: dict[object, list[PodSet]] = {}
    for pod_set in workload.pod_sets:
        if spreads.get(pod_set.name):
            found.setdefault(landing_key(nodes, pod_set, flavors[pod_set.name]), []).append(pod_set)
    return list(found.values())


def pinned(
    nodes: Nodes, workload: Workload, flavors: Mapping[str, str], spreads: Spreads
) -> tuple[Assignment, ...]:
    """A placement by node name, with the pins that say so to kube-scheduler."""
    domain = _whole_domain(nodes, workload, flavors, spreads)
    hosts_of: dict[str, tuple[str, ...]] = {}
    for sets in united(nodes, workload, flavors, spreads):
        names = {nodes.names[n] for pod_set in sets for n in spreads[pod_set.name]}
        hosts_of.update({pod_set.name: tuple(sorted(names)) for pod_set in sets})
    found = []
    for pod_set in workload.pod_sets:
        spread = spreads.get(pod_set.name)
        if not spread:
            continue
        there = {nodes.names[n]: count for n, count in sorted(spread.items())}
        flavor = flavors[pod_set.name]
        selector = dict(nodes.flavors[flavor].node_labels)
        selector.update(_required_labels(nodes, workload, pod_set, next(iter(spread))))
        hosts = hosts_of[pod_set.name] if domain is None else None
        selector.update(domain or {})
        found.append(
            Assignment(pod_set=pod_set.name, flavor=flavor, nodes=there, selector=selector, hosts=hosts)
        )
    return tuple(found)


def _required_labels(nodes: Nodes, workload: Workload, pod_set: PodSet, node: int) -> dict[str, str]:
    """Labels of the required levels."""
    topology, labels = nodes.snapshot.topology, nodes.snapshot.nodes[node].node.labels
    found = {}
    for level in (workload.required, pod_set.required):
        at = topology.find(level) if level else None
        if at is not None and (key := topology.keys[at]) in labels:
            found[key] = labels[key]
    return found


def _whole_domain(
    nodes: Nodes, workload: Workload, flavors: Mapping[str, str], spreads: Spreads
) -> dict[str, str] | None:
    """Labels of the narrowest domain that holds the gang, if it asks for a level and has all of it that is free."""
    topology = nodes.snapshot.topology
    name = workload.required or workload.preferred
    asked = topology.find(name) if name else None
    if asked is None or len(workload.pod_sets) != 1 or workload.pod_sets[0].required:
        return None
    (pod_set,) = workload.pod_sets
    hosts = sorted(spreads[pod_set.name])
    for level in range(len(topology.keys) - 2, asked - 1, -1):
        numbers = nodes.domains[level]
        if len(hosts) < 2 or numbers[hosts[0]] < 0 or (numbers[hosts] != numbers[hosts[0]]).any():
            continue
        inside = nodes.members(level, int(numbers[hosts[0]]))
        flavor = flavors[pod_set.name]
        labels = nodes.snapshot.nodes[hosts[0]].node.labels
        if any(key not in labels for key in topology.keys[: level + 1]):
            return None
        if not nodes.in_flavor[flavor][inside].all():
            return None
        open_ = inside[nodes.open_to(pod_set, flavor)[inside]]
        slots = int(nodes.need(pod_set).slots(nodes.bound_free[open_]).sum())
        if slots != sum(spreads[pod_set.name].values()):
            return None
        if not all(nodes.snapshot.nodes[n].node.schedulable for n in inside):
            return None  # pods that tolerate everything go to a cordoned host, too
        return {key: labels[key] for key in topology.keys[: level + 1]}
    return None
