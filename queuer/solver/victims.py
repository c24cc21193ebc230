"""Whom a waiting gang may evict, and the cheapest set that is enough (DESIGN 3.3).

What a gang may do depends on few grounds, which thousands of gangs share, so those are looked through once each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import pairwise
from operator import attrgetter

import numpy as np

from queuer.domain.queue import ROOT, Preempt
from queuer.domain.quota import Account, Charge
from queuer.domain.usage import Usage
from queuer.solver.board import Board
from queuer.solver.frame import Mask as Flags
from queuer.solver.frame import Numbers
from queuer.solver.holds import Holds
from queuer.solver.kept import Kept
from queuer.solver.problem import Admitted, EvictionRule, Pending
from queuer.solver.score import lost_work, preempted_work
from queuer.solver.sheet import Hold

Line = tuple[Account, tuple[str, ...]]
"""An account and the queues that must use more in it than they are guaranteed at the moment the victim goes.
"""
Cost = tuple[int, int, int, int]
NOBODY = frozenset[str]()


@dataclass(frozen=True, slots=True, eq=False)
class Candidate:
    """A gang that the rules permit to evict. `lines`: one must hold when it goes; None = no condition."""

    hold: Hold
    rule: EvictionRule
    lines: tuple[Line, ...] | None
    cost: Cost
    uid: str

    def permitted(self, line: Usage) -> bool:
        """Whether the rule permits it when this is used."""
        return self.lines is None or any(all(line.above(q, a) for q in queues) for a, queues in self.lines)


by_cost: Callable[[Candidate], tuple[Cost, str]] = attrgetter("cost", "uid")
"""The order of candidates: cheapest first."""


@dataclass(frozen=True, slots=True)
class Ground:
    """One permission to evict: the work under `common` that is not under `toward`; where both are the same, that of
    this very queue. `below`: only what has a lower priority. `accounts`: those in which the victim's queues must be
    above their guarantee; for a preemption across queues, those that are asked in. `none_of`: only what holds nothing
    in these, as what does can be reclaimed.
    """

    rule: EvictionRule
    common: str
    toward: str
    below: int | None
    accounts: tuple[Account, ...]
    none_of: tuple[Account, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Party:
    """The candidates of one queue under one permission, with their numbers as holds. `top`: the widest queue whose use
    decides who may go.
    """

    candidates: tuple[Candidate, ...]
    numbers: Numbers
    top: str


@dataclass(frozen=True, slots=True)
class Reach:
    """Whom a gang may evict: the numbers of its grounds, and those it must spare. Equal for equal permissions."""

    grounds: tuple[int, ...]
    spared: frozenset[str]


def evictable(board: Board, admitted: Admitted) -> bool:
    """Whether anybody may evict it: preemptible, past its queue's `minRuntime`, not releasing."""
    if admitted.releasing or not admitted.workload.preemptible:
        return False
    policy = board.book.tree.policy(board.book.lineage(admitted.workload.queue)[0])
    return board.time - admitted.since >= (policy.min_runtime or 0.0)


class Prey:
    """Everyone who may be evicted at all in this cycle, found once for each ground instead of for each gang. `holds`:
    all that runs, them included.
    """

    def __init__(self, board: Board) -> None:
        self._board = board
        self.holds = Holds(board)
        self._reaches: dict[object, Reach] = {}
        self._numbers: dict[Ground, int] = {}
        self._grounds_of: list[tuple[Party, ...]] = []
        self._parties: dict[object, tuple[Party, ...]] = {}
        self._under = cache(self._find_under)
        self._lost = cache(self._find_lost)
        self._witness: dict[object, Candidate] = {}
        self._closed: dict[object, int] = {}
        self._rights: Kept[bool] = Kept(lambda: board.version)
        self._permitted: Kept[list[Candidate]] = Kept(lambda: board.version)
        self._masks: dict[int, Flags] = {}

    @cached_property
    def _by_queue(self) -> dict[str, list[Hold]]:
        """Holds that anybody may evict, by queue."""
        board, found = self._board, dict[str, list[Hold]]()
        for hold in board.holds.values():
            if evictable(board, hold.admitted):
                found.setdefault(hold.admitted.workload.queue, []).append(hold)
        return found

    def _find_lost(self, hold: Hold) -> int:
        """The work that its eviction loses."""
        return lost_work(hold.admitted, capacity=self._board.capacity, now=self._board.time)

    def reach(self, pending: Pending, charge: Charge) -> Reach:
        """Whom this gang may evict as things are. `charge`: what it asks for, by account."""
        workload, accounts = pending.workload, tuple(charge)
        may = self._board.claimed.entitlements(workload.queue, charge)
        key = (workload.queue, workload.priority, accounts, may)
        if (reach := self._reaches.get(key)) is None:
            reach = self._reaches[key] = Reach(tuple(self._grounds(*key)), NOBODY)
        if pending.displaced_by:
            return replace(reach, spared=frozenset(pending.displaced_by & self._board.holds.keys()))
        return reach

    def _grounds(
        self, queue: str, priority: int, accounts: tuple[Account, ...], may: tuple[bool, ...]
    ) -> Iterator[int]:
        """The numbers of the grounds on which somebody might go. `may`: where on the path it is entitled."""
        board = self._board
        if not board.holds:
            return
        tree, claims, found = board.book.tree, board.book.claims(queue), list[int]()
        policy = tree.policy(queue)
        if policy.preempt is not Preempt.NEVER:
            found.append(self._number(Ground(EvictionRule.PREEMPT, queue, queue, priority, (), ())))
        for entitled, (toward, common) in zip(may, pairwise(board.book.lineage(queue)), strict=True):
            claimed = tuple([a for a in accounts if a in claims]) if policy.reclaim and entitled else ()
            if claimed:
                found.append(self._number(Ground(EvictionRule.RECLAIM, common, toward, None, claimed, ())))
            if tree.policy(common).preempt is Preempt.LOWER_PRIORITY:
                ground = Ground(EvictionRule.PREEMPT, common, toward, priority, accounts, claimed)
                found.append(self._number(ground))
        yield from (number for number in found if self._grounds_of[number])

    def _number(self, ground: Ground) -> int:
        number = self._numbers.get(ground)
        if number is None:
            number = self._numbers[ground] = len(self._numbers)
            self._grounds_of.append(tuple(self._find(ground)))
        return number

    def _find(self, ground: Ground) -> Iterator[Party]:
        """The candidates of a ground."""
        if ground.common == ground.toward:
            yield from self._parties_in(ground, ground.common, [ground.common])
        else:
            for child, queues in self._under(ground.common).items():
                if child != ground.toward:
                    yield from self._parties_in(ground, child, queues)

    def _parties_in(self, ground: Ground, child: str, queues: Iterable[str]) -> tuple[Party, ...]:
        """Those of one child, the same wherever else the ground leads."""
        key = (ground.rule, ground.common, child, ground.below, ground.accounts, ground.none_of)
        if key not in self._parties:
            found = (self._party(ground, queue) for queue in queues if queue in self._by_queue)
            self._parties[key] = tuple(party for party in found if party is not None)
        return self._parties[key]

    def _find_under(self, common: str) -> Mapping[str, Sequence[str]]:
        """By child of a queue, the queues there in which somebody may be evicted."""
        found: dict[str, list[str]] = {}
        for queue in self._by_queue:
            path = self._board.book.lineage(queue)
            if common in path[1:]:
                found.setdefault(path[path.index(common) - 1], []).append(queue)
        return found

    def _party(self, ground: Ground, queue: str) -> Party | None:
        """None = nobody there is a candidate."""
        if ground.common == ground.toward:
            found, top = tuple(self._in_queue(ground, queue, None)), queue
        else:
            path = self._board.book.lineage(queue)
            below = path[: path.index(ground.common)]
            found, top = tuple(self._in_queue(ground, queue, self._lines(ground, queue, below))), below[-1]
        numbers = np.array([self.holds.number_of[one.uid] for one in found], dtype=np.intp)
        return Party(found, numbers, top) if found else None

    def _in_queue(self, ground: Ground, queue: str, lines: tuple[Line, ...] | None) -> Iterator[Candidate]:
        for hold in self._by_queue[queue]:
            victim = hold.admitted.workload
            above = ground.below is not None and victim.priority >= ground.below
            if not above and not any(hold.charge.get(account) for account in ground.none_of):
                own = lines
                if lines is not None and not all(hold.charge.get(account) for account, _ in lines):
                    own = tuple([line for line in lines if hold.charge.get(line[0])])
                if own != ():
                    lost = self._lost(hold)
                    cost = (preempted_work(lost, ground.rule), lost, 1, victim.priority)
                    yield Candidate(hold, ground.rule, own, cost, victim.uid)

    def _lines(self, ground: Ground, queue: str, below: tuple[str, ...]) -> tuple[Line, ...] | None:
        if ground.rule is EvictionRule.RECLAIM:
            return tuple((account, below) for account in ground.accounts)
        claims = self._board.book.claims(queue)
        return tuple((a, below) for a in ground.accounts if a in claims) or None

    def anybody(self, reach: Reach) -> bool:
        """Whether anyone of them may go as things are: not leaving yet, and above the line."""
        return any(self._somebody(number, reach.spared) for number in reach.grounds)

    def _somebody(self, number: int, spared: frozenset[str]) -> bool:
        """Whether anyone on this ground may go. Where nobody may, it stays so until use rises or somebody stays."""
        key, risen = (number, spared), self._board.risen
        witness = self._witness.get(key)
        if witness is not None:
            if witness.uid not in self._board.leaving and witness.permitted(self._board.line()):
                return True
            del self._witness[key]
        if self._closed.get(key) == risen(ROOT):
            return False
        for party in self._grounds_of[number]:
            if (found := next(self._first(party, spared), None)) is not None:
                self._witness[key] = found
                return True
        self._closed[key] = risen(ROOT)
        return False

    def has_rights(self, reach: Reach) -> bool:
        """Whether anyone of them might go had nobody been evicted in this cycle: all of them may be leaving for others
        who might have taken somebody else.
        """
        return self.anybody(reach) or self._rights.of(reach, lambda: self._had_rights(reach))

    def _had_rights(self, reach: Reach) -> bool:
        line, spared = self._board.line_before(), reach.spared
        return any(
            c.permitted(line) and c.uid not in spared for party in self._of(reach) for c in party.candidates
        )

    def _first(self, party: Party, spared: frozenset[str]) -> Iterator[Candidate]:
        """Those of a party who may go as things are. Where there is none, see `_somebody`."""
        key, risen = (party, spared), self._board.risen(party.top)
        if self._closed.get(key) == risen:
            return
        line, leaving, above = self._board.line(), self._board.leaving, dict[int, bool]()
        nobody = True
        for one in party.candidates:
            if id(one.lines) not in above:
                above[id(one.lines)] = one.permitted(line)
            if above[id(one.lines)] and one.uid not in leaving and one.uid not in spared:
                nobody = False
                yield one
        if nobody:
            self._closed[key] = risen

    def permitted(self, reach: Reach) -> list[Candidate]:
        """Those of them who may go as things are, cheapest first; the others may not go after any of these either. Not
        to be changed.
        """
        return self._permitted.of(reach, lambda: self._may_go(reach))

    def _may_go(self, reach: Reach) -> list[Candidate]:
        found = (c for party in self._of(reach) for c in self._first(party, reach.spared))
        return sorted(found, key=by_cost)

    def candidates(self, reach: Reach) -> list[Candidate]:
        """All of them who are not leaving yet, cheapest first."""
        leaving, spared = self._board.leaving, reach.spared
        found = [c for party in self._of(reach) for c in party.candidates]
        return sorted((c for c in found if c.uid not in leaving and c.uid not in spared), key=by_cost)

    def _of(self, reach: Reach) -> Iterator[Party]:
        return (party for number in reach.grounds for party in self._grounds_of[number])

    def flags(self, reach: Reach) -> Flags:
        """All of them as flags by hold, those included who are leaving for somebody else (H)."""
        found = self.holds.nobody()
        for number in reach.grounds:
            if number not in self._masks:
                mask = self.holds.nobody()
                for party in self._grounds_of[number]:
                    mask[party.numbers] = True
                self._masks[number] = mask
            found |= self._masks[number]
        found[[self.holds.number_of[uid] for uid in reach.spared]] = False
        return found
