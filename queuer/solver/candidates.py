"""Candidates for eviction for one gang, and the room that each gives, as arrays over all running work."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from math import inf

import numpy as np
from numpy.typing import NDArray

from queuer.domain.assignments import EvictionRule, LostWork
from queuer.domain.quota import Account, Charge, Guarantee
from queuer.domain.workload import demand_of
from queuer.solver.nodes import ALL, Mask, Matrix, NodeRows, Numbers, added
from queuer.solver.placement import Part, Spreads, place
from queuer.solver.rights import SHARE, Cost, Rights, VictimGroup, main_resource, seconds_lost
from queuer.solver.shapes import Gang
from queuer.solver.slots import View
from queuer.solver.state import ANY, State

Floats = NDArray[np.float64]
PREEMPTED = 1e18
"""How much more the lost work of a gang weighs that is preempted, not reclaimed: more than all work there is."""


class Footprints:
    """The running work, by its position (H). `share`: its dominant share; `lost`: work that its eviction
    loses, rounded; nodes and amounts as entries (E, E x R).
    """

    def __init__(self, state: State) -> None:
        self.runs = list(state.running.values())
        rows = [state.rows_of(uid) for uid in state.running]
        self.starts: Numbers = np.cumsum([0, *map(len, rows)], dtype=np.intp)
        self.nodes: Numbers = np.array([node for row in rows for node in row], dtype=np.intp)
        listed = [np.zeros(0, dtype=np.int64), *(amounts for row in rows for amounts in row.values())]
        self.amounts: Matrix = np.concatenate(listed).reshape(-1, state.nodes.width)
        admitted = [run.admitted for run in self.runs]
        self.priority = np.array([a.workload.priority for a in admitted], dtype=np.int64)
        self.since = np.array([a.since for a in admitted], dtype=np.float64)
        begun = np.maximum(self.since, [a.since if a.checkpoint is None else a.checkpoint for a in admitted])
        held = [[h.charge.get((None, r), 0) / n for h in self.runs] for r, n in state.capacity.items() if n]
        self.share: Floats = np.max(np.array(held).reshape(-1, len(rows)), axis=0, initial=0.0)
        self.lost: Floats = self.share * np.maximum(state.time - begun, 0.0) * SHARE
        self.charged = cache(self._find_charged)

    def _find_charged(self, account: Account) -> Matrix:
        """The use of an account by each (H)."""
        return np.array([run.charge.get(account, 0) for run in self.runs], dtype=np.int64)

    def entries(self, numbers: Numbers) -> tuple[Numbers, Numbers]:
        """Entries of these, and whose each is."""
        first, counts = self.starts[numbers], self.starts[numbers + 1] - self.starts[numbers]
        whose = np.repeat(numbers, counts)
        return np.arange(len(whose)) + np.repeat(first - (np.cumsum(counts) - counts), counts), whose


class Candidates:
    """Told by their `numbers`, places among the running work (H). `weights`: cost as one number, up to ties (H).
    `main`: of the `parts` the pods that take most. `slots`: of `main` and of each part, by node, before and once all
    have gone (N). `most`: what the gang may use at most beside reservations (N x R), None = all.
    """

    def __init__(
        self,
        state: State,
        rights: Rights,
        footprints: Footprints,
        gang: Gang,
        charge: Charge,
        parts: Sequence[Part],
    ) -> None:
        self._state, self._rights, self.footprints = state, rights, footprints
        self._gang, self._charge, self.parts = gang, charge, parts
        owned, respected = rights.of(gang, charge), state.respected(gang, charge)
        self._room, self._closed = state.room(respected, View.LATER), state.closed(gang, bound=True)
        self.most = state.behind(respected, np.full_like(state.free_later, ANY)) if respected else None
        self.runs, self.main = self.footprints.runs, self._largest()
        self._groups = list(rights.permitted(owned))
        of = np.zeros(len(self.runs), dtype=np.intp)  # group by run
        self.weights = self.footprints.lost + 1
        may_go = np.zeros(len(of), dtype=bool)
        for n, (group, rule) in enumerate(self._groups):
            of[group.numbers] = n
            self.weights[group.numbers] *= PREEMPTED if rule is EvictionRule.PREEMPT else 1.0
            may_go[group.numbers] = True
        stays = (*state.leaving, *(owned.spared & rights.numbers.keys()))
        may_go[[rights.numbers[uid] for uid in stays]] = False
        self._of: list[int] = of.tolist()
        self.numbers: Numbers = np.flatnonzero(may_go)
        entries, self._whose = self.footprints.entries(self.numbers)
        self._where, self._amounts = self.footprints.nodes[entries], self.footprints.amounts[entries]
        self.slots = self._slots(self._where, self._amounts)

    def could_fit(self) -> bool:
        """Whether quota and slots might suffice once all candidates have gone."""
        for short in self._state.used_later.shortfalls(self._gang.queue, self._charge):
            below = (p for p, _ in self._groups if short.queue in p.path)
            lacking = short.held + short.asks - short.limit
            if sum(self._rights.charged(p, short.account) for p in below) < lacking:
                return False
        return bool(self._enough(self.levels()[-1], self.slots).any())

    def placed(self, gone: Sequence[int], inside: Numbers | None = None) -> Spreads | None:
        """A placement with these gone."""
        room = self._room
        if gone:
            entries, _ = self.footprints.entries(np.array(gone, dtype=np.intp))
            room = room.but(*self._freed(self.footprints.nodes[entries], self.footprints.amounts[entries]))
        return place(room, self._gang.workload, self.parts, closed=self._closed, inside=inside)

    def group(self, number: int) -> tuple[VictimGroup, EvictionRule]:
        """With whom it may go, and by which rule as things are."""
        return self._groups[self._of[number]]

    def cost(self, number: int, rule: EvictionRule | None = None) -> Cost:
        """The cost of its eviction, by this rule or as things are."""
        return self._rights.cost(self.runs[number], rule or self.group(number)[1])

    def lost_by(self, gone: Sequence[int], rules: Sequence[EvictionRule]) -> list[LostWork]:
        """The work that each of the gone loses by its rule, beside that of the cheapest like it who stays."""
        kinds = [(rule, self._main_resource(n)) for n, rule in zip(gone, rules, strict=True)]
        stays = np.setdiff1d(self.numbers, gone)
        cheapest: dict[tuple[EvictionRule, str], int] = {}
        for n in stays[np.argsort(self.weights[stays], kind="stable")].tolist():
            cheapest.setdefault((self.group(n)[1], self._main_resource(n)), n)
            if cheapest.keys() >= set(kinds):
                break
        found = []
        for n, kind in zip(gone, kinds, strict=True):
            next = self._amount_lost(cheapest[kind], kind[1]) if kind in cheapest else None
            found.append(LostWork(resource=kind[1], amount=self._amount_lost(n, kind[1]), next=next))
        return found

    def _main_resource(self, number: int) -> str:
        admitted = self.runs[number].admitted
        return main_resource(demand_of(admitted.workload.pod_sets, admitted.counts), self._state.capacity)

    def _amount_lost(self, number: int, resource: str) -> int:
        admitted = self.runs[number].admitted
        held = demand_of(admitted.workload.pod_sets, admitted.counts).get(resource, 0)
        return held * seconds_lost(admitted, now=self._state.time)

    def _freed(self, where: Numbers, amounts: Matrix) -> tuple[Numbers, Matrix]:
        """The nodes where these amounts are freed (K), and what the gang may use there then (K x R)."""
        nodes, at = np.unique(where, return_inverse=True)
        free = added(self._state.free_later[nodes], at, amounts)
        return nodes, free if self.most is None else np.minimum(free, self.most[nodes])

    def _slots(self, where: Numbers, amounts: Matrix) -> list[tuple[Matrix, Matrix]]:
        """Of `main` and of each part the slots by node, before and once these amounts are freed there (N)."""
        nodes, emptied = self._freed(where, amounts)
        found = []
        for part in (self.main, *self.parts):
            before = self._open(part, ALL, self._room.table(part.need, part.accepting).by_node)
            after = before.copy()
            after[nodes] = self._open(part, nodes, part.need.slots(emptied))
            found.append((before, after))
        return found

    def _open(self, part: Part, at: NodeRows, slots: Matrix) -> Matrix:
        """Slots on these nodes where the gang may go (K)."""
        accepting = part.accepting[at]
        return np.where(accepting if self._closed is None else accepting & ~self._closed[at], slots, 0)

    def usable(self, nodes: Numbers) -> Numbers:
        """Those of these nodes that take the main pods."""
        return nodes[self._open(self.main, nodes, np.ones(len(nodes), dtype=np.int64)) > 0]

    # Where the gang may be put together

    def _largest(self) -> Part:
        """The pods that take most in all, sets of such pods together."""
        whole = np.maximum(self._state.nodes.total, 1)
        main = max(self.parts, key=lambda part: part.count * float((part.row / whole).max(initial=0.0)))
        alike = (p for p in self.parts if p.need is main.need and p.accepting is main.accepting)
        return replace(main, count=sum(part.count for part in alike))

    def levels(self) -> list[Numbers]:
        """By level to look at, the domain of each node, -1 = none (N); the one that must hold the gang comes last."""
        nodes, workload = self._state.nodes, self._gang.workload
        level = self._state.snapshot.topology.find
        required, preferred = [level(workload.required or "")], [level(workload.preferred or "")]
        if len(self.parts) == 1:
            required.append(self.main.required)
            preferred.append(self.main.preferred)
        must, may = (max([-1, *(at for at in asked if at is not None)]) for asked in (required, preferred))
        outer = nodes.domains[must] if must >= 0 else np.zeros(len(nodes.names), dtype=np.intp)
        if sum(part.count for part in self.parts) == 1:
            return [np.where(outer >= 0, np.arange(len(outer)), -1)]
        return [np.where(outer >= 0, nodes.domains[may], -1), outer] if may > must else [outer]

    def _enough(self, domains: Numbers, slots: Sequence[tuple[Matrix, Matrix]]) -> Mask:
        """By domain, whether it has these slots for each pod set alone."""
        parts = zip((self.main, *self.parts), slots, strict=True)
        fits = [_sums(domains, after) >= part.count for part, (_, after) in parts]
        enough: Mask = np.all(fits, axis=0)
        return enough

    def ranked(self, domains: Numbers) -> tuple[Floats, Mask, list[tuple[Numbers, Numbers]]]:
        """By domain of one level: the weight of the victims needed there if candidates were divisible, and whether all
        candidates together leave slots enough. With orders of candidates, each with their domains:
        by weight for a slot, and host after host.
        """
        count, gain = len(self.weights), np.zeros(len(domains))
        lacking = np.zeros(int(domains.max(initial=-1)) + 1)
        whole = np.maximum(self._state.nodes.total, 1)
        for part, (before, after) in zip(self.parts, self.slots[1:], strict=True):
            size = (part.row / whole).max(initial=0.0)
            gain = np.maximum(gain, (after - before) * size)
            lacking += np.maximum(part.count - _sums(domains, before), 0.0) * size
        node, owner = self._where, self._whose
        asked = np.any([part.row > 0 for part in self.parts], axis=0)
        parts = self._amounts[:, asked] / np.maximum(self._state.nodes.alloc[node][:, asked], 1)
        held = parts.max(axis=1, initial=0.0)
        used = (domains[node] >= 0) & (gain[node] > 0) & (held > 0)
        owner, node, held = owner[used], node[used], held[used]
        adds = held / np.bincount(node, weights=held, minlength=len(gain))[node] * gain[node]
        keys, pair = np.unique(domains[node] * count + owner, return_inverse=True)
        where, whose, gains = keys // count, keys % count, np.bincount(pair, weights=adds)
        rate = self.weights[whose] / gains
        cost = np.bincount(node, weights=rate[pair] * adds, minlength=len(gain)).astype(np.float64)
        cost /= np.where(gain > 0, gain, 1.0)
        by_host = np.lexsort((rate[pair], node, cost[node], domains[node]))
        by_rate = np.lexsort((rate, where))
        where, whose, gains, rate = where[by_rate], whose[by_rate], gains[by_rate], rate[by_rate]
        before = np.cumsum(gains) - gains
        needed = np.clip(lacking[where] - before + before[np.searchsorted(where, where)], 0, gains)
        estimates = np.bincount(where, weights=needed * rate, minlength=len(lacking)).astype(np.float64)
        enough = self._enough(domains, self.slots)
        estimates[~enough] = inf
        may_go = self._in_turn(keys // count, keys % count)
        if not may_go.all():
            left = np.flatnonzero(used)[may_go[pair]]
            enough &= self._enough(domains, self._slots(self._where[left], self._amounts[left]))
        return estimates, enough, [(where, whose), (domains[node][by_host], owner[by_host])]

    def _in_turn(self, where: Numbers, whose: Numbers) -> Mask:
        """Of candidates of a domain each who may go there one after the other, the smaller first: the last may cross
        the line.
        """
        of = np.array(self._of, dtype=np.intp)[whose]
        ends = np.cumsum(np.bincount(of, minlength=len(self._groups)))
        by_group = np.split(np.argsort(of, kind="stable"), ends[:-1])
        groups = [((*g.reclaim, *g.preempt), m) for (g, _), m in zip(self._groups, by_group, strict=True)]
        under: dict[Guarantee, list[Numbers]] = {}
        for rows, members in groups:
            for mark in dict.fromkeys(mark for row in rows for mark in row):
                under.setdefault(mark, []).append(members)
        above = {
            mark: self._above(mark, np.concatenate(there), where, whose) for mark, there in under.items()
        }
        found = np.zeros(len(where), dtype=bool)
        for rows, members in groups:
            for row in rows:
                found[members] |= np.all([above[mark][members] for mark in row], axis=0)
        return found

    def _above(self, mark: Guarantee, members: Numbers, where: Numbers, whose: Numbers) -> Mask:
        """Whether this guarantee is still exceeded when each of these members goes from its domain."""
        amounts = self.footprints.charged(mark.account)[whose]
        members = members[np.lexsort((amounts[members], where[members]))]
        domain, amounts = where[members], amounts[members]
        before = np.cumsum(amounts) - amounts
        before -= before[np.searchsorted(domain, domain)]
        above = np.zeros(len(where), dtype=bool)
        above[members] = before < self._state.remaining.excess(mark)
        return above


def _sums(domains: Numbers, there: Matrix) -> Floats:
    """Of a number on each node, by domain."""
    inside, count = domains >= 0, int(domains.max(initial=-1)) + 1
    return np.bincount(domains[inside], weights=there[inside], minlength=count).astype(np.float64)
