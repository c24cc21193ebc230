"""The cheapest set of permitted victims found that is enough for one gang (DESIGN 3.3).

Room grows with the set, so a set is the shortest prefix of an order, thinned. Orders are tried in the domains that seem
cheapest; of the few on the host of a single pod, all subsets in the order of cost.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from heapq import nsmallest
from itertools import product
from math import inf

import numpy as np

from queuer.domain.quota import Charge
from queuer.solver.cost import Cost, eviction_cost
from queuer.solver.nodes import Mask, Matrix, Numbers
from queuer.solver.placement import Part, Spreads, Variant, parts_of, place
from queuer.solver.records import Eviction, EvictionRule
from queuer.solver.rights import Party, Rights
from queuer.solver.shapes import Gang
from queuer.solver.slots import Room
from queuer.solver.state import ANY, Settled, State
from queuer.solver.trial import Floats, Trial, slots_of

DOMAINS, TRIES = 12, 3
"""Domains looked into for one gang, and sets looked for with one order there."""
STEPS, PLACING = 12_000, 100
"""Victims that go or come back in one search, at most, and how many of them a placement counts for."""
FEW, SUBSETS = 10, 200
"""Candidates on one host of whom all subsets are worth trying, and how many subsets are."""
NOBODY: Numbers = np.zeros(0, dtype=np.intp)
PREEMPTED = 1e18
"""How much more the lost work of a gang weighs that is preempted, not reclaimed: more than all work there is."""


def search_of(state: State, rights: Rights, gang: Gang, variant: Variant, charge: Charge) -> Search | None:
    """The search for victims of a gang; None = it may evict nobody, or would not fit even with all of them gone."""
    if not gang.workload.preemptible and not state.claimed.entitled(gang.queue, charge, at=gang.queue):
        return None
    reach, bars = rights.reach(gang, charge), state.bars(gang, charge)
    sizes = (tuple(variant.counts.values()), tuple(variant.flavors.values()))
    key = (gang.queue, gang.shape.form, gang.pending.avoid, sizes, reach, bars)
    if key in rights.hopeless or not rights.anybody(reach):
        return None
    if parts_of(state.nodes, gang.workload, variant):
        search = Search(state, rights, gang, variant, charge)
        if search.could_fit():
            return search
    rights.hopeless.add(key)
    return None


class Search:
    """For one gang. Candidates are told by their places among the state's holds (H)."""

    def __init__(self, state: State, rights: Rights, gang: Gang, variant: Variant, charge: Charge) -> None:
        self._state, self._rights, self._gang = state, rights, gang
        self._variant, self._charge = variant, charge
        self._prints, self._reach = rights.footprints, rights.reach(gang, charge)
        self._parts = parts_of(state.nodes, gang.workload, variant) or []
        closed = state.closed(gang, bound=True)
        if closed is not None:
            left = {id(part.accepting): part.accepting & ~closed for part in self._parts}
            self._parts = [replace(part, accepting=left[id(part.accepting)]) for part in self._parts]
        self._main = self._largest()
        self._parties = list(rights.permitted(self._reach))
        self._of = np.zeros(len(self._prints.holds), dtype=np.intp)  # party by hold
        self._weights = self._prints.lost + 1  # cost as one number, up to ties
        for n, (party, rule) in enumerate(self._parties):
            self._of[party.numbers] = n
            self._weights[party.numbers] *= PREEMPTED if rule is EvictionRule.PREEMPT else 1.0
        out = [rights.numbers[uid] for uid in (*state.leaving, *self._reach.spared)]
        numbers = np.concatenate([NOBODY, *(party.numbers for party, _ in self._parties)])
        self._candidates: Numbers = numbers[~np.isin(numbers, out)]
        bars = state.bars(gang, charge)
        self._most = state.behind(bars, np.full_like(state.then, ANY)) if bars else None
        self._room = Room(state.nodes, self._free(NOBODY))
        self._emptied = self._free(self._candidates)
        self._best: tuple[Cost, list[int]] | None = None
        self._steps, self._limit = 0, inf
        holds, line = self._prints.holds, state.line
        self._entry = cache(
            lambda n: line.entry(holds[n].admitted.workload.queue, c := holds[n].charge, frozenset(c))
        )

    def settled(self) -> Settled | None:
        """The gang bound to what those leave who go already, or to what the cheapest victims found leave; None = no set
        was found. The evictions are in an order in which each is permitted.
        """
        alone = self.judged([]) is not None and self.placed([]) is not None
        gone = [] if alone else self.cheapest()
        rules, spreads = self.judged(gone), self.placed(gone)
        if rules is None or spreads is None or not (gone or self._state.leaving):
            return None
        uids = [self._prints.holds[number].admitted.workload.uid for number in gone]
        return Settled(
            gang=self._gang,
            variant=self._variant,
            charge=self._charge,
            spreads=spreads,
            evictions=tuple(
                [
                    Eviction(uid=u, beneficiary=self._gang.uid, rule=r)
                    for u, r in zip(uids, rules, strict=True)
                ]
            ),
            bound=True,
        )

    def could_fit(self) -> bool:
        """Whether quota and slots might suffice once all candidates have gone."""
        for short in self._state.later.shortfalls(self._gang.queue, self._charge):
            charged = (p.charged(short.account) for p, _ in self._parties if short.queue in p.path)
            if sum(charged) < short.held + short.asks - short.limit:
                return False
        return bool(self._enough(self._levels()[-1]).any())

    def placed(self, gone: Sequence[int], inside: Numbers | None = None) -> Spreads | None:
        """A placement with these gone."""
        room, numbers = self._room, np.array(gone, dtype=np.intp)
        if gone:
            nodes = np.unique(self._prints.nodes[self._prints.entries(numbers)[0]])
            room = room.but(nodes, self._free(numbers)[nodes])
        return place(room, self._gang.workload, self._parts, inside=inside)

    def judged(self, gone: Sequence[int]) -> list[EvictionRule] | None:
        """The rules by which these may go in this order; None = they may not, or quota is short all the same."""
        line, later, rules = self._state.line.copy(), self._state.later.copy(), list[EvictionRule]()
        for number in gone:
            rule = self._party(number)[0].rule(line)
            if rule is None:
                return None
            rules.append(rule)
            for usage in (line, later):
                usage.enter(self._entry(number), times=-1)
        return rules if later.fits(self._gang.queue, self._charge) else None

    def _party(self, number: int) -> tuple[Party, EvictionRule]:
        return self._parties[int(self._of[number])]

    def _cost(self, number: int) -> Cost:
        return self._rights.cost(self._prints.holds[number], self._party(number)[1])

    def _free(self, gone: Numbers) -> Matrix:
        """What the gang may use once these have gone (N x R)."""
        entries, _ = self._prints.entries(gone)
        free = self._state.then.copy()
        np.add.at(free, self._prints.nodes[entries], self._prints.amounts[entries])
        return free if self._most is None else np.minimum(free, self._most)

    # Where the gang may be put together

    def _largest(self) -> Part:
        """The pods that take most in all, sets of such pods together."""
        whole = np.maximum(self._state.nodes.total, 1)
        main = max(self._parts, key=lambda part: part.count * float((part.row / whole).max(initial=0.0)))
        alike = (p for p in self._parts if p.need is main.need and p.accepting is main.accepting)
        return replace(main, count=sum(part.count for part in alike))

    def _levels(self) -> list[Numbers]:
        """By level to look at, the domain of each node, -1 = none (N); the one that must hold the gang comes last."""
        nodes, workload = self._state.nodes, self._gang.workload
        level = self._state.snapshot.topology.find
        required, preferred = [level(workload.required or "")], [level(workload.preferred or "")]
        if len(self._parts) == 1:
            required.append(self._main.required)
            preferred.append(self._main.preferred)
        must, may = (max([-1, *(at for at in asked if at is not None)]) for asked in (required, preferred))
        outer = nodes.domains[must] if must >= 0 else np.zeros(len(nodes.names), dtype=np.intp)
        if sum(part.count for part in self._parts) == 1:
            return [np.where(outer >= 0, np.arange(len(outer)), -1)]
        return [np.where(outer >= 0, nodes.domains[may], -1), outer] if may > must else [outer]

    def _enough(self, domains: Numbers) -> Mask:
        """By domain, whether it has slots for each pod set alone once all candidates have gone."""
        fits = [_sums(domains, slots_of(p, self._emptied)) >= p.count for p in (self._main, *self._parts)]
        enough: Mask = np.all(fits, axis=0)
        return enough

    def _ranked(self, domains: Numbers) -> tuple[Floats, list[tuple[Numbers, Numbers]]]:
        """By domain of one level the weight of what must go there, were candidates divisible; and orders of candidates,
        each with their domains: by weight for a slot, and host after host.
        """
        count, gain = len(self._weights), np.zeros(len(domains))
        lacking = np.zeros(int(domains.max(initial=-1)) + 1)
        whole = np.maximum(self._state.nodes.total, 1)
        for part in self._parts:
            before, size = slots_of(part, self._room.free), (part.row / whole).max(initial=0.0)
            gain = np.maximum(gain, (slots_of(part, self._emptied) - before) * size)
            lacking += np.maximum(part.count - _sums(domains, before), 0.0) * size
        entries, owner = self._prints.entries(self._candidates)
        node, asked = self._prints.nodes[entries], np.any([part.row > 0 for part in self._parts], axis=0)
        parts = self._prints.amounts[entries] / np.maximum(self._state.nodes.alloc[node], 1)
        held = np.where(asked, parts, 0.0).max(axis=1, initial=0.0)
        used = (domains[node] >= 0) & (gain[node] > 0) & (held > 0)
        owner, node, held = owner[used], node[used], held[used]
        adds = held / np.bincount(node, weights=held, minlength=len(gain))[node] * gain[node]
        keys, pair = np.unique(domains[node] * count + owner, return_inverse=True)
        where, whose, added = keys // count, keys % count, np.bincount(pair, weights=adds)
        rate = self._weights[whose] / added
        cost = np.bincount(node, weights=rate[pair] * adds, minlength=len(gain)).astype(np.float64)
        cost /= np.where(gain > 0, gain, 1.0)
        by_host = np.lexsort((rate[pair], node, cost[node], domains[node]))
        by_rate = np.lexsort((rate, where))
        where, whose, added, rate = where[by_rate], whose[by_rate], added[by_rate], rate[by_rate]
        before = np.cumsum(added) - added
        needed = np.clip(lacking[where] - before + before[np.searchsorted(where, where)], 0, added)
        estimates = np.bincount(where, weights=needed * rate, minlength=len(lacking)).astype(np.float64)
        estimates[~self._enough(domains)] = inf
        return estimates, [(where, whose), (domains[node][by_host], owner[by_host])]

    # The search

    def cheapest(self) -> list[int]:
        """The best set found, in an order in which each may go; empty = none."""
        later, queue = self._state.later, self._gang.queue
        asked = frozenset(self._charge)
        if self.placed([]) is None:  # room is short, so that the live capacity needs no look of its own
            asked = self._state.claimed.binding(queue, self._charge)
        self._asked = {account: amount for account, amount in self._charge.items() if account in asked}
        self._short = not later.fits(queue, self._asked)
        self._helpers = self._find_helpers() if self._short else []
        self._line, self._later = self._state.line.copy(), later.copy()
        self._trial = Trial(self._prints, self._main, self._state.then, self._most)
        levels = self._levels()
        ranked = [self._ranked(domains) for domains in levels]
        rows = [enumerate(estimates.tolist()) for estimates, _ in ranked]
        found = ((estimate, n, domain) for n, row in enumerate(rows) for domain, estimate in row)
        for estimate, n, domain in nsmallest(DOMAINS, found):
            if estimate > self._limit or estimate == inf or self._steps > STEPS:
                break
            self._nodes = np.flatnonzero(levels[n] == domain)
            self._trial.enter(self._nodes)
            lacks = not self._has_room()
            spans = [
                whose[slice(*np.searchsorted(where, (domain, domain + 1)))] for where, whose in ranked[n][1]
            ]
            for order in self._orders(*(list(dict.fromkeys(span.tolist())) for span in spans)):
                self._attempt(order)
            if self._best is not None and not lacks:
                break  # nowhere is less missing than quota
        gone = [] if self._best is None else self._best[1]
        for number in sorted(gone, key=self._cost, reverse=True):
            rest = [n for n in gone if n != number]
            if rest and self.judged(rest) is not None and self.placed(rest) is not None:
                gone = rest
        return gone

    def _orders(self, by_rate: Sequence[int], by_host: Sequence[int]) -> Iterator[Sequence[int]]:
        """Orders in which candidates may go until there is room and quota; of few on one host all subsets, too."""
        if self._short:
            inside = set(by_rate)
            yield [*sorted(self._helpers, key=lambda number: number not in inside), *by_rate]
            yield [*self._helpers, *by_rate]
            return
        prints, numbers = self._prints, np.array(by_rate, dtype=np.intp)
        newest = np.lexsort((numbers, -prints.since[numbers], prints.priority[numbers]))
        yield from (by_rate, by_host, numbers[newest].tolist())
        if len(self._nodes) == 1 and len(numbers) <= FEW:
            picks = np.array(list(product((False, True), repeat=len(numbers))))
            weights = picks @ self._weights[numbers]
            for n in np.argsort(weights, kind="stable")[1:SUBSETS].tolist():
                if weights[n] > self._limit:
                    return
                yield numbers[picks[n]].tolist()

    def _find_helpers(self) -> list[int]:
        """Those whose going frees quota where it is short, least weight for that first."""
        freed = dict.fromkeys(self._candidates.tolist(), 0.0)
        for short in self._state.later.shortfalls(self._gang.queue, self._asked):
            lacking = short.held + short.asks - short.limit
            for number in freed:
                if short.queue in self._party(number)[0].path:
                    amount = self._prints.holds[number].charge.get(short.account, 0)
                    freed[number] += min(1.0, amount / lacking)
        return sorted((n for n in freed if freed[n]), key=lambda n: (self._weights[n] / freed[n], n))

    def _attempt(self, order: Sequence[int]) -> None:
        """The sets with which an order comes to be enough: whoever made it so stays, and others are looked for in the
        rest of the order.
        """
        gone, tries, weight = list[int](), 0, 0.0
        for number in order:
            if weight > self._limit or tries == TRIES or self._steps > STEPS:
                break
            if number in self._trial.gone or self._party(number)[0].rule(self._line) is None:
                continue
            self._move(number, 1)
            if self._fits():
                self._offer([*gone, number])
                self._move(number, -1)
                tries += 1
            else:
                gone.append(number)
                weight += self._weights[number]
        for number in gone:
            self._move(number, -1)

    def _offer(self, gone: Sequence[int]) -> None:
        """Keep those of the gone who are needed, the most expensive tried back first, if that is the best set."""
        for number in sorted(gone, key=self._cost, reverse=True):
            self._move(number, -1)
            if not self._fits():
                self._move(number, 1)
        kept = [number for number in gone if number in self._trial.gone]
        for number in gone:
            if number not in self._trial.gone:
                self._move(number, 1)
        weight = float(self._weights[kept].sum())
        rules = self.judged(kept) if kept and weight <= self._limit else None
        if rules is not None:
            pairs = zip((self._prints.holds[number].admitted for number in kept), rules, strict=True)
            cost = eviction_cost(pairs, capacity=self._state.capacity, now=self._state.time)
            if self._best is None or cost < self._best[0]:
                self._best, self._limit = (cost, kept), weight * (1 + 1e-9)

    def _move(self, number: int, times: int) -> None:
        self._steps += 1
        self._trial.move(number, times)
        for usage in (self._line, self._later) if self._short else (self._line,):
            usage.enter(self._entry(number), times=-times)

    def _has_room(self) -> bool:
        """Whether the domain has slots enough, and for several pod sets a placement."""
        if self._trial.lacking > 0 or len(self._parts) == 1:
            return self._trial.lacking <= 0
        self._steps += PLACING
        return self.placed(list(self._trial.gone), self._nodes) is not None

    def _fits(self) -> bool:
        has_quota = not self._short or self._later.fits(self._gang.queue, self._asked)
        return has_quota and self._has_room()


def _sums(domains: Numbers, there: Matrix) -> Floats:
    """Of a number on each node, by domain."""
    inside, count = domains >= 0, int(domains.max(initial=-1)) + 1
    return np.bincount(domains[inside], weights=there[inside], minlength=count).astype(np.float64)
