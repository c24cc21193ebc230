"""From counts back to nodes: packs go to leaves as a solution says, and there each where it fits best."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from queuer.solver.nodes import fits
from queuer.solver.placement import Part, Spread, place
from queuer.solver.repair.model import Column, Model
from queuer.solver.repair.packs import Spot
from queuer.solver.shapes import Gang
from queuer.solver.slots import Room
from queuer.solver.state import Settled, State


def can_start(state: State, settled: Settled) -> bool:
    """Whether a gang may start in its placement as things are: quota, nodes and landing bear it."""
    gang, charge = settled.gang, settled.charge
    free = state.room(state.respected(gang, charge)).free
    return (
        all(usage.fits(gang.queue, charge) for usage in state.usages())
        and gang.may_take(charge, state.claimed)
        and state.landing.may_start(gang.workload, settled.variant.flavors, settled.spreads)
        and fits(free, state.rows(settled))
    )


def start(state: State, model: Model, values: Sequence[int]) -> None:
    """Start the gangs of a solution, of those that count the same the first; who has no room is left out. Those that
    must start come first, so that who is added is entitled beside them all.
    """
    lines = {id(option.gangs): iter(option.gangs) for option in model.question.options}
    members = [
        _Member(next(lines[id(column.option.gangs)]), column)
        for column in model.columns.values()
        for _ in range(values[column.gangs])
    ]
    _fill(state, model, values, members)
    members.sort(key=lambda member: (not member.column.option.must, member.gang.workload.preemptible))
    for member in members:
        settled = member.settled()
        if settled is not None and can_start(state, settled):
            state.start(settled)


@dataclass(slots=True, eq=False)
class _Member:
    """A gang that a solution places in a column. `spreads`: its pods, filled in pack by pack."""

    gang: Gang
    column: Column
    spreads: dict[str, Spread] = field(default_factory=lambda: defaultdict(dict))

    def settled(self) -> Settled | None:
        """In its placement, the last host of a pod set filled in part; None = it has not all of its pods."""
        option, found = self.column.option, dict[str, Spread]()
        for name, bundle in option.packing.bundles.items():
            left, found[name] = bundle.pods, {}
            for node, pods in sorted(self.spreads[name].items(), key=lambda at: (-at[1], at[0])):
                if left:
                    found[name][node] = min(left, pods)
                    left -= found[name][node]
            if left:
                return None
        if option.packing.one_host:
            ((host, _),) = found[next(iter(found))].items()
            found = {name: {host: count} for name, count in option.variant.counts.items() if count}
        return Settled(gang=self.gang, variant=option.variant, charge=option.charge, spreads=found)


def _fill(state: State, model: Model, values: Sequence[int], members: Sequence[_Member]) -> None:
    """The largest packs first, each on the node of its leaf where it fits best."""
    nodes, kinds = state.nodes, model.question.kinds
    room, whole = Room(nodes, state.room().free.copy()), np.maximum(nodes.total, 1)
    left = {at: values[flow] for at, flow in model.flows.items()}
    pieces = [
        (-float((kinds[kind].row / whole).max()), -packs, number, name, size, kind)
        for number, member in enumerate(members)
        for name, size, kind, packs in model.packs(member.column, values)
    ]
    for _, fewer, number, name, size, kind in sorted(pieces):
        member, (need, row, open_) = members[number], kinds[kind]
        spread = member.spreads[name]
        for leaf, some in _leaves(model, left, member.column.spot, kind, -fewer):
            part = Part(
                name=name,
                landing_key=name,
                count=some,
                need=need,
                row=row,
                accepting=open_,
                required=None,
                preferred=None,
            )
            found = place(room, member.gang.workload, [part], inside=model.leaves.nodes[leaf]) or {name: {}}
            for node, packs in found[name].items():
                room.free[node] -= row * packs
                room.touch([node])
                spread[node] = spread.get(node, 0) + packs * size


def _leaves(
    model: Model, left: dict[tuple[Spot, int, int], int], spot: Spot, kind: int, packs: int
) -> Iterator[tuple[int, int]]:
    """How many of these packs come to which leaf: to where most are `left` to come, and so on."""
    while packs:
        most, leaf = max((left.get((spot, kind, leaf), 0), -leaf) for leaf in model.leaves.inside[spot])
        if not most:
            return
        some = min(packs, most)
        left[spot, kind, -leaf] -= some
        packs -= some
        yield -leaf, some
