"""Which gangs the repair is asked to fit in: the first that were refused for place, though no sum excludes them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import NamedTuple

import numpy as np

from queuer.domain.quota import Charge
from queuer.domain.workload import demand_of
from queuer.solver.nodes import Mask, Matrix
from queuer.solver.order import by_right
from queuer.solver.placement import Variant, parts_of
from queuer.solver.refusal import Block, Refusal
from queuer.solver.shapes import Gang, GangShape
from queuer.solver.state import Settled, State

CONTESTED = 8
"""Gangs that the repair is asked to fit in."""


Choice = tuple[Variant, Charge]


class Contested(NamedTuple):
    """A gang that was refused for place, with the flavors on which it could have one, at its smallest size."""

    gang: Gang
    choices: tuple[Choice, ...]


def first_contested(
    state: State, lines: Iterable[Iterable[Gang]], refusals: Mapping[str, Refusal]
) -> list[Contested]:
    """In the order in which they might have had their turns."""
    found: list[Contested] = []
    known = dict[object, bool]()
    free = without(state, starts_of(state))

    def is_open(gang: Gang, choice: Choice) -> bool:
        variant, charge = choice
        respected = state.respected(gang, charge)
        key = (gang.shape.placement_key, gang.pending.avoid, respected, *variant.flavors.values())
        if key not in known:
            known[key] = not excluded(state, gang, choice, free)
        return known[key]

    for gang in sorted(_refused_for_place(state, lines, refusals), key=lambda g: by_right(g, state.claimed)):
        choices = gang.shape.least
        if not gang.workload.preemptible:  # only some of them are inside its guarantee
            choices = tuple(c for c in choices if gang.may_take(c[1], state.claimed))
        if choices := tuple(choice for choice in choices if is_open(gang, choice)):
            found.append(Contested(gang, choices))
        if len(found) == CONTESTED:
            break
    return found


def _refused_for_place(
    state: State, lines: Iterable[Iterable[Gang]], refusals: Mapping[str, Refusal]
) -> Iterator[Gang]:
    """By leaf and refusal the first in line. A flavor that is used up is place, and no matter of quota, where all
    flavors together are not.
    """

    @cache
    def fits_elsewhere(shape: GangShape, queue: str) -> bool:
        asked = {account: n for account, n in shape.least[0][1].items() if account[0] is None}
        return all(usage.fits(queue, asked) for usage in state.usages())

    for line in lines:
        seen = set[int]()
        for gang in line:
            refusal = refusals.get(gang.uid)
            if refusal is None or id(refusal) in seen:
                continue
            used_up = refusal.broken is not None and refusal.broken.live
            if refusal.block is Block.PLACE or (used_up and fits_elsewhere(gang.shape, gang.queue)):
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


def excluded(state: State, gang: Gang, choice: Choice, lifted: Matrix) -> bool:
    """Whether less is free than it asks for, wherever the starts go, or `lifted`, with all starts gone, has too few
    slots in every domain.
    """
    nodes, workload, (variant, charge) = state.nodes, gang.workload, choice
    demand = nodes.row(demand_of(workload.pod_sets, variant.counts))
    if (state.room().free.clip(min=0).sum(axis=0) < demand).any():
        return True
    closed = shut(state, gang, charge)
    level = nodes.snapshot.topology.find(workload.required or "")
    numbers = nodes.domains[level] if level is not None else np.zeros(len(lifted), dtype=np.intp)
    numbers = numbers if closed is None else np.where(closed, -1, numbers)
    fits = np.ones(len(lifted), dtype=bool)
    for part in parts_of(nodes, workload, variant) or ():
        open_ = part.accepting & (numbers >= 0)
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
