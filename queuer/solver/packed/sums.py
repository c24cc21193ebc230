"""Waiting gangs and free nodes as counts, for models that choose the largest sum.

Gangs that nothing tells apart are one family, with an option for each choice of flavors and size. Nodes form a tree of
spots: the domains of the levels that somebody asks for, and below them leaves of nodes that the same pods may use. On a
leaf the counts of pods by size decide whether they fit, where the sizes divide each other and one resource runs out
first on every node; a leaf of which that is not so is split into its nodes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from queuer.domain.queue import ROOT as ROOT_QUEUE
from queuer.domain.quota import Account, Charge
from queuer.solver.contested import Variant
from queuer.solver.frame import Mask, Matrix
from queuer.solver.order import Gang
from queuer.solver.outcome import Chosen
from queuer.solver.packed.room import Room
from queuer.solver.packed.worth import Worth
from queuer.solver.parts import parts_of

ROOT = 0
VARIANTS = 4
"""Choices of flavors of one gang that are considered."""
Nodes = NDArray[np.intp]


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """Pods of one shape: what one asks for (R) and the nodes it may use (N)."""

    row: Matrix
    open: Mask

    def slots(self, free: Matrix) -> Matrix:
        """How many fit on each of these nodes, openness aside."""
        columns = np.flatnonzero(self.row)
        fit: Matrix = (np.maximum(free[:, columns], 0) // self.row[columns]).min(axis=1)
        return fit


@dataclass(frozen=True, slots=True, eq=False)
class Option:
    """One choice for the gangs of a family. `pods`: by part and name of the pod set; `level`: that of the one domain
    that holds all.
    """

    family: int
    tier: int
    worth: int
    variant: Variant
    charge: Charge
    pods: Mapping[tuple[int, str], int]
    level: int | None

    def demand(self) -> dict[int, int]:
        """Pods by part."""
        found: dict[int, int] = {}
        for (part, _), count in self.pods.items():
            found[part] = found.get(part, 0) + count
        return found


@dataclass(slots=True, eq=False)
class Spot:
    """A domain or leaf. `size`: the column by which pods are measured, on leaves whose sizes divide each other."""

    nodes: Nodes
    parent: int | None
    children: list[int] = field(default_factory=list)
    size: int | None = None


class Sums:
    """The gangs and nodes of one selection. `free`: N x R, `fixed`: picks that no option describes, taken off it."""

    def __init__(
        self,
        room: Room,
        tiers: Sequence[Sequence[Gang]],
        worth: Worth,
        best: Mapping[str, Chosen],
        *,
        window: float,
    ) -> None:
        """`window`: of each priority gangs are considered until they ask for this many times what is free."""
        self._room = room.copy()
        self._worth = worth
        self._window = window
        self._frame = room.greedy.board.frame
        self.fixed: dict[str, Chosen] = {}
        while more := [c for uid, c in best.items() if uid not in self.fixed and not self._counted(c)]:
            for chosen in more:
                self.fixed[chosen.gang.uid] = chosen
                self._room.take(chosen)
        self._fixed_worth = [
            sum(
                worth.of(g.pending.workload, self.fixed[g.uid].variant.counts)
                for g in tier
                if g.uid in self.fixed
            )
            for tier in tiers
        ]
        self.free = self._room.least()
        self.parts: list[Part] = []
        self.options: list[Option] = []
        self.families: list[list[Gang]] = []
        self.members: dict[str, int] = {}
        self._numbers: dict[object, int] = {}
        self._choices: dict[object, int] = {}
        for tier, gangs in enumerate(tiers):
            self._enter(tier, gangs, best)
        self.spots: list[Spot] = []
        self.domains: dict[tuple[int, int], int] = {}
        if self.options:
            self._grow()
        self.slots = np.array(
            [[int(self._on(spot.nodes, p).sum()) for p in self.parts] for spot in self.spots], dtype=np.int64
        )

    # Gangs

    def _counted(self, chosen: Chosen) -> bool:
        """Whether counts describe the pick: it lies in what `Room.least` leaves, though it might take more."""
        return _known(chosen.gang) and self._room.leaves_all_reserved(chosen)

    def _enter(self, tier: int, gangs: Sequence[Gang], best: Mapping[str, Chosen]) -> None:
        """Gangs that could start, until they ask for enough, and all that are picked."""
        free = self.free.clip(min=0).sum(axis=0) * self._window
        asked = free * 0
        by_limit: dict[tuple[str, Account], int] = {}
        families: dict[object, int] = {}
        for gang in gangs:
            if not _known(gang) or gang.uid in self.fixed:
                continue
            picked = best.get(gang.uid)
            full = self._worth.of(gang.pending.workload, gang.shape.variants[0].counts)
            key = (gang.shape.number, gang.pending.avoid, full)
            if picked is None and (
                (asked > free).any()
                or self._enough(gang, by_limit)
                or (key not in families and self._room.find(gang) is None)
            ):
                continue
            number = families.setdefault(key, len(self.families))
            if number == len(self.families):
                self.families.append([])
                for variant, charge in self._variants(gang):
                    self._offer(tier, number, gang, variant, charge)
            if picked is not None:
                self._offer(tier, number, gang, picked.variant, picked.charge)
            self.families[number].append(gang)
            self.members[gang.uid] = number
            for limit in self._limited(gang):
                by_limit[limit] = by_limit.get(limit, 0) + gang.shape.charges[0][limit[1]]
            for pod_set in gang.pending.workload.pod_sets:
                asked = asked + self._frame.row(pod_set.requests) * pod_set.count

    def _limited(self, gang: Gang) -> Iterator[tuple[str, Account]]:
        """Limits that the gang counts against, root's aside: it is the nodes."""
        book = self._room.greedy.board.book
        for account in gang.shape.charges[0]:
            for queue in book.lineage(gang.queue):
                if queue != ROOT_QUEUE and book.limit(queue, account) is not None:
                    yield queue, account

    def _enough(self, gang: Gang, asked: Mapping[tuple[str, Account], int]) -> bool:
        """Whether those before it ask for all that a limit leaves."""
        book, usage = self._room.greedy.board.book, self._room.usages[0]
        return any(
            asked.get(key, 0) >= (book.limit(*key) or 0) - usage.held(*key, surely=True)
            for key in self._limited(gang)
        )

    def _variants(self, gang: Gang) -> Iterator[tuple[Variant, Charge]]:
        """Flavors at full size, then at the smallest where that is less."""
        shape = gang.shape
        yield from list(zip(shape.variants, shape.charges, strict=True))[:VARIANTS]
        if shape.variants and shape.smallest[0][0] is not shape.variants[0]:
            yield from shape.smallest[:VARIANTS]

    def option(self, family: int, variant: Variant) -> int | None:
        """The number of a family's option."""
        return self._choices.get((family, tuple(variant.flavors.items()), tuple(variant.counts.items())))

    def _offer(self, tier: int, family: int, gang: Gang, variant: Variant, charge: Charge) -> None:
        if self.option(family, variant) is not None:
            return
        workload = gang.pending.workload
        find, host = self._frame.snapshot.topology.find, len(self._frame.domains) - 1
        level = find(workload.required) if workload.required else None
        found = parts_of(self._frame, workload, variant, self._room.greedy.closed(gang))
        if level is not None:
            inside = self._frame.domains[level] >= 0
            for part in found:
                part.open = part.open & inside
        if level == host:  # all pods on one node are one pod
            row = np.sum([part.row * part.count for part in found], axis=0)
            open_ = np.logical_and.reduce([part.open for part in found])
            pods = {(self._part(row, open_), ""): 1}
        else:
            pods = {(self._part(part.row, part.open), part.name): part.count for part in found}
        if level == host or sum(pods.values()) == 1:
            level = None
        self._choices[family, tuple(variant.flavors.items()), tuple(variant.counts.items())] = len(
            self.options
        )
        worth = self._worth.of(workload, variant.counts)
        self.options.append(Option(family, tier, worth, variant, charge, pods, level))

    def _part(self, row: Matrix, open_: Mask) -> int:
        key = (row.tobytes(), open_.tobytes())
        if key not in self._numbers:
            self._numbers[key] = len(self.parts)
            self.parts.append(Part(row, open_))
        return self._numbers[key]

    # Nodes

    def _grow(self) -> None:
        usable = np.flatnonzero(
            np.any([self._on(np.arange(len(self.free)), p) > 0 for p in self.parts], axis=0)
        )
        levels = sorted({o.level for o in self.options if o.level is not None})
        self._spot(usable, None, levels)

    def _spot(self, nodes: Nodes, parent: int | None, levels: Sequence[int]) -> None:
        number = len(self.spots)
        self.spots.append(Spot(nodes, parent))
        if parent is not None:
            self.spots[parent].children.append(number)
        for depth, level in enumerate(levels):
            groups = _grouped(nodes, self._frame.domains[level][nodes])
            if len(groups) > 1:
                for domain, inside in groups.items():
                    if domain >= 0:
                        self.domains[level, domain] = len(self.spots)
                    self._spot(inside, number, levels[depth + 1 :])
                return
            self.domains.update({(level, domain): number for domain in groups if domain >= 0})
        signature = np.stack([p.open[nodes] for p in self.parts], axis=1)
        groups = _grouped(nodes, np.unique(signature, axis=0, return_inverse=True)[1].reshape(-1))
        if len(groups) > 1:
            for inside in groups.values():
                self._leaf(inside, number)
        elif len(nodes):
            self._measure(number)

    def _leaf(self, nodes: Nodes, parent: int) -> None:
        self.spots[parent].children.append(len(self.spots))
        self.spots.append(Spot(nodes, parent))
        self._measure(len(self.spots) - 1)

    def _measure(self, number: int) -> None:
        spot = self.spots[number]
        there = [p for p in self.parts if p.open[spot.nodes[0]]]
        spot.size = self.measure(spot.nodes, there)
        if spot.size is None and len(spot.nodes) > 1:
            for node in spot.nodes:
                self._leaf(np.array([node], dtype=np.intp), number)

    def measure(self, nodes: Nodes, parts: Sequence[Part]) -> int | None:
        """The column of a resource that all ask for in amounts that divide each other, and that runs out first on
        each node whatever they take; None = there is none.
        """
        free = np.maximum(self.free[nodes], 0)
        for column in range(free.shape[1]):
            amounts = sorted({int(p.row[column]) for p in parts})
            if not amounts or not amounts[0] or any(b % a for a, b in pairwise(amounts)):
                continue
            used = free[:, column] >= amounts[0]
            if all(
                (free[used, c] * p.row[column] >= p.row[c] * free[used, column]).all()
                for p in parts
                for c in np.flatnonzero(p.row)
            ):
                return column
        return None

    def _on(self, nodes: Nodes, part: Part) -> Matrix:
        return np.where(part.open[nodes], part.slots(self.free[nodes]), 0)

    def slots_of(self, number: int, part: int) -> int:
        """Pods of one part that fit a spot."""
        return int(self.slots[number, part])

    def copies(self, option: Option, spot: int) -> int:
        """How many gangs fit a spot at most, each part by itself."""
        most = min(self.slots_of(spot, part) // count for part, count in option.demand().items())
        return min(most, len(self.families[option.family]))

    def level(self, level: int) -> Nodes:
        """Domain numbers of all nodes at a level, -1 = none (N)."""
        return self._frame.domains[level]

    def inside(self, option: Option, level: int) -> bool:
        """Whether the gang lies in one domain of this level wherever it lies."""
        own = option.level
        return (
            own is not None
            and own >= level
            and all(self._frame.nested(self.parts[part].open, own, level) for part, _ in option.pods)
        )

    def tightest(self, option: Option, count: int) -> list[int]:
        """Domains in which the gang fits: half of `count` with least left over, the others spread over the rest."""
        spots = [spot for (level, _), spot in self.domains.items() if level == option.level]
        fit = np.min([self.slots[spots, part] // pods for part, pods in option.demand().items()], axis=0)
        order = np.argsort(self.slots[spots].sum(axis=1), kind="stable")
        fitting = [spots[at] for at in order.tolist() if fit[at] > 0]
        near = -(-count // 2)
        rest = fitting[near:]
        step = max(1, len(rest) // max(1, count - near))
        return fitting[:near] + rest[option.family % step :: step][: count - near]

    # What is picked already

    def worth_fixed(self, tier: int) -> int:
        """What the fixed picks of a priority count."""
        return self._fixed_worth[tier]

    def spot_of(self, option: int, chosen: Chosen) -> int:
        """The spot at which a pick lies."""
        level = self.options[option].level
        if level is None:
            return ROOT
        node = next(node for spread in chosen.spreads.values() for node in spread)
        return self.domains[level, int(self._frame.domains[level][node])]

    def flows(self, picks: Mapping[str, Chosen]) -> dict[tuple[int, int], int]:
        """Pods that picks send down to each spot, by part."""
        leaves = {
            int(n): number for number, spot in enumerate(self.spots) if not spot.children for n in spot.nodes
        }
        found: dict[tuple[int, int], int] = {}
        for uid, chosen in picks.items():
            option = self.option(self.members[uid], chosen.variant) if uid in self.members else None
            if option is None:
                continue
            top = self.spot_of(option, chosen)
            for (part, name), pods in self.options[option].pods.items():
                spread = (
                    chosen.spreads[name] if name else dict.fromkeys(next(iter(chosen.spreads.values())), pods)
                )
                for node, count in spread.items():
                    at = leaves.get(node, top)
                    while at != top:
                        found[at, part] = found.get((at, part), 0) + count
                        at = self.spots[at].parent or ROOT
        return found

    # Quota

    def limits(self, *, surely: bool) -> Iterator[tuple[dict[int, int], int]]:
        """Amounts by option, and what is left for them together. `surely`: as if guarantees that are not lent were
        all claimed; else as if none were, which bounds what any choice could take.
        """
        rows: dict[tuple[str, Account], dict[int, int]] = {}
        book = self._room.greedy.board.book
        for number, option in enumerate(self.options):
            queue = self.families[option.family][0].queue
            for account, amount in option.charge.items():
                for above in book.lineage(queue):
                    if amount and book.limit(above, account) is not None:
                        rows.setdefault((above, account), {})[number] = amount
        for (queue, account), amounts in rows.items():
            limit = book.limit(queue, account) or 0
            held = max(usage.held(queue, account, surely=surely) for usage in self._room.usages)
            yield amounts, max(0, limit - held)


def _known(gang: Gang) -> bool:
    """Whether counts describe the gang: one domain for all of it, pods that may share hosts, no bar to borrowing."""
    workload = gang.pending.workload
    plain = all(
        any(p.requests.values()) and not (p.required or p.preferred or p.exclusive_host)
        for p in workload.pod_sets
    )
    return plain and workload.preemptible and bool(gang.shape.variants)


def _grouped(nodes: Nodes, keys: NDArray[np.intp]) -> dict[int, Nodes]:
    return {int(key): nodes[keys == key] for key in sorted(set(keys.tolist()))}
