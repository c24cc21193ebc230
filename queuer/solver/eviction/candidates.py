"""Candidates for eviction: the running jobs that gangs of equal rights may evict, and the room that they leave."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from copy import copy
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from queuer.domain.assignments import EvictionRule
from queuer.domain.quota import Account, Charge, CountedCharge
from queuer.solver.eviction.lost_work import SHARE, Cost, seconds_lost
from queuer.solver.eviction.rights import Rights, VictimGroup
from queuer.solver.nodes import Mask, Matrix, Numbers, added
from queuer.solver.placement import Part, Spreads, Variant, place
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
    """The running work of one decision as arrays, indexed by its position (H). `runs`: the records. `share`: dominant
    shares. `lost`: work that an eviction loses, rounded. `nodes` (E), `amounts` (E x R): a row for each job and node.
    """

    def __init__(self, state: State) -> None:
        self.runs = list(state.running.values())
        rows = [state.rows_of(uid) for uid in state.running]
        self._starts: Numbers = np.cumsum([0, *map(len, rows)], dtype=np.intp)
        self.nodes: Numbers = np.array([node for row in rows for node in row], dtype=np.intp)
        listed = [np.zeros(0, dtype=np.int64), *(amounts for row in rows for amounts in row.values())]
        self.amounts: Matrix = np.concatenate(listed).reshape(-1, state.nodes.width)
        held = [[h.charge.get((None, r), 0) / n for h in self.runs] for r, n in state.capacity.items() if n]
        self.share: Floats = np.max(np.array(held).reshape(-1, len(rows)), axis=0, initial=0.0)
        seconds = [seconds_lost(run.admitted, now=state.time) for run in self.runs]
        self.lost: Floats = self.share * np.array(seconds, dtype=np.float64) * SHARE
        self.charged, self.counted = cache(self._find_charged), cache(self._find_counted)
        self._book = state.book

    def _find_counted(self, number: int) -> CountedCharge:
        run = self.runs[number]
        return self._book.counted(run.admitted.workload.queue, run.charge)

    def _find_charged(self, account: Account) -> Matrix:
        """The use of an account by each (H)."""
        return np.array([run.charge.get(account, 0) for run in self.runs], dtype=np.int64)

    def entries(self, numbers: Numbers) -> tuple[Numbers, Numbers]:
        """Numbers of the rows of these jobs, and the job of each row."""
        first, counts = self._starts[numbers], self._starts[numbers + 1] - self._starts[numbers]
        whose = np.repeat(numbers, counts)
        return np.arange(len(whose)) + np.repeat(first - (np.cumsum(counts) - counts), counts), whose


class Candidates:
    """The jobs that a gang may evict. `numbers`: their positions in `runs`, ascending. `weights`: costs as one number,
    equal at most where costs tie (H). `nodes` (E), `amounts` (E x R), `whose` (E): their rows in the footprints.
    `most`: what the gang may use at most beside reservations (N x R), None = all.

    Rules, limits and room are those at the moment of each question.
    """

    def __init__(self, state: State, rights: Rights, footprints: Footprints, seeker: Seeker) -> None:
        self.state, self._rights, self.footprints = state, rights, footprints
        gang, charge = seeker.gang, seeker.charge
        self.runs, self._gang = footprints.runs, gang
        self._own_rights, self._respected = rights.of(gang, charge), state.respected(gang, charge)
        self.closed = state.closed(gang, bound=True)
        self.groups = list(rights.permitted(self._own_rights))
        self.group_numbers = np.zeros(len(self.runs), dtype=np.intp)
        self.weights = footprints.lost + 1
        may_go = np.zeros(len(self.runs), dtype=bool)
        for n, (group, rule) in enumerate(self.groups):
            self.group_numbers[group.numbers] = n
            self.weights[group.numbers] *= PREEMPTED if rule is EvictionRule.PREEMPT else 1.0
            may_go[group.numbers] = True
        may_go[[rights.numbers[uid] for uid in self._own_rights.spared & rights.numbers.keys()]] = False
        self._take(may_go)

    def _take(self, may_go: Mask) -> None:
        free = np.full_like(self.state.free_later, ANY) if self._respected else None
        self.most = None if free is None else self.state.behind(self._respected, free)
        may_go[[self._rights.numbers[uid] for uid in self.state.leaving]] = False
        self.numbers: Numbers = np.flatnonzero(may_go)
        rows, self.whose = self.footprints.entries(self.numbers)
        self.nodes, self.amounts = self.footprints.nodes[rows], self.footprints.amounts[rows]

    def without_leaving(self) -> Candidates:
        """The same without those that leave by now."""
        later, may_go = copy(self), np.zeros(len(self.runs), dtype=bool)
        may_go[self.numbers] = True
        later._take(may_go)
        return later

    def same_rights(self, seeker: Seeker) -> bool:
        """Whether a gang behind may evict the same jobs, and come to the same nodes, once this gang is bound."""
        gang, charge = seeker.gang, seeker.charge
        respected = (uid for uid in self.state.respected(gang, charge) if uid != self._gang.uid)
        return (
            gang.may_take(charge, self.state.claimed)
            and self._rights.of(gang, charge) is self._own_rights
            and gang.pending.avoid == self._gang.pending.avoid
            and tuple(respected) == self._respected
        )

    def victims(self, settled: Settled) -> list[int]:
        """The victims of a gang."""
        return [self._rights.numbers[eviction.uid] for eviction in settled.evictions]

    def uid(self, number: int) -> str:
        """The uid of a job."""
        return self.runs[number].admitted.workload.uid

    def group(self, number: int) -> tuple[VictimGroup, EvictionRule]:
        """The group that it may go with, and by which rule as things were at first."""
        return self.groups[int(self.group_numbers[number])]

    def weight(self, numbers: Sequence[int]) -> float:
        """The cost of these as one number."""
        return float(self.weights[list(numbers)].sum())

    def cost(self, gone: Sequence[int], rules: Sequence[EvictionRule]) -> Cost:
        """The cost of these evictions."""
        costs = (self._rights.cost(self.runs[n], rule) for n, rule in zip(gone, rules, strict=True))
        return tuple(map(sum, zip(*costs, strict=True)))

    # Once some have gone

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

    def orders(self, numbers: Collection[int]) -> Iterator[list[int]]:
        """Orders in which these might go: reclaimed ones first, the smaller first, for the last may cross the line of a
        guarantee. Sizes are dominant shares, then amounts in each account in which a guarantee counts.
        """
        groups = {id(group): group for group, _ in map(self.group, numbers)}.values()
        accounts = {mark.account: None for g in groups for row in (*g.reclaim, *g.preempt) for mark in row}
        for sizes in (self.footprints.share, *map(self.footprints.charged, accounts)):
            yield sorted(numbers, key=lambda n: (self.group(n)[1] is EvictionRule.PREEMPT, sizes[n], n))

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
        room, closed = self._room(), self.closed
        if len(gone):
            entries, _ = self.footprints.entries(np.array(gone, dtype=np.intp))
            room = room.but(*self._freed(self.footprints.nodes[entries], self.footprints.amounts[entries]))
        if nodes is not None:
            outside = ~self._among(nodes)
            closed = outside if closed is None else closed | outside
        return place(room, seeker.gang.workload, seeker.parts, closed=closed)

    def _room(self) -> Room:
        return self.state.room(self._respected, View.LATER)

    def slots(self, part: Part, left: Mask | None = None) -> tuple[Matrix, Matrix]:
        """Slots by node (N), before and once all have gone. `left`: only these entries go."""
        where, amounts = (
            (self.nodes, self.amounts) if left is None else (self.nodes[left], self.amounts[left])
        )
        open_ = self._open(part)
        before = np.where(open_, self._room().table(part.need, part.accepting).by_node, 0)
        nodes, emptied = self._freed(where, amounts)
        after = before.copy()
        after[nodes] = np.where(open_[nodes], part.need.slots(emptied), 0)
        return before, after

    def slots_freed(self, part: Part, gone: Sequence[int], nodes: Numbers) -> tuple[Numbers, Matrix]:
        """Those of these nodes that change with these gone (K), and their slots then (K)."""
        entries, _ = self.footprints.entries(np.array(gone, dtype=np.intp))
        entries = entries[self._among(nodes)[self.footprints.nodes[entries]]]
        at, emptied = self._freed(self.footprints.nodes[entries], self.footprints.amounts[entries])
        return at, np.where(self._open(part)[at], part.need.slots(emptied), 0)

    def _open(self, part: Part) -> Mask:
        return part.accepting if self.closed is None else part.accepting & ~self.closed

    def near(self, gone: Sequence[int], nodes: Numbers) -> list[int]:
        """Those of these that hold something on one of these nodes, in the same order."""
        entries, whose = self.footprints.entries(np.array(gone, dtype=np.intp))
        there = set(whose[self._among(nodes)[self.footprints.nodes[entries]]].tolist())
        return [number for number in gone if number in there]

    def _among(self, nodes: Numbers) -> Mask:
        """A mask of these nodes (N)."""
        mask = np.zeros(len(self.state.free_later), dtype=bool)
        mask[nodes] = True
        return mask

    def _freed(self, where: Numbers, amounts: Matrix) -> tuple[Numbers, Matrix]:
        """The nodes where these amounts are freed (K), and what the gang may use there then (K x R)."""
        nodes, at = np.unique(where, return_inverse=True)
        free = added(self.state.free_later[nodes], at, amounts)
        return nodes, free if self.most is None else np.minimum(free, self.most[nodes])
