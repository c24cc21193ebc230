"""The cheapest set of permitted victims found that is enough for one gang.

Room grows with the set, so a set is the shortest prefix of an order, thinned. Orders are tried in the domains that seem
cheapest. For a single pod all subsets of the few candidates on its host are tried in the order of cost.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache, cached_property
from math import inf

import numpy as np

from queuer.domain.assignments import Eviction, EvictionRule
from queuer.domain.quota import Charge
from queuer.solver.candidates import Candidates, Footprints
from queuer.solver.nodes import Numbers
from queuer.solver.placement import Part, Spreads, Variant, place
from queuer.solver.rights import Cost, Rights
from queuer.solver.shapes import Gang
from queuer.solver.slots import View
from queuer.solver.state import Settled, State

DOMAINS, TRIES = 12, 3
"""Domains looked into for one gang, unless they seemed to have room and have not, and sets looked for with one order
there.
"""
STEPS, PLACING = 12_000, 100
"""Victims that go or come back in one search, at most, and how many of them a placement counts for."""
FEW, SUBSETS = 10, 200
"""Candidates on one host of whom all subsets are worth trying, and how many subsets are."""


class Victims:
    """Looks for them in one decision. `rights`: of all gangs; `searches`: how often; `without`: gangs for whom all are
    too few.
    """

    def __init__(self, state: State) -> None:
        self._state, self.rights = state, Rights(state)
        self.without: set[object] = set()
        self.searches = 0

    @cached_property
    def _footprints(self) -> Footprints:
        return Footprints(self._state)

    def bound(
        self, gang: Gang, variant: Variant, charge: Charge, parts: Sequence[Part] | None
    ) -> Settled | None:
        """The gang bound to the room of work that leaves already, else to the room of the cheapest victims found. None
        = it may evict nobody, or no set was found. The evictions are in an order in which each is permitted.
        """
        state = self._state
        if not parts or not gang.may_take(charge, state.claimed):
            return None
        owned, respected = self.rights.of(gang, charge), state.respected(gang, charge)
        sizes = (tuple(variant.counts.values()), tuple(variant.flavors.values()))
        key = (gang.queue, gang.shape.placement_key, gang.pending.avoid, sizes, owned, respected)
        if key in self.without or not self.rights.anybody(owned):
            return None
        room = state.room(respected, View.LATER)
        spreads = place(room, gang.workload, parts, closed=state.closed(gang, bound=True))
        evictions: Sequence[Eviction] = ()
        if spreads is None or not state.used_later.fits(gang.queue, charge):
            there = Candidates(state, self.rights, self._footprints, gang, charge, parts)
            if not there.could_fit():
                self.without.add(key)
                return None
            self.searches += 1
            spreads, evictions = Search(state, there, gang, charge, lacks_room=spreads is None).found()
        if spreads is None or not (evictions or state.leaving):
            return None
        return Settled(
            gang=gang, variant=variant, charge=charge, spreads=spreads, evictions=tuple(evictions), bound=True
        )


class Search:
    """For one gang."""

    def __init__(
        self, state: State, there: Candidates, gang: Gang, charge: Charge, *, lacks_room: bool
    ) -> None:
        """`lacks_room`: not only quota is short."""
        self._state, self._there, self._gang, self._charge = state, there, gang, charge
        book, queue, asked = state.book, gang.queue, frozenset(charge)
        if lacks_room:  # so the live capacity needs no look of its own
            asked = state.claimed.binding(queue, charge)
        self._asked = {account: amount for account, amount in charge.items() if account in asked}
        self._short = not state.used_later.fits(queue, self._asked)
        self._helpers = self._find_helpers() if self._short else []
        self._remaining, self._later = state.remaining.copy(), state.used_later.copy()
        self._trial = Trial(state, there)
        self._best: tuple[Cost, list[int]] | None = None
        self._tried = set[frozenset[int]]()
        self._steps, self._limit = 0, inf
        self._entry = cache(
            lambda n: book.counted(there.runs[n].admitted.workload.queue, there.runs[n].charge)
        )

    def found(self) -> tuple[Spreads | None, list[Eviction]]:
        """The placement, and the evictions that make room for it; None = no set was found."""
        gone = self.cheapest()
        rules, spreads = self.judged(gone), self._there.placed(gone)
        if not gone or rules is None:
            return None, []
        uids = [self._there.runs[number].admitted.workload.uid for number in gone]
        lost = self._there.lost_by(gone, rules)
        return spreads, [
            Eviction(uid=uid, beneficiary=self._gang.uid, rule=rule, lost=work)
            for uid, rule, work in zip(uids, rules, lost, strict=True)
        ]

    def judged(self, gone: Sequence[int]) -> list[EvictionRule] | None:
        """The rules by which these may go in this order; None = they may not, or quota is short all the same."""
        remaining, later = self._state.remaining.copy(), self._state.used_later.copy()
        rules = list[EvictionRule]()
        for number in gone:
            rule = self._there.group(number)[0].rule(remaining)
            if rule is None:
                return None
            rules.append(rule)
            for usage in (remaining, later):
                usage.count(self._entry(number), times=-1)
        return rules if later.fits(self._gang.queue, self._charge) else None

    # The search

    def cheapest(self) -> list[int]:
        """The best set found, in an order in which each may go; empty = none."""
        levels, looked = self._there.levels(), 0
        ranked = [self._there.ranked(domains) for domains in levels]
        estimates = np.concatenate([estimates for estimates, _, _ in ranked])
        enough = np.concatenate([enough for _, enough, _ in ranked])
        inner = len(ranked[0][0])
        for at in np.lexsort((estimates, ~enough)).tolist():
            estimate, n = float(estimates[at]), int(at >= inner)
            domain = at - n * inner
            if looked == DOMAINS or self._steps > STEPS:
                break
            if estimate > self._limit or estimate == inf:
                continue
            self._nodes = np.flatnonzero(levels[n] == domain)
            self._trial.enter(self._nodes)
            lacks, tried = not self._has_room(), len(self._tried)
            spans = [
                whose[slice(*np.searchsorted(where, (domain, domain + 1)))] for where, whose in ranked[n][2]
            ]
            for order in self._orders(*(list(dict.fromkeys(span.tolist())) for span in spans)):
                self._attempt(order)
            looked += len(self._tried) > tried or not enough[at]
            if self._best is not None and not lacks:
                break  # nowhere is less missing than quota
        gone = [] if self._best is None else self._best[1]
        dearest = sorted(gone, key=self._there.cost, reverse=True)
        for number in dearest[: STEPS // (PLACING + len(gone))]:  # in its domain each was tried back
            rest = [n for n in gone if n != number]
            if rest and self.judged(rest) is not None and self._there.placed(rest) is not None:
                gone = rest
        return gone

    def _orders(self, by_rate: Sequence[int], by_host: Sequence[int]) -> Iterator[Sequence[int]]:
        """Orders in which candidates may go until there is room and quota; of few on one host all subsets, too."""
        if self._short:
            inside = set(by_rate)
            yield [*sorted(self._helpers, key=lambda number: number not in inside), *by_rate]
            yield [*self._helpers, *by_rate]
            return
        footprints, numbers = self._there.footprints, np.array(by_rate, dtype=np.intp)
        newest = np.lexsort((numbers, -footprints.since[numbers], footprints.priority[numbers]))
        yield from (by_rate, by_host, numbers[newest].tolist())
        by_size = np.argsort(footprints.share[numbers], kind="stable")
        smallest = numbers[by_size]
        if not self._tried:  # most may go so: the last may cross the line
            yield smallest.tolist()
        if len(self._nodes) == 1 and len(numbers) <= FEW:
            picks = (np.arange(2 ** len(numbers))[:, None] >> np.arange(len(numbers))[::-1] & 1).astype(bool)
            weights = picks @ self._there.weights[numbers]
            for n in np.argsort(weights, kind="stable")[1:SUBSETS].tolist():
                if weights[n] > self._limit:
                    return
                yield smallest[picks[n][by_size]].tolist()

    def _find_helpers(self) -> list[int]:
        """Those whose going frees quota where it is short, least weight for that first."""
        freed = dict.fromkeys(self._there.numbers.tolist(), 0.0)
        for short in self._state.used_later.shortfalls(self._gang.queue, self._asked):
            lacking = short.held + short.asks - short.limit
            for number in freed:
                if short.queue in self._there.group(number)[0].path:
                    amount = self._there.runs[number].charge.get(short.account, 0)
                    freed[number] += min(1.0, amount / lacking)
        return sorted((n for n in freed if freed[n]), key=lambda n: (self._there.weights[n] / freed[n], n))

    def _attempt(self, order: Sequence[int]) -> None:
        """The sets with which an order becomes enough. The last victim of a set stays out of the next one, which is
        looked for in the rest of the order.
        """
        gone, tries, weight = list[int](), 0, 0.0
        for number in order:
            if weight > self._limit or tries == TRIES or self._steps > STEPS:
                break
            if number in self._trial.gone or self._there.group(number)[0].rule(self._remaining) is None:
                continue
            self._move(number, 1)
            if self._fits():
                self._thin_and_keep([*gone, number])
                self._move(number, -1)
                tries += 1
            else:
                gone.append(number)
                weight += self._there.weights[number]
        for number in gone:
            self._move(number, -1)

    def _thin_and_keep(self, gone: Sequence[int]) -> None:
        """Keep those of the gone who are needed, the most expensive tried back first, if that is the best set."""
        if (tried := frozenset(gone)) in self._tried:
            return
        self._tried.add(tried)
        for number in sorted(gone, key=self._there.cost, reverse=True):
            self._move(number, -1)
            if not self._fits():
                self._move(number, 1)
        kept = [number for number in gone if number in self._trial.gone]
        for number in gone:
            if number not in self._trial.gone:
                self._move(number, 1)
        weight = float(self._there.weights[kept].sum())
        rules = self.judged(kept) if kept and weight <= self._limit else None
        if rules is not None:
            costs = map(self._there.cost, kept, rules)
            cost = tuple(map(sum, zip(*costs, strict=True)))
            if self._best is None or cost < self._best[0]:
                self._best, self._limit = (cost, kept), weight * (1 + 1e-9)

    def _move(self, number: int, times: int) -> None:
        self._steps += 1
        self._trial.move(number, times)
        for usage in (self._remaining, self._later) if self._short else (self._remaining,):
            usage.count(self._entry(number), times=-times)

    def _has_room(self) -> bool:
        """Whether the domain has slots enough, and for several pod sets a placement."""
        if self._trial.lacking > 0 or len(self._there.parts) == 1:
            return self._trial.lacking <= 0
        self._steps += PLACING
        return self._there.placed(list(self._trial.gone), self._nodes) is not None

    def _fits(self) -> bool:
        has_quota = not self._short or self._later.fits(self._gang.queue, self._asked)
        return has_quota and self._has_room()


class Trial:
    """Some victims gone, at first nobody, and how many slots a pod set lacks in one domain then."""

    def __init__(self, state: State, there: Candidates) -> None:
        self._then, self._there = state.free_later, there
        self._columns, self._amounts = there.main.need.columns.tolist(), there.main.need.amounts.tolist()
        self._at_first = there.slots[0][0]
        self._rows = cache(self._find_rows)
        self._nodes: dict[int, list[int]] = {}
        self._slots: dict[int, int] = {}
        self._inside = frozenset[int]()
        self.lacking = 0
        self.gone: dict[int, None] = {}

    def enter(self, nodes: Numbers) -> None:
        """Look at this domain."""
        self._inside = frozenset(self._there.usable(nodes).tolist())
        self.lacking = self._there.main.count - int(self._at_first[nodes].sum())

    def move(self, number: int, times: int) -> None:
        """It goes; `times=-1`: it stays after all."""
        if times > 0:
            self.gone[number] = None
        else:
            del self.gone[number]
        for node, amounts in self._rows(number) if self._columns else ():
            if node in self._inside:
                before = self._nodes.get(node) or self._then[node, self._columns].tolist()
                free = self._nodes[node] = [n + times * more for n, more in zip(before, amounts, strict=True)]
                if self._there.most is not None:
                    free = list(map(min, free, self._there.most[node, self._columns].tolist()))
                slots = max(0, min([n // amount for n, amount in zip(free, self._amounts, strict=True)]))
                slots = min(slots, 1) if self._there.main.need.exclusive else slots
                self.lacking -= slots - self._slots.get(node, int(self._at_first[node]))
                self._slots[node] = slots

    def _find_rows(self, number: int) -> list[tuple[int, list[int]]]:
        footprints = self._there.footprints
        span = slice(*footprints.starts[number : number + 2].tolist())
        amounts = footprints.amounts[span][:, self._columns]
        return list(zip(footprints.nodes[span].tolist(), amounts.tolist(), strict=True))
