"""Gangs and nodes as counts: the model that the repair and `order: packed` share. It names no solver.

y[option, spot]   gangs of a family that go to a domain, or anywhere: the root
n[y, set, size]   packs of its pods by size, where several sizes will do
f[spot, kind]     packs that are sent down to a spot from the one above, so that domains of all levels agree
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from queuer.domain.quota import Account, QuotaBook
from queuer.domain.usage import Usage
from queuer.solver.placement import Spreads
from queuer.solver.repair.tree import Option, Spot, Tree

HIGHEST = 2**62
Terms = dict[int, int]
"""Coefficients by variable number."""


class Rows:
    """Integer variables from 0 with bounds and hints, and rows `low <= sum of terms <= high`."""

    def __init__(self) -> None:
        self.bounds: list[int] = []
        self.hint: list[int] = []
        self.listed: list[tuple[Terms, int, int]] = []

    def variable(self, high: int, hint: int) -> int:
        """A new variable; its number."""
        self.bounds.append(high)
        self.hint.append(min(high, hint))
        return len(self.bounds) - 1

    def row(self, terms: Mapping[int, int], *, low: int = -HIGHEST, high: int = HIGHEST) -> None:
        """A row, left out where it cannot bind. Raises OverflowError where its sum could leave int64."""
        kept = {v: c for v, c in terms.items() if c}
        most = sum(c * self.bounds[v] for v, c in kept.items() if c > 0)
        least = sum(c * self.bounds[v] for v, c in kept.items() if c < 0)
        if max(most, -least) >= HIGHEST:
            raise OverflowError("a row of the model exceeds int64")
        if most > high or least < low:
            self.listed.append((kept, low, high))


class Column(NamedTuple):
    """Gangs of an option on a spot: the variable that counts them, and its packs by pod set and size."""

    option: Option
    spot: int
    gangs: int
    packs: Mapping[tuple[str, int], int]


class Model:
    """The rows of a question on a tree. `before`: values of the variables as gangs lie so far."""

    def __init__(self, tree: Tree, *, placed: Iterable[tuple[Option, Spreads]] = ()) -> None:
        """`placed`: how gangs lie so far."""
        self.tree, self.rows = tree, Rows()
        self.columns: list[Column] = []
        self.flows: dict[tuple[int, int], int] = {}
        self._own: dict[tuple[int, int], Terms] = defaultdict(dict)
        placed = list(placed)
        lying = Counter((id(option), tree.spot_of(option, spreads)) for option, spreads in placed)
        for option in tree.question.options:
            spots = [spot for number, spot in lying if number == id(option)]
            for spot in dict.fromkeys([*option.columns, *spots]):
                self._open(option, spot, lying[id(option), spot])
        members: dict[int, Terms] = defaultdict(dict)
        for column in self.columns:
            members[id(column.option.family)][column.gangs] = 1
        for family in tree.question.families:
            count = len(family.gangs)
            self.rows.row(members[id(family)], low=count if family.settled else 0, high=count)
        self._hint_packs(placed)
        self._flow(self.sent(placed))
        self.before = tuple(self.rows.hint)

    def _open(self, option: Option, spot: int, lying: int) -> None:
        most = int(self.tree.copies(option, self.tree.slots[[spot]])[0])
        if not most:
            return
        gangs = self.rows.variable(most, lying)
        packs = {}
        for name, bundle in option.form.bundles.items():
            if len(bundle.packs) == 1:
                ((size, kind),) = bundle.packs.items()
                own = self._own[spot, kind]
                own[gangs] = own.get(gangs, 0) + -(-bundle.pods // size)
                continue
            terms = {gangs: -bundle.pods}
            for size, kind in bundle.packs.items():
                slots = int(self.tree.slots[spot, kind])
                packs[name, size] = self.rows.variable(min(slots, -(-bundle.pods // size)), 0)
                self._own[spot, kind][packs[name, size]] = 1
                terms[packs[name, size]] = size
            self.rows.row(terms, low=0, high=max(bundle.packs) - 1)
        self.columns.append(Column(option, spot, gangs, packs))

    def sent(self, placed: Iterable[tuple[Option, Spreads]]) -> Counter[tuple[int, int]]:
        """Packs of these gangs that are sent down to each spot, by kind."""
        found: Counter[tuple[int, int]] = Counter()
        for option, spreads in placed:
            top = self.tree.spot_of(option, spreads)
            for name, size, node, packs in self.tree.question.lying(option.form, spreads) or ():
                at = int(self.tree.leaf_of[node])
                while at not in (top, -1):
                    found[at, option.form.bundles[name].packs[size]] += packs
                    at = self.tree.spots[at].parent
        return found

    def _hint_packs(self, placed: Iterable[tuple[Option, Spreads]]) -> None:
        columns = {(id(c.option), c.spot): c for c in self.columns}
        for option, spreads in placed:
            column = columns.get((id(option), self.tree.spot_of(option, spreads)))
            for name, size, _, packs in self.tree.question.lying(option.form, spreads) or ():
                if column is not None and (name, size) in column.packs:
                    self.rows.hint[column.packs[name, size]] += packs

    def _flow(self, hints: Mapping[tuple[int, int], int]) -> None:
        """Packs go down the tree from where their gang is to a leaf."""
        for number, spot in enumerate(self.tree.spots):
            arriving = {}
            for kind in range(len(self.tree.question.kinds)):
                terms = dict(self._own.get((number, kind), {}))
                if (number, kind) in self.flows:
                    terms[self.flows[number, kind]] = 1
                if terms:
                    arriving[kind] = terms
            if not spot.children:
                self._fit(spot, arriving)
                continue
            for kind, terms in arriving.items():
                for child in spot.children:
                    most = int(self.tree.slots[child, kind])
                    if most:
                        self.flows[child, kind] = self.rows.variable(most, hints.get((child, kind), 0))
                        terms[self.flows[child, kind]] = -1
                self.rows.row(terms, low=0, high=0)

    def _fit(self, spot: Spot, arriving: Mapping[int, Terms]) -> None:
        """The rows of a leaf: slots of each size, or the very amounts of a node."""
        rows = {kind: self.tree.question.kinds[kind].row for kind in arriving}
        free = np.maximum(self.tree.free[spot.nodes], 0)
        if spot.size is None:
            for column, have in enumerate(free.sum(axis=0).tolist()):
                self.rows.row(_added({k: int(row[column]) for k, row in rows.items()}, arriving), high=have)
            return
        amounts = {kind: int(row[spot.size]) for kind, row in rows.items()}
        for unit in sorted(set(amounts.values())):
            times = {kind: amount // unit for kind, amount in amounts.items()}
            self.rows.row(_added(times, arriving), high=int((free[:, spot.size] // unit).sum()))

    def limit(self, book: QuotaBook, usages: Sequence[Usage]) -> None:
        """Rows for the limits of queues, for gangs that are not counted already."""
        asked: dict[tuple[str, Account], Terms] = defaultdict(dict)
        for column in self.columns:
            family = column.option.family
            for account, amount in column.option.charge.items() if not family.settled else ():
                for queue in book.lineage(family.gangs[0].queue):
                    if book.limit(queue, account) is not None:
                        asked[queue, account][column.gangs] = amount
        for (queue, account), terms in asked.items():
            held = max(usage.held(queue, account, surely=True) for usage in usages)
            self.rows.row(terms, high=max(0, (book.limit(queue, account) or 0) - held))

    def changed(self, values: Sequence[int]) -> frozenset[int]:
        """Spots to which other packs or gangs come than lie there so far."""
        come = [(spot, v) for (spot, _), v in self.flows.items()] + [(c.spot, c.gangs) for c in self.columns]
        return frozenset(spot for spot, v in come if values[v] != self.before[v])

    def repacked(self, column: Column, values: Sequence[int]) -> bool:
        """Whether its gang lies in other packs so far."""
        return any(values[v] != self.before[v] for v in column.packs.values())

    def packs(self, column: Column, values: Sequence[int]) -> Iterator[tuple[str, int, int]]:
        """(pod set, size, packs) of one gang of a column."""
        for name, bundle in column.option.form.bundles.items():
            for size in bundle.packs:
                variable = column.packs.get((name, size))
                yield name, size, -(-bundle.pods // size) if variable is None else values[variable]


def _added(times: Mapping[int, int], arriving: Mapping[int, Terms]) -> Terms:
    """Packs of each kind times a factor, as terms."""
    total: Terms = defaultdict(int)
    for kind, terms in arriving.items():
        for variable, count in terms.items():
            total[variable] += times[kind] * count
    return dict(total)
