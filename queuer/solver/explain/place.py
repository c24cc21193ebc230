"""Reasons that nodes give: the domain that comes closest, its shortage, and why other nodes do not count.

With every node idle, a gang is unstartable if one of its pod sets has too few slots in every domain. It is, too, if all
sets together ask for more than any domain amounts to.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from queuer.domain.nodes import SchedulingTerms, TaintEffect, Toleration
from queuer.domain.quantity import format_resources
from queuer.domain.reasons import Exclusion, Reason, Token
from queuer.domain.rules import allowed_flavors
from queuer.domain.workload import PodSet, Workload
from queuer.solver.explain.quota import marked
from queuer.solver.nodes import Mask, Matrix, Numbers, well
from queuer.solver.placement import Part, Variant, parts_of
from queuer.solver.shapes import Gang
from queuer.solver.slots import Room
from queuer.solver.state import State

ANYTHING = (Toleration(operator="Exists"),)
TAINTS = 3
"""Of how many taints that are not tolerated is told."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Closest:
    """The pod set that is shortest of room, with the domain of level `at` that has most slots for it, and these slots.

    `domain`: its number; -1 where there is none, or no level and all nodes count together; `closed`: nodes that do not
    count.
    """

    part: Part
    pod_set: PodSet
    at: int | None
    domain: int
    most: int
    closed: Mask | None

    @property
    def missing(self) -> int:
        """How many pods have no slot there."""
        return max(0, self.part.count - self.most)


class Places:
    """The nodes of one state as reasons, reservations aside."""

    def __init__(self, state: State) -> None:
        self._state, self._nodes = state, state.nodes
        self._lacks: dict[object, Reason | None] = {}
        self._unstartable: dict[object, Reason | None] = {}
        self._sums: dict[int, Matrix] = {}

    def lack(self, gang: Gang, variant: Variant, *, landing: bool = True) -> Reason | None:
        """The shortage on these flavors, or None. A shortage of an idle cluster comes first. `landing`: pods that are
        still to land may be what is in its way.
        """
        key = (gang.shape.placement_key, gang.pending.avoid, landing, *variant.flavors.values())
        if key not in self._lacks:
            self._lacks[key] = self.unstartable(gang, variant) or self._now(gang, variant, landing=landing)
        return self._lacks[key]

    def unstartable(self, gang: Gang, variant: Variant) -> Reason | None:
        """The shortage of an idle cluster, or None."""
        key = (gang.shape.placement_key, *variant.flavors.values())
        if key not in self._unstartable:
            self._unstartable[key] = self._no_level(gang.workload) or self._idle(gang, variant)
        return self._unstartable[key]

    def _now(self, gang: Gang, variant: Variant, *, landing: bool) -> Reason | None:
        """Hosts that pods still land on, or where room is held, count only where a gang without a choice could have
        them.
        """
        found = self.closest(gang, variant)
        if found is None:
            return None
        if not found.most and (shut := self.shut(gang, variant)) is not None:
            return shut
        if found.missing or len(variant.counts) > 1:
            return self._told(gang, variant, found)
        if not landing:
            return None
        there = self._state.landing
        beside = self.closest(gang, variant, closed=there.here | there.held)
        return None if beside is None or not beside.missing else self._told(gang, variant, beside)

    def _idle(self, gang: Gang, variant: Variant) -> Reason | None:
        found = self.closest(gang, variant, idle=True)
        if found is None or not (found.missing or self._sums_exclude(gang.workload, variant)):
            return None
        return self._told(gang, variant, found, idle=True)

    # The closest domain

    def closest(
        self, gang: Gang, variant: Variant, *, idle: bool = False, closed: Mask | None = None
    ) -> Closest | None:
        """None: there is nothing to place, or no such level. `idle`: were every node empty and well; `closed`: nodes
        that do not count, beside those that the gang avoids.
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
                best = Closest(part=part, pod_set=own, at=at, domain=domain, most=most, closed=closed)
        return best

    def _largest(self, room: Room, part: Part, at: int | None, closed: Mask | None) -> tuple[int, int]:
        """The domain with most slots, and how many."""
        by_node = room.table(part.need, part.accepting).by_node
        if closed is not None:
            by_node = np.where(closed, 0, by_node)
        if at is None:
            return -1, int(by_node.sum())
        there = self._nodes.sums(at, by_node)
        best = int(there.argmax()) if len(there) else -1
        return best, int(there[best]) if len(there) else 0

    def _sums_exclude(self, workload: Workload, variant: Variant) -> bool:
        """Whether all pod sets together ask for more than any domain of their level has, or all nodes."""
        if len(variant.counts) < 2:
            return False
        asked = sum(self._nodes.row(p.requests) * variant.counts[p.name] for p in workload.pod_sets)
        at = self._nodes.snapshot.topology.find(workload.required) if workload.required else None
        if at is None:
            return bool(np.any(asked > self._nodes.total))
        if at not in self._sums:
            self._sums[at] = np.array([self._nodes.sums(at, column) for column in self._nodes.alloc.T])
        return not bool((asked <= self._sums[at].T).all(axis=1).any())

    def _told(self, gang: Gang, variant: Variant, found: Closest, *, idle: bool = False) -> Reason:
        """The closest domain lacks slots for the pod set that is shortest of them, or room for all sets."""
        nodes, part = self._nodes, found.part
        params = {**self._need(found.pod_set, part.count, found.at), "fits": found.most}
        params["missing"] = found.missing
        if found.at is not None and found.domain >= 0:
            params["domain"] = nodes.domain_names[found.at][found.domain][-1]
        if idle:
            params["unstartable"] = True
            accepting = nodes.open_to(found.pod_set, variant.flavors[part.name], idle=True)
            if largest := self._largest_nodes(found.pod_set, accepting):
                params["largest"] = largest
        if len(variant.counts) > 1 and not found.missing:
            find, counts = nodes.snapshot.topology.find, variant.counts
            params["sets"] = [
                self._need(p, counts[p.name], find(p.required) if p.required else None)
                for p in gang.workload.pod_sets
                if counts[p.name]
            ]
            if gang.workload.required:
                params["together"] = gang.workload.required
        return Reason(Token.TOPOLOGY_PLACEMENT_FAILED, marked(gang, params))

    def _largest_nodes(self, pod_set: PodSet, inside: Mask) -> dict[str, int]:
        """The most that one of these nodes has, of what a pod asks more of."""
        nodes = self._nodes
        asked = {r: n for r, n in pod_set.requests.items() if n and nodes.knows([r])}
        most = {r: int(nodes.alloc[inside, nodes.column(r)].max(initial=0)) for r in asked}
        return {r: most[r] for r, n in asked.items() if most[r] < n}

    def _need(self, pod_set: PodSet, count: int, at: int | None) -> dict[str, Any]:
        each = {r: n for r, n in pod_set.requests.items() if r != "pods" and n}
        need = {"podSet": pod_set.name, "count": count, "per": each}
        return need if at is None else {**need, "level": self._nodes.snapshot.topology.levels[at]}

    # No node at all

    def _no_level(self, workload: Workload) -> Reason | None:
        """A required level that the topology does not have."""
        topology = self._nodes.snapshot.topology
        for level in (workload.required, *(p.required for p in workload.pod_sets)):
            if level is not None and topology.find(level) is None:
                return Reason(Token.MISCONFIGURED, {"level": level, "levels": list(topology.levels)})
        return None

    def shut(self, gang: Gang, variant: Variant) -> Reason | None:
        """Every node that would accept a pod set is cordoned, unready or avoided."""
        nodes, closed = self._nodes, self._state.closed(gang)
        for pod_set in gang.workload.pod_sets:
            flavor = variant.flavors[pod_set.name]
            accepting = nodes.open_to(pod_set, flavor)
            if not bool((accepting if closed is None else accepting & ~closed).any()):
                counts = {"nodes": int(nodes.open_to(pod_set, flavor, idle=True).sum())}
                counts |= {**self._unusable(pod_set, flavor), "avoided": int(accepting.sum())}
                return Reason(Token.NODES_UNAVAILABLE, {"podSet": pod_set.name, **counts})
        return None

    def _unusable(self, pod_set: PodSet, flavor: str) -> dict[str, int]:
        """How many nodes would accept the set, were they well."""
        nodes = self._nodes
        ill = nodes.open_to(pod_set, flavor, idle=True) & ~nodes.open_to(pod_set, flavor)
        cordoned = sum(nodes.snapshot.nodes[i].node.unschedulable for i in ill.nonzero()[0])
        return {"cordoned": cordoned, "notReady": int(ill.sum()) - cordoned}

    def nowhere(self, workload: Workload) -> Reason:
        """No node accepts some pod set, even if all were well. There is none, or none of these flavors, or the set's
        own terms exclude all.
        """
        nodes, queue, tree = self._nodes, workload.queue, self._nodes.snapshot.tree
        flavors: tuple[str, ...] = ()
        for pod_set in workload.pod_sets:
            flavors = allowed_flavors(pod_set, queue=queue, tree=tree, flavors=nodes.snapshot.flavors)
            if not any(nodes.open_to(pod_set, flavor, idle=True).any() for flavor in flavors):
                break
        there = sum(int(nodes.in_flavor[flavor].sum()) for flavor in flavors)
        empty = not nodes.names or (flavors and not there)
        named = list(flavors) if nodes.names else []
        params = {"queue": queue, "podSet": pod_set.name, "flavors": named, "nodes": there}
        if empty:
            return Reason(Token.NODES_UNAVAILABLE, params)
        return Reason(Token.NO_MATCHING_FLAVOR, {**params, **self._refusing(pod_set.terms, flavors)})

    def _refusing(self, terms: SchedulingTerms, flavors: Iterable[str]) -> dict[str, list[str]]:
        """Labels that are asked for and that no node of the flavors has; else taints that are not tolerated."""
        nodes = self._nodes
        there = [nodes.snapshot.nodes[i].node for f in flavors for i in nodes.in_flavor[f].nonzero()[0]]
        asked = sorted(terms.node_selector.items())
        missing = [f"{key}={value}" for key, value in asked if all(n.labels.get(key) != value for n in there)]
        if missing:
            return {"selector": missing}
        anywhere = replace(terms, tolerations=ANYTHING)
        taints = sorted({
            taint.key
            for node in map(well, there)
            if node.accepts(anywhere)
            for taint in node.taints
            if taint.effect is not TaintEffect.PREFER_NO_SCHEDULE
            and not any(toleration.tolerates(taint) for toleration in terms.tolerations)
        })  # fmt: skip
        return {"taints": taints[:TAINTS]} if taints else {}

    # Why nodes do not count

    def excluded(self, found: Closest, flavor: str, reserved: NDArray[Any]) -> dict[str, Any]:
        """How many nodes have no room for one pod, by the first cause that applies; how many domains have too little.

        `reserved`: nodes that reservations keep from the gang (N).
        """
        nodes, part, pod_set = self._nodes, found.part, found.pod_set
        inside, open_ = nodes.in_flavor[flavor], nodes.open_to(pod_set, flavor)
        usable = open_ if found.closed is None else open_ & ~found.closed
        slots = self._state.room().table(part.need, part.accepting).by_node
        small = usable & (self._state.arrays.idle.table(part.need, part.accepting).by_node == 0)
        refused = (inside & ~nodes.open_to(pod_set, flavor, idle=True)).nonzero()[0]
        anywhere = replace(pod_set.terms, tolerations=ANYTHING)
        tainted = sum(well(nodes.snapshot.nodes[i].node).accepts(anywhere) for i in refused)
        ill = self._unusable(pod_set, flavor)
        causes = {
            Exclusion.FLAVOR: int((~inside).sum()),
            Exclusion.SELECTOR: len(refused) - tainted,
            Exclusion.TAINT: tainted,
            Exclusion.CORDONED: ill["cordoned"],
            Exclusion.NOT_READY: ill["notReady"],
            Exclusion.AVOIDED: int((open_ & ~usable).sum()),
            Exclusion.TOO_SMALL: int(small.sum()),
            Exclusion.FULL: int((usable & (slots == 0) & ~small).sum()),
            Exclusion.RESERVED: int((usable & (slots > 0) & reserved).sum()),
        }
        by: list[dict[str, Any]] = [{"why": str(why), "nodes": n} for why, n in causes.items() if n]
        for row in by:
            if row["why"] == Exclusion.TOO_SMALL:
                row["largest"] = format_resources(self._largest_nodes(pod_set, small))
        told: dict[str, Any] = {"nodes": sum(causes.values()), "of": len(nodes.names), "by": by}
        if found.at is not None:
            room = self._nodes.sums(found.at, np.where(usable, slots, 0))
            level = nodes.snapshot.topology.levels[found.at]
            told["domains"] = {"level": level, "short": int((room < part.count).sum()), "of": len(room)}
        return told

    def scarce(self, found: Closest) -> str | None:
        """The resource of which the domain has least for what is asked."""
        at, need = self.nodes(found), found.part.need
        if not len(need.columns) or not len(at):
            return None
        free = self._state.room().free[at][:, need.columns].clip(min=0)
        asked = sorted(name for name, amount in found.pod_set.requests.items() if amount)  # as in `need`
        return asked[int((free // need.amounts).sum(axis=0).argmin())]

    def nodes(self, found: Closest) -> Numbers:
        """The nodes of the domain that the pod set may use."""
        inside = found.part.accepting
        if found.at is not None:
            inside = inside & (self._nodes.domains[found.at] == found.domain)
        return inside.nonzero()[0]
