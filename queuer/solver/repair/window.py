"""What the repair asks about: gangs that were refused for place though no sum excludes them, and this cycle's starts
around the domains where they could go.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from queuer.domain.quota import Charge
from queuer.solver.nodes import Mask, Matrix, Numbers
from queuer.solver.placement import Part, Variant, parts_of
from queuer.solver.repair.decode import Member, laid
from queuer.solver.repair.model import Model, Terms
from queuer.solver.repair.tree import Form, Option, Question, Tree
from queuer.solver.shapes import Gang
from queuer.solver.slots import Room
from queuer.solver.state import Settled, State

FEW = 64
"""Up to so many starts all may move, wherever they lie."""
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
        self._closed: dict[object, Mask] = {}
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

    def closed(self, gang: Gang, charge: Charge) -> Mask | None:
        """Nodes that are closed to a gang: those it avoids, and those of reservations that it must leave whole."""
        bars = self.state.bars(gang, charge)
        if not bars:
            return self.state.closed(gang)
        key = (gang.pending.avoid, bars)
        if key not in self._closed:
            mask = np.zeros(len(self.free), dtype=bool)
            mask[[node for uid in bars for node in self.state.reserved[uid].takes]] = True
            avoided = self.state.closed(gang)
            self._closed[key] = mask if avoided is None else mask | avoided
        return self._closed[key]

    def excludes(self, contested: Contested) -> bool:
        """Whether sums of free slots exclude the gang, wherever this cycle's starts might move."""
        return not self.reach(contested)

    def reach(self, contested: Contested) -> list[Numbers]:
        """Nodes where the gang might lie, by domain, the one first that lacks least as things are; or all together,
        those first that hold most.
        """
        gang = contested.gang
        parts = parts_of(self._nodes, gang.workload, contested.variant)
        closed = self.closed(gang, contested.charge)
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
        self._reach = {c.gang.uid: lifted.reach(c)[: COLUMNS + 1] for c in contested}
        self._region, self._left = np.zeros(len(lifted.free), dtype=bool), most
        for row in contested:
            if self._reach[row.gang.uid] and self._enter(row):
                self.contested[row.gang.uid] = row
                for nodes in self._reach[row.gang.uid]:
                    self._widen(nodes)
        few = len(lifted.starts) <= FEW
        for start in lifted.starts:
            if (few or self._region[list(start.hosts)].any()) and self._enter(start):
                self.starts[start.gang.uid] = start
        for start in self.starts.values():
            self._region[list(start.hosts)] = True
        room = sum((k.need.slots(lifted.bare) * k.open for k in self.question.kinds), 0 * self._region)
        self._widen(np.argsort(-room, kind="stable")[: np.count_nonzero(room)])
        self.model = self._modelled()

    def _widen(self, nodes: Numbers) -> None:
        """Look at these nodes, too."""
        new = nodes[~self._region[nodes]][: max(0, self._left)]
        self._region[new] = True
        self._left -= len(new)

    def _enter(self, row: Contested | Settled) -> bool:
        """Whether counts describe the gang, and a start as it lies."""
        form = self.question.form(row.gang, row.variant, self.lifted.closed(row.gang, row.charge))
        settled = isinstance(row, Settled)
        if form is None or (isinstance(row, Settled) and not self._may_move(form, row)):
            return False
        key = id(form) if settled else row.gang.uid
        choice = (form, row.variant, row.charge)
        (self._options[row.gang.uid],) = self.question.enter(row.gang, [choice], key=key, settled=settled)
        return True

    def _may_move(self, form: Form, start: Settled) -> bool:
        """Whether each of its hosts has room for its packs. Whoever prefers a level stays where it has found that."""
        state, rows, workload = self.state, self.state.rows(start), start.gang.workload
        lies = self.question.lying(form, start.spreads)
        if lies is None or workload.preferred or any(pod_set.preferred for pod_set in workload.pod_sets):
            return False
        return all(
            bool((np.minimum(state.free[node], state.then[node]) + rows[node] >= row * packs).all())
            for name, size, node, packs in lies
            for row in [self.question.kinds[form.bundles[name].packs[size]].row]
        )

    def _modelled(self) -> Model:
        tree = Tree(self.question, self.lifted.without(self.starts.values()), np.flatnonzero(self._region))
        bare = tree.slots_in(self.lifted.bare)
        for option in self.question.options:
            tree.open(option, bare, COLUMNS)
            tree.open(option, tree.slots, COLUMNS)
        for uid in self.contested:
            option = self._options[uid]
            for nodes in self._reach[uid]:
                spot = tree.spot_at(option, int(nodes[0]))
                option.columns.update({} if spot is None else {spot: None})
        model = Model(tree, placed=[(self._options[uid], s.spreads) for uid, s in self.starts.items()])
        model.limit(self.state.book, self.state.usages())
        return model

    @property
    def weights(self) -> Terms:
        """What it counts that contested gangs start, the earlier the more."""
        worth = {id(self._options[uid]): 2**i for i, uid in enumerate(reversed(self.contested))}
        return {c.gangs: worth[id(c.option)] for c in self.model.columns if id(c.option) in worth}

    def moves(self, values: Sequence[int]) -> Terms:
        """How much is moved; adds the rows that tell, and takes the values of a solution as hints."""
        model, total = self.model, Terms()
        model.rows.hint[:] = values
        confined = [c.gangs for c in model.columns if c.option.form.level is not None]
        for variable in (*confined, *model.flows.values()):
            high, before = model.rows.bounds[variable], model.before[variable]
            if high > before:
                total[more := model.rows.variable(high - before, max(0, values[variable] - before))] = 1
                model.rows.row({variable: 1, more: -1}, high=before)
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
        model, changed = self.model, self.model.changed(values)
        left = {(id(c.option), c.spot): [c] * values[c.gangs] for c in model.columns}
        staying, moving = [], []
        for uid, start in self.starts.items():
            option = self._options[uid]
            at = (id(option), model.tree.spot_of(option, start.spreads))
            below = {spot for spot, _ in model.sent([(option, start.spreads)])} or {at[1]}
            if left[at] and changed.isdisjoint(below) and not model.repacked(left[at][0], values):
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
                found.append(Member(gang, column, tuple(model.packs(column, values))))
        return staying, found
