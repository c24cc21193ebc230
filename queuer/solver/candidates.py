"""Candidates for eviction: the running work that gangs of equal rights may evict, and the room that it leaves."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from queuer.domain.assignments import EvictionRule, LostWork
from queuer.domain.quota import Account, Charge, CountedCharge
from queuer.domain.workload import demand_of
from queuer.solver.nodes import Mask, Matrix, Numbers, added
from queuer.solver.placement import Part, Spreads, Variant, place
from queuer.solver.rights import SHARE, Cost, Rights, VictimGroup, main_resource, seconds_lost
from queuer.solver.shapes import Gang
from queuer.solver.slots import Room, View
from queuer.solver.state import ANY, Settled, State

Floats = NDArray[np.float64]
PREEMPTED = 1e18
"""How much more the lost work of a gang weighs that is preempted, not reclaimed: more than all work there is."""


class Seeker(NamedTuple):
    """A gang that looks for victims, at one size on one choice of flavors."""

    gang: Gang
    variant: Variant
    charge: Charge
    parts: Sequence[Part]


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
        since = np.array([a.since for a in admitted], dtype=np.float64)
        begun = np.maximum(since, [a.since if a.checkpoint is None else a.checkpoint for a in admitted])
        held = [[h.charge.get((None, r), 0) / n for h in self.runs] for r, n in state.capacity.items() if n]
        self.share: Floats = np.max(np.array(held).reshape(-1, len(rows)), axis=0, initial=0.0)
        self.lost: Floats = self.share * np.maximum(state.time - begun, 0.0) * SHARE
        self.charged, self.counted = cache(self._find_charged), cache(self._find_counted)
        self._book = state.book

    def _find_counted(self, number: int) -> CountedCharge:
        run = self.runs[number]
        return self._book.counted(run.admitted.workload.queue, run.charge)

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
    `nodes`, `amounts`, `whose`: their entries. Rules, limits and room are those of the moment of the question.
     `most`: what a gang may use at most beside reservations (N x R), None =
    all.
    """

    def __init__(self, state: State, rights: Rights, footprints: Footprints, seeker: Seeker) -> None:
        self.state, self._rights, self.footprints = state, rights, footprints
        gang, charge = seeker.gang, seeker.charge
        self.runs, self._gang = footprints.runs, gang
        self.owned, self.respected = rights.of(gang, charge), state.respected(gang, charge)
        self.closed = state.closed(gang, bound=True)
        free = np.full_like(state.free_later, ANY) if self.respected else None
        self.most = None if free is None else state.behind(self.respected, free)
        self.groups = list(rights.permitted(self.owned))
        self.group_numbers = np.zeros(len(self.runs), dtype=np.intp)
        self.weights = footprints.lost + 1
        may_go = np.zeros(len(self.runs), dtype=bool)
        for n, (group, rule) in enumerate(self.groups):
            self.group_numbers[group.numbers] = n
            self.weights[group.numbers] *= PREEMPTED if rule is EvictionRule.PREEMPT else 1.0
            may_go[group.numbers] = True
        may_go[[rights.numbers[uid] for uid in self.owned.spared & rights.numbers.keys()]] = False
        self._take(may_go)

    def _take(self, may_go: Mask) -> None:
        may_go[[self._rights.numbers[uid] for uid in self.state.leaving]] = False
        self.numbers: Numbers = np.flatnonzero(may_go)
        entries, self.whose = self.footprints.entries(self.numbers)
        self.nodes, self.amounts = self.footprints.nodes[entries], self.footprints.amounts[entries]

    def now(self) -> Candidates:
        """The same once some of them leave."""
        later, may_go = copy(self), np.zeros(len(self.runs), dtype=bool)
        may_go[self.numbers] = True
        later._take(may_go)
        return later

    def serves(self, seeker: Seeker) -> bool:
        """Whether a gang behind may evict the same work, and come to the same nodes, once this one is bound."""
        gang, charge = seeker.gang, seeker.charge
        respected = (uid for uid in self.state.respected(gang, charge) if uid != self._gang.uid)
        return (
            self._rights.of(gang, charge) is self.owned
            and gang.pending.avoid == self._gang.pending.avoid
            and tuple(respected) == self.respected
        )

    @property
    def _room(self) -> Room:
        return self.state.room(self.respected, View.LATER)

    def number(self, uid: str) -> int:
        """Its place among the running work."""
        return self._rights.numbers[uid]

    def victims(self, settled: Settled) -> list[int]:
        """Those who go for a gang."""
        return [self.number(eviction.uid) for eviction in settled.evictions]

    def uid(self, number: int) -> str:
        """Whose it is."""
        return self.runs[number].admitted.workload.uid

    def group(self, number: int) -> tuple[VictimGroup, EvictionRule]:
        """With whom it may go, and by which rule as things are."""
        return self.groups[int(self.group_numbers[number])]

    def cost(self, gone: Sequence[int], rules: Sequence[EvictionRule]) -> Cost:
        """The cost of these evictions."""
        costs = (self._rights.cost(self.runs[n], rule) for n, rule in zip(gone, rules, strict=True))
        return tuple(map(sum, zip(*costs, strict=True)))

    # What is so once some have gone

    def rules(self, gone: Sequence[int]) -> list[EvictionRule] | None:
        """The rules by which these may go in this order; None = they may not."""
        remaining, rules = self.state.remaining.copy(), list[EvictionRule]()
        for number in gone:
            rule = self.group(number)[0].rule(remaining)
            if rule is None:
                return None
            rules.append(rule)
            remaining.count(self.footprints.counted(number), times=-1)
        return rules

    def permitted(self, order: Iterable[int]) -> Iterator[int]:
        """Those of an order who may go one after the other; the others stay."""
        remaining = self.state.remaining.copy()
        for number in order:
            if self.group(number)[0].rule(remaining) is not None:
                yield number
                remaining.count(self.footprints.counted(number), times=-1)

    def fits(self, gone: Sequence[int], charge: Charge) -> bool:
        """Whether limits bear this charge with these gone."""
        later = self.state.used_later.copy()
        for number in gone:
            later.count(self.footprints.counted(number), times=-1)
        return later.fits(self._gang.queue, charge)

    def placed(self, seeker: Seeker, gone: Sequence[int], nodes: Numbers | None = None) -> Spreads | None:
        """A placement with these gone. `nodes`: where it is to be."""
        room, closed = self._room, self.closed
        if len(gone):
            entries, _ = self.footprints.entries(np.array(gone, dtype=np.intp))
            room = room.but(*self._freed(self.footprints.nodes[entries], self.footprints.amounts[entries]))
        if nodes is not None:
            outside = np.ones(len(room.free), dtype=bool)
            outside[nodes] = False
            closed = outside if closed is None else closed | outside
        return place(room, seeker.gang.workload, seeker.parts, closed=closed)

    def slots(self, part: Part, left: Mask | None = None) -> tuple[Matrix, Matrix]:
        """Slots by node (N), before and once all have gone. `left`: only these entries go."""
        where, amounts = (
            (self.nodes, self.amounts) if left is None else (self.nodes[left], self.amounts[left])
        )
        open_ = self._open(part)
        before = np.where(open_, self._room.table(part.need, part.accepting).by_node, 0)
        nodes, emptied = self._freed(where, amounts)
        after = before.copy()
        after[nodes] = np.where(open_[nodes], part.need.slots(emptied), 0)
        return before, after

    def slots_freed(self, part: Part, gone: Sequence[int], nodes: Numbers) -> tuple[Numbers, Matrix]:
        """Those of these nodes that change with these gone (K), and their slots then (K)."""
        entries, _ = self.footprints.entries(np.array(gone, dtype=np.intp))
        entries = entries[np.isin(self.footprints.nodes[entries], nodes)]
        at, emptied = self._freed(self.footprints.nodes[entries], self.footprints.amounts[entries])
        return at, np.where(self._open(part)[at], part.need.slots(emptied), 0)

    def _open(self, part: Part) -> Mask:
        return part.accepting if self.closed is None else part.accepting & ~self.closed

    def lies(self, number: int, nodes: Numbers) -> bool:
        """Whether it holds something on one of these nodes."""
        starts = self.footprints.starts
        return bool(np.isin(self.footprints.nodes[starts[number] : starts[number + 1]], nodes).any())

    def _freed(self, where: Numbers, amounts: Matrix) -> tuple[Numbers, Matrix]:
        """The nodes where these amounts are freed (K), and what the gang may use there then (K x R)."""
        nodes, at = np.unique(where, return_inverse=True)
        free = added(self.state.free_later[nodes], at, amounts)
        return nodes, free if self.most is None else np.minimum(free, self.most[nodes])

    # The work that they lose, as their owners count it

    def lost_by(self, gone: Sequence[int], other: Sequence[int], *, proved: bool) -> Iterator[LostWork]:
        """The work that each of the gone loses, and all of them. `other`: the next best set; () = none is known."""
        measures = [self._main_resource(n) for n in gone]
        alike = set(map(self._main_resource, other)) == set(measures)
        all_ = {r: sum(self._amount_lost(n, r) for n in gone) for r in set(measures)}
        following = {r: sum(self._amount_lost(n, r) for n in other) for r in all_ if alike}
        for n, r in zip(gone, measures, strict=True):
            next = following[r] if alike and following[r] >= all_[r] else None
            amount = self._amount_lost(n, r)
            yield LostWork(resource=r, amount=amount, all=all_[r], next=next, proved=proved)

    def _main_resource(self, number: int) -> str:
        admitted = self.runs[number].admitted
        return main_resource(demand_of(admitted.workload.pod_sets, admitted.counts), self.state.capacity)

    def _amount_lost(self, number: int, resource: str) -> int:
        admitted = self.runs[number].admitted
        held = demand_of(admitted.workload.pod_sets, admitted.counts).get(resource, 0)
        return held * seconds_lost(admitted, now=self.state.time)
