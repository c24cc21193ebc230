"""Gangs and nodes as counts: the model that the repair and `order: packed` share. It names no solver.

y[option, spot]      gangs that go to a domain, or anywhere
n[y, pod set, size]  packs of its pods by size, where several sizes will do
f[spot, kind, leaf]  packs of a domain that come to one of its leaves

A leaf is nodes that no level and no kind tells apart. Slots of each size bound each resource exactly where sizes divide
each other and one resource runs out first. Else an answer may be too good to be carried out.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from queuer.domain.quota import Account, QuotaBook
from queuer.domain.usage import Usage
from queuer.solver.cpsat.rows import Rows, Terms
from queuer.solver.nodes import Matrix, Numbers
from queuer.solver.repair.packs import ROOT, Option, Pack, Question, Spot
from queuer.solver.state import State

LARGE = 50_000
"""Slots of leaves of a model that is built."""
SPOTS = 4
"""Domains that are open to an option, beside where its gangs lie."""


class Leaves:
    """Nodes in leaves. `slots`: kinds x leaves; `inside`: leaves by domain; `of`: the leaf of a node."""

    def __init__(self, question: Question, free: Matrix, region: Numbers) -> None:
        kinds, self.domains = question.kinds, question.nodes.domains
        by_node = np.array([np.where(k.open, k.need.slots(free), 0) for k in kinds], dtype=np.int64)
        region = region[(by_node[:, region] > 0).any(axis=0)]
        levels = {o.packing.level for o in question.options if o.packing.level is not None}
        told = [*(self.domains[level][region] for level in sorted(levels)), *(k.open[region] for k in kinds)]
        alike = np.unique(np.column_stack(told), axis=0, return_inverse=True)[1].reshape(-1)
        self.nodes = [region[alike == number] for number in range(alike.max(initial=-1) + 1)]
        self.free = [np.maximum(free[nodes], 0) for nodes in self.nodes]
        counted = [by_node[:, nodes].sum(axis=1) for nodes in self.nodes]
        self.slots = np.array(counted, dtype=np.int64).reshape(-1, len(kinds)).T
        if self.slots.size > LARGE:
            raise OverflowError("the model is too large")
        self.of = {int(node): leaf for leaf, nodes in enumerate(self.nodes) for node in nodes}
        self.inside: dict[Spot, list[int]] = defaultdict(list)
        for leaf, nodes in enumerate(self.nodes):
            for level in (None, *levels):
                self.inside[self.spot(level, int(nodes[0]))].append(leaf)

    def spot(self, level: int | None, node: int) -> Spot:
        """The domain around a node."""
        return ROOT if level is None else (level, int(self.domains[level][node]))

    def copies(self, option: Option, spot: Spot) -> int:
        """How many gangs of an option fit a domain at most, each pod set by itself."""
        slots = self.slots[:, self.inside.get(spot, [])].sum(axis=1)
        bundles = option.packing.bundles.values()
        fits = [sum(n * int(slots[kind]) for n, kind in b.packs.items()) // b.pods for b in bundles]
        return min(len(option.gangs), *fits)

    def tightest(self, option: Option) -> list[Spot]:
        """Domains in which an option fits, those with the fewest slots."""
        if option.packing.level is None:
            return [ROOT]
        kinds = [kind for bundle in option.packing.bundles.values() for kind in bundle.packs.values()]
        spots = [s for s in self.inside if s[0] == option.packing.level and self.copies(option, s)]
        return sorted(spots, key=lambda s: int(self.slots[np.ix_(kinds, self.inside[s])].sum()))[:SPOTS]


class Column(NamedTuple):
    """Gangs of an option in a domain: the variable that counts them, and those of packs by pod set and size."""

    option: Option
    spot: Spot
    gangs: int
    packs: Mapping[tuple[str, int], int]


class Model:
    """The rows of a question. `before`: values of the variables as gangs lie so far. Raises OverflowError where it is
    too large, or sums of its amounts could exceed int64.
    """

    def __init__(self, question: Question, state: State, free: Matrix, region: Numbers) -> None:
        """`free`: N x R, less what those that take part have; `region`: the nodes that are looked at."""
        self.question, self.rows = question, Rows()
        self.leaves = Leaves(question, free, region)
        self.columns: dict[tuple[int, Spot], Column] = {}
        self.flows: dict[tuple[Spot, int, int], int] = {}
        self._own: dict[tuple[Spot, int], Terms] = defaultdict(lambda: defaultdict(int))
        for option, packs in question.lying:
            option.spots[self.leaves.spot(option.packing.level, packs[0].node)] = None
        families: dict[int, Terms] = defaultdict(dict)
        for option in question.options:
            option.spots.update(dict.fromkeys(self.leaves.tightest(option)))
            for spot in option.spots:
                if most := self.leaves.copies(option, spot):
                    column = self.columns[id(option), spot] = self._column(option, spot, most)
                    families[id(option.gangs)][column.gangs] = 1
        for option in {id(o.gangs): o for o in question.options}.values():
            count = len(option.gangs)
            self.rows.row(families[id(option.gangs)], low=count if option.must else 0, high=count)
        self._flow()
        self._limit(state.book, state.usages())
        for option, packs in question.lying:
            self._hint(option, packs)
        self.before = tuple(self.rows.hint)

    def _column(self, option: Option, spot: Spot, most: int) -> Column:
        gangs, packs = self.rows.variable(most), {}
        for name, bundle in option.packing.bundles.items():
            if len(bundle.packs) == 1:
                ((size, kind),) = bundle.packs.items()
                self._own[spot, kind][gangs] += -(-bundle.pods // size)
                continue
            terms = {gangs: -bundle.pods}
            for size, kind in bundle.packs.items():
                packs[name, size] = self.rows.variable(-(-bundle.pods // size))
                self._own[spot, kind][packs[name, size]] = 1
                terms[packs[name, size]] = size
            self.rows.row(terms, low=0, high=max(bundle.packs) - 1)
        return Column(option, spot, gangs, packs)

    def _flow(self) -> None:
        """Packs go from the domain of their gang to its leaves, where the slots of each size bound them."""
        arriving: dict[int, list[tuple[int, Matrix]]] = defaultdict(list)
        for (spot, kind), terms in self._own.items():
            for leaf in self.leaves.inside[spot]:
                if slots := int(self.leaves.slots[kind, leaf]):
                    flow = self.flows[spot, kind, leaf] = self.rows.variable(slots)
                    terms[flow] = -1
                    arriving[leaf].append((flow, self.question.kinds[kind].row))
            self.rows.row(terms, low=0, high=0)
        for leaf, come in arriving.items():
            for column, free in enumerate(self.leaves.free[leaf].T):
                amounts = {flow: int(row[column]) for flow, row in come}
                for unit in sorted({1, *amounts.values()} - {0}):
                    times = {flow: amount // unit for flow, amount in amounts.items()}
                    self.rows.row(times, high=int((free // unit).sum()))

    def _hint(self, option: Option, packs: Sequence[Pack]) -> None:
        spot = self.leaves.spot(option.packing.level, packs[0].node)
        column = self.columns.get((id(option), spot))
        if column is None:
            return
        variables: list[int | None] = [column.gangs]
        for node, name, size in packs:
            leaf = self.leaves.of.get(node, -1)
            variables.append(self.flows.get((spot, option.packing.bundles[name].packs[size], leaf)))
            variables.append(column.packs.get((name, size)))
        for variable in variables:
            if variable is not None:
                self.rows.hint[variable] += 1

    def _limit(self, book: QuotaBook, usages: Sequence[Usage]) -> None:
        """Rows for the limits of queues. Gangs that must start are counted already, on the flavors where they lie."""
        choices = Counter(id(option.gangs) for option in self.question.options)
        asked: dict[tuple[str, Account], Terms] = defaultdict(dict)
        counted = Counter[tuple[str, Account]]()
        for column in self.columns.values():
            if not column.option.must or choices[id(column.option.gangs)] > 1:
                for at, amount in _bounded(book, column.option):
                    asked[at][column.gangs] = amount
        for option, _ in self.question.lying:
            if option.must and choices[id(option.gangs)] > 1:
                counted.update(dict(_bounded(book, option)))
        for (queue, account), terms in asked.items():
            held = max(usage.held(queue, account) for usage in usages)
            room = max(0, (book.limit(queue, account) or 0) - held)
            self.rows.row(terms, high=room + counted[queue, account])

    def moves(self, values: Sequence[int]) -> Terms:
        """How much is moved, as a sum to keep small; adds the rows that tell, and takes a solution as hints."""
        total = Terms()
        self.rows.hint[:] = values
        for variable in self.flows.values():
            high, before = self.rows.bounds[variable], self.before[variable]
            if high > before:
                total[more := self.rows.variable(high - before)] = -1
                self.rows.hint[more] = max(0, values[variable] - before)
                self.rows.row({variable: 1, more: -1}, high=before)
        return total

    def packs(self, column: Column, values: Sequence[int]) -> Iterator[tuple[str, int, int, int]]:
        """(pod set, size, kind, packs) of one gang of a column."""
        for name, bundle in column.option.packing.bundles.items():
            for size, kind in bundle.packs.items():
                variable = column.packs.get((name, size))
                yield name, size, kind, -(-bundle.pods // size) if variable is None else values[variable]


def _bounded(book: QuotaBook, option: Option) -> Iterator[tuple[tuple[str, Account], int]]:
    """The amounts of a gang of an option that limits bound, by queue and account."""
    for account, amount in option.charge.items():
        for queue in book.lineage(option.gangs[0].queue):
            if book.limit(queue, account) is not None:
                yield (queue, account), amount
