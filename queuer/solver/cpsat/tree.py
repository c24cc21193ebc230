"""Many gangs on a tree of domains, their victims settled: the model in which only places are open.

Pods that nothing tells apart are a *kind*, gangs that nothing tells apart a *class*, nodes that nothing tells apart but
what is free there a *leaf*.

    y[class, domain]   copies of the class whose pods all lie in the domain       Σ = copies
    z[kind, leaf]      pods of the kind there       Σ in a domain ≥ what is confined to it, Σ of all = all there are

On a node with f free of a resource there are floor(f / a) slots for an amount a, and a pod that asks for p takes
floor(p / a) of them. Summed over a leaf, for every amount that occurs, these rows are never too strict, so
INFEASIBLE is a proof. They are exact where sizes divide each other and one resource rules.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import gcd

import numpy as np
from numpy.typing import NDArray

from queuer.solver.contested import Laid, Layout
from queuer.solver.cpsat.proto import GrowingModel
from queuer.solver.frame import Mask, Matrix, Need
from queuer.solver.prices import Measure

LOOK = 1e-6
"""Deterministic time that is taken to look at one variable, or at one term of a row that turns out not to bind."""


class OutOfTimeError(Exception):
    """Even to build the tree costs more than may be spent."""


@dataclass(frozen=True, slots=True, eq=False)
class Kind:
    """Pods that are alike: one's row (R), the nodes open to them (N), whether they come now or once victims have
    gone. `slots`: how many fit on each node alone (N).
    """

    need: Need
    row: Matrix
    open: Mask
    starts: bool
    slots: Matrix


@dataclass(slots=True, eq=False)
class Class:
    """Gangs that are alike: `pods` by kind, all in one domain of `level` (-1 = anywhere, -2 = there is no such level).
    `asked`: not settled, but asked for. `whole`: all its pods are one, as they need one host.
    """

    pods: Mapping[int, int]
    level: int
    asked: bool
    whole: bool
    members: list[Laid] = field(default_factory=list)


@dataclass(frozen=True, slots=True, eq=False)
class Stock:
    """A measure with what a pod of each kind takes of its slots, and these by leaf."""

    measure: Measure
    taken: Mapping[int, int]
    slots: list[int]


class Tree:
    """The rows with the meaning of their variables. `leaves`: node numbers. `y`: by (class, domain); `z`: by (kind,
    leaf); `u`: whether the gang asked for is placed. `plain`: how many rows come before those of the stocks.
    """

    def __init__(self, question: Layout, *, apart: Mask, budget: float) -> None:
        """`apart`: nodes that are a leaf each (N). Raises OutOfTimeError where building costs more than `budget`, and
        OverflowError as `GrowingModel.row` does.
        """
        self.question = question
        self._budget = budget
        self.rows = GrowingModel(seed=question.seed)
        self.kinds: list[Kind] = []
        self.classes: list[Class] = []
        self._kind_numbers: dict[object, int] = {}
        self._class_numbers: dict[object, int] = {}
        self._known: dict[object, tuple[int, Mapping[str, int]]] = {}
        self._kinds_of: dict[Laid, Mapping[str, int]] = {}
        self._levels = question.frame.domains[:-1]
        self._by_domain: dict[tuple[int, int], Matrix] = {}
        self.relaxed = False
        for one in question.settled:
            self._class_of(one, asked=False).members.append(one)
        self._class_of(question.asked, asked=True).members.append(question.asked)
        self.leaves, self._leaf_of = self._grouped(apart)
        self.z = self._pods_on_leaves()
        self.u = self.rows.variable(1, 1)
        self.y = self._copies_in_domains()
        self._confined()
        self.plain = len(self.rows.listed)
        self.stocks = [*self._stocks(at_once=True), *self._stocks(at_once=False)]
        self._fit()
        self._hint()

    # Kinds and classes

    def _class_of(self, one: Laid, *, asked: bool) -> Class:
        likeness = self._likeness(one, asked)
        if likeness not in self._known:
            self._known[likeness] = self._classified(one, asked)
        number, self._kinds_of[one] = self._known[likeness]
        return self.classes[number]

    @staticmethod
    def _likeness(one: Laid, asked: bool) -> object:
        """Equal for gangs of one class and the same kinds. Pods of two gangs that keep apart from their own only may
        share a node.
        """
        own = one.uid if any(p.exclusive_host for p in one.workload.pod_sets) else None
        return (one.form, one.starts, asked, own)

    def _classified(self, one: Laid, asked: bool) -> tuple[int, Mapping[str, int]]:
        """Its class, and its kinds by pod set."""
        find = self.question.frame.snapshot.topology.find
        workload = one.workload
        level = -1 if workload.required is None else find(workload.required)
        sets = [p for p in workload.pod_sets if one.variant.counts[p.name]]
        self.relaxed |= any(p.required is not None for p in sets)
        whole = level == len(self._levels)
        pods: dict[int, int] = defaultdict(int)
        kinds: dict[str, int] = {}
        if whole:
            pods[self._whole(one)], level = 1, -1
        else:
            inside = None  # the one domain of a single pod is wherever it lies
            if level is not None and level >= 0 and sum(one.variant.counts[p.name] for p in sets) == 1:
                inside, level = self._levels[level] >= 0, -1
            for pod_set in sets:
                need = self.question.frame.need(pod_set)
                row = self.question.frame.row(pod_set.requests)
                open_ = self._open(one, pod_set.name)
                open_ = open_ if inside is None else open_ & inside
                kind = kinds[pod_set.name] = self._kind(one, need, row, open_)
                pods[kind] += one.variant.counts[pod_set.name]
        key = (tuple(sorted(pods.items())), level, asked, whole)
        if key not in self._class_numbers:
            self._class_numbers[key] = len(self.classes)
            self.classes.append(Class(dict(pods), -2 if level is None else level, asked, whole))
        return self._class_numbers[key], kinds

    def _open(self, one: Laid, name: str) -> Mask:
        pod_set = next(p for p in one.workload.pod_sets if p.name == name)
        open_ = self.question.frame.open_to(pod_set, one.variant.flavors[name])
        return open_ if one.closed is None else open_ & ~one.closed

    def _whole(self, one: Laid) -> int:
        """A gang that needs one host is one large pod."""
        frame, sets = self.question.frame, one.workload.pod_sets
        counts = one.variant.counts
        row: Matrix = np.sum([frame.row(p.requests) * counts[p.name] for p in sets], axis=0)
        open_ = np.all([self._open(one, p.name) for p in sets if counts[p.name]], axis=0)
        if any(p.exclusive_host and counts[p.name] > 1 for p in sets):
            open_ = np.zeros_like(open_)
        columns = np.flatnonzero(row)
        return self._kind(one, Need(columns, row[columns], False), row, open_)

    def _kind(self, one: Laid, need: Need, row: Matrix, open_: Mask) -> int:
        own = one.uid if need.exclusive else ""
        key = (row.tobytes(), open_.tobytes(), one.starts, own)
        if key not in self._kind_numbers:
            self._kind_numbers[key] = len(self.kinds)
            question = self.question
            free = np.minimum(question.now, question.later) if one.starts else question.later
            slots = np.where(open_, need.slots(free), 0)
            self.kinds.append(Kind(need, row, open_, one.starts, slots))
        return self._kind_numbers[key]

    # Leaves and their variables

    def _grouped(self, apart: Mask) -> tuple[list[NDArray[np.intp]], NDArray[np.intp]]:
        """Nodes by leaf, and the leaf by node; nodes that nobody can use have none."""
        usable = np.flatnonzero(np.any([k.slots > 0 for k in self.kinds], axis=0))
        alone = np.where(apart, np.arange(len(apart)), -1)
        columns = [alone, *self._levels, *{k.open.tobytes(): k.open for k in self.kinds}.values()]
        signs = np.stack([c[usable].astype(np.int64) for c in columns], axis=1)
        _, numbers = np.unique(signs, axis=0, return_inverse=True)
        leaf_of = np.full(len(apart), -1, dtype=np.intp)
        leaf_of[usable] = numbers.reshape(-1)
        count = int(leaf_of.max(initial=-1)) + 1
        return [np.flatnonzero(leaf_of == leaf) for leaf in range(count)], leaf_of

    def _summed(self, by_node: Matrix) -> list[int]:
        known = self._leaf_of >= 0
        total = np.zeros(len(self.leaves), dtype=np.int64)
        np.add.at(total, self._leaf_of[known], by_node[known])
        found: list[int] = total.tolist()
        return found

    def _pods_on_leaves(self) -> dict[tuple[int, int], int]:
        there = [0] * len(self.kinds)
        for one in self.classes:
            for number, count in one.pods.items():
                there[number] += count * len(one.members)
        found = {}
        for k, kind in enumerate(self.kinds):
            for leaf, most in enumerate(self._summed(np.minimum(kind.slots, there[k]))):
                if most:
                    found[k, leaf] = self.rows.variable(0, min(most, there[k]))
        self._looked_at(len(found))
        return found

    def _looked_at(self, terms: int) -> None:
        """Charge for them, and for the rows before them, while that fits the budget."""
        self.rows.spent += LOOK * terms
        if self.rows.spent > self._budget:
            raise OutOfTimeError

    # Domains

    def _copies_in_domains(self) -> dict[tuple[int, int], int]:
        found = {}
        for c, one in enumerate(self.classes):
            if one.level == -1:
                continue  # anywhere
            copies = len(one.members)
            terms: dict[int, int] = {}
            for domain, most in self._room(one).items():
                found[c, domain] = self.rows.variable(0, min(most, copies))
                terms[found[c, domain]] = 1
            if one.asked:
                self.rows.row({**terms, self.u: -1}, low=0, high=0)
            else:
                self.rows.row(terms, low=copies, high=copies)
        return found

    def _room(self, one: Class) -> dict[int, int]:
        """Domains of its level, with how many copies of the class they could hold alone."""
        if one.level < 0:
            return {}
        most = np.min([self._slots_in(kind, one.level) // pods for kind, pods in one.pods.items()], axis=0)
        return dict(zip(np.flatnonzero(most > 0).tolist(), most[most > 0].tolist(), strict=True))

    def _slots_in(self, kind: int, level: int) -> Matrix:
        """By domain of the level."""
        if (kind, level) not in self._by_domain:
            slots, domain = self.kinds[kind].slots, self._levels[level]
            there = np.zeros(len(self.question.frame.domain_names[level]), dtype=np.int64)
            nodes = np.flatnonzero((slots > 0) & (domain >= 0))
            np.add.at(there, domain[nodes], np.minimum(slots[nodes], 2**31))
            self._by_domain[kind, level] = there
        return self._by_domain[kind, level]

    def _confined(self) -> None:
        """What is confined to a domain lies there, and all pods lie somewhere."""
        levels = sorted({one.level for one in self.classes if one.level >= 0})
        around = {(inner, level): self._around(inner, level) for level in levels for inner in levels}
        for level in levels:
            inside = self._leaves_in(level)
            asked: dict[tuple[int, int], dict[int, int]] = defaultdict(dict)
            for (c, domain), variable in self.y.items():
                one = self.classes[c]
                outer = around[one.level, level][domain]
                if one.level >= level and outer >= 0:
                    for kind, count in one.pods.items():
                        asked[kind, outer][variable] = -count
            own = {
                (k, d) for (c, d) in self.y if self.classes[c].level == level for k in self.classes[c].pods
            }
            for kind, domain in sorted(own):
                terms = {self.z[kind, leaf]: 1 for leaf in inside.get(domain, ()) if (kind, leaf) in self.z}
                self._looked_at(0)
                self.rows.row({**terms, **asked[kind, domain]}, low=0)
        everywhere: list[dict[int, int]] = [{} for _ in self.kinds]
        for (k, _), variable in self.z.items():
            everywhere[k][variable] = 1
        for k, terms in enumerate(everywhere):
            fixed = 0
            for one in self.classes:
                if one.asked:
                    if k in one.pods:
                        terms[self.u] = -one.pods[k]
                else:
                    fixed += one.pods.get(k, 0) * len(one.members)
            self.rows.row(terms, low=fixed, high=fixed)

    def _leaves_in(self, level: int) -> dict[int, list[int]]:
        found: dict[int, list[int]] = defaultdict(list)
        for leaf, nodes in enumerate(self.leaves):
            found[int(self._levels[level][nodes[0]])].append(leaf)
        return found

    def _around(self, level: int, wider: int) -> list[int]:
        """The domain of a wider level that holds each one."""
        numbers, first = np.unique(self._levels[level], return_index=True)
        found: list[int] = self._levels[wider][first[numbers >= 0]].tolist()
        return found

    # Slots

    def _stocks(self, *, at_once: bool) -> list[Stock]:
        """For every amount of a resource that occurs: now for what starts, with the victims gone for all."""
        question = self.question
        kinds = [k for k, kind in enumerate(self.kinds) if kind.starts or not at_once]
        if not kinds or (at_once and bool(np.all(question.now >= question.later))):
            return []
        free = question.now if at_once else question.later
        amounts: dict[tuple[int, ...], set[tuple[int, int]]] = defaultdict(set)
        for column in np.flatnonzero(np.any([self.kinds[k].row > 0 for k in kinds], axis=0)).tolist():
            asked = [int(self.kinds[k].row[column]) for k in kinds]
            occur = {a for a in asked if a}
            for amount in sorted(occur | {gcd(*occur)}):
                amounts[tuple(a // amount for a in asked)].add((column, amount))
        measures = {taken: Measure(at_once, frozenset(pairs)) for taken, pairs in amounts.items()}
        return [
            Stock(measure, dict(zip(kinds, taken, strict=True)), self._summed(measure.slots(free)))
            for taken, measure in measures.items()
        ]

    def taking(self, stock: Stock, leaf: int) -> dict[int, int]:
        """What the pods on a leaf take of its slots, as terms."""
        return {self.z[k, leaf]: n for k, n in stock.taken.items() if n and (k, leaf) in self.z}

    def _fit(self) -> None:
        for stock in self.stocks:
            for leaf, room in enumerate(stock.slots):
                terms = self.taking(stock, leaf)
                self._looked_at(len(terms))
                if sum(n * self.rows.bounds[v][1] for v, n in terms.items()) > room:
                    self.rows.row(terms, high=room)

    # Hint

    def _hint(self) -> None:
        """The places as they are."""
        hint = self.rows.hint
        hint.update(dict.fromkeys([*self.z.values(), *self.y.values()], 0))
        for c, one in enumerate(self.classes):
            for member in () if one.asked else one.members:
                nodes = [n for spread in member.spreads.values() for n in spread]
                if one.level >= 0 and nodes:
                    at = (c, int(self._levels[one.level][nodes[0]]))
                    if at in self.y:
                        hint[self.y[at]] += 1
                for kind, node, count in self.pods_of(one, member):
                    at = (kind, int(self._leaf_of[node]))
                    if at in self.z:
                        hint[self.z[at]] += count

    def moves(self) -> dict[int, int]:
        """Pods that come to a leaf, less copies that stay in their domain, as terms to be minimised."""
        hint = dict(self.rows.hint)
        total: dict[int, int] = {}
        for variable in self.z.values():
            most = self.rows.bounds[variable][1]
            if hint[variable] < most:
                more = self.rows.variable(0, most)
                self.rows.row({variable: 1, more: -1}, high=hint[variable])
                total[more] = 1
        for variable in self.y.values():
            if hint[variable]:
                stays = self.rows.variable(0, hint[variable])
                self.rows.row({stays: 1, variable: -1}, high=0)
                total[stays] = -1
        return total

    def pods_of(self, one: Class, member: Laid) -> list[tuple[int, int, int]]:
        """(kind, node, pods) of a gang as it lies."""
        if one.whole:
            return [
                (kind, n, 1) for kind in one.pods for n in {n for s in member.spreads.values() for n in s}
            ]
        kinds = self._kinds_of[member]
        return [
            (kinds[name], n, count) for name, spread in member.spreads.items() for n, count in spread.items()
        ]

    def kinds_of(self, member: Laid) -> Mapping[str, int]:
        """The kinds of a gang's pods by pod set, if it is not one whole."""
        return self._kinds_of[member]
