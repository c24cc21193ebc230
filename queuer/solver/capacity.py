"""Where a gang fits: the narrowest domain, then node by node, exact for one gang (DESIGN 3.2).

Identical pods fit exactly when the slots of their nodes suffice. Pod sets of different shape that share nodes
are packed by several heuristics first and by exhaustive search last; the search has a step limit, and
`Limits` says whether a refusal is a proof.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from queuer.domain.workload import Workload
from queuer.solver.contested import Variant
from queuer.solver.exhaustive import search
from queuer.solver.frame import Frame, Mask, Matrix, Numbers
from queuer.solver.parts import Limits, Part, Spread, parts_of, safe
from queuer.solver.slots import Slots


def place(
    frame: Frame,
    free: Matrix,
    workload: Workload,
    variant: Variant,
    *,
    closed: Mask | None = None,
    limits: Limits | None = None,
    idle: bool = False,
    slots: Slots | None = None,
) -> dict[str, Spread] | None:
    """A place for the whole gang in `free` (N x R, not changed), or None.

    A required level that does not exist fits nowhere. `idle`: cordons and unreadiness are disregarded. `slots`: of
    `free`, where the caller keeps them.
    """
    limits = limits or Limits()
    slots = slots or Slots(frame, free)
    parts = parts_of(frame, workload, variant, closed, idle=idle)
    find = frame.snapshot.topology.find
    required = find(workload.required) if workload.required else None
    preferred = find(workload.preferred) if workload.preferred else None
    if workload.required and required is None:
        return None
    if any(p.required and find(p.required) is None for p in workload.pod_sets):
        return None
    if any(slots.total(p.need, p.accepting, p.closed) < p.count for p in parts):
        return None
    for inside in _scopes(frame, slots, parts, required=required, preferred=preferred):
        found = _pack(frame, slots, parts, inside, limits)
        if found is not None:
            return found
    return None


def _scopes(
    frame: Frame, slots: Slots, parts: Sequence[Part], *, required: int | None, preferred: int | None
) -> Iterator[Numbers | None]:
    """Nodes to try, ascending, best first, of domains whose slots suffice for each part alone; None = no
    restriction.
    """
    host = len(frame.domains) - 1
    if required is not None:
        levels = range(host, required - 1, -1)
    elif preferred is not None:
        levels = range(preferred, -1, -1)
    else:
        yield None
        return
    inside = host if required is None else required  # every node is a host
    within = frame.domains[inside] >= 0
    for level in levels:
        for domain in _ranked(frame, slots, parts, level=level, inside=inside):
            nodes = frame.members(level, domain)
            yield nodes[within[nodes]]
    if required is None:
        yield None


def _ranked(frame: Frame, slots: Slots, parts: Sequence[Part], *, level: int, inside: int) -> list[int]:
    """Domains with enough slots for each part alone and, by sums, for all together: fewest slots left over first, then
    fullest, then by name.
    """
    totals = [slots.by_domain(p.need, p.accepting, p.closed, level, inside) for p in parts]
    chosen = np.flatnonzero(totals[0] >= parts[0].count)
    for part, total in zip(parts[1:], totals[1:], strict=True):
        chosen = chosen[total[chosen] >= part.count]
    if len(parts) > 1 and len(chosen):
        chosen = chosen[_enough(frame, parts, slots.free, level=level, inside=inside)[chosen]]
    if not len(chosen):
        return []
    spare = np.sum([total[chosen] - part.count for part, total in zip(parts, totals, strict=True)], axis=0)
    columns = tuple(sorted({int(c) for part in parts for c in part.need.columns}))
    empty = slots.emptiness(columns).by_domain(level)[chosen]
    return [int(d) for d in chosen[np.lexsort((chosen, empty, spare))]]


def _enough(frame: Frame, parts: Sequence[Part], free: Matrix, *, level: int, inside: int) -> Mask:
    """Whether what is free in each domain is as much as all parts ask for together."""
    numbers, count = frame.domains[level], len(frame.domain_names[level])
    usable = np.any([p.open for p in parts], axis=0) & (frame.domains[inside] >= 0) & (numbers >= 0)
    asked = np.sum([part.row * part.count for part in parts], axis=0)
    fits = np.ones(count, dtype=bool)
    nodes = np.flatnonzero(usable)
    for column in np.flatnonzero(asked):
        there = np.zeros(count, dtype=np.int64)
        np.add.at(there, numbers[nodes], np.maximum(free[nodes, column], 0))
        fits &= there >= asked[column]
    return fits


def _pack(
    frame: Frame, slots: Slots, parts: Sequence[Part], inside: Numbers | None, limits: Limits
) -> dict[str, Spread] | None:
    """All parts into the nodes of one scope."""
    free = slots.free
    if len(parts) == 1:
        spread = _place_part(frame, slots, parts[0], inside)
        return None if spread is None else {parts[0].name: spread}
    for apart in (False, True):
        for order in _orders(frame, parts):
            found = _one_after_the_other(frame, slots, order, inside, apart=apart)
            if found is not None:
                if safe(frame, free, parts, found, limits.effort):
                    return found
                limits.crossing = True
                if limits.spent:
                    limits.exact = False
                    return None
    if not any(p.required is not None for p in parts):
        return search(frame, free, parts, inside, limits)
    limits.exact = False
    return None


def _orders(frame: Frame, parts: Sequence[Part]) -> list[list[Part]]:
    """Sequences worth trying: largest pods first, fewest open nodes first, as written."""
    size = {id(p): float((p.row / np.maximum(frame.alloc.max(axis=0, initial=1), 1)).max()) for p in parts}
    by_size = sorted(parts, key=lambda p: -size[id(p)])
    by_choice = sorted(parts, key=lambda p: (int(p.open.sum()), -size[id(p)]))
    return [by_size, by_choice, list(parts)]


def _one_after_the_other(
    frame: Frame, slots: Slots, parts: Sequence[Part], inside: Numbers | None, *, apart: bool
) -> dict[str, Spread] | None:
    """Part by part, each where it fits best; `apart`: on hosts of its own."""
    found: dict[str, Spread] = {}
    left: dict[int, Matrix] = {}
    for part in parts:
        there = (
            slots.but(np.array(list(left), dtype=np.intp), np.array(list(left.values()))) if left else slots
        )
        spread = _place_part(frame, there, part, inside)
        if spread is None:
            return None
        for node, count in spread.items():
            free = there.free[node] - part.row * count
            left[node] = free * 0 if apart else free
        found[part.name] = spread
    return found


def _place_part(frame: Frame, slots: Slots, part: Part, inside: Numbers | None) -> Spread | None:
    """One pod set inside a scope, at its own level if it has one."""
    there = slots.by_node(part.need, part.accepting, part.closed)
    if part.required is None and part.preferred is None:
        return _fill_if(frame, slots, part, there, inside)
    for scope in _scopes(frame, slots, [part], required=part.required, preferred=part.preferred):
        within = inside if scope is None else scope if inside is None else scope[np.isin(scope, inside)]
        spread = _fill_if(frame, slots, part, there, within)
        if spread is not None:
            return spread
    return None


def _fill_if(frame: Frame, slots: Slots, part: Part, there: Matrix, inside: Numbers | None) -> Spread | None:
    """The part on these nodes if it fits there. `there`: slots by node (N)."""
    total = there.sum() if inside is None else there[inside].sum()
    return _fill(frame, slots.free, part, there, inside) if total >= part.count else None


def _fill(frame: Frame, free: Matrix, part: Part, slots: Matrix, inside: Numbers | None) -> Spread:
    """One node if one holds all, else several: those with least of what the pods do not ask for before others,
    then by `_looseness`, then by order. Pods on one node land there whatever comes beside them.
    """
    there = slots if inside is None else slots[inside]
    usable = np.flatnonzero(there >= part.count)
    one = len(usable) > 0
    if not one:
        usable = np.flatnonzero(there)
    if inside is not None:
        usable = inside[usable]
    columns, amounts = part.need.columns, part.need.amounts
    rows = free[usable]
    asked = rows[:, columns]
    foreign = (rows > 0).sum(axis=1) - (asked > 0).sum(axis=1)
    if one:
        least = foreign == foreign.min()
        usable = usable[least]
        loose = _looseness(asked[least], amounts, frame.alloc[usable][:, columns])
        return {int(usable[loose.argmin()]): part.count}
    loose = _looseness(asked, amounts, frame.alloc[usable][:, columns])
    left = part.count
    spread: Spread = {}
    for at in np.lexsort((usable, loose, foreign)):
        node = int(usable[at])
        spread[node] = min(left, int(slots[node]))
        left -= spread[node]
        if not left:
            break
    return spread


def _looseness(free: Matrix, row: Matrix, alloc: Matrix) -> NDArray[np.float64]:
    """How badly a pod of `row` (R) fits each node, from `free` and `alloc` (N x R): the parts of it that stay free,
    and for each the part that the pod takes of what the node has least of.

    So the fullest node is taken, but rather one where the pod uses up resources evenly than one where it leaves
    some without the others, GPUs without CPU say, that nobody can use.
    """
    whole = np.maximum(alloc, 1)
    before, after = free / whole, (free - row) / whole
    least = before.min(axis=1, initial=1.0) - after.min(axis=1, initial=1.0)
    loose: NDArray[np.float64] = after.sum(axis=1) + len(row) * least
    return loose
