"""From counts back to nodes: packs go down the tree as a solution says, and on each leaf to where they fit best."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from queuer.solver.placement import Part, Spread, place
from queuer.solver.repair.model import Column, Model
from queuer.solver.shapes import Gang
from queuer.solver.slots import Room
from queuer.solver.state import Settled, State

Sent = Mapping[tuple[int, int], int]
"""Packs that go down to a spot from the one above, by spot and kind."""


def bears(state: State, settled: Settled) -> bool:
    """Whether a gang may start in its placement as things are: quota, nodes and landing bear it."""
    gang, charge = settled.gang, settled.charge
    free = state.room(state.bars(gang, charge)).free
    return (
        all(usage.fits(gang.queue, charge) for usage in state.usages())
        and (gang.workload.preemptible or state.claimed.entitled(gang.queue, charge, at=gang.queue))
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
        """In its placement, the last host of a pod set filled in part; None = it has not all of its pods."""
        option, found = self.column.option, dict[str, Spread]()
        for name, bundle in option.form.bundles.items():
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
        return self.member.column.option.form.bundles[self.name].packs[self.size]


def laid(state: State, model: Model, sent: Sent, members: Sequence[Member]) -> list[Settled]:
    """Gangs as they may start one after the other; who has no room is left out. `sent`: packs of theirs. The state is
    as before.
    """
    found, mark = list[Settled](), state.mark
    _fill(state, model, _sent_down(model, sent, members))
    for member in members:
        settled = member.settled()
        if settled is not None and bears(state, settled):
            state.start(settled)
            found.append(settled)
    state.undo(mark)
    return found


def _sent_down(model: Model, sent: Sent, members: Sequence[Member]) -> dict[int, list[Piece]]:
    """Pieces by leaf: large ones first, each to the child to which most are still to be sent."""
    pools, left = defaultdict[int, list[Piece]](list), dict(sent)
    for member in members:
        pools[member.column.spot] += [Piece(member, *some) for some in member.packs]
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
    room, whole = Room(nodes, state.room().free.copy()), np.maximum(nodes.total, 1)
    pieces = [(piece, leaf) for leaf, pool in pools.items() for piece in pool if piece.packs]
    for piece, leaf in sorted(
        pieces, key=lambda p: (-float((kinds[p[0].kind].row / whole).max()), -p[0].packs)
    ):
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
