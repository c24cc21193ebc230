"""Gangs in families and nodes in a tree of domains, for the counts of `model`.

On a leaf the slots of each size decide whether packs fit, which is exact where sizes divide each other and one resource
runs out first on every node; a leaf of which that is not so is split into its nodes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from queuer.domain.quota import Charge
from queuer.solver.nodes import Mask, Matrix, Need, Nodes, Numbers
from queuer.solver.placement import Part, Spreads, Variant, parts_of
from queuer.solver.shapes import Gang

ROOT = 0


@dataclass(frozen=True, slots=True, eq=False)
class Kind:
    """Packs that nothing tells apart: what one asks for (R), and the nodes it may use (N)."""

    need: Need
    row: Matrix
    open: Mask


class Bundle(NamedTuple):
    """The pods of one set. `packs`: kinds by size, that is how many pods lie on one host together.

    Where several pods fit on a host, a gang on several hosts takes as many as fit on each: so it has no choice among
    them, or has them to itself (DESIGN 3.5).
    """

    pods: int
    packs: Mapping[int, int]


class Form(NamedTuple):
    """What gangs ask of the nodes. `level`: of the one domain that holds all pods."""

    bundles: Mapping[str, Bundle]
    level: int | None


Choice = tuple[Form, Variant, Charge]
"""Flavors and sizes of a gang, what it asks for so, and what quota counts."""


@dataclass(slots=True, eq=False, kw_only=True)
class Family:
    """Gangs that nothing tells apart. `settled`: all of them start, and quota counts them already."""

    gangs: list[Gang] = field(default_factory=list)
    settled: bool
    options: list[Option] = field(default_factory=list)


@dataclass(slots=True, eq=False, kw_only=True)
class Option:
    """One choice for the gangs of a family. `columns`: spots that are open to it."""

    family: Family
    form: Form
    variant: Variant
    charge: Charge
    columns: dict[int, None] = field(default_factory=dict)


class Question:
    """Gangs in families, before anything is known of what is free."""

    def __init__(self, nodes: Nodes) -> None:
        self.nodes = nodes
        self.kinds: list[Kind] = []
        self.families: list[Family] = []
        self.options: list[Option] = []
        self._kinds: dict[object, int] = {}
        self._forms: dict[object, Form | None] = {}
        self._families: dict[object, Family] = {}

    def form(self, gang: Gang, variant: Variant, closed: Mask | None) -> Form | None:
        """What the gang asks for on nodes that are not closed, preferred levels aside; None = counts do not say it."""
        counts, flavors = tuple(variant.counts.values()), tuple(variant.flavors.values())
        key = (gang.shape.form, counts, flavors, id(closed))
        if key not in self._forms:
            self._forms[key] = self._new_form(gang, variant, closed)
        return self._forms[key]

    def _new_form(self, gang: Gang, variant: Variant, closed: Mask | None) -> Form | None:
        workload, parts = gang.workload, parts_of(self.nodes, gang.workload, variant)
        level = self.nodes.snapshot.topology.find(workload.required or "")
        if not parts or any(p.need.exclusive or p.required is not None for p in parts):
            return None
        single = sum(part.count for part in parts) == 1
        if level == len(self.nodes.domains) - 1 and not single:
            return None
        bundles = {}
        for part in parts:
            opening = part.accepting if closed is None else part.accepting & ~closed
            if level is not None:
                opening = opening & (self.nodes.domains[level] >= 0)
            bundles[part.name] = Bundle(part.count, self._packs(part, opening))
        return Form(bundles, None if single else level)

    def _packs(self, part: Part, opening: Mask) -> dict[int, int]:
        slots = part.need.slots(self.nodes.bound_free)
        most = min(int(slots[opening].max(initial=1)), part.count)
        if most <= 1:
            return {1: self._kind(part.row, opening)}
        sizes = [size for size in range(1, most + 1) if bool((slots[opening] == size).any())]
        packs = {
            size: self._kind(part.row * size, opening & (slots == size))
            for size in sizes
            if size < part.count
        }
        if most == part.count:  # all pods on one host
            packs[most] = self._kind(part.row * most, opening)
        return packs

    def _kind(self, row: Matrix, opening: Mask) -> int:
        key = (row.tobytes(), opening.tobytes())
        if key not in self._kinds:
            self._kinds[key] = len(self.kinds)
            columns = np.flatnonzero(row)
            self.kinds.append(Kind(Need(columns, row[columns], False), row, opening))
        return self._kinds[key]

    def enter(self, gang: Gang, choices: Sequence[Choice], *, key: object, settled: bool) -> list[Option]:
        """The options of a gang in the family of this key, by choice."""
        several = any(len(b.packs) > 1 for form, _, _ in choices for b in form.bundles.values())
        whole = (key, settled, gang.uid if several else "")
        if whole not in self._families:
            self._families[whole] = family = Family(settled=settled)
            self.families.append(family)
            family.options += [
                Option(family=family, form=form, variant=variant, charge=charge)
                for form, variant, charge in choices
            ]
            self.options += family.options
        self._families[whole].gangs.append(gang)
        return self._families[whole].options

    def lying(self, form: Form, spreads: Spreads) -> list[tuple[str, int, int, int]] | None:
        """(pod set, size, node, packs) of a placement; None = it is not in such packs."""
        found = []
        for name, bundle in form.bundles.items():
            for node, count in spreads[name].items():
                fitting = [
                    size
                    for size, kind in bundle.packs.items()
                    if self.kinds[kind].open[node] and (size < bundle.pods or count == size)
                ]
                if not fitting:
                    return None
                size = max(fitting)
                packs = count if len(bundle.packs) == 1 and size == 1 else 1
                if packs * size < count:
                    return None
                found.append((name, size, node, packs))
        return found


@dataclass(slots=True, eq=False)
class Spot:
    """A domain or leaf. `size`: the column by which packs are measured, on leaves whose sizes divide each other."""

    nodes: Numbers
    parent: int
    children: list[int] = field(default_factory=list)
    size: int | None = None


class Tree:
    """Nodes as spots for the options of a question. `free`: N x R; `slots`: spots x kinds; `leaf_of`: N, -1 = none."""

    def __init__(self, question: Question, free: Matrix, region: Numbers) -> None:
        """`region`: the nodes that are looked at."""
        self.question, self.free, self._domains = question, free, question.nodes.domains
        self.spots: list[Spot] = []
        self.domains: dict[tuple[int, int], int] = {}
        by_node = self._fitting(free)
        levels = {o.form.level for o in question.options if o.form.level is not None}
        self._grow(region[(by_node[:, region] > 0).any(axis=0)], -1, sorted(levels))
        self.slots = self._counted(by_node)
        self.leaf_of = np.full(len(free), -1, dtype=np.intp)
        for number, spot in enumerate(self.spots):
            if not spot.children:
                self.leaf_of[spot.nodes] = number

    def _fitting(self, free: Matrix) -> Matrix:
        """Slots by kind and node."""
        found = [np.where(kind.open, kind.need.slots(free), 0) for kind in self.question.kinds]
        return np.array(found, dtype=np.int64).reshape(len(found), len(free))

    def _counted(self, by_node: Matrix) -> Matrix:
        return np.array([by_node[:, spot.nodes].sum(axis=1) for spot in self.spots], dtype=np.int64)

    def slots_in(self, free: Matrix) -> Matrix:
        """Slots (spots x kinds) with other amounts free (N x R)."""
        return self._counted(self._fitting(free))

    def _grow(self, nodes: Numbers, parent: int, levels: Sequence[int]) -> None:
        number = self._add(nodes, parent)
        for depth, level in enumerate(levels):
            numbers = self._domains[level][nodes]
            groups = {int(d): nodes[numbers == d] for d in np.unique(numbers)}
            if len(groups) > 1:
                for domain, inside in groups.items():
                    self.domains[level, domain] = len(self.spots)
                    self._grow(inside, number, levels[depth + 1 :])
                return
            self.domains.update({(level, domain): number for domain in groups})
        kinds = self.question.kinds
        signs = np.stack([kind.open[nodes] for kind in kinds], axis=1) if kinds else np.zeros((len(nodes), 1))
        alike = np.unique(signs, axis=0, return_inverse=True)[1].reshape(-1)
        leaves = [nodes[alike == sign] for sign in np.unique(alike)]
        for leaf in leaves:
            at = number if len(leaves) == 1 else self._add(leaf, number)
            self.spots[at].size = ruling(self.free[leaf], [k.row for k in kinds if k.open[leaf[0]]])
            if self.spots[at].size is None and len(leaf) > 1:
                for node in leaf:
                    self._add(np.array([node], dtype=np.intp), at)

    def _add(self, nodes: Numbers, parent: int) -> int:
        self.spots.append(Spot(nodes, parent))
        if parent >= 0:
            self.spots[parent].children.append(len(self.spots) - 1)
        return len(self.spots) - 1

    def spot_at(self, option: Option, node: int) -> int | None:
        """The spot that an option asks for around a node; None = there is none in the region."""
        level = option.form.level
        return ROOT if level is None else self.domains.get((level, int(self._domains[level][node])))

    def spot_of(self, option: Option, spreads: Spreads) -> int:
        """The spot that holds a placement."""
        spot = self.spot_at(option, next(node for spread in spreads.values() for node in spread))
        return ROOT if spot is None else spot

    def copies(self, option: Option, slots: Matrix) -> Matrix:
        """How many gangs of an option fit, at most, with so many slots (M x kinds), each pod set by itself (M)."""
        found = np.full(len(slots), len(option.family.gangs), dtype=np.int64)
        for bundle in option.form.bundles.values():
            sizes = np.array(list(bundle.packs), dtype=np.int64)
            found = np.minimum(found, slots[:, list(bundle.packs.values())] @ sizes // bundle.pods)
        return found

    def open(self, option: Option, slots: Matrix, count: int) -> None:
        """Open the domains to an option in which it fits with so many slots (spots x kinds), least left over first."""
        level = option.form.level
        if level is None:
            option.columns[ROOT] = None
        spots = np.array([s for (at, d), s in self.domains.items() if at == level and d >= 0], dtype=np.intp)
        if len(spots):
            kinds = [kind for bundle in option.form.bundles.values() for kind in bundle.packs.values()]
            order = np.argsort(slots[spots][:, kinds].sum(axis=1), kind="stable")
            order = order[self.copies(option, slots[spots])[order] > 0]
            option.columns.update(dict.fromkeys(spots[order][:count].tolist()))


def ruling(free: Matrix, rows: Sequence[Matrix]) -> int | None:
    """The column of a resource that all rows (R) ask for in amounts that divide each other, and that runs out first on
    each of these nodes (K x R) whatever they take; None = there is none.
    """
    free = np.maximum(free, 0).astype(np.float64)  # products of amounts may exceed int64
    for column in range(free.shape[1]):
        amounts = sorted({int(row[column]) for row in rows})
        if not amounts or not amounts[0] or any(b % a for a, b in pairwise(amounts)):
            continue
        used = free[free[:, column] >= amounts[0]]
        if all((used * row[column] >= row * used[:, [column]]).all() for row in rows):
            return column
    return None
