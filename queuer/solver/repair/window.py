"""What the repair asks about: gangs that were refused for place though no sum excludes them, and this cycle's starts
around the domains where they could go.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from queuer.domain.quota import Charge
from queuer.solver.nodes import Mask, Matrix, Numbers
from queuer.solver.placement import Part, Variant, parts_of
from queuer.solver.repair.decode import Member, laid
from queuer.solver.repair.model import Model, Terms
from queuer.solver.repair.tree import ROOT, Option, Question, Tree
from queuer.solver.shapes import Gang
from queuer.solver.slots import Room
from queuer.solver.state import Settled, State

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
        """Whether the starts that must lie among its nodes leave too little, counted in slots of any size."""
        inside = [key for key in self._pods if not (self._masks[key[1]] & ~part.accepting).any()]
        rows = np.array([part.row, *(np.frombuffer(key[0], dtype=np.int64) for key in inside)])
        counts = np.array([part.count, *(self._pods[key] for key in inside)])
        for column in part.need.columns.tolist():
            free = np.maximum(self.free[part.accepting, column], 0)
            for unit in {1, *rows[:, column].tolist()} - {0}:
                if int((rows[:, column] // unit) @ counts) > int((free // unit).sum()):
                    return True
        return False


class Window:
    """The model of one repair. `starts`: who may move, `contested`: who is to be fitted in, by uid."""

    def __init__(self, lifted: Lifted, contested: Sequence[Contested], *, most: int) -> None:
        """`most`: nodes that are looked at."""
        self.lifted, self.state = lifted, lifted.state
        self.question = Question(self.state.nodes)
        self.contested: dict[str, Contested] = {}
        self.starts: dict[str, Settled] = {}
        self._options: dict[str, Option] = {}
        self._region, self._left = np.zeros(len(lifted.free), dtype=bool), most
        reach = {}
        for row in contested:
            form = self.question.form(row.gang, row.variant, lifted.closed(row.gang, row.charge)[1])
            reach[row.gang.uid] = lifted.reach(row)[: COLUMNS + 1] if form is not None else []
            if form is not None and reach[row.gang.uid]:
                self.contested[row.gang.uid] = row
                (self._options[row.gang.uid],) = self.question.enter(
                    row.gang, [(form, row.variant, row.charge)], key=row.gang.uid, settled=False
                )
                for nodes in reach[row.gang.uid]:
                    self._widen(nodes)
        for start in lifted.starts:
            self._join(start)
        slots = [np.where(k.open, k.need.slots(lifted.bare), 0) for k in self.question.kinds]
        room = np.sum(slots, axis=0) if slots else np.zeros(0)
        self._widen(np.argsort(-room, kind="stable")[: np.count_nonzero(room)])
        self.model = self._modelled(reach)

    def _widen(self, nodes: Numbers) -> None:
        """Look at these nodes, too."""
        new = nodes[~self._region[nodes]][: max(0, self._left)]
        self._region[new] = True
        self._left -= len(new)

    def _join(self, start: Settled) -> None:
        """A start may move if it lies where a contested gang might, in packs."""
        hosts, gang = list(start.hosts), start.gang
        if not self._region[hosts].any():
            return
        key, closed = self.lifted.closed(gang, start.charge)
        form = self.question.form(gang, start.variant, closed)
        lies = None if form is None else self.question.lying(form, start.spreads)
        if form is None or lies is None:
            return
        rows = self.state.rows(start)
        for name, size, node, packs in lies:
            row = self.question.kinds[form.bundles[name].packs[size]].row * packs
            if bool((np.minimum(self.state.free[node], self.state.then[node]) + rows[node] < row).any()):
                return
        choice = (form, start.variant, start.charge)
        (self._options[gang.uid],) = self.question.enter(gang, [choice], key=(id(form), key), settled=True)
        self.starts[gang.uid] = start
        self._region[hosts] = True

    def _modelled(self, reach: Mapping[str, Sequence[Numbers]]) -> Model:
        tree = Tree(self.question, self.lifted.without(self.starts.values()), np.flatnonzero(self._region))
        bare = tree.slots_in(self.lifted.bare)
        for option in self.question.options:
            tree.open(option, bare, COLUMNS)
        for uid in self.contested:
            option = self._options[uid]
            for nodes in reach[uid] if option.form.strict else ():
                option.columns.setdefault(tree.spot_of(option, {"": {int(nodes[0]): 1}}))
        model = Model(tree, placed=[(self._options[uid], s.spreads) for uid, s in self.starts.items()])
        model.limit(self.state.book, self.state.usages())
        return model

    @property
    def weights(self) -> Terms:
        """What it counts that contested gangs start, the earlier the more."""
        worth = {id(self._options[uid]): 2**i for i, uid in enumerate(reversed(self.contested))}
        return {c.gangs: worth[id(c.option)] for c in self.model.columns if id(c.option) in worth}

    def costs(self, values: Sequence[int]) -> Terms:
        """Levels wider than asked times pods, then how much is moved; adds the rows that tell what is moved, and takes
        the values of a solution as hints.
        """
        model, total = self.model, Terms()
        model.rows.hint[:] = values
        moved = [c.gangs for c in model.columns if c.option.form.level is not None]
        for variable in (*moved, *model.flows.values()):
            high, before = model.rows.bounds[variable], model.before[variable]
            if high > before:
                total[more := model.rows.variable(high - before, max(0, values[variable] - before))] = 1
                model.rows.row({variable: 1, more: -1}, high=before)
        most = sum(model.rows.bounds[v] for v in total) + 1
        for column in model.columns:
            if column.option.form.level is not None and column.spot == ROOT:
                pods = sum(bundle.pods for bundle in column.option.bundles.values())
                total[column.gangs] = total.get(column.gangs, 0) + most * pods
        return total

    def laid(self, values: Sequence[int]) -> list[Settled]:
        """All starts that may move, and contested gangs, as a solution places them: in an order in which they can
        start. The state is as before.
        """
        state, mark = self.state, self.state.mark
        staying, moving = self._parted(values)
        for start in self.starts.values():
            state.lift(start)
        for start in staying:
            state.start(start)
        sent = Counter({at: values[variable] for at, variable in self.model.flows.items()})
        sent -= self.model.sent([(self._options[s.gang.uid], s.spreads) for s in staying])
        found = laid(state, self.model, sent, moving)
        state.undo(mark)
        return [*staying, *found]

    def _parted(self, values: Sequence[int]) -> tuple[list[Settled], list[Member]]:
        """Starts that stay as they lie, and all others that a solution places."""
        tree, changed = self.model.tree, self.model.changed(values)
        left = {(id(c.option), c.spot): [c] * values[c.gangs] for c in self.model.columns}
        staying, moving = [], []
        for uid, start in self.starts.items():
            option = self._options[uid]
            at = (id(option), tree.spot_of(option, start.spreads))
            same = [values[v] == self.model.before[v] for c in left[at][:1] for v in c.packs.values()]
            below = {spot for spot, _ in self.model.sent([(option, start.spreads)])} or {at[1]}
            if left[at] and all(same) and changed.isdisjoint(below):
                staying.append(start)
                left[at].pop()
            else:
                moving.append((start.gang, at))
        moving += [(row.gang, (id(self._options[uid]), -1)) for uid, row in self.contested.items()]
        found = []
        for gang, at in moving:
            columns = left.get(at) or next((c for (o, _), c in left.items() if o == at[0] and c), None)
            if columns:
                column = columns.pop()
                found.append(Member(gang, column, tuple(self.model.packs(column, values))))
        return staying, found
