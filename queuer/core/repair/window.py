"""What the repair asks about: gangs that were refused for place though no sum excludes them, and this cycle's starts
around the domains where they could go.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from queuer.core.nodes import Mask, Matrix, Numbers
from queuer.core.placement import Part, Variant, parts_of
from queuer.core.repair.model import ROOT, Model, Option, Question, Terms, Tree, lying
from queuer.core.shapes import Gang
from queuer.core.slots import Room
from queuer.core.state import Settled, State
from queuer.domain.quota import Charge

COLUMNS = 2
"""Domains that are open to a gang, beside where it lies."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Contested:
    """A gang that was refused for place, at its smallest size on these flavors."""

    gang: Gang
    variant: Variant
    charge: Charge


class Lifted:
    """The nodes as if nobody had started in this cycle. `free`: N x R; `bare`: the same as they are."""

    def __init__(self, state: State) -> None:
        self.state, self._nodes = state, state.nodes
        self.starts = [s for s in state.settled.values() if not s.bound]
        self._pods: Counter[tuple[bytes, int]] = Counter()
        self._masks: dict[int, Mask] = {}
        for start in self.starts:
            for part in parts_of(self._nodes, start.gang.workload, start.variant) or ():
                self._masks[id(part.accepting)] = part.accepting
                self._pods[part.row.tobytes(), id(part.accepting)] += part.count
        self.free, self.bare = self.without(self.starts), self.without(())
        self._closed: dict[object, Mask | None] = {}
        self._rooms = Room(self._nodes, self.free), Room(self._nodes, self.bare)

    def without(self, starts: Iterable[Settled]) -> Matrix:
        """What is free (N x R) without these; nothing on hosts that somebody else has to itself."""
        free = np.minimum(self.state.free, self.state.then)
        owned = self.state.landing.owned.copy()
        for start in starts:
            for node, row in self.state.rows(start).items():
                free[node] += row
                owned[node] = False
        free[owned] = 0
        return free

    def closed(self, gang: Gang, charge: Charge) -> tuple[object, Mask | None]:
        """Nodes that are closed to a gang: those it avoids, and those of reservations that it must leave whole; with a
        key that is equal for equal masks.
        """
        bars = self.state.bars(gang, charge)
        key = (gang.pending.avoid, bars)
        if key not in self._closed:
            mask = self.state.closed(gang)
            if bars:
                mask = np.zeros(len(self.free), dtype=bool) if mask is None else mask.copy()
                mask[[node for uid in bars for node in self.state.reserved[uid].takes]] = True
            self._closed[key] = mask
        return key, self._closed[key]

    def excludes(self, contested: Contested) -> bool:
        """Whether sums of free slots exclude the gang, wherever this cycle's starts might move."""
        return not self.reach(contested)

    def reach(self, contested: Contested) -> list[Numbers]:
        """Nodes where the gang might lie, by domain, the one first that lacks least as things are; or all together,
        those first that hold most.
        """
        gang = contested.gang
        parts = parts_of(self._nodes, gang.workload, contested.variant)
        _, closed = self.closed(gang, contested.charge)
        if not parts or any(map(self._crowded, parts)):
            return []
        lifted, bare = (
            np.array([room.table(p.need, p.accepting).by_node for p in parts]) for room in self._rooms
        )
        if closed is not None:
            lifted[:, closed] = bare[:, closed] = 0
        needs = np.array([part.count for part in parts])
        level = self._nodes.snapshot.topology.find(gang.workload.required or "")
        if level is None:
            if (lifted.sum(axis=1) < needs).any():
                return []
            order = np.lexsort((-lifted.sum(axis=0), -bare.sum(axis=0)))
            return [order[lifted.sum(axis=0)[order] > 0]]
        numbers = self._nodes.domains[level]
        inside = np.flatnonzero(numbers >= 0)
        most, there = (
            np.array([np.bincount(numbers[inside], weights=row[inside]) for row in slots])
            for slots in (lifted, bare)
        )
        lacks = np.maximum(needs[:, None] - there, 0).sum(axis=0)
        fits = np.flatnonzero((most >= needs[:, None]).all(axis=0))
        return [self._nodes.members(level, int(d)) for d in fits[np.argsort(lacks[fits], kind="stable")]]

    def _crowded(self, part: Part) -> bool:
        """Whether the starts that must lie among its nodes leave too few slots of some resource."""
        inside = [key for key in self._pods if not (self._masks[key[1]] & ~part.accepting).any()]
        for column, amount in zip(part.need.columns.tolist(), part.need.amounts.tolist(), strict=True):
            slots = int((np.maximum(self.free[part.accepting, column], 0) // amount).sum())
            for key in inside:
                slots -= int(np.frombuffer(key[0], dtype=np.int64)[column]) // amount * self._pods[key]
            if slots < part.count:
                return True
        return False


class Window:
    """The model of one repair. `weights`: of contested gangs by variable, the earlier the more; `starts`: who may
    move, by uid.
    """

    def __init__(self, lifted: Lifted, contested: Sequence[Contested], *, most: int) -> None:
        """`most`: nodes that are looked at."""
        self.lifted, self.state, self._most = lifted, lifted.state, most
        self.question = Question(self.state.nodes)
        self.contested: dict[str, Contested] = {}
        self.starts: dict[str, Settled] = {}
        self.options: dict[str, Option] = {}
        self._region = np.zeros(len(lifted.free), dtype=bool)
        reach = {row.gang.uid: lifted.reach(row)[: COLUMNS + 1] for row in contested}
        for row in contested:
            if reach[row.gang.uid] and self._describe(row.gang, row.variant, row.charge, settled=False):
                self.contested[row.gang.uid] = row
                for nodes in reach[row.gang.uid]:
                    self._widen(nodes)
        for start in lifted.starts:
            self._join(start)
        for start in self.starts.values():
            self._region[list(start.hosts)] = True
        bare = sum((k.need.slots(lifted.bare) * k.open for k in self.question.kinds), start=np.zeros(1))
        self._widen(np.argsort(-bare, kind="stable")[: int((bare > 0).sum())])
        self.model = self._modelled(reach)

    def _widen(self, nodes: Numbers) -> None:
        left = max(0, self._most - int(self._region.sum()))
        self._region[nodes[~self._region[nodes]][:left]] = True

    def _describe(self, gang: Gang, variant: Variant, charge: Charge, *, settled: bool) -> Option | None:
        """The option of a gang, which is in a family with all that are like it; None = counts do not describe it."""
        closed, mask = self.lifted.closed(gang, charge)
        flavors, counts = tuple(variant.flavors.values()), tuple(variant.counts.values())
        exclusive = any(pod_set.exclusive_host for pod_set in gang.workload.pod_sets)
        own = "" if settled and not exclusive else gang.uid
        family = self.question.family(gang, (gang.shape.form, closed, flavors, counts, own), settled=settled)
        option = self.question.option(family, variant, charge, mask)
        if option is None:
            family.gangs.remove(gang)
        else:
            self.options[gang.uid] = option
        return option

    def _join(self, start: Settled) -> None:
        """A start may move if it lies where a contested gang might."""
        if not self._region[list(start.hosts)].any():
            return
        option = self._describe(start.gang, start.variant, start.charge, settled=True)
        if option is None:
            return
        if all(self.question.kinds[k].open[node] for k, node, _ in lying(option, start.spreads)):
            self.starts[start.gang.uid] = start
        else:
            self.question.families[option.family].gangs.remove(start.gang)

    def _modelled(self, reach: Mapping[str, Sequence[Numbers]]) -> Model:
        tree = Tree(self.question, self.lifted.without(self.starts.values()), np.flatnonzero(self._region))
        bare = tree.slots_in(self.lifted.bare)
        for option in self.question.options:
            tree.open(option, bare, COLUMNS)
        for uid in self.contested:
            option = self.options[uid]
            numbers = None if option.level is None else self.state.nodes.domains[option.level]
            for nodes in reach[uid] if option.strict and numbers is not None else ():
                spot = tree.domains.get((option.level, int(numbers[nodes[0]])))
                option.columns.update({} if spot is None else {spot: None})
        model = Model(tree, placed=[(self.options[uid], s.spreads) for uid, s in self.starts.items()])
        model.limit(self.state.book, self.state.usages())
        return model

    @property
    def weights(self) -> Terms:
        """What it counts that contested gangs start, the earlier the more."""
        rank = {id(self.options[uid]): i for i, uid in enumerate(reversed(self.contested))}
        options = self.question.options
        return {v: 2 ** rank[i] for (o, _), v in self.model.y.items() if (i := id(options[o])) in rank}

    def costs(self, values: Sequence[int]) -> Terms:
        """Levels wider than asked times pods, then how much is moved; adds the rows that tell what is moved, and takes
        the values of a solution as hints.
        """
        rows, total = self.model.rows, Terms()
        rows.hint[:] = values
        moved = [v for (o, _), v in self.model.y.items() if self.question.options[o].level is not None]
        for variable in (*moved, *self.model.f.values()):
            high, lies = rows.bounds[variable][1], self.model.before[variable]
            if high > lies:
                total[more := rows.variable(high - lies, max(0, values[variable] - lies))] = 1
                rows.row({variable: 1, more: -1}, high=lies)
        most = sum(rows.bounds[v][1] for v in total) + 1
        for (number, spot), variable in self.model.y.items():
            option = self.question.options[number]
            if option.level is not None and spot == ROOT:
                total[variable] = total.get(variable, 0) + most * sum(option.pods.values())
        return total
