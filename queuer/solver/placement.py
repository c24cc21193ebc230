"""Where a gang fits in what is free: the narrowest domain, there the fewest of each narrower level, then node by node.

Pods that are alike fit exactly when the slots of their nodes suffice. Pod sets that share nodes are placed one after
the other, in a few orders. A placement that no order finds is left to the repair and the next cycle.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from queuer.domain.workload import PodSet, Workload
from queuer.solver.filling import fill
from queuer.solver.nodes import Mask, Matrix, Need, Nodes, Numbers
from queuer.solver.slots import Room

Spread = dict[int, int]
"""Pods of one set by node number."""
Spreads = Mapping[str, Spread]
"""By pod set."""
SURELY = 1 - 1e-9
"""What sums of rounded amounts leave out is too little all the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """One choice of flavors and sizes for a gang, both by pod set name."""

    flavors: Mapping[str, str]
    counts: Mapping[str, int]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Part:
    """One pod set to place. `accepting`: nodes that take its pods (N). `required`, `preferred`: levels for the set
    alone; `row`: requests of a pod (R); `landing_key`: see `landing_key`.
    """

    name: str
    landing_key: object
    count: int
    need: Need
    row: Matrix
    accepting: Mask
    required: int | None
    preferred: int | None


def parts_of(nodes: Nodes, workload: Workload, variant: Variant, *, idle: bool = False) -> list[Part] | None:
    """The pod sets of a gang for one variant; None where a level that it requires does not exist. `idle`: as if every
    node were ready and uncordoned.
    """
    find = nodes.snapshot.topology.find
    parts = []
    for pod_set in workload.pod_sets:
        required = None if pod_set.required is None else find(pod_set.required)
        if pod_set.required is not None and required is None:
            return None
        count = variant.counts[pod_set.name]
        if count:
            accepting = nodes.open_to(pod_set, variant.flavors[pod_set.name], idle=idle)
            parts.append(
                Part(
                    name=pod_set.name,
                    landing_key=landing_key(nodes, pod_set, variant.flavors[pod_set.name]),
                    count=count,
                    need=nodes.need(pod_set),
                    row=nodes.row(pod_set.requests),
                    accepting=accepting,
                    required=required,
                    preferred=None if pod_set.preferred is None else find(pod_set.preferred),
                )
            )
    if workload.required is not None and find(workload.required) is None:
        return None
    return parts


def landing_key(nodes: Nodes, pod_set: PodSet, flavor: str) -> object:
    """Equal for the pod sets of a gang that are one for landing: their pods are alike and share a pin."""
    if pod_set.exclusive_host or pod_set.required or pod_set.preferred:
        return pod_set.name
    return (flavor, id(nodes.need(pod_set)), nodes.terms(pod_set))


def rows_of(nodes: Nodes, workload: Workload, spreads: Spreads) -> dict[int, Matrix]:
    """Amounts that a placement takes, by node number (vectors of R)."""
    rows: dict[int, Matrix] = {}
    for pod_set in workload.pod_sets:
        row = nodes.row(pod_set.requests)
        for node, count in spreads.get(pod_set.name, {}).items():
            taken = row * count
            rows[node] = rows[node] + taken if node in rows else taken
    return rows


def place(
    room: Room,
    workload: Workload,
    parts: Sequence[Part] | None,
    *,
    closed: Mask | None = None,
    inside: Numbers | None = None,
) -> Spreads | None:
    """A placement of the whole gang, or None. `parts`: see `parts_of`; `closed`: nodes that it may not use; `inside`:
    nodes that it may use, a domain that satisfies its own required level.
    """
    if parts is None:
        return None
    if any(room.table(p.need, p.accepting).total < p.count for p in parts):
        return None
    whole = list(united(parts).values())
    found = _Search(room, closed).place(workload, whole, inside)
    return found if found is None or len(whole) == len(parts) else _shared_out(parts, whole, found)


def united(parts: Sequence[Part]) -> dict[object, Part]:
    """Sets that are one for landing as one part, under the first name."""
    found: dict[object, Part] = {}
    for part in parts:
        first = found.get(part.landing_key)
        found[part.landing_key] = part if first is None else replace(first, count=first.count + part.count)
    return found


def _shared_out(parts: Sequence[Part], whole: Sequence[Part], spreads: Spreads) -> Spreads:
    """The pods of united parts given back to the pod sets, host by host."""
    left = {part.landing_key: dict(spreads[part.name]) for part in whole}
    found: dict[str, Spread] = {}
    for part in parts:
        there, found[part.name], missing = left[part.landing_key], {}, part.count
        for node in list(there):
            if some := min(missing, there[node]):
                found[part.name][node] = some
                missing -= some
                there[node] -= some
    return found


class _Search:
    """One search for a placement in one room."""

    def __init__(self, room: Room, closed: Mask | None) -> None:
        self._room, self._nodes, self._closed = room, room.nodes, closed
        self._together = False  # whether the gang asks for a level

    def place(self, workload: Workload, parts: Sequence[Part], inside: Numbers | None) -> Spreads | None:
        find = self._nodes.snapshot.topology.find
        self._together = bool(workload.required or workload.preferred)
        if inside is not None:
            return self._pack(parts, inside)
        required = find(workload.required) if workload.required else None
        preferred = find(workload.preferred) if workload.preferred else None
        for scope in self._scopes(parts, required=required, preferred=preferred):
            found = self._pack(parts, scope)
            if found is not None:
                return found
        return None

    def _scopes(
        self, parts: Sequence[Part], *, required: int | None, preferred: int | None
    ) -> Iterator[Numbers | None]:
        """Nodes to try, of domains that might hold all parts, narrowest first; None = all."""
        host = len(self._nodes.domains) - 1
        if required is None and preferred is None:
            yield None
            return
        widest = required if required is not None else 0
        narrowest = host if required is not None or preferred is None else preferred
        inside = host if required is None else required  # every node is a host
        within = self._nodes.domains[inside] >= 0
        for level in range(narrowest, widest - 1, -1):
            for domain in self._ranked(parts, level=level, inside=inside):
                nodes = self._nodes.members(level, domain)
                yield nodes[within[nodes]]
        if required is None:
            yield None

    def _ranked(self, parts: Sequence[Part], *, level: int, inside: int) -> list[int]:
        """Domains with enough for each part alone, and for all in sum: fewest slots left over first, then by number."""
        spare = None
        for part in parts:
            there = self._room.table(part.need, part.accepting).by_domain(level, inside)
            left = there - self._shut(part, level, inside) - part.count
            enough = left >= 0
            spare = left if spare is None else spare + left
            spare = np.where(enough, spare, np.inf)
        if spare is None:
            return []
        if len(parts) > 1:
            spare[~self._holds_all(parts, level, inside)] = np.inf
        order = np.argsort(spare, kind="stable")
        ranked: list[int] = order[: int(np.isfinite(spare).sum())].tolist()
        return ranked

    def _holds_all(self, parts: Sequence[Part], level: int, inside: int) -> Mask:
        """By domain, whether as much is free there as all parts ask for together."""
        asked: Matrix = np.sum([part.row * part.count for part in parts], axis=0)
        numbers = self._nodes.domains[level]
        open_ = np.any([part.accepting for part in parts], axis=0)
        open_ &= (numbers >= 0) & (self._nodes.domains[inside] >= 0)
        if self._closed is not None:
            open_ &= ~self._closed
        free, numbers = self._room.free[open_].clip(min=0), numbers[open_]
        enough = np.ones(len(self._nodes.domain_names[level]), dtype=bool)
        for column in np.flatnonzero(asked):
            there = np.bincount(numbers, weights=free[:, column], minlength=len(enough))
            enough &= there >= asked[column] * SURELY
        return enough

    def _shut(self, part: Part, level: int, inside: int) -> Matrix | int:
        """Slots of closed nodes by domain."""
        if self._closed is None:
            return 0
        numbers = self._nodes.domains[level]
        shut = np.flatnonzero(self._closed & (numbers >= 0) & (self._nodes.domains[inside] >= 0))
        there = self._room.table(part.need, part.accepting).by_node[shut]
        taken: Matrix = np.bincount(
            numbers[shut], weights=there, minlength=len(self._nodes.domain_names[level])
        ).astype(np.int64)
        return taken

    def _pack(self, parts: Sequence[Part], inside: Numbers | None) -> Spreads | None:
        """All parts into the nodes of one scope: on shared hosts where that lands, else on hosts of their own."""
        if len(parts) == 1:
            spread = self._part(self._room, parts[0], inside)
            return None if spread is None else {parts[0].name: spread}
        for apart in (False, True):
            for order in _orders(self._nodes, parts):
                found = self._in_turn(order, inside, apart=apart)
                if found is not None and land_beside(self._room.free, parts, found):
                    return found
        return None

    def _in_turn(self, parts: Sequence[Part], inside: Numbers | None, *, apart: bool) -> Spreads | None:
        """Part by part, each where it fits best; `apart`: on hosts of its own."""
        found: dict[str, Spread] = {}
        left: dict[int, Matrix] = {}
        for part in parts:
            room = self._room
            if left:
                room = room.but(np.array(list(left), dtype=np.intp), np.array(list(left.values())))
            tries = (self._part(room, part, scope) for scope in self._near(list(left), inside))
            spread = next((spread for spread in tries if spread is not None), None)
            if spread is None:
                return None
            for node, count in spread.items():
                free = room.free[node] - part.row * count
                left[node] = free * 0 if apart else free
            found[part.name] = spread
        return found

    def _near(self, hosts: Sequence[int], inside: Numbers | None) -> Iterator[Numbers | None]:
        """Nodes to try for one more pod set of a gang that is kept together: domains in which it lies first."""
        for numbers in reversed(self._nodes.domains[:-1] if self._together and hosts else ()):
            near = np.isin(numbers, numbers[hosts])
            yield np.flatnonzero(near) if inside is None else inside[near[inside]]
        yield inside

    def _part(self, room: Room, part: Part, inside: Numbers | None) -> Spread | None:
        """One pod set inside a scope, at its own level if it has one."""
        if part.required is None and part.preferred is None:
            return self._fill(room, part, inside)
        for scope in _Search(room, self._closed)._scopes(
            [part], required=part.required, preferred=part.preferred
        ):
            within = inside if scope is None else scope if inside is None else scope[np.isin(scope, inside)]
            spread = self._fill(room, part, within)
            if spread is not None:
                return spread
        return None

    def _fill(self, room: Room, part: Part, inside: Numbers | None) -> Spread | None:
        """One pod set on the nodes of a scope."""
        table = room.table(part.need, part.accepting)
        slots, fit = table.by_node, table.fit(room.free)
        if self._closed is not None:
            slots = np.where(self._closed, 0, slots)
        if inside is not None:
            slots, fit = slots[inside], fit[inside]
        levels: Sequence[Numbers] = ()
        if self._together or part.required is not None or part.preferred is not None:
            levels = [of if inside is None else of[inside] for of in self._nodes.domains[:-1]]
        spread = fill(slots, fit, part.count, levels)
        if spread is None or inside is None:
            return spread
        return {int(inside[at]): count for at, count in spread.items()}


def _orders(nodes: Nodes, parts: Sequence[Part]) -> list[list[Part]]:
    """Sequences worth trying: largest pods first, fewest nodes first."""
    size = {p.name: float((p.row / np.maximum(nodes.total, 1)).max(initial=0.0)) for p in parts}
    by_size = sorted(parts, key=lambda p: -size[p.name])
    by_choice = sorted(parts, key=lambda p: (int(p.accepting.sum()), -size[p.name]))
    return [by_size] if by_size == by_choice else [by_size, by_choice]


def land_beside(free: Matrix, parts: Sequence[Part], found: Spreads) -> bool:
    """Whether each pod set still fits on its hosts after as many of the others as could come there."""
    for part in parts:
        hosts = found[part.name]
        others = [p for p in parts if p is not part and not hosts.keys().isdisjoint(found[p.name])]
        if not others or (len(hosts) == 1 and all(len(found[p.name]) == 1 for p in others)):
            continue
        at = np.array(sorted(hosts), dtype=np.intp)
        left = free[at].copy()
        for other in others:
            there = found[other.name]
            if len(there) == 1:
                come = np.array([there.get(int(n), 0) for n in at])
            else:
                come = np.minimum(other.need.slots(free[at]), other.count) * np.isin(at, list(there))
            left -= come[:, None] * other.row
        slots = part.need.slots(left)
        if int(slots.sum()) < part.count:
            return False
    return True
