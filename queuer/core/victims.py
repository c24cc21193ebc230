"""The cheapest set of permitted victims found that is enough for one gang (DESIGN 3.3).

Room grows with the set, so a set is the shortest prefix of an order, thinned. Orders are tried in the domains that seem
cheapest; of the few on the host of a single pod, all subsets in the order of cost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, cached_property
from heapq import nsmallest
from itertools import chain, product
from math import inf

import numpy as np

from queuer.core.nodes import Mask, Matrix, Numbers
from queuer.core.placement import Spreads, Variant, parts_of, place
from queuer.core.records import Eviction, EvictionRule
from queuer.core.rights import Party, Rights
from queuer.core.score import Cost
from queuer.core.shapes import Gang
from queuer.core.slots import Room
from queuer.core.state import ANY, Settled, State
from queuer.core.trial import Floats, Trial, kinds_of, slots_of
from queuer.domain.quota import Charge
from queuer.domain.usage import Entry, Usage

DOMAINS = 24
"""Domains looked into for one gang."""
STEPS, PLACING = 12_000, 50
"""Victims that go or come back in one search, at most, and how many of them a placement counts for."""
TRIES = 6
"""Sets that are looked for in one order."""
FEW, SUBSETS = 10, 200
"""Candidates on one host of whom all subsets are worth trying, and how many subsets are."""
EMPTIED = 16
"""Gangs for which it is kept what all in reach leave."""
PREEMPTED = 1e18
"""How much more the lost work of a gang weighs that is preempted, not reclaimed: more than all work there is."""


def find(state: State, rights: Rights, gang: Gang, variant: Variant, charge: Charge) -> Settled | None:
    """The gang bound to what those leave who go already, or to what the cheapest victims found leave; None = it may
    evict nobody, or no set was found. The evictions are in an order in which each is permitted.
    """
    if not could_fit(state, rights, gang, variant, charge):
        return None
    search = _Search(state, rights, gang, variant, charge)
    alone = search.judged([]) is not None and search.placed([]) is not None
    gone = [] if alone else search.cheapest()
    rules, spreads = search.judged(gone), search.placed(gone)
    if rules is None or spreads is None or not (gone or state.leaving):
        return None
    uids = [rights.footprints.holds[number].admitted.workload.uid for number in gone]
    evicted = zip(uids, rules, strict=True)
    return Settled(
        gang=gang,
        variant=variant,
        charge=charge,
        spreads=spreads,
        evictions=tuple([Eviction(uid=uid, beneficiary=gang.uid, rule=rule) for uid, rule in evicted]),
        bound=True,
    )


def could_fit(state: State, rights: Rights, gang: Gang, variant: Variant, charge: Charge) -> bool:
    """Whether it might fit with everybody gone whom it may evict as things are: a quick look without a search."""
    if not gang.workload.preemptible and not state.claimed.entitled(gang.queue, charge, at=gang.queue):
        return False
    reach, bars = rights.reach(gang, charge), state.bars(gang, charge)
    if not rights.anybody(reach):
        return False
    sizes = (tuple(variant.counts.values()), tuple(variant.flavors.values()))
    key = (gang.queue, gang.shape.form, gang.pending.avoid, sizes, reach, bars)
    if key not in rights.known:
        rights.known[key] = _Search(state, rights, gang, variant, charge).could_fit()
    return rights.known[key]


class _Search:
    """For one gang. Candidates are told by their places among the state's holds (H)."""

    def __init__(self, state: State, rights: Rights, gang: Gang, variant: Variant, charge: Charge) -> None:
        self._state, self._rights, self._gang, self._charge = state, rights, gang, charge
        self._reach, self._prints = rights.reach(gang, charge), rights.footprints
        self._parties = rights.permitted(self._reach)
        self._bars, self._closed = state.bars(gang, charge), state.closed(gang)
        self._parts = parts_of(state.nodes, gang.workload, variant)
        self._kinds = kinds_of(self._parts or (), self._closed)
        self._best: tuple[Cost, list[int]] | None = None
        self._steps, self._limit = 0, inf

    def could_fit(self) -> bool:
        """Whether quota and slots might suffice once all candidates have gone."""
        for short in self._state.later.shortfalls(self._gang.queue, self._charge):
            charged = (p.charged(short.account) for p, _ in self._parties if short.queue in p.path)
            if sum(charged) < short.held + short.asks - short.limit:
                return False
        return self._parts is not None and bool(self._enough(self._levels[-1]).any())

    def placed(self, gone: Sequence[int], inside: Numbers | None = None) -> Spreads | None:
        """A placement with these gone."""
        room, numbers = self._room, np.array(gone, dtype=np.intp)
        if gone:
            nodes = np.unique(self._prints.nodes[self._prints.entries(numbers)[0]])
            room = room.but(nodes, self._free(numbers)[nodes])
        return place(room, self._gang.workload, self._parts, closed=self._closed, inside=inside)

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

    # What candidates there are, what they cost and what they leave

    @cached_property
    def _candidates(self) -> Numbers:
        out = [self._rights.numbers[uid] for uid in (*self._state.leaving, *self._reach.spared)]
        numbers = np.concatenate([party.numbers for party, _ in self._parties])
        return numbers[~np.isin(numbers, out)]

    @cached_property
    def _of(self) -> Numbers:
        """Which party each is of (H)."""
        of = np.zeros(len(self._prints.holds), dtype=np.intp)
        for n, (party, _) in enumerate(self._parties):
            of[party.numbers] = n
        return of

    def _party(self, number: int) -> tuple[Party, EvictionRule]:
        return self._parties[self._of[number]]

    @cached_property
    def _weights(self) -> Floats:
        """What each costs as one number, up to ties (H)."""
        preempted = np.array([rule is EvictionRule.PREEMPT for _, rule in self._parties], dtype=bool)
        return (self._prints.lost + 1) * np.where(preempted[self._of], PREEMPTED, 1.0)

    def _cost(self, number: int, rule: EvictionRule | None = None) -> Cost:
        return self._rights.cost(self._prints.holds[number], rule or self._party(number)[1])

    @cached_property
    def _entry(self) -> Callable[[int], Entry]:
        """What each uses."""
        holds, line = self._prints.holds, self._line
        return cache(
            lambda n: line.entry(
                holds[n].admitted.workload.queue, holds[n].charge, frozenset(holds[n].charge)
            )
        )

    @cached_property
    def _most(self) -> Matrix | None:
        """What the gang may use as reservations stay whole; None = all (N x R)."""
        return self._state.behind(self._bars, np.full_like(self._state.then, ANY)) if self._bars else None

    @cached_property
    def _room(self) -> Room:
        return Room(self._state.nodes, self._free(np.zeros(0, dtype=np.intp)))

    def _free(self, gone: Numbers) -> Matrix:
        """What the gang may use once these have gone (N x R)."""
        entries, _ = self._prints.entries(gone)
        free = self._state.then.copy()
        np.add.at(free, self._prints.nodes[entries], self._prints.amounts[entries])
        return free if self._most is None else np.minimum(free, self._most)

    @cached_property
    def _emptied(self) -> Matrix:
        """The same once all candidates have gone."""
        kept, key = self._rights.emptied, (self._reach, self._bars)
        if key not in kept:
            if len(kept) >= EMPTIED:
                kept.clear()
            kept[key] = self._free(self._candidates)
        return kept[key]

    # Where the gang may be put together

    @cached_property
    def _levels(self) -> list[Numbers]:
        """By level to look at, the domain of each node, -1 = none (N); the one that must hold the gang comes last."""
        nodes, find_level, workload = (
            self._state.nodes,
            self._state.snapshot.topology.find,
            self._gang.workload,
        )
        parts = self._parts or ()
        required, preferred = [find_level(workload.required or "")], [find_level(workload.preferred or "")]
        if len(parts) == 1:
            required, preferred = [*required, parts[0].required], [*preferred, parts[0].preferred]
        must, may = (max([-1, *(at for at in asked if at is not None)]) for asked in (required, preferred))
        outer = nodes.domains[must] if must >= 0 else np.zeros(len(nodes.names), dtype=np.intp)
        if sum(part.count for part in parts) == 1:
            return [np.where(outer >= 0, np.arange(len(outer)), -1)]
        return [np.where(outer >= 0, nodes.domains[may], -1), outer] if may > must else [outer]

    def _enough(self, domains: Numbers) -> Mask:
        """By domain, whether it has slots for the pods of each kind alone once all candidates have gone."""
        fits = [_sums(domains, slots_of(kind, self._emptied)) >= kind.count for kind in self._kinds]
        return np.all(fits, axis=0)

    def _ranked(self, domains: Numbers) -> tuple[Floats, Numbers, Numbers]:
        """By domain of one level the weight of what must go there, were hosts divisible; candidates and their domains,
        host after host, the one first where a slot costs least.
        """
        gain, lacking = np.zeros(len(domains)), np.zeros(int(domains.max(initial=-1)) + 1)
        befores = [slots_of(kind, self._room.free) for kind in self._kinds]
        lacks = [np.maximum(k.count - _sums(domains, b), 0.0) for k, b in zip(self._kinds, befores, strict=True)]
        lacks[0] = np.where(np.any(lacks, axis=0), lacks[0], 1.0)
        for kind, before, lack in zip(self._kinds, befores, lacks, strict=True):
            size = float((kind.row / np.maximum(self._state.nodes.total, 1)).max())
            more = np.minimum(slots_of(kind, self._emptied) - before, lack[domains]) * size
            gain = np.maximum(gain, np.where(domains >= 0, more, 0))
            lacking += lack * size
        entries, owner = self._prints.entries(self._candidates)
        node = self._prints.nodes[entries]
        used = (domains[node] >= 0) & (gain[node] > 0)
        node, owner = node[used], owner[used]
        _, pair, spread = np.unique(
            domains[node] * len(self._weights) + owner, return_inverse=True, return_counts=True
        )
        weight = self._weights[owner] / spread[pair]
        cost = np.bincount(node, weights=weight, minlength=len(gain)) / np.where(gain > 0, gain, 1.0)
        hosts = np.flatnonzero(gain)
        hosts = hosts[np.lexsort((cost[hosts], domains[hosts]))]
        before = np.cumsum(gain[hosts]) - gain[hosts]
        before -= before[np.searchsorted(domains[hosts], domains[hosts])]
        part = np.clip(lacking[domains[hosts]] - before, 0, gain[hosts])
        estimates = np.bincount(domains[hosts], weights=part * cost[hosts], minlength=len(lacking))
        order = np.lexsort((weight, node, cost[node], domains[node]))
        return estimates, owner[order], domains[node][order]

    # The search

    def cheapest(self) -> list[int]:
        """The best set found, in an order in which each may go; empty = none."""
        ranked = [self._ranked(domains) for domains in self._levels]
        found = [
            (estimates[domain], n, domain)
            for n, (estimates, _, _) in enumerate(ranked)
            for domain in np.flatnonzero(self._enough(self._levels[n])).tolist()
        ]
        for estimate, n, domain in nsmallest(DOMAINS, found):
            if estimate > self._limit or self._steps > STEPS:
                break
            self._nodes = np.flatnonzero(self._levels[n] == domain)
            self._trial.enter(self._nodes)
            lacks = not self._has_room()
            _, owners, domains = ranked[n]
            there = owners[slice(*np.searchsorted(domains, (domain, domain + 1)))]
            for order in self._orders(list(dict.fromkeys(there.tolist()))):
                self._attempt(order)
            if self._best is not None and not lacks:
                break  # nowhere is less missing than quota
        gone = [] if self._best is None else self._best[1]
        for number in sorted(gone, key=self._cost, reverse=True):
            rest = [n for n in gone if n != number]
            if rest and self.judged(rest) is not None and self.placed(rest) is not None:
                gone = rest
        return gone

    def _orders(self, members: Sequence[int]) -> Iterator[Iterable[int]]:
        """Orders in which candidates may go until there is room and quota; of few on one host all subsets."""
        if len(self._nodes) == 1 and len(members) <= FEW and not self._short:
            picks = np.array(list(product((False, True), repeat=len(members))))
            order = np.argsort(picks @ self._weights[members], kind="stable")
            yield from (np.array(members)[picks[n]].tolist() for n in order[1:SUBSETS].tolist())
            return
        prints, numbers = self._prints, np.array(members, dtype=np.intp)
        newest = np.lexsort((numbers, -prints.since[numbers], prints.priority[numbers]))
        for order in (members, numbers[newest].tolist()):
            if not self._short:
                yield order
            else:
                yield chain(_until(self._has_room, order), _until(self._has_quota, self._helpers))
                yield chain(_until(self._has_quota, self._helpers), _until(self._has_room, order))

    def _attempt(self, order: Iterable[int]) -> None:
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
        rules = self.judged(kept) if weight <= self._limit * (1 + 1e-9) else None
        if rules is not None:
            costs = [self._cost(number, rule) for number, rule in zip(kept, rules, strict=True)]
            a, b, c, d, e = map(sum, zip(*costs, strict=True))
            if self._best is None or (a, b, c, d, e) < self._best[0]:
                self._best, self._limit = ((a, b, c, d, e), kept), weight

    @cached_property
    def _trial(self) -> Trial:
        return Trial(self._prints, self._kinds, self._state.then, self._most)

    @cached_property
    def _line(self) -> Usage:
        return self._state.line.copy()

    @cached_property
    def _later(self) -> Usage:
        return self._state.later.copy()

    @cached_property
    def _asked(self) -> Charge:
        """What the gang asks for where something else than the live capacity can bind."""
        binding = self._state.claimed.binding(self._gang.queue, self._charge)
        return {account: amount for account, amount in self._charge.items() if account in binding}

    @cached_property
    def _short(self) -> bool:
        """Whether victims must free quota, too."""
        return not self._state.later.fits(self._gang.queue, self._asked)

    @cached_property
    def _helpers(self) -> list[int]:
        """Those whose going frees quota where it is short, least weight for that first."""
        freed: dict[int, float] = {}
        for short in self._state.later.shortfalls(self._gang.queue, self._asked):
            for number in self._candidates.tolist():
                if short.queue in self._party(number)[0].path:
                    amount = self._prints.holds[number].charge.get(short.account, 0)
                    part = min(1.0, amount / (short.held + short.asks - short.limit))
                    freed[number] = freed.get(number, 0.0) + part
        return sorted((n for n in freed if freed[n]), key=lambda n: (self._weights[n] / freed[n], n))

    def _move(self, number: int, times: int) -> None:
        self._steps += 1
        self._trial.move(number, times)
        for usage in (self._line, self._later) if self._short else (self._line,):
            usage.enter(self._entry(number), times=-times)

    def _has_quota(self) -> bool:
        return not self._short or self._later.fits(self._gang.queue, self._asked)

    def _has_room(self) -> bool:
        """Whether there are slots enough in the domain, and for several pod sets a placement."""
        if any(lacking > 0 for lacking in self._trial.lacking):
            return False
        if len(self._parts or ()) == 1:
            return True
        self._steps += PLACING
        return self.placed(list(self._trial.gone), self._nodes) is not None

    def _fits(self) -> bool:
        return self._has_quota() and self._has_room()


def _until(enough: Callable[[], bool], order: Iterable[int]) -> Iterator[int]:
    """An order as far as it is needed."""
    for number in order:
        if enough():
            return
        yield number


def _sums(domains: Numbers, there: Matrix) -> Floats:
    """Of a number on each node, by domain."""
    inside = domains >= 0
    count = int(domains.max(initial=-1)) + 1
    return np.bincount(domains[inside], weights=there[inside], minlength=count).astype(np.float64)
