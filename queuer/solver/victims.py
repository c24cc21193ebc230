"""The cheapest set of permitted victims found that is enough for one gang (DESIGN 3.3).

Room grows with the set, so a set is the shortest prefix of an order, thinned. Orders are tried in the domains that seem
cheapest; of the few on the host of a single pod, all subsets in the order of cost.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from math import inf

import numpy as np

from queuer.domain.quota import Charge
from queuer.solver.cost import Cost, eviction_cost
from queuer.solver.nodes import ALL, Mask, Matrix, NodeRows, Numbers
from queuer.solver.placement import Part, Spreads, Variant, place
from queuer.solver.records import Eviction, EvictionRule
from queuer.solver.rights import Party, Rights
from queuer.solver.shapes import Gang
from queuer.solver.state import ANY, Settled, State, View
from queuer.solver.trial import Floats, Trial

DOMAINS, TRIES = 12, 3
"""Domains looked into for one gang, and sets looked for with one order there."""
STEPS, PLACING = 12_000, 100
"""Victims that go or come back in one search, at most, and how many of them a placement counts for."""
FEW, SUBSETS = 10, 200
"""Candidates on one host of whom all subsets are worth trying, and how many subsets are."""
PREEMPTED = 1e18
"""How much more the lost work of a gang weighs that is preempted, not reclaimed: more than all work there is."""


class Victims:
    """Looks for them in one decision. `searches`: how often."""

    def __init__(self, state: State) -> None:
        self._state, self._rights = state, Rights(state)
        self._hopeless: set[object] = set()
        self.searches = 0

    def anybody(self, gang: Gang) -> bool:
        """Whether the gang may evict somebody as things are."""
        return any(self._rights.anybody(self._rights.reach(gang, charge)) for _, charge in gang.shape.least)

    def bound(
        self, gang: Gang, variant: Variant, charge: Charge, parts: Sequence[Part] | None
    ) -> Settled | None:
        """The gang bound to what those leave who go already, else to what the cheapest victims found leave; None = it
        may evict nobody, or no set was found. The evictions are in an order in which each is permitted.
        """
        state = self._state
        if not parts or not (
            gang.workload.preemptible or state.claimed.entitled(gang.queue, charge, at=gang.queue)
        ):
            return None
        reach, bars = self._rights.reach(gang, charge), state.bars(gang, charge)
        sizes = (tuple(variant.counts.values()), tuple(variant.flavors.values()))
        key = (gang.queue, gang.shape.form, gang.pending.avoid, sizes, reach, bars)
        if key in self._hopeless or not self._rights.anybody(reach):
            return None
        room = state.room(bars, View.THEN)
        spreads = place(room, gang.workload, parts, closed=state.closed(gang, bound=True))
        evictions: Sequence[Eviction] = ()
        if spreads is None or not state.later.fits(gang.queue, charge):
            search = Search(state, self._rights, gang, charge, parts, lacks_room=spreads is None)
            if not search.could_fit():
                self._hopeless.add(key)
                return None
            self.searches += 1
            spreads, evictions = search.found()
        if spreads is None or not (evictions or state.leaving):
            return None
        return Settled(
            gang=gang,
            variant=variant,
            charge=charge,
            spreads=spreads,
            evictions=tuple(evictions),
            bound=True,
        )


class Search:
    """For one gang. Candidates are told by their places among the state's holds (H)."""

    def __init__(
        self,
        state: State,
        rights: Rights,
        gang: Gang,
        charge: Charge,
        parts: Sequence[Part],
        *,
        lacks_room: bool,
    ) -> None:
        """`lacks_room`: not only quota is short."""
        self._state, self._rights, self._gang, self._charge = state, rights, gang, charge
        self._prints, self._parts, self._lacks_room = rights.footprints, parts, lacks_room
        reach, bars = rights.reach(gang, charge), state.bars(gang, charge)
        self._room, self._closed = state.room(bars, View.THEN), state.closed(gang, bound=True)
        self._most = state.behind(bars, np.full_like(state.then, ANY)) if bars else None
        self._main = self._largest()
        self._parties = list(rights.permitted(reach))
        self._of = np.zeros(len(self._prints.holds), dtype=np.intp)  # party by hold
        self._weights = self._prints.lost + 1  # cost as one number, up to ties
        may_go = np.zeros(len(self._of), dtype=bool)
        for n, (party, rule) in enumerate(self._parties):
            self._of[party.numbers] = n
            self._weights[party.numbers] *= PREEMPTED if rule is EvictionRule.PREEMPT else 1.0
            may_go[party.numbers] = True
        may_go[[rights.numbers[uid] for uid in (*state.leaving, *reach.spared)]] = False
        self._candidates: Numbers = np.flatnonzero(may_go)
        entries, self._whose = self._prints.entries(self._candidates)
        self._where, self._amounts = self._prints.nodes[entries], self._prints.amounts[entries]
        nodes, emptied = self._freed(self._where, self._amounts)
        self._slots = []  # of each part on each node, before and once all candidates have gone
        for part in (self._main, *self._parts):
            before = self._open(part, ALL, self._room.table(part.need, part.accepting).by_node)
            after = before.copy()
            after[nodes] = self._open(part, nodes, part.need.slots(emptied))
            self._slots.append((before, after))
        self._best: tuple[Cost, list[int]] | None = None
        self._tried = set[frozenset[int]]()
        self._steps, self._limit = 0, inf
        holds, book = self._prints.holds, state.book
        self._entry = cache(lambda n: book.entry(holds[n].admitted.workload.queue, holds[n].charge))

    def found(self) -> tuple[Spreads | None, list[Eviction]]:
        """The placement, and the evictions that make room for it; None = no set was found."""
        gone = self.cheapest()
        rules, spreads = self.judged(gone), self.placed(gone)
        if not gone or rules is None:
            return None, []
        uids = [self._prints.holds[number].admitted.workload.uid for number in gone]
        pairs = zip(uids, rules, strict=True)
        return spreads, [Eviction(uid=u, beneficiary=self._gang.uid, rule=r) for u, r in pairs]

    def could_fit(self) -> bool:
        """Whether quota and slots might suffice once all candidates have gone."""
        for short in self._state.later.shortfalls(self._gang.queue, self._charge):
            below = (p for p, _ in self._parties if short.queue in p.path)
            if (
                sum(self._rights.charged(p, short.account) for p in below)
                < short.held + short.asks - short.limit
            ):
                return False
        return bool(self._enough(self._levels()[-1]).any())

    def placed(self, gone: Sequence[int], inside: Numbers | None = None) -> Spreads | None:
        """A placement with these gone."""
        room = self._room
        if gone:
            entries, _ = self._prints.entries(np.array(gone, dtype=np.intp))
            room = room.but(*self._freed(self._prints.nodes[entries], self._prints.amounts[entries]))
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

    def _party(self, number: int) -> tuple[Party, EvictionRule]:
        return self._parties[int(self._of[number])]

    def _cost(self, number: int) -> Cost:
        return self._rights.cost(self._prints.holds[number], self._party(number)[1])

    def _freed(self, where: Numbers, amounts: Matrix) -> tuple[Numbers, Matrix]:
        """The nodes where these amounts are freed (K), and what the gang may use there then (K x R)."""
        nodes, at = np.unique(where, return_inverse=True)
        free = self._state.then[nodes]
        for column in range(free.shape[1]):
            np.add.at(free[:, column], at, amounts[:, column])
        return nodes, free if self._most is None else np.minimum(free, self._most[nodes])

    def _open(self, part: Part, at: NodeRows, slots: Matrix) -> Matrix:
        """Slots on these nodes where the gang may go (K)."""
        accepting = part.accepting[at]
        return np.where(accepting if self._closed is None else accepting & ~self._closed[at], slots, 0)

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
        parts = zip((self._main, *self._parts), self._slots, strict=True)
        fits = [_sums(domains, after) >= part.count for part, (_, after) in parts]
        enough: Mask = np.all(fits, axis=0)
        return enough

    def _ranked(self, domains: Numbers) -> tuple[Floats, list[tuple[Numbers, Numbers]]]:
        """By domain of one level the weight of what must go there, were candidates divisible; and orders of candidates,
        each with their domains: by weight for a slot, and host after host.
        """
        count, gain = len(self._weights), np.zeros(len(domains))
        lacking = np.zeros(int(domains.max(initial=-1)) + 1)
        whole = np.maximum(self._state.nodes.total, 1)
        for part, (before, after) in zip(self._parts, self._slots[1:], strict=True):
            size = (part.row / whole).max(initial=0.0)
            gain = np.maximum(gain, (after - before) * size)
            lacking += np.maximum(part.count - _sums(domains, before), 0.0) * size
        node, owner = self._where, self._whose
        asked = np.any([part.row > 0 for part in self._parts], axis=0)
        parts = self._amounts[:, asked] / np.maximum(self._state.nodes.alloc[node][:, asked], 1)
        held = parts.max(axis=1, initial=0.0)
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
        if self._lacks_room:  # so the live capacity needs no look of its own
            asked = self._state.claimed.binding(queue, self._charge)
        self._asked = {account: amount for account, amount in self._charge.items() if account in asked}
        self._short = not later.fits(queue, self._asked)
        self._helpers = self._find_helpers() if self._short else []
        self._line, self._later = self._state.line.copy(), later.copy()
        main = self._main
        if self._closed is not None:
            main = replace(main, accepting=main.accepting & ~self._closed)
        self._trial = Trial(self._prints, main, self._state.then, self._most, self._slots[0][0])
        levels = self._levels()
        ranked = [self._ranked(domains) for domains in levels]
        estimates = np.concatenate([estimates for estimates, _ in ranked])
        inner = len(ranked[0][0])
        for at in np.argsort(estimates, kind="stable")[:DOMAINS].tolist():
            estimate, n = float(estimates[at]), int(at >= inner)
            domain = at - n * inner
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
            picks = (np.arange(2 ** len(numbers))[:, None] >> np.arange(len(numbers))[::-1] & 1).astype(bool)
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
        if (tried := frozenset(gone)) in self._tried:
            return
        self._tried.add(tried)
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
