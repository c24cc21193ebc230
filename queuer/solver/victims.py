"""Whom a waiting gang may evict, and the cheapest set that is enough (DESIGN 3.3).

Feasibility grows with the set of victims, so a set is found by a prefix of an order, then thinned; several
orders and, for few candidates, all subsets in the order of cost are tried, and the cheapest answer is taken.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from queuer.domain.queue import Preempt
from queuer.domain.quota import Account, Charge, Usage
from queuer.solver.board import Board, Hold, Sheet
from queuer.solver.frame import Mask as Flags
from queuer.solver.frame import Matrix
from queuer.solver.problem import Eviction, EvictionRule, Pending
from queuer.solver.score import lost_work

SUBSETS = 600
"""How many sets are tried in the order of cost."""
FEW = 12
"""Up to so many candidates all subsets are worth trying."""

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


class Trial:
    """A set of victims being tried: the quota and nodes without them, and the line they must not have
    crossed.

    Usage is kept up in the accounts of `charge` only.
    """

    def __init__(self, board: Board, charge: Charge) -> None:
        self.sheet = board.later.copy()
        self._accounts = frozenset(charge)
        self._line: Usage = board.line().copy()

    def _count(self, hold: Hold, *, times: int) -> None:
        self._line.add(hold.admitted.workload.queue, hold.charge, times=times, only=self._accounts)

    def permitted(self, candidate: Candidate) -> bool:
        """Whether the rule permits it now that those before it have gone."""
        if candidate.lines is None:
            return True
        return any(all(self._line.above(q, account) for q in queues) for account, queues in candidate.lines)

    def remove(self, candidate: Candidate) -> None:
        """It goes."""
        self.sheet.release(candidate.hold, only=self._accounts)
        self._count(candidate.hold, times=-1)

    def put_back(self, candidate: Candidate) -> None:
        """It stays after all."""
        self.sheet.release(candidate.hold, times=-1, only=self._accounts)
        self._count(candidate.hold, times=1)


Fits = Callable[[Sheet], bool]


class Search:
    """Looks for the cheapest sufficient set of victims for one gang.

    `charge`: the accounts that quota and lines depend on; `fits`: whether the gang has quota, in these
    accounts, and place on a sheet from which a set has gone.
    """

    def __init__(
        self, board: Board, found: Sequence[Candidate], charge: Charge, fits: Fits, *, work: int
    ) -> None:
        """`work`: steps after which no further set is tried; a step is a victim that goes or comes back."""
        self._board = board
        self._found = found
        self._charge = charge
        self._judge = fits
        self._toll = 10 + len(board.frame.names) // 32
        self._most = work
        self.work = 0

    def _fits(self, sheet: Sheet) -> bool:
        self.work += self._toll
        return self._judge(sheet)

    def cheapest(self) -> list[Candidate] | None:
        """The best set found, in an order in which each is permitted; None = none was found."""
        best: list[Candidate] | None = None
        for order in _orders(self._board, self._found):
            if self.work > self._most:
                break
            got = self._prefix(order)
            if got is not None and (best is None or _cost(got) < _cost(best)):
                best = got
        if best is not None and len(self._found) <= FEW and self.work <= self._most:
            best = self._by_cost(best)
        return best

    def _prefix(self, order: Sequence[Candidate]) -> list[Candidate] | None:
        """The shortest prefix that is enough, thinned: the most expensive are put back first."""
        trial = Trial(self._board, self._charge)
        self.work += len(order)
        gone: list[Candidate] = []
        due = 1
        for candidate in order:
            if not trial.permitted(candidate):
                continue
            trial.remove(candidate)
            gone.append(candidate)
            if len(gone) >= due:
                if self._fits(trial.sheet):
                    break
                due = 2 * len(gone)
        if not gone or not self._fits(trial.sheet):
            return None
        kept = self._shorten(trial, gone)
        for candidate in sorted(kept, key=lambda c: (c.cost, c.uid), reverse=True):
            trial.put_back(candidate)
            if len(kept) > 1 and self._fits(trial.sheet):
                kept.remove(candidate)  # nobody after it is permitted less, as more is used without this one
            else:
                trial.remove(candidate)
        return kept

    def _shorten(self, trial: Trial, gone: list[Candidate]) -> list[Candidate]:
        """By bisection; leaves the trial with the answer gone."""
        low, high, at = len(gone) // 2, len(gone), len(gone)
        while True:
            middle = (low + high) // 2 if low < high else high
            for candidate in gone[at:middle]:
                trial.remove(candidate)
            for candidate in gone[middle:at]:
                trial.put_back(candidate)
            at = middle
            if low >= high:
                return gone[:high]
            if middle and self._fits(trial.sheet):
                high = middle
            else:
                low = middle + 1

    def _enough(self, chosen: Sequence[Candidate]) -> bool:
        """Whether these may go in this order and the gang fits then."""
        trial = Trial(self._board, self._charge)
        for candidate in chosen:
            if not trial.permitted(candidate):
                return False
            trial.remove(candidate)
        return self._fits(trial.sheet)

    def _by_cost(self, best: list[Candidate]) -> list[Candidate]:
        """Subsets in the order of cost until one is enough; never worse than `best`."""
        found, limit = self._found, _cost(best)
        queue: list[tuple[Cost, tuple[int, ...]]] = [(found[0].cost, (0,))]
        for _ in range(SUBSETS):
            if not queue:
                break
            cost, picks = heapq.heappop(queue)
            if cost >= limit:
                break
            chosen = sorted((found[i] for i in picks), key=lambda c: (_size(self._board, c), c.uid))
            if self._enough(chosen):
                return chosen
            last = picks[-1]
            if last + 1 < len(found):
                for following in ((*picks, last + 1), (*picks[:-1], last + 1)):
                    heapq.heappush(queue, (_cost(found[i] for i in following), following))
        return best


def _orders(board: Board, found: Sequence[Candidate]) -> Iterable[list[Candidate]]:
    """Cheapest first; least loss for what they free; those in the same place together."""
    yield list(found)
    if len(found) > 1:
        yield sorted(found, key=lambda c: (c.cost[0], c.cost[1] / max(1, _size(board, c)), c.uid))
        host: dict[int, int] = {}
        for candidate in found:
            for node in candidate.hold.rows:
                host[node] = host.get(node, 0) + candidate.cost[1]
        yield sorted(
            found,
            key=lambda c: (
                c.cost[0],
                min((host[n], n) for n in c.hold.rows) if c.hold.rows else (0, 0),
                c.uid,
            ),
        )


def _size(board: Board, candidate: Candidate) -> int:
    return sum(
        n * 10**6 // board.capacity[r]
        for (f, r), n in candidate.hold.charge.items()
        if f is None and board.capacity.get(r)
    )


def _cost(chosen: Iterable[Candidate]) -> Cost:
    total = [0, 0, 0, 0]
    for candidate in chosen:
        total = [a + b for a, b in zip(total, candidate.cost, strict=True)]
    return (total[0], total[1], total[2], total[3])


def evictions(chosen: Iterable[Candidate], *, beneficiary: str) -> tuple[Eviction, ...]:
    """The chosen as evictions, in their order."""
    return tuple(Eviction(uid=c.uid, beneficiary=beneficiary, rule=c.rule) for c in chosen)
