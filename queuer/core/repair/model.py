"""Gangs and nodes as counts: the model that the repair and `order: packed` share. It names no solver.

    y[option, spot]  gangs of a family that go to a domain, or anywhere: the root
    f[spot, kind]    pods that are sent down to a spot from the one above, so that domains of all levels agree

On a leaf the slots of each size decide whether pods fit, which is exact where sizes divide each other and one resource
runs out first on every node; a leaf of which that is not so is split into its nodes.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from queuer.core.nodes import Mask, Matrix, Need, Nodes, Numbers
from queuer.core.placement import Spreads, Variant, parts_of
from queuer.core.shapes import Gang
from queuer.domain.quota import Account, Charge, QuotaBook
from queuer.domain.usage import Usage

ROOT = 0
HIGHEST = 2**62
Terms = dict[int, int]
"""Coefficients by variable number."""


class Rows:
    """Integer variables with bounds and hints, and rows `low <= sum of terms <= high`."""

    def __init__(self) -> None:
        self.bounds: list[tuple[int, int]] = []
        self.hint: list[int] = []
        self.listed: list[tuple[Terms, int, int]] = []

    def variable(self, high: int, hint: int) -> int:
        """A new variable from 0; its number."""
        self.bounds.append((0, high))
        self.hint.append(min(high, hint))
        return len(self.bounds) - 1

    def row(self, terms: Mapping[int, int], *, low: int = -HIGHEST, high: int = HIGHEST) -> None:
        """A row, left out where it cannot bind. Raises OverflowError where its sum could leave int64."""
        kept = {v: c for v, c in terms.items() if c}
        most = sum(c * self.bounds[v][1] for v, c in kept.items() if c > 0)
        least = sum(c * self.bounds[v][1] for v, c in kept.items() if c < 0)
        if max(most, -least) >= HIGHEST:
            raise OverflowError("a row of the model exceeds int64")
        if most > high or least < low:
            self.listed.append((kept, low, high))


@dataclass(frozen=True, slots=True, eq=False)
class Kind:
    """Pods that nothing tells apart: what one asks for (R), and the nodes it may use (N)."""

    need: Need
    row: Matrix
    open: Mask


@dataclass(slots=True, eq=False, kw_only=True)
class Option:
    """One choice for the gangs of a family. `kinds`: by pod set, "" = all pods of a gang are one; `pods`: of one gang,
    by kind; `level`: of the domain that holds all of them if it is to be; `strict`: it must. `columns`: spots that are
    open to it; `stays`: gangs that lie there so far.
    """

    family: int
    variant: Variant
    charge: Charge
    kinds: Mapping[str, int]
    pods: Mapping[int, int]
    level: int | None
    strict: bool
    columns: dict[int, None] = field(default_factory=dict)
    stays: Counter[int] = field(default_factory=Counter)


@dataclass(slots=True, eq=False, kw_only=True)
class Family:
    """Gangs that nothing tells apart. `settled`: all of them start, and quota counts them already."""

    gangs: list[Gang]
    settled: bool
    options: list[int] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Spot:
    """A domain or leaf. `size`: the column by which pods are measured, on leaves whose sizes divide each other."""

    nodes: Numbers
    parent: int
    children: list[int] = field(default_factory=list)
    size: int | None = None


class Question:
    """Gangs in families, before anything is known of the nodes."""

    def __init__(self, nodes: Nodes) -> None:
        self.nodes = nodes
        self.kinds: list[Kind] = []
        self.families: list[Family] = []
        self.options: list[Option] = []
        self._kinds: dict[object, int] = {}
        self._known: dict[object, int] = {}

    def family(self, gang: Gang, key: object, *, settled: bool) -> Family:
        """The family of this key, which the gang has joined."""
        number = self._known.setdefault((key, settled), len(self.families))
        if number == len(self.families):
            self.families.append(Family(gangs=[], settled=settled))
        self.families[number].gangs.append(gang)
        return self.families[number]

    def option(self, family: Family, variant: Variant, charge: Charge, closed: Mask | None) -> Option | None:
        """The choice for a family of one variant on nodes that are not closed; None = counts do not describe it."""
        key = (id(family), tuple(variant.flavors.values()), tuple(variant.counts.values()))
        if key not in self._known:
            option = self._described(family, variant, charge, closed)
            if option is None:
                return None
            self._known[key] = len(self.options)
            family.options.append(len(self.options))
            self.options.append(option)
        return self.options[self._known[key]]

    def _described(
        self, family: Family, variant: Variant, charge: Charge, closed: Mask | None
    ) -> Option | None:
        workload, domains = family.gangs[0].workload, self.nodes.domains
        find, host = self.nodes.snapshot.topology.find, len(self.nodes.domains) - 1
        parts = parts_of(self.nodes, workload, variant)
        if not parts or any(p.required is not None or p.preferred is not None for p in parts):
            return None
        strict = workload.required is not None
        level = find(workload.required or workload.preferred or "")
        openings = [part.accepting if closed is None else part.accepting & ~closed for part in parts]
        if strict and level is not None:
            openings = [opening & (domains[level] >= 0) for opening in openings]
        pods: Counter[int] = Counter()
        kinds: dict[str, int] = {}
        if strict and level == host:  # all pods on one node are one pod
            row: Matrix = np.sum([part.row * part.count for part in parts], axis=0)
            if any(part.need.exclusive and part.count > 1 for part in parts):
                return None
            columns = np.flatnonzero(row)
            need, opening = Need(columns, row[columns], False), np.logical_and.reduce(openings)
            kinds[""] = self._kind(need, row, opening, "")
            pods[kinds[""]] = 1
        else:
            for part, opening in zip(parts, openings, strict=True):
                own = family.gangs[0].uid if part.need.exclusive else ""
                kinds[part.name] = self._kind(part.need, part.row, opening, own)
                pods[kinds[part.name]] += part.count
        if level == host or pods.total() == 1:
            level = None
        number = self.families.index(family)
        return Option(
            family=number, variant=variant, charge=charge, kinds=kinds, pods=pods, level=level, strict=strict
        )

    def _kind(self, need: Need, row: Matrix, opening: Mask, own: str) -> int:
        key = (row.tobytes(), opening.tobytes(), own)
        if key not in self._kinds:
            self._kinds[key] = len(self.kinds)
            self.kinds.append(Kind(need, row, opening))
        return self._kinds[key]


class Tree:
    """Nodes as spots for the options of a question. `free`: N x R; `slots`: spots x kinds."""

    def __init__(self, question: Question, free: Matrix, region: Numbers) -> None:
        self.question, self.free, self._nodes = question, free, question.nodes
        self.spots: list[Spot] = []
        self.domains: dict[tuple[int, int], int] = {}
        by_node = [self._fitting(free, kind) for kind in question.kinds]
        self._by_node = np.array(by_node, dtype=np.int64).reshape(len(by_node), len(free))
        usable = region[(self._by_node[:, region] > 0).any(axis=0)]
        self._grow(usable, ROOT, sorted({o.level for o in question.options if o.level is not None}))
        self.slots = self.counted(self._by_node)
        self.leaf_of = np.full(len(free), -1, dtype=np.intp)
        for number, spot in enumerate(self.spots):
            if not spot.children:
                self.leaf_of[spot.nodes] = number

    @staticmethod
    def _fitting(free: Matrix, kind: Kind) -> Matrix:
        return np.where(kind.open, kind.need.slots(free), 0)

    def counted(self, by_node: Matrix) -> Matrix:
        """Sums (spots x kinds) of counts by kind and node."""
        return np.array([by_node[:, spot.nodes].sum(axis=1) for spot in self.spots], dtype=np.int64)

    def slots_in(self, free: Matrix) -> Matrix:
        """Slots (spots x kinds) with other amounts free (N x R)."""
        return self.counted(np.array([self._fitting(free, kind) for kind in self.question.kinds]))

    def _grow(self, nodes: Numbers, parent: int, levels: Sequence[int]) -> None:
        number = self._add(nodes, parent)
        for depth, level in enumerate(levels):
            numbers = self._nodes.domains[level][nodes]
            groups = {int(d): nodes[numbers == d] for d in np.unique(numbers)}
            if len(groups) > 1:
                for domain, inside in groups.items():
                    if domain >= 0:
                        self.domains[level, domain] = len(self.spots)
                    self._grow(inside, number, levels[depth + 1 :])
                return
            self.domains.update({(level, domain): number for domain in groups if domain >= 0})
        signs = np.stack([kind.open[nodes] for kind in self.question.kinds], axis=1)
        alike = np.unique(signs, axis=0, return_inverse=True)[1].reshape(-1)
        leaves = [nodes[alike == sign] for sign in np.unique(alike)]
        for leaf in leaves:
            at = number if len(leaves) == 1 else self._add(leaf, number)
            kinds = [kind for kind in self.question.kinds if kind.open[leaf[0]]]
            self.spots[at].size = ruling(self.free[leaf], kinds)
            if self.spots[at].size is None and len(leaf) > 1:
                for node in leaf:
                    self._add(np.array([node], dtype=np.intp), at)

    def _add(self, nodes: Numbers, parent: int) -> int:
        number = len(self.spots)
        self.spots.append(Spot(nodes, parent))
        if number != ROOT:
            self.spots[parent].children.append(number)
        return number

    def spot_of(self, option: Option, spreads: Spreads) -> int:
        """The spot that holds a placement as the option asks for it."""
        hosts = [node for spread in spreads.values() for node in spread]
        if option.level is None:
            return ROOT
        inside = {int(self._nodes.domains[option.level][node]) for node in hosts}
        return self.domains.get((option.level, inside.pop()), ROOT) if len(inside) == 1 else ROOT

    def open(self, option: Option, slots: Matrix, count: int, *, loose: bool = False) -> None:
        """Open the domains to an option in which it fits with so many slots (spots x kinds): those with least left
        over, or `loose` with most.
        """
        if option.level is None or not option.strict:
            option.columns[ROOT] = None
        spots = np.array(
            [s for (level, _), s in self.domains.items() if level == option.level], dtype=np.intp
        )
        if len(spots):
            fits = np.min([slots[spots, kind] // pods for kind, pods in option.pods.items()], axis=0) > 0
            left = sum(slots[spots, kind] for kind in option.pods)
            order = np.argsort(-left if loose else left, kind="stable")
            option.columns.update(dict.fromkeys(spots[order[fits[order]]][:count].tolist()))


def ruling(free: Matrix, kinds: Sequence[Kind]) -> int | None:
    """The column of a resource that all ask for in amounts that divide each other, and that runs out first on each of
    these nodes (K x R) whatever they take; None = there is none.
    """
    free = np.maximum(free, 0)
    for column in range(free.shape[1]):
        amounts = sorted({int(kind.row[column]) for kind in kinds})
        if not amounts or not amounts[0] or any(b % a for a, b in pairwise(amounts)):
            continue
        used = free[free[:, column] >= amounts[0]]
        if all(
            (used[:, c] * kind.row[column] >= kind.row[c] * used[:, column]).all()
            for kind in kinds
            for c in kind.need.columns.tolist()
        ):
            return column
    return None


class Model:
    """The rows of a question on a tree, with the meaning of the variables: `y`, `f` as above."""

    def __init__(self, tree: Tree, *, placed: Iterable[tuple[Option, Spreads]] = ()) -> None:
        """`placed`: how gangs lie so far, by which variables are hinted."""
        self.tree, self.question, self.rows = tree, tree.question, Rows()
        self.y: dict[tuple[int, int], int] = {}
        self.f: dict[tuple[int, int], int] = {}
        hints = self._hints(placed)
        for number, option in enumerate(self.question.options):
            members = len(self.question.families[option.family].gangs)
            for spot in {**option.columns, **option.stays}:
                most = min(tree.slots[spot, kind] // pods for kind, pods in option.pods.items())
                if most:
                    high = min(int(most), members)
                    self.y[number, spot] = self.rows.variable(high, option.stays[spot])
        for family, terms in self._by_family().items():
            members = len(self.question.families[family].gangs)
            settled = self.question.families[family].settled
            self.rows.row(dict.fromkeys(terms, 1), low=members if settled else 0, high=members)
        self._flow(hints)
        self.before = tuple(self.rows.hint)

    def _by_family(self) -> dict[int, list[int]]:
        found: dict[int, list[int]] = {number: [] for number in range(len(self.question.families))}
        for (number, _), variable in self.y.items():
            found[self.question.options[number].family].append(variable)
        return found

    def _hints(self, placed: Iterable[tuple[Option, Spreads]]) -> Counter[tuple[int, int]]:
        """Pods sent down to each spot, by kind."""
        found: Counter[tuple[int, int]] = Counter()
        for option, spreads in placed:
            top = self.tree.spot_of(option, spreads)
            option.stays[top] += 1
            for kind, node, count in lying(option, spreads):
                at = int(self.tree.leaf_of[node])
                while at not in (top, -1):
                    found[at, kind] += count
                    at = self.tree.spots[at].parent if at != ROOT else -1
        return found

    def _flow(self, hints: Mapping[tuple[int, int], int]) -> None:
        """Pods go down the tree from where their gang is to a leaf."""
        own: dict[tuple[int, int], Terms] = defaultdict(dict)
        for (number, spot), variable in self.y.items():
            for kind, count in self.question.options[number].pods.items():
                own[spot, kind][variable] = count
        for number, spot in enumerate(self.tree.spots):
            arriving = {}
            for kind in range(len(self.question.kinds)):
                terms = dict(own.get((number, kind), {}))
                if (number, kind) in self.f:
                    terms[self.f[number, kind]] = 1
                if terms:
                    arriving[kind] = terms
            if not spot.children:
                self._fit(spot, arriving)
            for kind, terms in arriving.items() if spot.children else ():
                for child in spot.children:
                    most = int(self.tree.slots[child, kind])
                    if most:
                        self.f[child, kind] = self.rows.variable(most, hints.get((child, kind), 0))
                        terms[self.f[child, kind]] = -1
                self.rows.row(terms, low=0, high=0)

    def _fit(self, spot: Spot, arriving: Mapping[int, Terms]) -> None:
        """The rows of a leaf."""
        kinds, free = self.question.kinds, np.maximum(self.tree.free[spot.nodes], 0)
        for kind, terms in arriving.items():
            if kinds[kind].need.exclusive:
                self.rows.row(terms, high=int(kinds[kind].need.slots(free).sum()))
        if spot.size is None:  # one node: its amounts decide
            for column, have in enumerate(free.sum(axis=0).tolist()):
                self.rows.row(added({k: int(kinds[k].row[column]) for k in arriving}, arriving), high=have)
            return
        amounts = {k: int(kinds[k].row[spot.size]) for k in arriving}
        for unit in sorted(set(amounts.values())):
            times = {k: amount // unit for k, amount in amounts.items()}
            self.rows.row(added(times, arriving), high=int((free[:, spot.size] // unit).sum()))

    def limit(self, book: QuotaBook, usages: Iterable[Usage]) -> None:
        """Rows for the limits of queues, for gangs that are not counted already."""
        asked: dict[tuple[str, Account], Terms] = defaultdict(dict)
        for (number, _), variable in self.y.items():
            option = self.question.options[number]
            family = self.question.families[option.family]
            for account, amount in option.charge.items() if not family.settled else ():
                for queue in book.lineage(family.gangs[0].queue):
                    if book.limit(queue, account) is not None:
                        asked[queue, account][variable] = amount
        for (queue, account), terms in asked.items():
            held = max(usage.held(queue, account, surely=True) for usage in usages)
            self.rows.row(terms, high=max(0, (book.limit(queue, account) or 0) - held))

    def changed(self, values: Sequence[int]) -> frozenset[int]:
        """Spots to which other pods or gangs come than lie there so far."""
        come = [(spot, v) for (spot, _), v in self.f.items()] + [(spot, v) for (_, spot), v in self.y.items()]
        return frozenset(spot for spot, v in come if values[v] != self.before[v])

    def copies(self, values: Sequence[int]) -> Iterator[tuple[Option, int, int]]:
        """Options with the spots they go to, and how many gangs."""
        for (number, spot), variable in self.y.items():
            if values[variable]:
                yield self.question.options[number], spot, values[variable]


def lying(option: Option, spreads: Spreads) -> Iterator[tuple[int, int, int]]:
    """(kind, node, pods) of a placement."""
    if "" in option.kinds:
        for node in {node for spread in spreads.values() for node in spread}:
            yield option.kinds[""], node, 1
        return
    for name, kind in option.kinds.items():
        for node, count in spreads[name].items():
            yield kind, node, count


def added(times: Mapping[int, int], arriving: Mapping[int, Terms]) -> Terms:
    """Pods of each kind times a factor, as terms."""
    total: Terms = defaultdict(int)
    for kind, terms in arriving.items():
        for variable, count in terms.items():
            total[variable] += times[kind] * count
    return dict(total)
