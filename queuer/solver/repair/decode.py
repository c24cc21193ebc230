"""From counts back to nodes: placements that the state bears, and that land beside each other."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from queuer.domain.quota import Charge
from queuer.solver.nodes import Mask
from queuer.solver.placement import Part, Spread, Variant, parts_of, place
from queuer.solver.repair.model import Column, Model
from queuer.solver.shapes import Gang
from queuer.solver.slots import Room
from queuer.solver.state import Settled, State


def fit(
    state: State, gang: Gang, variant: Variant, charge: Charge, *, closed: Mask | None = None
) -> Settled | None:
    """Where a gang starts as things are, off the `closed` nodes, quota and landing counted."""
    workload, landing = gang.workload, state.landing
    if not has_quota(state, gang, charge):
        return None
    room, parts = state.room(state.bars(gang, charge)), parts_of(state.nodes, workload, variant)
    masks = [mask for mask in (closed, state.closed(gang)) if mask is not None]
    spreads = place(room, workload, parts, closed=np.logical_or.reduce(masks) if masks else None)
    if spreads is not None and not landing.may_start(workload, spreads):
        masks += [landing.here, landing.held]
        spreads = place(room, workload, parts, closed=np.logical_or.reduce(masks))
    if spreads is None or not landing.may_start(workload, spreads):
        return None
    return Settled(gang=gang, variant=variant, charge=charge, spreads=spreads)


def has_quota(state: State, gang: Gang, charge: Charge) -> bool:
    """Whether the gang breaks no limit, and does not borrow if it may not."""
    if not all(usage.fits(gang.queue, charge) for usage in state.usages()):
        return False
    return gang.workload.preemptible or state.claimed.entitled(gang.queue, charge, at=gang.queue)


def bears(state: State, settled: Settled) -> bool:
    """Whether a gang may start in its placement as things are."""
    gang, charge = settled.gang, settled.charge
    free = state.room(state.bars(gang, charge)).free
    return (
        has_quota(state, gang, charge)
        and state.landing.may_start(gang.workload, settled.spreads)
        and all(bool((free[node] >= row)[row > 0].all()) for node, row in state.rows(settled).items())
    )


@dataclass(slots=True, eq=False)
class Member:
    """A gang that a solution places in a column, with its packs: (pod set, size, packs). `spreads`: pods, filled in
    piece by piece.
    """

    gang: Gang
    column: Column
    packs: Sequence[tuple[str, int, int]]
    spreads: dict[str, Spread] = field(default_factory=dict)

    def settled(self) -> Settled | None:
        """In its placement; None = it has not all of its pods."""
        option, found = self.column.option, dict[str, Spread]()
        for name, bundle in option.bundles.items():
            left, found[name] = bundle.pods, {}
            for node, pods in sorted(self.spreads.get(name, {}).items(), key=lambda at: (-at[1], at[0])):
                if left:
                    found[name][node] = min(left, pods)
                    left -= found[name][node]
            if left:
                return None
        return Settled(gang=self.gang, variant=option.variant, charge=option.charge, spreads=found)


class Piece(NamedTuple):
    """Some packs of one size of a member's pod set."""

    member: Member
    name: str
    size: int
    packs: int

    @property
    def kind(self) -> int:
        """What they are."""
        return self.member.column.option.bundles[self.name].packs[self.size]


def laid(
    state: State, model: Model, sent: Mapping[tuple[int, int], int], members: Sequence[Member]
) -> list[Settled]:
    """Gangs as they may start one after the other: where the solution has them, else elsewhere in their domain; who has
    no room there is left out. `sent`: packs of theirs that go down to each spot, by kind. The state is as before.
    """
    found = list[Settled]()
    _fill(state, model, _sent_down(model, sent, members))
    mark = state.mark
    for member in sorted(members, key=lambda m: -sum(b.pods for b in m.column.option.bundles.values())):
        settled = member.settled()
        if settled is None or not bears(state, settled):
            option, spot = member.column.option, model.tree.spots[member.column.spot]
            closed = np.ones(len(state.free), dtype=bool)
            closed[spot.nodes] = False
            settled = fit(state, member.gang, option.variant, option.charge, closed=closed)
        if settled is not None:
            state.start(settled)
            found.append(settled)
    state.undo(mark)
    return found


def _sent_down(
    model: Model, sent: Mapping[tuple[int, int], int], members: Sequence[Member]
) -> dict[int, list[Piece]]:
    """Pieces by leaf: large ones first, each to the child to which most are still to be sent."""
    pools: dict[int, list[Piece]] = defaultdict(list)
    for member in members:
        pools[member.column.spot] += [Piece(member, *some) for some in member.packs]
    left = dict(sent)
    for number, spot in enumerate(model.tree.spots):
        for piece in sorted(pools.pop(number, ()), key=lambda p: -p.packs) if spot.children else ():
            packs, kind = piece.packs, piece.kind
            while packs:
                child = max(spot.children, key=lambda c: left.get((c, kind), 0))
                some = min(packs, left.get((child, kind), 0))
                if not some:
                    break
                pools[child].append(piece._replace(packs=some))
                left[child, kind] -= some
                packs -= some
    return pools


def _fill(state: State, model: Model, pools: Mapping[int, Sequence[Piece]]) -> None:
    """Onto nodes, the largest packs first, each where it fits best."""
    nodes, kinds = state.nodes, model.tree.question.kinds
    room = Room(nodes, state.room().free.copy())
    whole = np.maximum(nodes.total, 1)
    pieces = [(piece, leaf) for leaf, pool in pools.items() for piece in pool if piece.packs]
    pieces.sort(key=lambda p: (-float((kinds[p[0].kind].row / whole).max()), -p[0].packs))
    for piece, leaf in pieces:
        kind = kinds[piece.kind]
        part = Part(
            name="",
            count=piece.packs,
            need=kind.need,
            row=kind.row,
            accepting=kind.open,
            required=None,
            preferred=None,
        )
        found = place(room, piece.member.gang.workload, [part], inside=model.tree.spots[leaf].nodes)
        spread = piece.member.spreads.setdefault(piece.name, {})
        for node, packs in found[""].items() if found else ():
            room.free[node] -= kind.row * packs
            room.touch([node])
            spread[node] = spread.get(node, 0) + packs * piece.size
