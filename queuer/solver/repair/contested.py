"""Which gangs the repair is asked to fit in: the first that were refused for place, though no sum excludes them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import numpy as np

from queuer.domain.quota import Charge
from queuer.solver.nodes import Mask, Matrix
from queuer.solver.order import by_right
from queuer.solver.placement import Variant, parts_of
from queuer.solver.refusal import Block, Refusal
from queuer.solver.shapes import Gang
from queuer.solver.state import Settled, State

CONTESTED = 8
"""Gangs that the repair is asked to fit in."""


class Contested(NamedTuple):
    """A gang that was refused for place, at its smallest size on these flavors."""

    gang: Gang
    variant: Variant
    charge: Charge


def first_contested(
    state: State, lines: Iterable[Iterable[Gang]], refusals: Mapping[str, Refusal]
) -> list[Contested]:
    """In the order in which they might have had their turns."""
    found: list[Contested] = []
    excluded_keys = set[object]()
    free = without(state, starts_of(state))
    for gang in sorted(_refused_for_place(lines, refusals), key=lambda g: by_right(g, state.claimed)):
        refusal = refusals[gang.uid]
        assert refusal.variant is not None
        assert refusal.charge is not None
        respected = state.respected(gang, refusal.charge)
        key = (gang.shape.placement_key, gang.pending.avoid, respected, *refusal.variant.flavors.values())
        asked = Contested(gang, refusal.variant, refusal.charge)
        if key in excluded_keys or excluded(state, asked, free):
            excluded_keys.add(key)
        else:
            found.append(asked)
        if len(found) == CONTESTED:
            break
    return found


def _refused_for_place(lines: Iterable[Iterable[Gang]], refusals: Mapping[str, Refusal]) -> Iterator[Gang]:
    """By leaf and refusal the first in line."""
    for line in lines:
        seen = set[int]()
        for gang in line:
            refusal = refusals.get(gang.uid)
            if refusal is not None and refusal.block is Block.PLACE and id(refusal) not in seen:
                seen.add(id(refusal))
                yield gang


def starts_of(state: State) -> list[Settled]:
    """The starts of this cycle."""
    return [settled for settled in state.settled.values() if not settled.bound]


def without(state: State, starts: Iterable[Settled]) -> Matrix:
    """Free amounts (N x R) without these starts; nothing on hosts that another gang has to itself."""
    free, owned = np.minimum(state.free_now, state.free_later), state.landing.owned.copy()
    for start in starts:
        for node, row in state.rows(start).items():
            free[node] += row
            owned[node] = False
    free[owned] = 0
    return free


def excluded(state: State, asked: Contested, lifted: Matrix) -> bool:
    """Whether too little is free, or `lifted`, with all starts gone, has too few slots in every domain."""
    nodes, workload = state.nodes, asked.gang.workload
    closed = shut(state, asked.gang, asked.charge)
    level = nodes.snapshot.topology.find(workload.required or "")
    numbers = nodes.domains[level] if level is not None else np.zeros(len(lifted), dtype=np.intp)
    numbers = numbers if closed is None else np.where(closed, -1, numbers)
    fits = np.ones(len(lifted), dtype=bool)
    for part in parts_of(nodes, workload, asked.variant) or ():
        open_ = part.accepting & (numbers >= 0)
        if (state.room().free[open_].clip(min=0).sum(axis=0) < part.row * part.count).any():
            return True
        slots = np.bincount(numbers[open_], weights=part.need.slots(lifted[open_]), minlength=len(lifted))
        fits &= slots >= part.count
    return not fits.any()


def shut(state: State, gang: Gang, charge: Charge) -> Mask | None:
    """Nodes that are closed to a gang: those it avoids, and those of reservations that it must leave whole."""
    closed, respected = state.closed(gang), state.respected(gang, charge)
    if not respected:
        return closed
    mask = np.zeros(len(state.nodes.names), dtype=bool) if closed is None else closed.copy()
    mask[[node for uid in respected for node in state.reserved[uid].takes]] = True
    return mask
