"""Whom a waiting gang may evict, and the cheapest set that is enough (DESIGN 3.3).

What a gang may do depends on few grounds, which thousands of gangs share, so those are looked through once each.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from queuer.domain.queue import Preempt
from queuer.domain.quota import Account, Charge, Usage
from queuer.solver.board import Board, Hold
from queuer.solver.frame import Mask as Flags
from queuer.solver.frame import Matrix
from queuer.solver.problem import EvictionRule, Pending
from queuer.solver.score import lost_work

Line = tuple[Account, tuple[str, ...]]
"""An account and the queues that must use more in it than they are guaranteed at the moment the victim goes.
"""
Cost = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True, eq=False)
class Candidate:
    """A gang that the rules permit to evict. `lines`: one must hold when it goes; None = no condition."""

    hold: Hold
    rule: EvictionRule
    lines: tuple[Line, ...] | None
    cost: Cost

    @property
    def uid(self) -> str:
        """The victim's uid."""
        return self.hold.admitted.workload.uid


@dataclass(frozen=True, slots=True)
class Ground:
    """One permission to evict: the work under `common` that is not under `toward`; where both are the same, that of
    this very queue. `below`: only what has a lower priority. `accounts`: those in which the victim's queues must be
    above their guarantee; for a preemption across queues, those that are asked in.
    """

    rule: EvictionRule
    common: str
    toward: str
    below: int | None
    accounts: tuple[Account, ...]


@dataclass(frozen=True, slots=True)
class Reach:
    """Whom a gang may evict: the numbers of its grounds, and those it must spare. Equal for equal permissions."""

    grounds: tuple[int, ...]
    spared: frozenset[str]


class Prey:
    """Everyone who may be evicted at all in this cycle, found once for each ground instead of for each gang."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self._numbers: dict[Ground, int] = {}
        self._members: list[list[Candidate]] = []
        self._masks: dict[int, Flags] = {}
        self._entries: tuple[NDArray[np.intp], NDArray[np.intp], Matrix] | None = None

    @cached_property
    def _by_queue(self) -> dict[str, list[tuple[Hold, int]]]:
        """Holds by queue, with the work that an eviction loses."""
        board, found = self._board, dict[str, list[tuple[Hold, int]]]()
        for hold in board.holds.values():
            admitted, victim = hold.admitted, hold.admitted.workload
            policy = board.book.tree.policy(board.book.lineage(victim.queue)[0])
            rests = board.time - admitted.since < (policy.min_runtime or 0.0)
            if victim.preemptible and not admitted.releasing and not rests:
                lost = lost_work(admitted, capacity=board.capacity, now=board.time)
                found.setdefault(victim.queue, []).append((hold, lost))
        return found

    @cached_property
    def _number_of(self) -> dict[str, int]:
        return {uid: n for n, uid in enumerate(self._board.holds)}

    def reach(self, pending: Pending, charge: Charge) -> Reach:
        """Whom this gang may evict as things are. `charge`: what it asks for, by account."""
        spared = frozenset(uid for uid in pending.displaced_by if uid in self._board.holds)
        numbers = [self._number(ground) for ground in self._grounds(pending, charge)]
        return Reach(tuple([n for n in numbers if self._members[n]]), spared)

    def _grounds(self, pending: Pending, charge: Charge) -> Iterator[Ground]:
        board, queue = self._board, pending.workload.queue
        tree, priority = board.book.tree, pending.workload.priority
        if not board.holds:
            return
        if tree.policy(queue).preempt is not Preempt.NEVER:
            yield Ground(EvictionRule.PREEMPT, queue, queue, priority, ())
        for toward, common in pairwise(board.book.lineage(queue)):
            if tree.policy(queue).reclaim and board.claimed.entitled(queue, charge, at=toward):
                claims = board.book.claims(queue)
                yield Ground(
                    EvictionRule.RECLAIM, common, toward, None, tuple(a for a in charge if a in claims)
                )
            elif tree.policy(common).preempt is Preempt.LOWER_PRIORITY:
                yield Ground(EvictionRule.PREEMPT, common, toward, priority, tuple(charge))

    def _number(self, ground: Ground) -> int:
        if ground not in self._numbers:
            self._numbers[ground] = len(self._numbers)
            self._members.append(sorted(self._find(ground), key=_by_cost))
        return self._numbers[ground]

    def _find(self, ground: Ground) -> Iterator[Candidate]:
        book = self._board.book
        for queue, holds in self._by_queue.items():
            if ground.common == ground.toward:
                if queue != ground.common:
                    continue
                lines = None
            else:
                path = book.lineage(queue)
                if ground.common not in path[1:] or ground.toward in path:
                    continue
                lines = self._lines(ground, queue, path[: path.index(ground.common)])
            for hold, lost in holds:
                victim = hold.admitted.workload
                if ground.below is not None and not victim.priority < ground.below:
                    continue
                own = None if lines is None else tuple(line for line in lines if hold.charge.get(line[0]))
                if own != ():
                    cost = (int(ground.rule is EvictionRule.PREEMPT), lost, 1, victim.priority)
                    yield Candidate(hold, ground.rule, own, cost)

    def _lines(self, ground: Ground, queue: str, below: tuple[str, ...]) -> tuple[Line, ...] | None:
        if ground.rule is EvictionRule.RECLAIM:
            return tuple((account, below) for account in ground.accounts)
        claims = self._board.book.claims(queue)
        return tuple((a, below) for a in ground.accounts if a in claims) or None

    def _candidates(self, reach: Reach) -> Iterator[Candidate]:
        leaving = self._board.leaving
        for number in reach.grounds:
            for candidate in self._members[number]:
                if candidate.uid not in leaving and candidate.uid not in reach.spared:
                    yield candidate

    def any(self, reach: Reach) -> bool:
        """Whether there is anybody."""
        return next(self._candidates(reach), None) is not None

    def candidates(self, reach: Reach) -> list[Candidate]:
        """All of them, cheapest first."""
        return sorted(self._candidates(reach), key=_by_cost)

    def flags(self, reach: Reach) -> Flags:
        """All of them as flags by hold, those included who are leaving for somebody else (H)."""
        found = np.zeros(len(self._board.holds), dtype=bool)
        for number in reach.grounds:
            if number not in self._masks:
                mask = np.zeros(len(found), dtype=bool)
                mask[[self._number_of[c.uid] for c in self._members[number]]] = True
                self._masks[number] = mask
            found |= self._masks[number]
        found[[self._number_of[uid] for uid in reach.spared]] = False
        return found

    def staying(self, flags: Flags) -> Flags:
        """The flagged who are not leaving yet (H)."""
        found = flags.copy()
        found[[self._number_of[uid] for uid in self._board.leaving]] = False
        return found

    def vacated(self, flags: Flags) -> Matrix:
        """What the flagged leave free (N x R); what they could still have landed on counts as free."""
        if self._entries is None:
            rows = [
                (h, node, row)
                for h, hold in enumerate(self._board.holds.values())
                for node, row in hold.rows.items()
            ]
            width = len(self._board.frame.resources)
            self._entries = (
                np.array([h for h, _, _ in rows], dtype=np.intp),
                np.array([n for _, n, _ in rows], dtype=np.intp),
                np.array([r for _, _, r in rows], dtype=np.int64).reshape(len(rows), width),
            )
        holds, nodes, amounts = self._entries
        free = np.zeros_like(self._board.frame.alloc)
        chosen = flags[holds]
        np.add.at(free, nodes[chosen], amounts[chosen])
        return free

    def release(self, usage: Usage, flags: Flags, *, only: frozenset[Account]) -> None:
        """Take the flagged off a usage, in these accounts."""
        total: dict[str, dict[Account, int]] = {}
        for flag, hold in zip(flags.tolist(), self._board.holds.values(), strict=True):
            if flag:
                mine = total.setdefault(hold.admitted.workload.queue, {})
                for account in only:
                    if account in hold.charge:
                        mine[account] = mine.get(account, 0) + hold.charge[account]
        for queue, amounts in total.items():
            usage.add(queue, amounts, times=-1)


def _by_cost(candidate: Candidate) -> tuple[Cost, str]:
    return (candidate.cost, candidate.uid)
