"""Gangs as packs of pods, for the counts of `model`: what nothing tells apart is counted together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from queuer.domain.quota import Charge
from queuer.domain.workload import Workload
from queuer.solver.nodes import Mask, Matrix, Need, Nodes
from queuer.solver.placement import Part, Spreads, Variant, parts_of
from queuer.solver.shapes import Gang
from queuer.solver.state import Settled


class PackKind(NamedTuple):
    """Packs that nothing tells apart: what one asks for (R), and the nodes it may use (N)."""

    need: Need
    row: Matrix
    open: Mask


class Bundle(NamedTuple):
    """The pods of one set. `packs`: kinds by size, that is how many pods lie on one host together.

    If several pods fit on a host, a gang on several hosts takes as many as fit on each. So it has no choice
    among them, or has them to itself.
    """

    pods: int
    packs: Mapping[int, int]


class Packing(NamedTuple):
    """The demand of gangs on the nodes. `level`: of the one domain that holds all pods. `one_host`: all pods lie on one
    host, and are one pack under the name of the first set.
    """

    bundles: Mapping[str, Bundle]
    level: int | None
    one_host: bool = False


Spot = tuple[int, int]
"""A level and the number of a domain."""
ROOT: Spot = (-1, 0)
"""Anywhere."""


@dataclass(slots=True, eq=False, kw_only=True)
class Option:
    """One choice of flavors and sizes for gangs that nothing tells apart. `gangs`: a list that their other choices
    share; `must`: all of them start, and quota counts them already. `spots`: domains that are open to it.
    """

    gangs: list[Gang]
    must: bool
    packing: Packing
    variant: Variant
    charge: Charge
    spots: dict[Spot, None] = field(default_factory=dict)


class Pack(NamedTuple):
    """Pods of one set on one node; `size` of them would fill the pack."""

    node: int
    pod_set: str
    size: int


def prefers(workload: Workload) -> bool:
    """Whether a level is preferred, by all pods or by a pod set."""
    return bool(workload.preferred) or any(pod_set.preferred for pod_set in workload.pod_sets)


class Question:
    """The gangs that may start or move. `lying`: packs of those that have a placement so far."""

    def __init__(self, nodes: Nodes) -> None:
        self.nodes = nodes
        self.kinds: list[PackKind] = []
        self.options: list[Option] = []
        self.lying: list[tuple[Option, list[Pack]]] = []
        self._kinds: dict[object, int] = {}
        self._packings: dict[object, Packing | None] = {}
        self._families: dict[object, list[Option]] = {}

    def enter(
        self,
        gang: Gang,
        choices: Iterable[tuple[Variant, Charge]],
        *,
        closed: Mask | None,
        key: object,
        lies: Settled | None = None,
        must: bool = False,
    ) -> bool:
        """Let a gang take part, if counts describe it and the placement in which it lies. `closed`: nodes that it may
        not use; `key`: equal for gangs that count the same.
        """
        known = [(f, v, charge) for v, charge in choices if (f := self.packing(gang, v, closed)) is not None]
        at = next(
            (i for i, choice in enumerate(known) if lies is not None and choice[1] == lies.variant), None
        )
        packs = [] if lies is None or at is None else self._packed(known[at][0], lies.spreads, whole=must)
        if not known or (lies is not None and not packs):
            return False
        mixed = any(len(bundle.packs) > 1 for packing, _, _ in known for bundle in packing.bundles.values())
        family = (key, must, gang.uid if mixed else "", *(id(packing) for packing, _, _ in known))
        if family not in self._families:
            gangs = list[Gang]()
            self._families[family] = [
                Option(gangs=gangs, must=must, packing=packing, variant=variant, charge=charge)
                for packing, variant, charge in known
            ]
            self.options += self._families[family]
        options = self._families[family]
        options[0].gangs.append(gang)
        if at is not None:
            self.lying.append((options[at], packs))
        return True

    def packing(self, gang: Gang, variant: Variant, closed: Mask | None) -> Packing | None:
        """The packing of the gang on nodes that are not closed, without preferred levels; None = counts cannot express
        it.
        """
        counts, flavors = tuple(variant.counts.values()), tuple(variant.flavors.values())
        key = (gang.shape.placement_key, counts, flavors, b"" if closed is None else closed.tobytes())
        if key not in self._packings:
            self._packings[key] = self._new_packing(gang, variant, closed)
        return self._packings[key]

    def _new_packing(self, gang: Gang, variant: Variant, closed: Mask | None) -> Packing | None:
        workload, parts = gang.workload, parts_of(self.nodes, gang.workload, variant)
        level = self.nodes.snapshot.topology.find(workload.required or "")
        if not parts or any(p.need.exclusive or p.required is not None for p in parts):
            return None
        single = sum(part.count for part in parts) == 1
        openings = [self._opening(part, level, closed) for part in parts]
        if level == len(self.nodes.domains) - 1 and not single:
            row: Matrix = np.sum([part.row * part.count for part in parts], axis=0)
            kind = self._kind(row, np.logical_and.reduce(openings))
            return Packing({parts[0].name: Bundle(1, {1: kind})}, None, one_host=True)
        bundles = {
            part.name: Bundle(part.count, self._packs(part, opening))
            for part, opening in zip(parts, openings, strict=True)
        }
        return Packing(bundles, None if single else level)

    def _opening(self, part: Part, level: int | None, closed: Mask | None) -> Mask:
        """Nodes that take its pods, are not closed and have the label of a level."""
        opening = part.accepting if closed is None else part.accepting & ~closed
        return opening if level is None else opening & (self.nodes.domains[level] >= 0)

    def _packs(self, part: Part, opening: Mask) -> dict[int, int]:
        slots = np.minimum(part.need.slots(self.nodes.bound_free), part.count)
        sizes = np.unique(slots[opening & (slots > 0)]).tolist() or [1]
        kept = {size: opening & (slots == size) for size in sizes[:-1]}  # the largest fit nowhere else anyway
        return {size: self._kind(part.row * size, kept.get(size, opening)) for size in sizes}

    def _kind(self, row: Matrix, opening: Mask) -> int:
        key = (row.tobytes(), opening.tobytes())
        if key not in self._kinds:
            self._kinds[key] = len(self.kinds)
            columns = np.flatnonzero(row)
            self.kinds.append(PackKind(Need(columns, row[columns], False), row, opening))
        return self._kinds[key]

    def _packed(self, packing: Packing, spreads: Spreads, *, whole: bool) -> list[Pack]:
        """The packs of a placement, some filled in part unless `whole`; none: it is not in such packs."""
        found = []
        for name, bundle in packing.bundles.items():
            spread = dict.fromkeys(spreads[name], 1) if packing.one_host else spreads[name]
            for node, pods in spread.items():
                open_ = [size for size, kind in bundle.packs.items() if self.kinds[kind].open[node]]
                sizes = [s for s in open_ if s == pods or (pods < s < bundle.pods and not whole)]
                if not sizes:
                    return []
                found.append(Pack(node, name, min(sizes)))
        return found
