"""What the nodes tell a waiting gang: the domain that comes closest, what it lacks, and why other nodes do not count.

A gang can never have a place where one of its pod sets has too few slots in every domain, or all together more than any
domain amounts to, were every node idle.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from queuer.core.explain.quota import marked
from queuer.core.nodes import Mask, Matrix, Numbers, well
from queuer.core.placement import Part, Variant, parts_of
from queuer.core.shapes import Gang
from queuer.core.slots import Room
from queuer.core.state import State
from queuer.domain.flavors import allowed_flavors
from queuer.domain.nodes import Toleration
from queuer.domain.quantity import Resources
from queuer.domain.reasons import Exclusion, Reason, Token
from queuer.domain.workload import PodSet, Workload

ANYTHING = (Toleration(operator="Exists"),)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Closest:
    """The pod set that is shortest of room, with the domain of level `at` that has most slots for it, and these slots.

    `domain`: its number; -1 where there is none, or no level and all nodes count together; `closed`: nodes that do not
    count; `idle`: were every node empty and well.
    """

    part: Part
    pod_set: PodSet
    at: int | None
    domain: int
    most: int
    closed: Mask | None
    idle: bool

    @property
    def missing(self) -> int:
        """How many pods have no slot there."""
        return max(0, self.part.count - self.most)


class Places:
    """The nodes of one state as reasons, reservations aside."""

    def __init__(self, state: State) -> None:
        self._state, self._nodes = state, state.nodes
        self._lacks: dict[object, Reason | None] = {}
        self._nevers: dict[object, Reason | None] = {}
        self._sums: dict[object, Matrix] = {}

    def lack(self, gang: Gang, variant: Variant) -> Reason | None:
        """What is lacking now; None: there are slots enough. Hosts that pods still land on, or where room is held,
        count only where a gang without a choice could have them.
        """
        key = (gang.shape.form, *variant.flavors.values(), gang.pending.avoid)
        if key not in self._lacks:
            found = self.closest(gang, variant)
            shut = self.shut(gang, variant) if found is not None and not found.most else None
            self._lacks[key] = shut or (None if found is None else self._lack(gang, variant, found))
        return self._lacks[key]

    def _lack(self, gang: Gang, variant: Variant, found: Closest) -> Reason | None:
        if found.missing or len(variant.counts) > 1:
            return self._told(gang, variant, found)
        landing = self._state.landing
        beside = self.closest(gang, variant, closed=landing.here | landing.held)
        return None if beside is None or not beside.missing else self._told(gang, variant, beside)

    def never(self, gang: Gang, variant: Variant) -> Reason | None:
        """What not even an idle cluster has on these flavors; None: it might hold the gang."""
        key = (gang.shape.form, *variant.flavors.values())
        if key not in self._nevers:
            found = self.closest(gang, variant, idle=True)
            never = found is not None and (found.missing or self._sums_exclude(gang.workload, variant))
            self._nevers[key] = self._told(gang, variant, found) if never and found is not None else None
        return self._nevers[key]

    # The closest domain

    def closest(
        self, gang: Gang, variant: Variant, *, idle: bool = False, closed: Mask | None = None
    ) -> Closest | None:
        """None: there is nothing to place, or no such level. `closed`: nodes that do not count, beside those that the
        gang avoids.
        """
        workload, nodes = gang.workload, self._nodes
        parts = parts_of(nodes, workload, variant, idle=idle)
        if not parts:
            return None
        room = self._state.arrays.idle if idle else self._state.room()
        if not idle and (avoids := self._state.closed(gang)) is not None:
            closed = avoids if closed is None else closed | avoids
        level = nodes.snapshot.topology.find(workload.required) if workload.required else None
        best: Closest | None = None
        for part in parts:
            at = max((n for n in (part.required, level) if n is not None), default=None)  # the narrower one
            domain, most = self._largest(room, part, at, closed)
            if best is None or most * best.part.count < best.most * part.count:
                own = next(p for p in workload.pod_sets if p.name == part.name)
                best = Closest(
                    part=part, pod_set=own, at=at, domain=domain, most=most, closed=closed, idle=idle
                )
        return best

    def _largest(self, room: Room, part: Part, at: int | None, closed: Mask | None) -> tuple[int, int]:
        """The domain with most slots, and how many."""
        table = room.table(part.need, part.accepting)
        if closed is None:
            if at is None:
                return -1, table.total
            return _largest(table.by_domain(at, at))
        by_node = np.where(closed, 0, table.by_node)
        return (-1, int(by_node.sum())) if at is None else _largest(self._by_domain(at, by_node))

    def _by_domain(self, at: int, by_node: Matrix) -> Matrix:
        numbers = self._nodes.domains[at]
        known = numbers >= 0
        count = len(self._nodes.domain_names[at])
        sums: Matrix = np.bincount(numbers[known], weights=by_node[known], minlength=count).astype(np.int64)
        return sums

    def _sums_exclude(self, workload: Workload, variant: Variant) -> bool:
        """Whether all pod sets together ask for more than any domain of their level has, or all nodes."""
        if len(variant.counts) < 2:
            return False
        asked = sum(self._nodes.row(p.requests) * variant.counts[p.name] for p in workload.pod_sets)
        at = self._nodes.snapshot.topology.find(workload.required) if workload.required else None
        if at not in self._sums:
            columns = self._nodes.alloc.T
            self._sums[at] = (
                columns.sum(axis=1, keepdims=True)
                if at is None
                else np.array([self._by_domain(at, column) for column in columns])
            )
        return not bool((asked <= self._sums[at].T).all(axis=1).any())

    def _told(self, gang: Gang, variant: Variant, found: Closest) -> Reason:
        """What the closest domain lacks: slots for the pod set that is shortest of them, or room for all sets."""
        nodes, part = self._nodes, found.part
        params = {**self._need(found.pod_set, part.count, found.at), "fits": found.most}
        params["missing"] = found.missing
        if found.at is not None and found.domain >= 0:
            params["domain"] = nodes.domain_names[found.at][found.domain][-1]
        if found.idle:
            params["idle"] = True
        if len(variant.counts) > 1 and not found.missing:
            find, levels = nodes.snapshot.topology.find, nodes.snapshot.topology.levels
            own = {p.name: find(p.required) if p.required else None for p in gang.workload.pod_sets}
            sets = [p for p in gang.workload.pod_sets if variant.counts[p.name]]
            params["sets"] = [self._need(p, variant.counts[p.name], own[p.name]) for p in sets]
            if gang.workload.required:
                params["together"] = levels[find(gang.workload.required) or 0]
        return Reason(Token.TOPOLOGY_PLACEMENT_FAILED, marked(gang, params))

    def _need(self, pod_set: PodSet, count: int, at: int | None) -> dict[str, Any]:
        need = {"podSet": pod_set.name, "count": count, "per": per(pod_set.requests)}
        return need if at is None else {**need, "level": self._nodes.snapshot.topology.levels[at]}

    # No node at all

    def no_level(self, workload: Workload) -> Reason | None:
        """A required level that the topology does not have."""
        topology = self._nodes.snapshot.topology
        for level in (workload.required, *(p.required for p in workload.pod_sets)):
            if level is not None and topology.find(level) is None:
                return Reason(Token.MISCONFIGURED, {"level": level, "levels": list(topology.levels)})
        return None

    def shut(self, gang: Gang, variant: Variant) -> Reason | None:
        """Every node that would accept a pod set is cordoned, unready or avoided."""
        nodes, closed = self._nodes, self._state.closed(gang)
        for part in parts_of(nodes, gang.workload, variant) or ():
            accepting = part.accepting
            if bool((accepting if closed is None else accepting & ~closed).any()):
                continue
            pod_set = next(p for p in gang.workload.pod_sets if p.name == part.name)
            inside = nodes.open_to(pod_set, variant.flavors[part.name], idle=True)
            cordoned = self._cordoned(inside & ~accepting)
            params = {
                "podSet": part.name,
                "nodes": int(inside.sum()),
                "cordoned": cordoned,
                "notReady": int((inside & ~accepting).sum()) - cordoned,
                "avoided": int(accepting.sum()),
            }
            return Reason(Token.NODES_UNAVAILABLE, params)
        return None

    def nowhere(self, workload: Workload) -> Reason:
        """No node accepts some pod set, were all of them well: there is none, or none of these flavors, or the set's
        own terms exclude all.
        """
        nodes, snapshot = self._nodes, self._nodes.snapshot

        def allowed(pod_set: PodSet) -> tuple[str, ...]:
            return allowed_flavors(
                pod_set, queue=workload.queue, tree=snapshot.tree, flavors=snapshot.flavors
            )

        def accepted(pod_set: PodSet) -> bool:
            return any(nodes.open_to(pod_set, flavor, idle=True).any() for flavor in allowed(pod_set))

        refused = next((p for p in workload.pod_sets if not accepted(p)), workload.pod_sets[0])
        flavors = allowed(refused) if nodes.names else ()
        there = sum(int(nodes.in_flavor[flavor].sum()) for flavor in flavors)
        params = {"queue": workload.queue, "podSet": refused.name, "flavors": list(flavors), "nodes": there}
        empty = not nodes.names or (flavors and not there)
        return Reason(Token.NODES_UNAVAILABLE if empty else Token.NO_MATCHING_FLAVOR, params)

    def _cordoned(self, nodes: Mask) -> int:
        states = self._nodes.snapshot.nodes
        return sum(states[i].node.unschedulable for i in nodes.nonzero()[0])

    # Why nodes do not count

    def excluded(self, found: Closest, flavor: str, reserved: Mask) -> dict[str, Any]:
        """How many nodes have no room for one pod, by the first cause that applies; how many domains have too little.

        `reserved`: nodes that reservations keep from the gang (N).
        """
        nodes, part = self._nodes, found.part
        inside = nodes.in_flavor[flavor]
        idle, open_ = nodes.open_to(found.pod_set, flavor, idle=True), nodes.open_to(found.pod_set, flavor)
        avoided = np.zeros(len(nodes.names), dtype=bool) if found.closed is None else found.closed
        slots = self._state.room().table(part.need, part.accepting).by_node
        selected, tainted = self._refused(found.pod_set, inside & ~idle)
        cordoned = self._cordoned(idle & ~open_)
        usable = open_ & ~avoided
        causes = {
            Exclusion.FLAVOR: int((~inside).sum()),
            Exclusion.SELECTOR: selected,
            Exclusion.TAINT: tainted,
            Exclusion.CORDONED: cordoned,
            Exclusion.NOT_READY: int((idle & ~open_).sum()) - cordoned,
            Exclusion.AVOIDED: int((open_ & avoided).sum()),
            Exclusion.FULL: int((usable & (slots == 0)).sum()),
            Exclusion.RESERVED: int((usable & (slots > 0) & reserved).sum()),
        }
        by = [{"why": str(why), "nodes": n} for why, n in causes.items() if n]
        told: dict[str, Any] = {"nodes": sum(causes.values()), "of": len(nodes.names), "by": by}
        if found.at is not None:
            room = self._by_domain(found.at, np.where(usable, slots, 0))
            level = nodes.snapshot.topology.levels[found.at]
            told["domains"] = {"level": level, "short": int((room < part.count).sum()), "of": len(room)}
        return told

    def _refused(self, pod_set: PodSet, nodes: Mask) -> tuple[int, int]:
        """How many of these nodes the selectors exclude, and how many a taint alone."""
        terms, at = replace(pod_set.terms, tolerations=ANYTHING), nodes.nonzero()[0]
        tainted = sum(well(self._nodes.snapshot.nodes[i].node).accepts(terms) for i in at)
        return len(at) - tainted, tainted

    def scarce(self, found: Closest) -> str | None:
        """The resource of which the domain has least for what is asked."""
        at, need = self.nodes(found), found.part.need
        if not len(need.columns) or not len(at):
            return None
        free = self._state.room().free[at][:, need.columns].clip(min=0)
        return self._nodes.resources[int(need.columns[int((free // need.amounts).sum(axis=0).argmin())])]

    def nodes(self, found: Closest) -> Numbers:
        """The nodes of the domain that the pod set may use."""
        inside = found.part.accepting
        if found.at is not None:
            inside = inside & (self._nodes.domains[found.at] == found.domain)
        return inside.nonzero()[0]


def _largest(slots: NDArray[Any]) -> tuple[int, int]:
    best = int(slots.argmax()) if len(slots) else -1
    return best, int(slots[best]) if len(slots) else 0


def per(requests: Resources) -> Mapping[str, int]:
    """What a pod asks for, itself aside."""
    return {r: n for r, n in requests.items() if r != "pods" and n}
