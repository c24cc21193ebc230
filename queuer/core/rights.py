"""Whom a waiting gang may evict, and by which right (DESIGN 3.3).

What a gang may do depends on few grounds, which thousands of gangs share; each is looked through queue by queue, once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import pairwise

import numpy as np

from queuer.core.arrays import Hold
from queuer.core.nodes import Numbers
from queuer.core.records import EvictionRule
from queuer.core.score import Cost, lost_work, preempted_work
from queuer.core.shapes import Gang
from queuer.core.state import State
from queuer.domain.queue import Preempt
from queuer.domain.quota import Account, Charge
from queuer.domain.usage import Usage

Lines = tuple[tuple[tuple[str, Account], ...], ...]
"""What a rule asks for at the moment a victim goes: in all of one of these, the queue is above its guarantee."""
ALWAYS: Lines = ((),)
NEVER: Lines = ()
NOBODY = frozenset[str]()


@dataclass(frozen=True, slots=True)
class Right:
    """What a gang may take of the work under `common` outside its own branch; in its own queue, where that is `common`.

    `claimed`: accounts in which it takes back what others borrow. `below`: what has a lower priority than this it may
    preempt, None = nothing; `asked`: in which accounts others must be above their guarantee for that.
    """

    common: str
    claimed: tuple[Account, ...] = ()
    below: int | None = None
    asked: tuple[Account, ...] = ()


@dataclass(frozen=True, slots=True)
class Ground:
    """A right, and the child of its queue towards the gang, which it does not reach; that queue itself = it reaches
    what is in the gang's own queue.
    """

    right: Right
    toward: str


@dataclass(frozen=True, slots=True)
class Reach:
    """Whom a gang may evict at all: the numbers of its grounds, and uids it must spare. Equal for equal permissions."""

    grounds: tuple[int, ...]
    spared: frozenset[str]


@dataclass(frozen=True, slots=True, eq=False)
class Party:
    """Work of one queue that may go under the same lines. `numbers`: of its holds, see `Rights.numbers`."""

    holds: tuple[Hold, ...]
    numbers: Numbers
    reclaim: Lines
    preempt: Lines

    def rule(self, line: Usage) -> EvictionRule | None:
        """The rule that costs least of those that permit it when this is used."""
        if _above(self.reclaim, line):
            return EvictionRule.RECLAIM
        return EvictionRule.PREEMPT if _above(self.preempt, line) else None


@dataclass(frozen=True, slots=True, eq=False)
class Candidate:
    """An admitted workload that a rule permits to evict as things are."""

    hold: Hold
    rule: EvictionRule
    cost: Cost

    @property
    def uid(self) -> str:
        """Of the workload."""
        return self.hold.admitted.workload.uid


def _above(lines: Lines, line: Usage) -> bool:
    return any(all(line.above(queue, account) for queue, account in row) for row in lines)


class Rights:
    """Of all gangs of one decision. `numbers`: of what runs, by uid, in the order of the state's holds."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._book, self._tree = state.book, state.book.tree
        self._reaches: dict[object, tuple[int, ...]] = {}
        self._numbers: dict[Ground, int] = {}
        self._grounds: list[Ground] = []
        self._known: dict[Reach, tuple[int, bool]] = {}
        self._lost: dict[str, int] = {}
        self._under = cache(self._find_under)
        self._evictable = cache(self._find_evictable)
        self._parties = cache(self._find_parties)

    @cached_property
    def numbers(self) -> Mapping[str, int]:
        """By uid."""
        return {uid: n for n, uid in enumerate(self._state.holds)}

    @cached_property
    def _by_queue(self) -> Mapping[str, list[Hold]]:
        found: dict[str, list[Hold]] = {}
        for hold in self._state.holds.values():
            found.setdefault(hold.admitted.workload.queue, []).append(hold)
        return found

    def reach(self, gang: Gang, charge: Charge) -> Reach:
        """Whom this gang may evict, by where it is entitled as things are. `charge`: what it asks for."""
        may = self._state.claimed.entitlements(gang.queue, charge)
        key = (gang.queue, gang.workload.priority, tuple(charge), may)
        grounds = self._reaches.get(key)
        if grounds is None:
            grounds = self._reaches[key] = tuple(self._find_grounds(*key))
        spared = gang.pending.displaced_by
        return Reach(grounds, frozenset(spared & self._state.holds.keys()) if spared else NOBODY)

    def anybody(self, reach: Reach) -> bool:
        """Whether somebody may go as things are."""
        if not reach.grounds:
            return False
        mark, found = self._known.get(reach, (-1, False))
        if mark != self._state.mark:
            found = any(self._somebody(self._grounds[number], reach.spared) for number in reach.grounds)
            self._known[reach] = (self._state.mark, found)
        return found

    def permitted(self, reach: Reach) -> list[tuple[Party, EvictionRule]]:
        """Whose work may go as things are, by the rule that costs least; who leaves or is spared is among them."""
        line, found = self._state.line, list[tuple[Party, EvictionRule]]()
        for number in reach.grounds:
            for party in self._reached(self._grounds[number]):
                rule = party.rule(line)
                if rule is not None:
                    found.append((party, rule))
        return found

    def candidates(self, reach: Reach) -> list[Candidate]:
        """Who may go now, cheapest first."""
        leaving, spared = self._state.leaving, reach.spared
        found = [
            Candidate(hold, rule, self.cost(hold, rule))
            for party, rule in self.permitted(reach)
            for hold in party.holds
            if (uid := hold.admitted.workload.uid) not in leaving and uid not in spared
        ]
        return sorted(found, key=lambda candidate: (candidate.cost, candidate.uid))

    def cost(self, hold: Hold, rule: EvictionRule) -> Cost:
        """What its eviction by this rule costs."""
        admitted = hold.admitted
        uid = admitted.workload.uid
        if uid not in self._lost:
            self._lost[uid] = lost_work(admitted, capacity=self._state.capacity, now=self._state.time)
        lost = self._lost[uid]
        return (preempted_work(lost, rule), lost, 1, admitted.workload.priority, admitted.evicted)

    # Grounds

    def _find_grounds(
        self, queue: str, priority: int, accounts: tuple[Account, ...], may: tuple[bool, ...]
    ) -> Iterator[int]:
        """Numbers of the grounds on which there is work. `may`: where on its path the gang is entitled."""
        claims, policy = self._book.claims(queue), self._tree.policy(queue)
        if policy.preempt is not Preempt.NEVER and queue in self._by_queue:
            yield self._number(Ground(Right(queue, below=priority), queue))
        for entitled, (toward, common) in zip(may, pairwise(self._book.lineage(queue)), strict=True):
            if not self._under(common).keys() - {toward}:
                continue
            claimed = tuple([a for a in accounts if a in claims]) if policy.reclaim and entitled else ()
            if self._tree.policy(common).preempt is Preempt.LOWER_PRIORITY:
                yield self._number(Ground(Right(common, claimed, priority, accounts), toward))
            elif claimed:
                yield self._number(Ground(Right(common, claimed), toward))

    def _number(self, ground: Ground) -> int:
        if ground not in self._numbers:
            self._numbers[ground] = len(self._grounds)
            self._grounds.append(ground)
        return self._numbers[ground]

    def _find_under(self, common: str) -> Mapping[str, list[str]]:
        """By child of a queue, the queues there in which something runs."""
        found: dict[str, list[str]] = {}
        for queue in self._by_queue:
            path = self._book.lineage(queue)
            if common in path[1:]:
                found.setdefault(path[path.index(common) - 1], []).append(queue)
        return found

    def _reached(self, ground: Ground) -> Iterator[Party]:
        """All whom a ground reaches, but for branches that use no more than they are guaranteed in what is claimed."""
        right, line = ground.right, self._state.line
        if ground.toward == right.common:
            yield from self._parties(right, right.common)
            return
        for child, queues in self._under(right.common).items():
            borrows = right.below is not None or any(line.above(child, a) for a in right.claimed)
            if child != ground.toward and borrows:
                for queue in queues:
                    yield from self._parties(right, queue)

    def _somebody(self, ground: Ground, spared: frozenset[str]) -> bool:
        """Whether anybody may go on this ground."""
        line, leaving = self._state.line, self._state.leaving
        return any(
            any((uid := h.admitted.workload.uid) not in leaving and uid not in spared for h in party.holds)
            for party in self._reached(ground)
            if party.rule(line) is not None
        )

    # Who may be evicted

    def _find_evictable(self, queue: str) -> tuple[Hold, ...]:
        """What anybody may evict: preemptible, past its queue's `minRuntime`, not releasing."""
        rest = self._tree.policy(self._book.lineage(queue)[0]).min_runtime or 0.0
        now = self._state.time
        return tuple(
            hold
            for hold in self._by_queue.get(queue, ())
            if (admitted := hold.admitted).workload.preemptible
            and not admitted.releasing
            and now - admitted.since >= rest
        )

    def _find_parties(self, right: Right, queue: str) -> tuple[Party, ...]:
        """What a right reaches in one queue, by the lines that decide about it."""
        path = self._book.lineage(queue)
        below = path[: path.index(right.common)]  # those that must be above; none in the gang's own queue
        said = self._book.claims(queue)
        asked = [account for account in right.asked if account in said]
        groups: dict[tuple[Lines, Lines], list[Hold]] = {}
        for hold in self._evictable(queue):
            reclaim = _lines(right.claimed, below, hold.charge)
            preempt = NEVER
            if right.below is not None and hold.admitted.workload.priority < right.below:
                preempt = _lines(asked, below, hold.charge) if asked else ALWAYS
            if reclaim or preempt:
                groups.setdefault((reclaim, preempt), []).append(hold)
        numbers = self.numbers
        return tuple(
            Party(
                tuple(holds), np.array([numbers[h.admitted.workload.uid] for h in holds], dtype=np.intp), *key
            )
            for key, holds in groups.items()
        )


def _lines(accounts: tuple[Account, ...] | list[Account], below: tuple[str, ...], charge: Charge) -> Lines:
    """That all these queues are above in an account of which the victim holds some."""
    return tuple(
        [tuple([(queue, account) for queue in below]) for account in accounts if charge.get(account)]
    )
