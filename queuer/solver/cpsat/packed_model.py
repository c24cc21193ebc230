"""The largest sum of a packed subtree: which gangs, and in which domains (`order: packed`, DESIGN 3.4).

    y[option, spot]  gangs of a family that go to a domain, or anywhere: the root
    f[spot, part]    pods that are sent down to a spot from the one above, so that the domains of all levels agree

One pass a priority: its sum is made as large as it gets, then held by a row. Before each pass a relaxation without
domains bounds the sum; where it is reached already there is nothing to solve. What is found is laid out node by node
and compared with what there was, in whole numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from queuer.solver.cpsat.proto import GrowingModel, Status, Terms, scaled
from queuer.solver.frame import Matrix
from queuer.solver.order import Gang
from queuer.solver.outcome import Chosen
from queuer.solver.packed.layout import laid_out
from queuer.solver.packed.packer import Selection, filled, landing
from queuer.solver.packed.room import Room
from queuer.solver.packed.sums import ROOT, Nodes, Part, Sums
from queuer.solver.packed.worth import Worth

ROUNDS = ((2, 2.0), (12, 10.0), (60, 100.0))
"""Domains that are open to an option, beside those in use, and the window: first small, then larger if time is left."""
LARGE = 2_500
"""Variables of a model after which no larger one is tried: such a model still takes a second or two."""
ROUNDING = 1e-6
"""CP-SAT reports bounds as doubles."""
BOUNDING = 0.2
"""Part of the time that bounds may take."""


def pack(
    room: Room, tiers: Sequence[Sequence[Gang]], worth: Worth, best: Selection, *, seed: int, budget: float
) -> Selection:
    """A selection at least as good as `best`: see `queuer.solver.packed.Packs`."""
    spent = 0.0
    for number, (columns, window) in enumerate(ROUNDS):
        sums = Sums(room, tiers, worth, best.picks, window=window)
        if not sums.options or spent >= budget:
            break
        share = (budget - spent) / (len(ROUNDS) - number)
        try:
            search = _Search(sums, len(tiers), best, columns=columns, seed=seed, budget=share)
        except OverflowError:
            break
        found = search.run()
        spent += search.spent
        if found is not None:
            best = max(best, *_completed(room, tiers, worth, {**sums.fixed, **found}), key=lambda s: s.sums)
        if search.closed or search.size > LARGE:
            break
    return Selection(picks=best.picks, sums=best.sums, spent=spent)


def _completed(
    room: Room, tiers: Sequence[Sequence[Gang]], worth: Worth, first: Mapping[str, Chosen]
) -> Iterator[Selection]:
    """These, laid out anew or as they are, with whoever else fits and without whom could not land."""
    for some in (_anew(room, first), first):
        yield landing(room, tiers, worth, filled(room.copy(), tiers, worth, first=some))


def _anew(room: Room, first: Mapping[str, Chosen]) -> dict[str, Chosen]:
    """The same gangs each in its narrowest, fullest place, the large first; those that find none are left out."""
    left, found = room.copy(), {}
    for chosen in sorted(first.values(), key=lambda c: (-max(c.variant.counts.values()), c.gang.seniority)):
        place = left.attempt(chosen.gang, chosen.variant, chosen.charge)
        if isinstance(place, Chosen):
            left.take(place)
            found[chosen.gang.uid] = place
    return found


class Relaxed:
    """No domains: pods of all sizes on all nodes together, gangs of a level by what its domains hold of their size."""

    def __init__(self, sums: Sums, *, seed: int) -> None:
        self._sums = sums
        self.rows = GrowingModel(seed=seed)
        self._count = [self.rows.variable(0, len(sums.families[option.family])) for option in sums.options]
        _choose_once(self.rows, sums, ((n, v) for n, v in enumerate(self._count)))
        for amounts, left in sums.limits(surely=False):
            self.rows.row({self._count[n]: amount for n, amount in amounts.items()}, high=left)
        demands = [option.demand() for option in sums.options]
        for mask in {p.open.tobytes(): p.open for p in sums.parts}.values():
            inside = [n for n, part in enumerate(sums.parts) if not (part.open & ~mask).any()]
            self._pool(np.flatnonzero(mask), inside, demands)

    def _pool(self, nodes: Nodes, inside: Sequence[int], demands: Sequence[Mapping[int, int]]) -> None:
        """What the nodes of one mask hold of the parts that may go nowhere else."""
        sums = self._sums
        free = np.maximum(sums.free[nodes], 0)
        for column, total in enumerate(free.sum(axis=0).tolist()):
            terms = {
                self._count[n]: sum(
                    int(sums.parts[p].row[column]) * c for p, c in demand.items() if p in inside
                )
                for n, demand in enumerate(demands)
            }
            self.rows.row(terms, high=int(total))
        size = sums.measure(nodes, [sums.parts[p] for p in inside])
        for unit in inside:
            held = {p: _times(sums.parts[p], sums.parts[unit], size) for p in inside}
            asked = [sum(held.get(p, 0) * c for p, c in demand.items()) for demand in demands]
            slots = _slots(sums.parts[unit], free, size)
            self.rows.row(dict(zip(self._count, asked, strict=True)), high=int(slots.sum()))
            self._thresholds(nodes, asked, slots)

    def _thresholds(self, nodes: Nodes, asked: Sequence[int], slots: Matrix) -> None:
        """Gangs that need many slots in one domain: as many times as the domains hold that many."""
        sums = self._sums
        for level in sorted({o.level for o in sums.options if o.level is not None}):
            numbers = sums.level(level)[nodes]
            known = numbers >= 0
            there = np.bincount(numbers[known], weights=slots[known]).astype(np.int64)
            narrow = [n for n, o in enumerate(sums.options) if sums.inside(o, level)]
            for least in sorted({asked[n] for n in narrow if asked[n] > 1}):
                terms = {self._count[n]: asked[n] // least for n in narrow}
                self.rows.row(terms, high=int((there // least).sum()))

    def bound(self, tier: int, *, budget: float) -> int | None:
        """The most that the sum of this priority can be; None = not known in time."""
        terms = _sum(self._sums, tier, enumerate(self._count))
        exact, shift = scaled({v: -c for v, c in terms.items()}, self.rows)
        status, values = self.rows.solve(budget=budget, minimise=exact)
        if status is Status.BEST and not shift:
            return _value(terms, values) + self._sums.worth_fixed(tier)
        if status not in (Status.BEST, Status.FOUND):  # the solver reports 0 where it has no bound
            return None
        return self._sums.worth_fixed(tier) + (int(-self.rows.least + ROUNDING) << shift)

    def hold(self, tier: int, reached: int) -> None:
        """From now on this priority has at least so much."""
        self.rows.row(
            _sum(self._sums, tier, enumerate(self._count)), low=reached - self._sums.worth_fixed(tier)
        )


class _Search:
    """The model with its passes. `closed`: no priority was below its bound."""

    def __init__(
        self, sums: Sums, tiers: int, best: Selection, *, columns: int, seed: int, budget: float
    ) -> None:
        self._sums = sums
        self._tiers = tiers
        self._budget = budget
        self._best = best
        self._relaxed = Relaxed(sums, seed=seed)
        self._rows = GrowingModel(seed=seed)
        self._y: dict[tuple[int, int], int] = {}
        self._f: dict[tuple[int, int], int] = {}
        self.closed = True
        self._known = self._places()
        self._open(columns)
        self._flows()
        for amounts, left in sums.limits(surely=True):
            self._rows.row({v: amounts[o] for (o, _), v in self._y.items() if o in amounts}, high=left)

    @property
    def size(self) -> int:
        """Variables."""
        return len(self._rows.bounds)

    @property
    def spent(self) -> float:
        """Deterministic time."""
        return self._rows.spent + self._relaxed.rows.spent

    def run(self) -> dict[str, Chosen] | None:
        """Gangs with their places; None = no priority can be improved, or none was in time."""
        values: Sequence[int] = [self._rows.hint[v] for v in range(len(self._rows.bounds))]
        before = values
        for tier in range(self._tiers):
            terms = _sum(self._sums, tier, ((o, v) for (o, _), v in self._y.items()))
            if self._open_above(tier, _value(terms, values)):
                exact, _ = scaled({v: -c for v, c in terms.items()}, self._rows)
                self.closed = False
                status, found = self._rows.solve(budget=self._budget - self.spent, minimise=exact)
                if status in (Status.BEST, Status.FOUND) and _value(terms, found) > _value(terms, values):
                    values = found
                    self._rows.hint = dict(enumerate(found))
            self._rows.row(terms, low=_value(terms, values))
            self._relaxed.hold(tier, _value(terms, values) + self._sums.worth_fixed(tier))
        if values is before:
            return None
        gone = {(o, s): values[v] for (o, s), v in self._y.items() if values[v]}
        return laid_out(
            self._sums, gone, {key: values[v] for key, v in self._f.items() if values[v]}, self._best.picks
        )

    def _open_above(self, tier: int, reached: int) -> bool:
        """Whether there is time, and a larger sum is not excluded."""
        left = self._budget - self.spent
        if left <= 0 or not any(option.tier == tier for option in self._sums.options):
            return False
        bound = self._relaxed.bound(tier, budget=BOUNDING * left)
        return bound is None or bound > reached + self._sums.worth_fixed(tier)

    # Variables and rows

    def _places(self) -> dict[tuple[int, int], int]:
        """How many gangs of each option lie at which spot so far."""
        found: dict[tuple[int, int], int] = {}
        for uid, chosen in self._best.picks.items():
            family = self._sums.members.get(uid)
            option = None if family is None else self._sums.option(family, chosen.variant)
            if option is not None:
                key = (option, self._sums.spot_of(option, chosen))
                found[key] = found.get(key, 0) + 1
        return found

    def _open(self, columns: int) -> None:
        sums = self._sums
        for number, option in enumerate(sums.options):
            where = [ROOT] if option.level is None else sums.tightest(option, columns)
            for spot in dict.fromkeys([*where, *(s for o, s in self._known if o == number)]):
                most = max(sums.copies(option, spot), self._known.get((number, spot), 0))
                if most:
                    self._y[number, spot] = self._variable(most, self._known.get((number, spot), 0))
        _choose_once(self._rows, sums, ((o, v) for (o, _), v in self._y.items()))

    def _variable(self, high: int, hint: int) -> int:
        variable = self._rows.variable(0, high)
        self._rows.hint[variable] = min(high, hint)
        return variable

    def _flows(self) -> None:
        """Pods go down the tree from where their gang is to a leaf."""
        sums = self._sums
        own: dict[tuple[int, int], dict[int, int]] = {}
        for (number, at), variable in self._y.items():
            for part, count in sums.options[number].demand().items():
                own.setdefault((at, part), {})[variable] = count
        hints = sums.flows(self._best.picks)
        for number, spot in enumerate(sums.spots):
            if not spot.children:
                self._leaf(number, own)
                continue
            for part in range(len(sums.parts)):
                arriving = dict(own.get((number, part), {}))
                if (number, part) in self._f:
                    arriving[self._f[number, part]] = 1
                if not arriving:
                    continue
                for child in spot.children:
                    most = sums.slots_of(child, part)
                    if most:
                        self._f[child, part] = self._variable(most, hints.get((child, part), 0))
                down = {self._f[c, part]: -1 for c in spot.children if (c, part) in self._f}
                self._rows.row({**arriving, **down}, low=0, high=0)

    def _leaf(self, number: int, own: Mapping[tuple[int, int], Mapping[int, int]]) -> None:
        sums, spot = self._sums, self._sums.spots[number]
        arriving: dict[int, dict[int, int]] = {}
        for part in range(len(sums.parts)):
            terms = dict(own.get((number, part), {}))
            if (number, part) in self._f:
                terms[self._f[number, part]] = 1
            if terms:
                arriving[part] = terms
        free = np.maximum(sums.free[spot.nodes], 0)
        if spot.size is None:  # one node: its amounts decide
            for column, have in enumerate(free.sum(axis=0).tolist()):
                self._rows.row(
                    _added({p: int(sums.parts[p].row[column]) for p in arriving}, arriving), high=have
                )
            return
        for unit in arriving:
            times = {p: _times(sums.parts[p], sums.parts[unit], spot.size) for p in arriving}
            slots = _slots(sums.parts[unit], free, spot.size)
            self._rows.row(_added(times, arriving), high=int(slots.sum()))


def _added(times: Mapping[int, int], arriving: Mapping[int, Mapping[int, int]]) -> dict[int, int]:
    """Pods of each part times a factor, as terms."""
    total: dict[int, int] = {}
    for part, terms in arriving.items():
        for variable, count in terms.items():
            total[variable] = total.get(variable, 0) + times[part] * count
    return total


def _choose_once(rows: GrowingModel, sums: Sums, variables: Iterable[tuple[int, int]]) -> None:
    """No family starts more gangs than it has."""
    by_family: dict[int, dict[int, int]] = {}
    for option, variable in variables:
        by_family.setdefault(sums.options[option].family, {})[variable] = 1
    for family, terms in by_family.items():
        rows.row(terms, high=len(sums.families[family]))


def _sum(sums: Sums, tier: int, variables: Iterable[tuple[int, int]]) -> dict[int, int]:
    return {v: sums.options[o].worth for o, v in variables if sums.options[o].tier == tier}


def _value(terms: Terms, values: Sequence[int]) -> int:
    return sum(c * values[v] for v, c in terms.items())


def _times(part: Part, unit: Part, size: int | None) -> int:
    """How many pods of `unit` fit wherever one of `part` lies."""
    if size is not None:
        return int(part.row[size] // unit.row[size])
    columns = np.flatnonzero(unit.row)
    return int((part.row[columns] // unit.row[columns]).min())


def _slots(unit: Part, free: Matrix, size: int | None) -> Matrix:
    """Pods of `unit` that fit each of these nodes, by the one resource that decides where there is one."""
    if size is not None:
        by_size: Matrix = free[:, size] // unit.row[size]
        return by_size
    return unit.slots(free)
