"""Grounds: the domains in which a gang could be put together, the cheapest to clear first.

A domain is ranked by an estimate: the weight of the victims that it would need if candidates were divisible.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from math import inf
from typing import NamedTuple

import numpy as np

from queuer.domain.quota import Guarantee
from queuer.solver.eviction.candidates import Candidates, Floats, Seeker
from queuer.solver.nodes import Mask, Matrix, Numbers
from queuer.solver.placement import united
from queuer.solver.state import ANY


class Ground(NamedTuple):
    """A domain. `order`: candidates there, least weight for a slot first."""

    nodes: Numbers
    order: list[int]


class Level(NamedTuple):
    """A level ranked. By domain (D): `estimates`, inf = too few slots; `able`: whether candidates that may go one after
    the other are enough. `candidates` sorted by `domains` (K), then by weight for a slot. `nodes` sorted by `at` (N).
    """

    estimates: Floats
    able: Mask
    domains: Numbers
    candidates: Numbers
    at: Numbers
    nodes: Numbers

    def ground(self, domain: int) -> Ground:
        """One of its domains."""
        order = self.candidates[slice(*np.searchsorted(self.domains, (domain, domain + 1)))]
        nodes = self.nodes[slice(*np.searchsorted(self.at, (domain, domain + 1)))]
        return Ground(nodes, order.tolist())


class Clearing:
    """What one gang needs. `parts`: its pods, those alike together; `under`: the name of the part of each pod set.
    `slots`: of each part by node, before and once all candidates have gone. `spreads`: a placement without any victims.
    `asked`: its charge, without the live capacity where the gang lacks room anyway; `limited`: the same if limits are
    in its way, else nothing.
    """

    def __init__(self, candidates: Candidates, seeker: Seeker) -> None:
        self.candidates, self.seeker = candidates, seeker
        self._state, whole = candidates.state, united(seeker.parts)
        self.parts = list(whole.values())
        self.under = {part.name: whole[part.landing_key].name for part in seeker.parts}
        self.slots = [candidates.slots(part) for part in self.parts]
        self._single = sum(part.count for part in self.parts) == 1
        queue, asked = seeker.gang.queue, frozenset(seeker.charge)
        self.spreads = candidates.placed(seeker, ())
        if self.spreads is None:  # so the live capacity needs no look of its own
            asked = self._state.claimed.binding(queue, seeker.charge)
        self.asked = {account: amount for account, amount in seeker.charge.items() if account in asked}
        self.limited = {} if self._state.used_later.fits(queue, self.asked) else self.asked

    def could_fit(self) -> bool:
        """Whether quota and slots might suffice once all candidates have gone."""
        groups, charged = self.candidates.groups, self.candidates.footprints.charged
        for short in self._state.used_later.shortfalls(self.seeker.gang.queue, self.seeker.charge):
            below = (int(charged(short.account)[g.numbers].sum()) for g, _ in groups if short.queue in g.path)
            if sum(below) < short.lacking:
                return False
        return bool(self._enough(self._domains[-1], self.slots).any())

    def enough(self, gone: Sequence[int], ground: Ground) -> bool:
        """Whether limits bear the gang, and the ground has room for it, with these gone."""
        candidates, nodes = self.candidates, ground.nodes
        if self.limited and not candidates.fits(gone, self.limited):
            return False
        if len(self.parts) > 1:
            return candidates.placed(self.seeker, gone, nodes) is not None
        part, (slots, _) = self.parts[0], self.slots[0]
        freed, now = candidates.slots_freed(part, gone, nodes)
        return int(slots[nodes].sum() - slots[freed].sum() + now.sum()) >= part.count

    def grounds(self) -> Iterator[Ground]:
        """The cheapest first; those at last where rights seem to permit too little."""
        for level, domain in self._order:
            ground = self._levels[level].ground(domain)
            if (
                len(self.parts) == 1
                or self.candidates.placed(self.seeker, ground.order, ground.nodes) is not None
            ):
                yield ground

    @cached_property
    def helpers(self) -> list[int]:
        """Candidates that free quota where it is short, least weight for that first."""
        candidates, freed = self.candidates, np.zeros(len(self.candidates.weights))
        for short in self._state.used_later.shortfalls(self.seeker.gang.queue, self.limited):
            charged = candidates.footprints.charged(short.account)
            for group, _ in candidates.groups:
                if short.queue in group.path:
                    freed[group.numbers] += np.minimum(1.0, charged[group.numbers] / short.lacking)
        able = candidates.numbers[freed[candidates.numbers] > 0]
        found: list[int] = able[np.argsort(candidates.weights[able] / freed[able], kind="stable")].tolist()
        return found

    # Ranking

    @cached_property
    def _domains(self) -> list[Numbers]:
        """By level to look at, the domain of each node, -1 = none (N); the one that must hold the gang comes last."""
        nodes, workload = self._state.nodes, self.seeker.gang.workload
        level = self._state.snapshot.topology.find
        required, preferred = [level(workload.required or "")], [level(workload.preferred or "")]
        if len(self.parts) == 1:
            required.append(self.parts[0].required)
            preferred.append(self.parts[0].preferred)
        must, may = (max([-1, *(at for at in asked if at is not None)]) for asked in (required, preferred))
        outer = nodes.domains[must] if must >= 0 else np.zeros(len(nodes.names), dtype=np.intp)
        if self._single:
            return [np.where(outer >= 0, np.arange(len(outer)), -1)]
        return [np.where(outer >= 0, nodes.domains[may], -1), outer] if may > must else [outer]

    @cached_property
    def _levels(self) -> list[Level]:
        return [self._ranked(domains) for domains in self._domains]

    @cached_property
    def _order(self) -> list[tuple[int, int]]:
        """Domains that have slots enough, as numbers of level and domain."""
        levels = self._levels
        estimates, able = (
            np.concatenate(rows) for rows in zip(*(level[:2] for level in levels), strict=True)
        )
        order = np.lexsort((estimates, ~able))
        order, inner = order[estimates[order] < inf], len(levels[0].able)
        return [(int(n >= inner), n - inner * (n >= inner)) for n in order.tolist()]

    def _enough(self, domains: Numbers, slots: Sequence[tuple[Matrix, Matrix]]) -> Mask:
        """By domain, whether it has these slots for each part alone."""
        fits = [_sums(domains, s) >= part.count for part, (_, s) in zip(self.parts, slots, strict=True)]
        enough: Mask = np.all(fits, axis=0)
        return enough

    def _ranked(self, domains: Numbers) -> Level:
        candidates, weights = self.candidates, self.candidates.weights
        adds, lacking = self._gains(domains)
        used = (domains[candidates.nodes] >= 0) & (adds > 0)
        owner, node, adds = candidates.whose[used], candidates.nodes[used], adds[used]
        keys, pair = np.unique(domains[node] * len(weights) + owner, return_inverse=True)
        where, whose, gains = keys // len(weights), keys % len(weights), np.bincount(pair, weights=adds)
        order = whose[np.lexsort((weights[whose] / gains, where))]  # `where` is sorted, and stays as it is
        short = lacking[where]
        gains = np.where(short > 0, np.minimum(gains, short), gains)  # a gang needs no more of a candidate
        rate = weights[whose] / gains
        by_rate = np.lexsort((rate, where))
        gains, rate = gains[by_rate], rate[by_rate]
        before = np.cumsum(gains) - gains
        needed = np.clip(short - before + before[np.searchsorted(where, where)], 0, gains)
        estimates = np.bincount(where, weights=needed * rate, minlength=len(lacking)).astype(np.float64)
        able = self._enough(domains, self.slots)
        estimates[~able] = inf
        may_go = self._in_turn(where, whose)
        if not may_go.all():
            left = np.zeros(len(used), dtype=bool)
            left[np.flatnonzero(used)[may_go[pair]]] = True
            able &= self._enough(domains, [candidates.slots(part, left) for part in self.parts])
        nodes = np.argsort(domains, kind="stable")
        return Level(estimates, able, where, order, domains[nodes], nodes)

    def _gains(self, domains: Numbers) -> tuple[Floats, Floats]:
        """What each row of the candidates adds (E), and what a domain lacks (D), as parts of the cluster.

        A row counts by the resource that is tightest on its node, with the part of a slot that is free there already.
        """
        candidates, node = self.candidates, self.candidates.nodes
        adds, lacking = np.zeros(len(node)), np.zeros(int(domains.max(initial=-1)) + 1)
        free, most = self._state.free_later, candidates.most
        free = free if most is None else np.minimum(free, most)
        whole = np.maximum(self._state.nodes.total, 1)
        for part, (before, after) in zip(self.parts, self.slots, strict=True):
            size, asked = (part.row / whole).max(initial=0.0), np.flatnonzero(part.row)
            fits = free[:, asked] / part.row[asked]
            tightest, gained = asked[fits.argmin(axis=1)], after - before
            begun = np.clip(fits.min(axis=1) - before, 0.0, 0.99)
            worth = np.where(gained > 0, gained / np.maximum(gained - begun, 0.01), 0.0) * size
            column = tightest[node]
            adds = np.maximum(
                adds, candidates.amounts[np.arange(len(node)), column] / part.row[column] * worth[node]
            )
            lacking += np.maximum(part.count - _sums(domains, before), 0.0) * size
        return adds, lacking

    def _in_turn(self, where: Numbers, whose: Numbers) -> Mask:
        """Candidates of each domain that may go there one after the other, the smaller first (K): the last may cross
        the line of a guarantee.
        """
        of, found = self.candidates.group_numbers[whose], np.zeros(len(where), dtype=bool)
        rights = [(*group.reclaim, *group.preempt) for group, _ in self.candidates.groups]
        for n in range(max(map(len, rights), default=0)):
            rows = [row[n] if len(row) > n else None for row in rights]
            able = np.array([row is not None for row in rows])[of]
            for depth in range(1, max((len(row) for row in rows if row is not None), default=0) + 1):
                marks = [row[-depth] if row is not None and len(row) >= depth else None for row in rows]
                able &= self._above(marks, of, where, whose)
            found |= able
        return found

    def _above(self, marks: Sequence[Guarantee | None], of: Numbers, where: Numbers, whose: Numbers) -> Mask:
        """Whether the guarantee of its group is still exceeded when each goes (K). `marks`: by group."""
        known = [mark for mark in dict.fromkeys(marks) if mark is not None]
        index = {mark: n for n, mark in enumerate(known)}
        mark = np.array([-1 if mark is None else index[mark] for mark in marks], dtype=np.intp)[of]
        excess = np.array([self._state.remaining.excess(m) for m in known] + [ANY], dtype=np.int64)[mark]
        amounts = np.zeros(len(where), dtype=np.int64)
        for account in {m.account for m in known}:
            under = np.array([m.account == account for m in known] + [False])[mark]
            amounts[under] = self.candidates.footprints.charged(account)[whose[under]]
        order = np.lexsort((amounts, where, mark))
        amounts, place = amounts[order], mark[order] * (int(where.max(initial=0)) + 1) + where[order]
        before = np.cumsum(amounts) - amounts
        before -= before[np.searchsorted(place, place)]
        above = np.zeros(len(where), dtype=bool)
        above[order] = before < excess[order]
        return above


def _sums(domains: Numbers, by_node: Matrix) -> Floats:
    """The sum of a number on each node, by domain."""
    inside, count = domains >= 0, int(domains.max(initial=-1)) + 1
    return np.bincount(domains[inside], weights=by_node[inside], minlength=count).astype(np.float64)
