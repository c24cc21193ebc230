"""The domains in which one gang could be put together, the cheapest to clear first.

A domain is ranked by the weight of the victims that would be needed there if candidates were divisible.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from math import inf
from typing import NamedTuple

import numpy as np

from queuer.domain.quota import Guarantee
from queuer.solver.candidates import Candidates, Floats, Seeker
from queuer.solver.nodes import Mask, Matrix, Numbers
from queuer.solver.placement import united
from queuer.solver.state import ANY


class Ground(NamedTuple):
    """A domain. `estimate`: no set of victims that makes room there weighs less; `order`: candidates there, least
    weight for a slot first.
    """

    nodes: Numbers
    estimate: float
    order: list[int]


class Clearing:
    """Of one gang. `spreads`: a placement without any victims; `parts`: its pods, those alike together, and `under`:
    the name of the part that has a pod set; `slots`: of each part by node, before and once all have gone; `asked`: its
    charge, without the live capacity where it lacks room anyway; `limited`: the same if limits are in its way, else
    nothing.
    """

    def __init__(self, there: Candidates, seeker: Seeker) -> None:
        self.there, self.seeker = there, seeker
        self._state, whole = there.state, united(seeker.parts)
        self.parts = list(whole.values())
        self.under = {part.name: whole[part.landing_key].name for part in seeker.parts}
        self.slots = [there.slots(part) for part in self.parts]
        self.single = sum(part.count for part in self.parts) == 1
        queue, asked = seeker.gang.queue, frozenset(seeker.charge)
        self.spreads = there.placed(seeker, ())
        if self.spreads is None:  # so the live capacity needs no look of its own
            asked = there.state.claimed.binding(queue, seeker.charge)
        self.asked = {account: amount for account, amount in seeker.charge.items() if account in asked}
        self.limited = {} if there.state.used_later.fits(queue, self.asked) else self.asked

    def could_fit(self) -> bool:
        """Whether quota and slots might suffice once all candidates have gone."""
        groups, charged = self.there.groups, self.there.footprints.charged
        for short in self._state.used_later.shortfalls(self.seeker.gang.queue, self.seeker.charge):
            below = (int(charged(short.account)[g.numbers].sum()) for g, _ in groups if short.queue in g.path)
            if sum(below) < short.lacking:
                return False
        return bool(self._enough(self._levels[-1], self.slots).any())

    def grounds(self, most: float = inf) -> Iterator[Ground]:
        """The cheapest first, up to an estimate; those at last where rights seem to permit too little."""
        for n, domain, estimate in self._in_order:
            where, whose = self._ranks[n][2]
            if estimate <= most:
                order = whose[slice(*np.searchsorted(where, (domain, domain + 1)))].tolist()
                nodes = self._nodes_in(n, domain)
                if len(self.parts) == 1 or self.there.placed(self.seeker, order, nodes) is not None:
                    yield Ground(nodes, estimate, order)

    def _nodes_in(self, level: int, domain: int) -> Numbers:
        by_domain, domains = self._sorted[level]
        return by_domain[slice(*np.searchsorted(domains, (domain, domain + 1)))]

    @cached_property
    def _sorted(self) -> list[tuple[Numbers, Numbers]]:
        """By level the nodes by domain, and the domain of each (N)."""
        orders = [np.argsort(domains, kind="stable") for domains in self._levels]
        return [(order, domains[order]) for order, domains in zip(orders, self._levels, strict=True)]

    @cached_property
    def _ranks(self) -> list[tuple[Floats, Mask, tuple[Numbers, Numbers]]]:
        return [self._ranked(domains) for domains in self._levels]

    @cached_property
    def _in_order(self) -> list[tuple[int, int, float]]:
        """Domains that have slots enough: number of the level, number there, estimate."""
        estimates = np.concatenate([estimates for estimates, _, _ in self._ranks])
        enough = np.concatenate([enough for _, enough, _ in self._ranks])
        inner, order = len(self._ranks[0][0]), np.lexsort((estimates, ~enough))
        order = order[estimates[order] < inf]
        return [(int(n >= inner), n - inner * (n >= inner), float(estimates[n])) for n in order.tolist()]

    def enough(self, gone: Sequence[int], ground: Ground) -> bool:
        """Whether limits bear the gang, and the ground has room for it with these gone."""
        there, nodes = self.there, ground.nodes
        if self.limited and not there.fits(gone, self.limited):
            return False
        if len(self.parts) > 1:
            return there.placed(self.seeker, gone, nodes) is not None
        part, (slots, _) = self.parts[0], self.slots[0]
        freed, now = there.slots_freed(part, gone, nodes)
        return int(slots[nodes].sum() - slots[freed].sum() + now.sum()) >= part.count

    @cached_property
    def helpers(self) -> list[int]:
        """Those whose going frees quota where it is short, least weight for that first."""
        there, freed = self.there, np.zeros(len(self.there.weights))
        for short in self._state.used_later.shortfalls(self.seeker.gang.queue, self.limited):
            charged = there.footprints.charged(short.account)
            for group, _ in there.groups:
                if short.queue in group.path:
                    freed[group.numbers] += np.minimum(1.0, charged[group.numbers] / short.lacking)
        able = there.numbers[freed[there.numbers] > 0]
        found: list[int] = able[np.argsort(there.weights[able] / freed[able], kind="stable")].tolist()
        return found

    @cached_property
    def _levels(self) -> list[Numbers]:
        """By level to look at, the domain of each node, -1 = none (N); the one that must hold the gang comes last."""
        nodes, workload = self._state.nodes, self.seeker.gang.workload
        level = self._state.snapshot.topology.find
        required, preferred = [level(workload.required or "")], [level(workload.preferred or "")]
        if len(self.parts) == 1:
            required.append(self.parts[0].required)
            preferred.append(self.parts[0].preferred)
        must, may = (max([-1, *(at for at in asked if at is not None)]) for asked in (required, preferred))
        outer = nodes.domains[must] if must >= 0 else np.zeros(len(nodes.names), dtype=np.intp)
        if self.single:
            return [np.where(outer >= 0, np.arange(len(outer)), -1)]
        return [np.where(outer >= 0, nodes.domains[may], -1), outer] if may > must else [outer]

    def _enough(self, domains: Numbers, slots: Sequence[tuple[Matrix, Matrix]]) -> Mask:
        """By domain, whether it has these slots for each pod set alone."""
        fits = [_sums(domains, s) >= part.count for part, (_, s) in zip(self.parts, slots, strict=True)]
        enough: Mask = np.all(fits, axis=0)
        return enough

    def _ranked(self, domains: Numbers) -> tuple[Floats, Mask, tuple[Numbers, Numbers]]:
        """By domain of one level the estimate, and whether candidates that may go one after the other are enough; with
        the candidates by weight for a slot, each with its domain.
        """
        there, weights = self.there, self.there.weights
        gain, lacking = np.zeros(len(domains)), np.zeros(int(domains.max(initial=-1)) + 1)
        whole = np.maximum(self._state.nodes.total, 1)
        for part, (before, after) in zip(self.parts, self.slots, strict=True):
            size = (part.row / whole).max(initial=0.0)
            gain = np.maximum(gain, (after - before) * size)
            lacking += np.maximum(part.count - _sums(domains, before), 0.0) * size
        node, owner = there.nodes, there.whose
        asked = np.any([part.row > 0 for part in self.parts], axis=0)
        held = there.amounts[:, asked] / np.maximum(self._state.nodes.alloc[node][:, asked], 1)
        most = held.max(axis=1, initial=0.0)
        used = (domains[node] >= 0) & (gain[node] > 0) & (most > 0)
        owner, node, most = owner[used], node[used], most[used]
        adds = most / np.bincount(node, weights=most, minlength=len(gain))[node] * gain[node]
        keys, pair = np.unique(domains[node] * len(weights) + owner, return_inverse=True)
        where, whose, gains = keys // len(weights), keys % len(weights), np.bincount(pair, weights=adds)
        rate = weights[whose] / gains
        by_rate = np.lexsort((rate, where))
        gains, rate = gains[by_rate], rate[by_rate]
        before = np.cumsum(gains) - gains
        needed = np.clip(
            lacking[where] - before + before[np.searchsorted(where, where)], 0, gains
        )  # sorted by domain before and after
        estimates = np.bincount(where, weights=needed * rate, minlength=len(lacking)).astype(np.float64)
        enough = self._enough(domains, self.slots)
        estimates[~enough] = inf
        may_go = self._in_turn(where, whose)
        if not may_go.all():
            left = np.zeros(len(used), dtype=bool)
            left[np.flatnonzero(used)[may_go[pair]]] = True
            enough &= self._enough(domains, [there.slots(part, left) for part in self.parts])
        return estimates, enough, (where, whose[by_rate])

    def _in_turn(self, where: Numbers, whose: Numbers) -> Mask:
        """Of candidates of a domain each who may go there one after the other, the smaller first: the last may cross
        the line.
        """
        of, found = self.there.group_numbers[whose], np.zeros(len(where), dtype=bool)
        rights = [(*group.reclaim, *group.preempt) for group, _ in self.there.groups]
        for n in range(max(map(len, rights), default=0)):
            rows = [row[n] if len(row) > n else None for row in rights]
            able = np.array([row is not None for row in rows])[of]
            for depth in range(1, max((len(row) for row in rows if row is not None), default=0) + 1):
                marks = [row[-depth] if row is not None and len(row) >= depth else None for row in rows]
                able &= self._above(marks, of, where, whose)
            found |= able
        return found

    def _above(self, marks: Sequence[Guarantee | None], of: Numbers, where: Numbers, whose: Numbers) -> Mask:
        """Whether the guarantee of its group is still exceeded when each goes from its domain. `marks`: by group."""
        known = [mark for mark in dict.fromkeys(marks) if mark is not None]
        index = {mark: n for n, mark in enumerate(known)}
        mark = np.array([-1 if mark is None else index[mark] for mark in marks], dtype=np.intp)[of]
        excess = np.array([self._state.remaining.excess(m) for m in known] + [ANY], dtype=np.int64)[mark]
        amounts = np.zeros(len(where), dtype=np.int64)
        for account in {m.account for m in known}:
            under = np.array([m.account == account for m in known] + [False])[mark]
            amounts[under] = self.there.footprints.charged(account)[whose[under]]
        order = np.lexsort((amounts, where, mark))
        amounts, place = amounts[order], mark[order] * (int(where.max(initial=0)) + 1) + where[order]
        before = np.cumsum(amounts) - amounts
        before -= before[np.searchsorted(place, place)]
        above = np.zeros(len(where), dtype=bool)
        above[order] = before < excess[order]
        return above


def _sums(domains: Numbers, there: Matrix) -> Floats:
    """Of a number on each node, by domain."""
    inside, count = domains >= 0, int(domains.max(initial=-1)) + 1
    return np.bincount(domains[inside], weights=there[inside], minlength=count).astype(np.float64)
