"""The cheapest set of permitted victims found that is enough for one gang (DESIGN 3.3).

Room grows with the set of victims, so a set is the shortest prefix of an order, thinned. Orders are tried in the domains
that can be the cheapest; for the few on the host of a single pod, all subsets in the order of cost.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from queuer.core.nodes import Mask, Matrix, Numbers
from queuer.core.placement import Spreads, Variant, parts_of, place
from queuer.core.records import Eviction, EvictionRule
from queuer.core.rights import Rights
from queuer.core.score import Cost
from queuer.core.shapes import Gang
from queuer.core.state import Settled, State
from queuer.core.trial import ENDLESS, Clearing, Floats, Trial, kinds_of, tolls
from queuer.domain.quota import Charge

DOMAINS = 24
"""Domains looked into for one gang, the one that seems cheapest first."""
STEPS = 12_000
"""Victims that go or come back in one search, at most."""
PLACING = 50
"""Steps that a placement counts for."""
TRIES = 6
PRUNE = 0
"""Sets that are looked for in one order."""
FEW, SUBSETS = 10, 200
"""Candidates on one host of whom all subsets are worth trying, and how many subsets are."""
EMPTIED = 16
"""Gangs for which the nodes are kept as all in reach leave them."""
PREEMPTED = 1e18
"""How much more the lost work of a gang weighs that is preempted, not reclaimed: more than all work there is."""
NOBODY: Numbers = np.zeros(0, dtype=np.intp)


def find(state: State, rights: Rights, gang: Gang, variant: Variant, charge: Charge) -> Settled | None:
    """The gang bound to what the cheapest victims found leave, or to what those leave who go already; None = no set was
    found, or it may evict nobody. The evictions are in an order in which each is permitted.
    """
    if not could_fit(state, rights, gang, variant, charge):
        return None
    search = _Search(state, rights, gang, variant, charge)
    if state.later.fits(gang.queue, charge) and (spreads := search.placed(NOBODY)) is not None:
        settled = Settled(gang=gang, variant=variant, charge=charge, spreads=spreads, bound=True)
        return settled if state.leaving else None
    return search.settled()


def could_fit(state: State, rights: Rights, gang: Gang, variant: Variant, charge: Charge) -> bool:
    """Whether it might fit with everybody gone whom it may evict as things are: a quick look without a search."""
    if not gang.workload.preemptible and not state.claimed.entitled(gang.queue, charge, at=gang.queue):
        return False
    reach = rights.reach(gang, charge)
    if not rights.anybody(reach):
        return False
    sizes = (tuple(variant.counts.values()), tuple(variant.flavors.values()))
    bars = state.bars(gang, charge)
    key = (gang.queue, gang.shape.form, sizes, reach, bars, gang.pending.avoid, len(state.leaving))
    if key not in rights.known:
        rights.known[key] = _Search(state, rights, gang, variant, charge).could_fit()
    return rights.known[key]


@dataclass(frozen=True, slots=True, eq=False)
class _Victims:
    """Who is enough: candidates in an order in which each may go, and by which rule."""

    chosen: tuple[tuple[int, EvictionRule], ...]
    cost: Cost
    weight: float
    nodes: Numbers


Phases = tuple[tuple[list[int], Callable[[], bool]], ...]


class _Level:
    """The domains of one level, and what of the candidates lies in them.

    `estimates`: by domain the weight of what must go there, were it divisible; infinite where all are not enough.
    """

    def __init__(
        self,
        domains: Numbers,
        lacking: Floats,
        gain: Floats,
        entries: tuple[Numbers, Numbers, Floats],
        weights: Floats,
    ) -> None:
        """`lacking`: missing slots by domain; `gain`: slots that a node has more with all candidates gone (N);
        `entries`: candidate, node, and part of the node that it has.
        """
        owner, node, size = entries
        self.lacking = lacking
        count = len(lacking)
        usable = (domains[node] >= 0) & (gain[node] > 0)
        owner, node, size = owner[usable], node[usable], size[usable]
        share = size / np.bincount(node, weights=size, minlength=len(gain))[node] * gain[node]
        key = domains[node] * len(weights) + owner
        order = np.argsort(key, kind="stable")
        self.owner, self.node, key, share = owner[order], node[order], key[order], share[order]
        first = np.flatnonzero(np.diff(key, prepend=-1))
        value = np.add.reduceat(share, first) if len(first) else share
        whose, where = key[first] % len(weights), key[first] // len(weights)
        ratio = weights[whose] / value
        self.ratio = np.repeat(ratio, np.diff(np.append(first, len(key))))
        cost = np.bincount(self.node, weights=self.ratio * share, minlength=len(gain))
        self.host = cost / np.maximum(gain, 1)
        ranked = np.lexsort((ratio, where))
        self.cheap, where, value = whose[ranked], where[ranked], value[ranked]
        self.spans = np.searchsorted(where, np.arange(count + 1))
        self.entry_spans = np.searchsorted(key, np.arange(count + 1) * len(weights))
        before = np.cumsum(value) - value
        base = np.append(before, 0.0)[self.spans[:-1]]
        part = np.clip((lacking[where] - (before - base[where])) / value, 0.0, 1.0)
        self.estimates = np.bincount(where, weights=part * weights[self.cheap], minlength=count)

    def members(self, domain: int) -> Numbers:
        """Candidates there, by weight for the slots that their going adds."""
        return self.cheap[self.spans[domain] : self.spans[domain + 1]]

    def host_by_host(self, domain: int) -> Numbers:
        """The same, of the host first where slots cost least."""
        span = slice(self.entry_spans[domain], self.entry_spans[domain + 1])
        node = self.node[span]
        owners = self.owner[span][np.lexsort((self.ratio[span], node, self.host[node]))]
        _, first = np.unique(owners, return_index=True)
        return owners[np.sort(first)]


class _Search:
    """For one gang. Candidates (C) are told by position."""

    def __init__(self, state: State, rights: Rights, gang: Gang, variant: Variant, charge: Charge) -> None:
        self._state, self._rights, self._gang = state, rights, gang
        self._variant, self._charge = variant, charge
        self._prints = rights.footprints
        self._reach = rights.reach(gang, charge)
        self._parties = rights.permitted(self._reach)
        self._bars, self._closed = state.bars(gang, charge), state.closed(gang)
        self._parts = parts_of(state.nodes, gang.workload, variant)
        self._kinds = kinds_of(self._parts or (), self._closed)
        self._placing = len(self._kinds) > 1
        self._gone: list[int] = []
        self._exact = False

    def placed(self, victims: Numbers, inside: Numbers | None = None) -> Spreads | None:
        """A placement with these gone, by number. `inside`: nodes that it must be on."""
        closed = self._closed
        if inside is not None:
            outside = np.ones(len(self._state.nodes.names), dtype=bool)
            outside[inside] = False
            closed = outside if closed is None else outside | closed
        return place(self._clearing.room(victims), self._gang.workload, self._parts, closed=closed)

    def could_fit(self) -> bool:
        """Whether quota and slots might suffice once all candidates have gone."""
        if self._parts is None:
            return False
        for short in self._state.later.shortfalls(self._gang.queue, self._charge):
            held = (party.held(short.account) for party, _ in self._parties if short.queue in party.path)
            if sum(held) < short.held + short.asks - short.limit:
                return False
        return bool(self._enough(self._levels[-1]).any())

    # Whom it may evict

    @cached_property
    def _clearing(self) -> Clearing:
        return Clearing(self._state, self._prints, self._bars)

    @cached_property
    def _candidates(self) -> tuple[Numbers, Numbers]:
        """Those who stay so far: their numbers, and positions of their parties (C)."""
        out = [self._rights.numbers[uid] for uid in (*self._state.leaving, *self._reach.spared)]
        numbers = np.concatenate([NOBODY, *(party.numbers for party, _ in self._parties)])
        of = np.repeat(np.arange(len(self._parties)), [len(party.numbers) for party, _ in self._parties])
        stay = ~np.isin(numbers, out)
        return numbers[stay], of[stay]

    @cached_property
    def _emptied(self) -> Matrix:
        """What is free with all candidates gone (N x R)."""
        kept = self._rights.emptied
        key = (self._reach, self._bars, len(self._state.leaving))
        if key not in kept:
            if len(kept) >= EMPTIED:
                kept.clear()
            kept[key] = self._clearing.free(self._candidates[0])
        return kept[key]

    @cached_property
    def _weights(self) -> Floats:
        """What each candidate costs as one number, up to ties (C)."""
        numbers, of = self._candidates
        preempted = np.array([rule is EvictionRule.PREEMPT for _, rule in self._parties], dtype=bool)
        lost = self._prints.lost[numbers] + 1
        return np.where(preempted[of], lost * PREEMPTED, lost)

    @cached_property
    def _newest(self) -> Numbers:
        """The place of each in the order of lowest priority, then last started (C)."""
        numbers, _ = self._candidates
        order = np.lexsort((numbers, -self._prints.since[numbers], self._prints.priority[numbers]))
        return np.argsort(order)

    # Where it may be put together

    @cached_property
    def _levels(self) -> list[Numbers]:
        """By level to look at, the domain of each node, -1 = none (N); the one that must hold the gang comes last."""
        nodes, find_level, workload = (
            self._state.nodes,
            self._state.snapshot.topology.find,
            self._gang.workload,
        )
        parts = self._parts or ()
        required = [find_level(workload.required) if workload.required else None]
        preferred = [find_level(workload.preferred) if workload.preferred else None]
        if len(parts) == 1:
            required.append(parts[0].required)
            preferred.append(parts[0].preferred)
        must = max((level for level in required if level is not None), default=-1)
        may = max((level for level in preferred if level is not None), default=-1)
        outer = nodes.domains[must] if must >= 0 else np.zeros(len(nodes.names), dtype=np.intp)
        if sum(part.count for part in parts) == 1:
            return [np.where(outer >= 0, np.arange(len(outer)), -1)]
        return [np.where(outer >= 0, nodes.domains[may], -1), outer] if may > must else [outer]

    def _enough(self, domains: Numbers) -> Mask:
        """By domain, whether it has slots for the pods of each kind alone once all candidates have gone."""
        fits = [_sums(domains, kind.slots(self._emptied)) >= kind.count for kind in self._kinds]
        if self._placing:
            asked = sum(p.row * p.count for p in self._parts or ())
            open_ = np.logical_or.reduce([kind.open for kind in self._kinds])
            left = np.where(open_[:, None], np.maximum(self._emptied, 0), 0)
            fits += [_sums(domains, left[:, c]) >= asked[c] for c in np.flatnonzero(asked)]
        enough: Mask = np.logical_and.reduce(fits)
        return enough

    def _level(self, domains: Numbers) -> _Level:
        at_first, there = self._clearing.room(NOBODY).free, domains >= 0
        gain, lacking = np.zeros(len(domains)), np.zeros(int(domains.max(initial=-1)) + 1)
        lack = [kind.count - _sums(domains, kind.slots(at_first)) for kind in self._kinds]
        if self._placing:  # see Trial
            least = np.full(len(lacking), float(ENDLESS))
            np.minimum.at(least, domains[there], tolls(self._kinds, at_first)[there])
            lack[0] += np.where(least < ENDLESS, least, 0)
            lack[0][np.maximum.reduce(lack) <= 0] = 1
        for kind, few in zip(self._kinds, lack, strict=True):
            more = kind.slots(self._emptied) - kind.slots(at_first)
            few = np.maximum(few, 0)
            gain[there] += np.minimum(more[there], few[domains[there]])
            lacking += few
        numbers, _ = self._candidates
        entries, owner = self._prints.entries(numbers)
        node = self._prints.nodes[entries]
        columns = sorted({c for kind in self._kinds for c in kind.need.columns.tolist()})
        whole = np.maximum(self._state.nodes.alloc[node][:, columns], 1)
        size = (self._prints.amounts[entries][:, columns] / whole).max(axis=1, initial=0.0)
        return _Level(domains, lacking, gain, (owner, node, size), self._weights)

    def _domains(self) -> Iterator[tuple[float, Numbers, _Level, int]]:
        """Estimate, nodes, level and number of the domains in which there might be room, the cheapest first."""
        found = []
        levels = [self._level(domains) for domains in self._levels]
        for n, (domains, level) in enumerate(zip(self._levels, levels, strict=True)):
            enough = np.flatnonzero(self._enough(domains)).tolist()
            found += [(float(level.estimates[d]), n, d) for d in enough]
        for estimate, n, d in heapq.nsmallest(DOMAINS, found):
            yield estimate, np.flatnonzero(self._levels[n] == d), levels[n], d

    # The search

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
    def _trial(self) -> Trial:
        self._line, self._later = self._state.line.copy(), self._state.later.copy()
        accounts = {account for party, _ in self._parties for account in party.accounts}
        usages = [self._line] * bool(accounts) + [self._later] * self._short
        return Trial(
            self._state, self._clearing, self._prints, self._kinds, usages, accounts | self._asked.keys()
        )

    def settled(self) -> Settled | None:
        """Bound to what the cheapest set found leaves."""
        best: _Victims | None = None
        trial = self._trial
        for estimate, nodes, level, domain in self._domains():
            if trial.steps > STEPS or (best is not None and estimate > best.weight):
                break
            trial.enter(nodes)
            self._nodes = nodes
            for phases in self._phases(level, domain):
                best = self._better(best, phases)
            if best is not None and not level.lacking[domain]:
                break  # nowhere else is less missing than quota
        return None if best is None else self._bound(best)

    def _better(self, best: _Victims | None, phases: Phases) -> _Victims | None:
        """The cheaper of the best set so far and that of an order."""
        self._limit = best.weight if best else 0.0
        for exact in (False, True) if self._placing else (False,):
            self._exact = exact
            found = self._attempt(phases)
            if found is None or (best is not None and found.cost >= best.cost):
                return best
            if exact or not self._placing or self._has_place([i for i, _ in found.chosen]):
                return found
        return best

    def _phases(self, level: _Level, domain: int) -> Iterator[Phases]:
        """Orders in which candidates go: until there is room, and where it is short, until there is quota."""
        members = level.members(domain)
        for order in (members, level.host_by_host(domain), members[np.argsort(self._newest[members])]):
            for_room = (order.tolist(), self._has_room)
            if not self._short:
                yield (for_room,)
            else:
                yield (for_room, (self._helpers, self._has_quota))
                yield ((self._helpers, self._has_quota), for_room)

    @cached_property
    def _helpers(self) -> list[int]:
        """Those whose going frees quota where it is short, least weight for that first."""
        freed = np.zeros(len(self._weights))
        numbers, of = self._candidates
        for short in self._state.later.shortfalls(self._gang.queue, self._asked):
            for n, (party, _) in enumerate(self._parties):
                if short.queue in party.path:
                    for i in np.flatnonzero(of == n).tolist():
                        amount = self._prints.holds[numbers[i]].charge.get(short.account, 0)
                        freed[i] += min(1.0, amount / (short.held + short.asks - short.limit))
        some = np.flatnonzero(freed)
        order: list[int] = some[np.argsort(self._weights[some] / freed[some], kind="stable")].tolist()
        return order

    def _has_quota(self) -> bool:
        return not self._short or self._later.fits(self._gang.queue, self._asked)

    def _has_room(self) -> bool:
        return self._trial.has_room and (not self._exact or self._has_place(self._gone))

    def _has_place(self, gone: Sequence[int]) -> bool:
        """Whether the gang has a placement in the domain."""
        self._trial.steps += PLACING
        room = self._clearing.room(self._candidates[0][list(gone)])
        return place(room, self._gang.workload, self._parts, closed=self._closed, inside=self._nodes) is not None

    def _attempt(self, phases: Phases) -> _Victims | None:
        """The cheapest of the sets with which an order comes to be enough: whoever made it so is left out, and others
        are looked for in the rest of the order.
        """
        trial, gone, best, tries = self._trial, self._gone, None, 0
        numbers, of = self._candidates
        for n, (order, enough) in enumerate(phases, 1):
            for i in order:
                if trial.steps > STEPS or tries == TRIES or (enough() and (n < len(phases) or not gone)):
                    break
                if PRUNE and self._limit and n == len(phases) and self._weights[gone].sum() > PRUNE * self._limit:
                    break
                number = int(numbers[i])
                if number in trial.gone or self._parties[of[i]][0].rule(self._line) is None:
                    continue
                trial.remove(number)
                gone.append(i)
                if n == len(phases) and enough() and self._has_room() and self._has_quota():
                    found = self._judged(self._thinned())
                    if found is not None and (best is None or found.cost < best.cost):
                        best = found
                    tries += 1
                    trial.put_back(number)
                    gone.pop()
        if best is None and gone and self._has_room() and self._has_quota():
            best = self._judged(self._thinned())
        while gone:
            trial.put_back(int(numbers[gone.pop()]))
        return best

    def _thinned(self) -> list[int]:
        """Those of the gone who are needed, once the others have been tried back, the most expensive first."""
        numbers, gone = self._candidates[0], self._gone
        before = list(gone)
        for i in sorted(gone, key=self._cost, reverse=True):
            self._trial.put_back(int(numbers[i]))
            at = gone.index(i)
            del gone[at]
            if not (self._has_room() and self._has_quota()):
                gone.insert(at, i)
                self._trial.remove(int(numbers[i]))
        kept = list(gone)
        for i in before:
            if i not in kept:
                self._trial.remove(int(numbers[i]))
        gone[:] = before
        return kept

    def _cost(self, i: int, rule: EvictionRule | None = None) -> Cost:
        numbers, of = self._candidates
        return self._rights.cost(self._prints.holds[numbers[i]], rule or self._parties[of[i]][1])

    def _judged(self, gone: Sequence[int]) -> _Victims | None:
        numbers, of = self._candidates
        chosen: list[tuple[int, EvictionRule]] = []
        line = self._state.line.copy()
        for i in gone:
            rule = self._parties[of[i]][0].rule(line)
            if rule is None:
                return None
            hold = self._prints.holds[numbers[i]]
            line.add(hold.admitted.workload.queue, hold.charge, times=-1)
            chosen.append((i, rule))
        costs = [self._cost(i, rule) for i, rule in chosen]
        cost = _total(costs)
        return _Victims(tuple(chosen), cost, float(self._weights[list(gone)].sum()), self._nodes)

    def _bound(self, best: _Victims) -> Settled | None:
        numbers, _ = self._candidates
        chosen = list(best.chosen)
        for pick in sorted(best.chosen, key=lambda pick: self._cost(*pick), reverse=True):
            rest = [p for p in chosen if p is not pick]
            if rest and self._fits(rest) and self.placed(numbers[[i for i, _ in rest]]) is not None:
                chosen = rest
        gone = numbers[[i for i, _ in chosen]]
        if not self._fits(chosen):
            return None
        spreads = self.placed(gone, best.nodes) or self.placed(gone)
        if spreads is None:
            return None
        uids = [self._prints.holds[n].admitted.workload.uid for n in gone.tolist()]
        evictions = tuple(
            Eviction(uid=uid, beneficiary=self._gang.uid, rule=rule)
            for uid, (_, rule) in zip(uids, chosen, strict=True)
        )
        return Settled(
            gang=self._gang,
            variant=self._variant,
            charge=self._charge,
            spreads=spreads,
            evictions=evictions,
            bound=True,
        )

    def _fits(self, chosen: Sequence[tuple[int, EvictionRule]]) -> bool:
        numbers, _ = self._candidates
        later = self._state.later.copy()
        for i, _ in chosen:
            hold = self._prints.holds[numbers[i]]
            later.add(hold.admitted.workload.queue, hold.charge, times=-1)
        return later.fits(self._gang.queue, self._charge)


def _total(costs: Sequence[Cost]) -> Cost:
    a, b, c, d, e = (sum(level) for level in zip(*costs, strict=True))
    return a, b, c, d, e


def _sums(domains: Numbers, there: Matrix) -> Floats:
    """Of a number on each node, by domain."""
    inside = domains >= 0
    count = int(domains.max(initial=-1)) + 1
    return np.bincount(domains[inside], weights=there[inside], minlength=count).astype(np.float64)
