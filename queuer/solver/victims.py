"""Whom a waiting gang may evict, by which right and at what cost (DESIGN 3.3).

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
from queuer.solver.problem import Admitted, Eviction, EvictionRule, Pending
from queuer.solver.score import lost_work, preempted_work
from queuer.solver.sheet import Hold

Line = tuple[Account, tuple[str, ...]]
"""An account and the queues that must use more in it than they are guaranteed at the moment the victim goes.
"""
Cost = tuple[int, int, int, int]
NOBODY = frozenset[str]()


@dataclass(frozen=True, slots=True, eq=False)
class Candidate:
    """A gang that a rule permits to evict. `lines`: one must hold when it goes; None = no condition. `otherwise`: the
    same by the other rule, which costs more, for where this one does not permit it.
    """

    hold: Hold
    rule: EvictionRule
    lines: tuple[Line, ...] | None
    cost: Cost
    uid: str
    otherwise: Candidate | None = None

    def permitted(self, line: Usage) -> bool:
        """Whether the rule permits it when this is used."""
        return self.lines is None or any(all(line.above(q, a) for q in queues) for a, queues in self.lines)

    def going(self, line: Usage) -> Candidate | None:
        """The same by the rule that costs least of those that permit it when this is used."""
        if self.permitted(line):
            return self
        return None if self.otherwise is None else self.otherwise.going(line)

    def evicted_for(self, beneficiary: str) -> Eviction:
        """Its eviction, for this gang."""
        return Eviction(uid=self.uid, beneficiary=beneficiary, rule=self.rule)

    @property
    def by_rule(self) -> tuple[Candidate, ...]:
        """The same by each rule, the cheapest first."""
        return (self,) if self.otherwise is None else (self, *self.otherwise.by_rule)


by_cost: Callable[[Candidate], tuple[Cost, str]] = attrgetter("cost", "uid")
"""The order of candidates: cheapest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Right:
    """What a gang may take of the work under a queue in which its own is not. `claimed`: accounts in which it takes
    back what others borrow. `below`: what has a lower priority than this it may preempt, None = nothing; `asked`: in
    the accounts in which others must be above their guarantee for that.
    """

    common: str
    claimed: tuple[Account, ...] = ()
    below: int | None = None
    asked: tuple[Account, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """A right over what is under its queue, but not under `toward`, the child towards the gang; where `toward` is that
    queue itself, over what is in it.
    """

    right: Right
    toward: str

    @property
    def at_home(self) -> bool:
        """Whether it is about the gang's own queue."""
        return self.right.common == self.toward


@dataclass(frozen=True, slots=True, eq=False)
class Party:
    """The candidates of one queue under one right, with their numbers as holds. `top`: the widest queue whose use
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
    return board.time - admitted.since >= min_runtime(board, admitted)


def too_young(board: Board, admitted: Admitted) -> bool:
    """Whether its queue's `minRuntime` alone keeps everybody from evicting it."""
    if admitted.releasing or not admitted.workload.preemptible:
        return False
    return board.time - admitted.since < min_runtime(board, admitted)


def min_runtime(board: Board, admitted: Admitted) -> float:
    """Seconds that its queue lets it run before anybody may evict it."""
    return board.book.tree.policy(board.book.lineage(admitted.workload.queue)[0]).min_runtime or 0.0


class Prey:
    """Everyone who may be evicted at all in this cycle, found once for each ground instead of for each gang. `holds`:
    all that runs, them included.
    """

    def __init__(self, board: Board, who: Callable[[Board, Admitted], bool] = evictable) -> None:
        """`who`: of whom it is asked whether a right reaches them."""
        self._board = board
        self._who = who
        self.holds = Holds(board)
        self._reaches: dict[object, Reach] = {}
        self._spared: dict[frozenset[str], frozenset[str]] = {}
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
            if self._who(board, hold.admitted):
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
        return replace(reach, spared=self.spared(pending)) if pending.displaced_by else reach

    def spared(self, pending: Pending) -> frozenset[str]:
        """Who runs of those for whose sake it was last evicted, or that one was, and so on; who is gone ends the chain.

        So, each eviction for itself, what links gangs to whom they went for is a forest, and evictions end unless work
        comes or ends: a root goes only for one of another tree, so trees merge, and from some time on roots stay. One
        that stays evicts nobody once it has started, so those right below it get fewer till they stay, and so on down.
        """
        asked = pending.displaced_by
        if asked not in self._spared:
            chain, left = set(asked), [*asked]
            while left:
                more = self._displaced_by.get(left.pop(), NOBODY) - chain
                chain |= more
                left += more
            self._spared[asked] = frozenset(chain & self._board.holds.keys())
        return self._spared[asked]

    @cached_property
    def _displaced_by(self) -> Mapping[str, frozenset[str]]:
        """For whose sake each was last evicted of those that wait or run."""
        snapshot = self._board.snapshot
        rows: tuple[Pending | Admitted, ...] = (*snapshot.pending, *snapshot.admitted)
        return {row.workload.uid: row.displaced_by for row in rows if row.displaced_by}

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
            own = Right(common=queue, below=priority)
            found.append(self._number(Ground(right=own, toward=queue)))
        for entitled, (toward, common) in zip(may, pairwise(board.book.lineage(queue)), strict=True):
            claimed = tuple([a for a in accounts if a in claims]) if policy.reclaim and entitled else ()
            if tree.policy(common).preempt is Preempt.LOWER_PRIORITY:
                right = Right(common=common, claimed=claimed, below=priority, asked=accounts)
            elif claimed:
                right = Right(common=common, claimed=claimed)
            else:
                continue
            found.append(self._number(Ground(right=right, toward=toward)))
        yield from (number for number in found if self._grounds_of[number])

    def _number(self, ground: Ground) -> int:
        number = self._numbers.get(ground)
        if number is None:
            number = self._numbers[ground] = len(self._numbers)
            self._grounds_of.append(tuple(self._find(ground)))
        return number

    def _find(self, ground: Ground) -> Iterator[Party]:
        """The candidates of a ground."""
        right = ground.right
        if ground.at_home:
            yield from self._parties_in(right, right.common, [right.common])
        else:
            for child, queues in self._under(right.common).items():
                if child != ground.toward:
                    yield from self._parties_in(right, child, queues)

    def _parties_in(self, right: Right, child: str, queues: Iterable[str]) -> tuple[Party, ...]:
        """Those of one child, the same wherever else the ground leads."""
        if (right, child) not in self._parties:
            found = (self._party(right, queue) for queue in queues if queue in self._by_queue)
            self._parties[right, child] = tuple(party for party in found if party is not None)
        return self._parties[right, child]

    def _find_under(self, common: str) -> Mapping[str, Sequence[str]]:
        """By child of a queue, the queues there in which somebody may be evicted."""
        found: dict[str, list[str]] = {}
        for queue in self._by_queue:
            path = self._board.book.lineage(queue)
            if common in path[1:]:
                found.setdefault(path[path.index(common) - 1], []).append(queue)
        return found

    def _party(self, right: Right, queue: str) -> Party | None:
        """None = nobody there is a candidate."""
        path = self._board.book.lineage(queue)
        below = path[: path.index(right.common)]  # none in the gang's own queue, whose use decides nothing
        found = tuple(self._in_queue(right, queue, below))
        numbers = np.array([self.holds.number_of[one.uid] for one in found], dtype=np.intp)
        return Party(found, numbers, below[-1] if below else queue) if found else None

    def _in_queue(self, right: Right, queue: str, below: tuple[str, ...]) -> Iterator[Candidate]:
        """`below`: the queues that must be above their guarantee."""
        borrowed: tuple[Line, ...] = tuple((account, below) for account in right.claimed)
        above = self._lines(right, queue, below)
        for hold in self._by_queue[queue]:
            lower: Candidate | None = None
            if right.below is not None and hold.admitted.workload.priority < right.below:
                lower = self._candidate(hold, EvictionRule.PREEMPT, above)
            found = self._candidate(hold, EvictionRule.RECLAIM, borrowed, lower) or lower
            if found is not None:
                yield found

    def _candidate(
        self,
        hold: Hold,
        rule: EvictionRule,
        lines: tuple[Line, ...] | None,
        otherwise: Candidate | None = None,
    ) -> Candidate | None:
        """None = it holds nothing in any of these lines."""
        if lines is not None and not all(hold.charge.get(account) for account, _ in lines):
            lines = tuple([line for line in lines if hold.charge.get(line[0])])
        if lines == ():
            return None
        return self._going(hold, rule, lines, otherwise)

    def settled(self, eviction: Eviction) -> Candidate:
        """Whose eviction is settled: it was permitted when those before it had gone, and is where fewer of them go."""
        return self._going(self._board.holds[eviction.uid], eviction.rule, None, None)

    def _going(
        self, hold: Hold, rule: EvictionRule, lines: tuple[Line, ...] | None, otherwise: Candidate | None
    ) -> Candidate:
        lost, victim = self._lost(hold), hold.admitted.workload
        cost = (preempted_work(lost, rule), lost, 1, victim.priority)
        return Candidate(hold, rule, lines, cost, victim.uid, otherwise)

    def _lines(self, right: Right, queue: str, below: tuple[str, ...]) -> tuple[Line, ...] | None:
        """Where they must be above for a preemption; what is above in a claim of the gang is reclaimed instead."""
        said = self._board.book.claims(queue)
        asked = [account for account in right.asked if account in said]
        return tuple((a, below) for a in asked if a not in right.claimed) if asked else None

    def anybody(self, reach: Reach) -> bool:
        """Whether anyone of them may go as things are: not leaving yet, and above the line."""
        return any(self._somebody(number, reach.spared) for number in reach.grounds)

    def _somebody(self, number: int, spared: frozenset[str]) -> bool:
        """Whether anyone on this ground may go. Where nobody may, it stays so until use rises or somebody stays."""
        key, risen = (number, spared), self._board.risen
        witness = self._witness.get(key)
        if witness is not None:
            if witness.uid not in self._board.leaving and witness.going(self._board.line()) is not None:
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
        found = (c for party in self._of(reach) for c in party.candidates if c.uid not in spared)
        return any(c.going(line) is not None for c in found)

    def _first(self, party: Party, spared: frozenset[str]) -> Iterator[Candidate]:
        """Those of a party who may go as things are, each by a rule that permits it. Where there is none, see
        `_somebody`.
        """
        key, risen = (party, spared), self._board.risen(party.top)
        if self._closed.get(key) == risen:
            return
        line, leaving, above = self._board.line(), self._board.leaving, dict[int, bool]()
        nobody = True
        for one in party.candidates:
            for way in one.by_rule:
                if id(way.lines) not in above:
                    above[id(way.lines)] = way.permitted(line)
                if above[id(way.lines)]:
                    if one.uid not in leaving and one.uid not in spared:
                        nobody = False
                        yield way
                    break
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
