"""What a gang inside its guarantee is told when too little can be taken back for it: what its guarantee leaves, how
much may be reclaimed and from whom, what is missing.

What a queue can be made to give back is found once for all gangs that ask it for the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import islice, pairwise
from typing import Any

import numpy as np

from queuer.domain.quantity import format_quantity
from queuer.domain.queue import Preempt
from queuer.domain.quota import Account, Charge, Shortfall
from queuer.domain.reasons import Reason, Token
from queuer.domain.usage import Usage
from queuer.solver.board import Board
from queuer.solver.contested import Variant
from queuer.solver.explain.holders import HOLDERS
from queuer.solver.explain.place import PlaceWords
from queuer.solver.explain.quota import QuotaWords, amounts, asks_of
from queuer.solver.frame import Matrix
from queuer.solver.order import Gang
from queuer.solver.outcome import Chosen
from queuer.solver.problem import EvictionRule
from queuer.solver.sheet import Hold
from queuer.solver.victims import Prey, evictable

LOOKS = 200_000
"""How many nodes may be looked at in one cycle for what is lacking when all who may go have gone."""

Claims = tuple[Account, ...]
Level = tuple[str, str]
"""A queue at which a gang is entitled, and its parent, whose other children may have to give back."""


@dataclass(frozen=True, slots=True, eq=False)
class Given:
    """What the children of a queue can be made to give back: amounts, largest first, and their sum (base units)."""

    amounts: Mapping[str, int]
    victims: Mapping[str, Sequence[Hold]]
    total: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Sought:
    """What a gang would take back: at these levels, by its claims, of which `claim` is told. `row`: the one in its way,
    None = capacity alone is.
    """

    levels: tuple[Level, ...]
    claims: Claims
    claim: Account
    row: Shortfall | None

    @property
    def account(self) -> Account:
        """In which it is counted."""
        return self.claim if self.row is None else self.row.account


class ReclaimWords:
    """What may be taken back, on one board, in words."""

    def __init__(
        self, board: Board, prey: Prey, quota: QuotaWords, place: PlaceWords, line: Usage | None = None
    ) -> None:
        """`line`: what counts as used where it is asked who borrows; None = what the board says."""
        self._board = board
        self._prey = prey
        self._line = line
        self._before: dict[frozenset[str], ReclaimWords] = {}
        self._quota = quota
        self._place = place
        self._looks = LOOKS // max(1, len(board.frame.names))
        self._back = cache(self._find_back)
        self._given = cache(self._find_given)
        self._lower = cache(self._find_lower)
        self._borrowed = cache(self._find_borrowed)
        self._freed = cache(self._find_freed)

    def reason(
        self,
        gang: Gang,
        variant: Variant,
        charge: Charge,
        *,
        token: Token,
        short: Shortfall | None,
        since: Sequence[Chosen] = (),
    ) -> Reason | None:
        """The primary reason of an entitled gang at its smallest size. `short`: the row in its way, None = capacity
        alone is; `token`: what it is told without this; `since`: who started after its turn. None: it may not reclaim,
        or nobody has what it lacks.
        """
        levels = self._levels(gang, charge, short)
        if not levels:
            return None
        claims = tuple(a for a in charge if a in self._board.book.claims(gang.queue))
        claim = next((a for a in claims if short is not None and a[1] == short.account[1]), claims[0])
        sought = Sought(levels=levels, claims=claims, claim=claim, row=short)
        of, given = sought.account, self._given_for(sought)
        back = _sum(given)
        room = None if short is None else self._room(self._board.later.usage, gang.queue, charge, short)
        if not back and (room is None or room >= charge[of] or of[1] != claim[1]):
            return None
        if since and back > _sum(self._without(since)._given_for(sought)):
            return _risen(given, of)
        lower = self._lower(gang.queue, gang.pending.workload.priority)
        figures = {"asks": charge[of], "reclaimable": back, "lower": sum(h.charge.get(of, 0) for h in lower)}
        figures |= self._borrowed_by_others(sought, back)
        if short is not None and room is not None:
            missing = max(0, charge[of] - back - figures["lower"] - room)
            figures |= {**self._rest(gang.queue, charge, short, room), "missing": missing}
        text, params = self._tell(gang, sought, given, figures)
        if not figures.get("missing"):
            text += f" {self._still(gang, variant, given, lower, told='leaving' in figures)}"
        return Reason(token=token, text=text, params=params)

    def _given_for(self, sought: Sought) -> Mapping[str, Given]:
        """By child towards the gang, what it and the other children there can be made to give back."""
        return {
            toward: self._given(common, sought.claims, sought.account) for toward, common in sought.levels
        }

    def _borrowed_by_others(self, sought: Sought, back: int) -> dict[str, int]:
        """What others borrow of its claim, where that is more than they can be made to give `back` of the same."""
        claim, of = sought.claim, sought.account
        borrowed = sum(self._borrowed(common, claim) - self._over(t, claim) for t, common in sought.levels)
        same = of == claim or (of[1] == claim[1] and not self._board.snapshot.flavors)
        return {"borrowed": borrowed} if same and back < borrowed else {}

    def _tell(
        self, gang: Gang, sought: Sought, given: Mapping[str, Given], figures: Mapping[str, int]
    ) -> tuple[str, dict[str, Any]]:
        """The sentence about these figures, and the same as `Reason.params`."""
        (queue, _), claim, of, row = sought.levels[0], sought.claim, sought.account, sought.row
        text, params = self._claimed(queue, claim)
        params |= amounts(queue, of, **figures)
        if row is not None:
            params["row"] = amounts(row.queue, of)
        params["from"] = _whose(given, of)
        left = () if row is None else (_left(row, free=figures["free"], leaving=figures.get("leaving", 0)),)
        name, unit = self._quota.name(claim), self._quota.name(of)
        asks = f"{asks_of(gang)} {params['asks']}" + ("" if unit == name else f" {unit}")
        return f"{text} This job {asks}: {', '.join([*left, *_sums(params)])}.", params

    def _levels(self, gang: Gang, charge: Charge, short: Shortfall | None) -> tuple[Level, ...]:
        """Where it may reclaim what helps with the row. None where it could take more by priority, or must spare
        somebody who runs: those are judged one by one.
        """
        board, found = self._board, list[Level]()
        tree = board.book.tree
        may = board.claimed.entitlements(gang.queue, charge)
        if not tree.policy(gang.queue).reclaim or self._prey.spared(gang.pending):
            return ()
        for entitled, (toward, common) in zip(may, pairwise(board.book.lineage(gang.queue)), strict=True):
            by_priority = tree.policy(common).preempt is Preempt.LOWER_PRIORITY
            if by_priority and (not entitled or self._takes_by_priority(gang, charge)):
                return ()
            if entitled and (short is None or short.queue in board.book.lineage(common)):
                found.append((toward, common))
        return tuple(found)

    def _takes_by_priority(self, gang: Gang, charge: Charge) -> bool:
        """Whether it may preempt anybody of another queue beyond what it may reclaim."""
        permitted, line = self._prey.permitted(self._prey.reach(gang.pending, charge)), self._board.line()
        elsewhere = (c for c in permitted if c.hold.admitted.workload.queue != gang.queue)
        ways = (way for c in elsewhere for way in c.by_rule if way.rule is EvictionRule.PREEMPT)
        return any(way.permitted(line) for way in ways)

    def _claimed(self, queue: str, claim: Account) -> tuple[str, dict[str, Any]]:
        """What its guarantee leaves a queue."""
        params, text = self._quota.claimed(queue, claim)
        left = self._board.book.guaranteed(queue, claim) - self._board.claimed.used(queue, claim)
        params |= amounts(queue, claim, left=left)
        comma = "" if params["held"] == "0" else ","
        return f"{text}{comma} and may claim {params['left']} more.", params

    def _over(self, queue: str, account: Account) -> int:
        """What a queue will use above its guarantee once those who are leaving have left."""
        line = self._line or self._board.line()
        return max(0, line.used(queue, account) - self._board.book.guaranteed(queue, account))

    def _without(self, started: Sequence[Chosen]) -> ReclaimWords:
        """The same had these not started."""
        key = frozenset(one.gang.uid for one in started)
        if key not in self._before:
            line = self._board.line().copy()
            for one in started:
                line.add(one.gang.queue, one.charge, times=-1)
            self._before[key] = ReclaimWords(self._board, self._prey, self._quota, self._place, line)
        return self._before[key]

    def _find_borrowed(self, common: str, account: Account) -> int:
        """What the children of a queue use above their guarantees."""
        return sum(self._over(kid, account) for kid in self._board.book.tree.children[common])

    def _rest(self, queue: str, charge: Charge, short: Shortfall, room: int) -> dict[str, int]:
        """What of the row's `room` is free now, and what is free only once those have left who are `leaving`."""
        now = self._room(self._board.claimed, queue, charge, short)
        free = now if room < 0 else max(0, now)
        return {"free": free} if free == room else {"free": free, "leaving": room - free}

    @staticmethod
    def _room(usage: Usage, queue: str, charge: Charge, short: Shortfall) -> int:
        """What the row leaves by this usage; below 0, what is too much."""
        row = (short.queue, short.account)
        found = next((s for s in usage.shortfalls(queue, charge) if (s.queue, s.account) == row), None)
        if found is not None:
            return found.limit - found.held
        return dict(usage.rooms(queue, short.account)).get(short.queue, 0)

    # Who has to give back

    @cached_property
    def _evictable(self) -> Mapping[str, Sequence[Hold]]:
        """What could be evicted by somebody and is not leaving yet, by leaf."""
        board, found = self._board, dict[str, list[Hold]]()
        for uid, hold in board.holds.items():
            if uid not in board.leaving and evictable(board, hold.admitted):
                queue = board.book.lineage(hold.admitted.workload.queue)[0]
                found.setdefault(queue, []).append(hold)
        return found

    def _find_back(self, queue: str, account: Account) -> tuple[Hold, ...]:
        """Who may go one after the other, smallest first, while every queue from theirs up to this one uses more than
        it is guaranteed.
        """
        kids = self._board.book.tree.children[queue]
        there = [hold for kid in kids for hold in self._back(kid, account)]
        there += [hold for hold in self._evictable.get(queue, ()) if hold.charge.get(account)]
        over = self._over(queue, account)
        found = []
        for hold in sorted(there, key=lambda h: h.charge[account]):
            if over <= 0:
                break
            found.append(hold)
            over -= hold.charge[account]
        return tuple(found)

    def _find_given(self, common: str, claims: Claims, of: Account) -> Given:
        """What the children of a queue can be made to give back in account `of`."""
        victims, sums = {}, {}
        for queue in self._board.book.tree.children[common]:
            there = {id(hold): hold for claim in claims for hold in self._back(queue, claim)}
            if amount := sum(hold.charge.get(of, 0) for hold in there.values()):
                victims[queue], sums[queue] = list(there.values()), amount
        ranked = dict(sorted(sums.items(), key=lambda item: (-item[1], item[0])))
        return Given(ranked, victims, sum(sums.values()))

    def _find_lower(self, queue: str, priority: int) -> tuple[Hold, ...]:
        """Work of its own queue that a gang of this priority may preempt."""
        if self._board.book.tree.policy(queue).preempt is Preempt.NEVER:
            return ()
        there = self._evictable.get(self._board.book.lineage(queue)[0], ())
        return tuple(hold for hold in there if hold.admitted.workload.priority < priority)

    # What is lacking even so

    def _still(
        self, gang: Gang, variant: Variant, given: Mapping[str, Given], lower: Sequence[Hold], *, told: bool
    ) -> str:
        """What the nodes lack when all who may go have gone. `told`: it is said that others are leaving."""
        self._looks -= 1
        if self._looks >= 0:
            free = self._board.later.free.copy()
            for toward, found in given.items():
                free += self._freed(found)
                _release(free, found.victims.get(toward, ()), times=-1)
            _release(free, lower)
            closest = self._place.closest(gang.pending.workload, variant, gang.pending.avoid, free=free)
            if closest is not None and closest.most < closest.part.count:
                others = "" if told or not self._board.leaving else " and those that are leaving"
                return f"With all of these{others} gone, {self._place.lack(closest).text}"
        return "No set of these leaves a place for it."

    def _find_freed(self, given: Given) -> Matrix:
        """What all of these leave free (N x R)."""
        free: Matrix = np.zeros_like(self._board.later.free)
        for victims in given.victims.values():
            _release(free, victims)
        return free


def _sum(given: Mapping[str, Given]) -> int:
    """What all but the queue itself can be made to give back."""
    return sum(found.total - found.amounts.get(toward, 0) for toward, found in given.items())


def _risen(given: Mapping[str, Given], of: Account) -> Reason:
    """More may be taken back than at its turn."""
    whose = _whose(given, of)
    told = ", ".join(f"{one['amount']} from {one['queue']}" for one in whose)
    text = (
        f"Jobs that started after its turn borrow, so more may be reclaimed ({told}); the next cycle decides."
    )
    return Reason(token=Token.PENDING_EVALUATION, text=text, params={"from": whose})


def _left(short: Shortfall, *, free: int, leaving: int = 0) -> str:
    """What the row leaves now, that of a limit by name, and how much more once those have left who are leaving."""
    limit, left, more = (
        format_quantity(n, resource=short.account[1]) for n in (short.limit, abs(free), leaving)
    )
    if short.live:
        text = _is(left, "free") if free >= 0 else f"{left} more {_be(left)} taken than there are"
    elif free < 0:
        text = f"{short.queue} is {left} above its limit of {limit}"
    else:
        text = f"{short.queue} has {left} left of its limit of {limit}"
    if not leaving:
        return text
    return f"{text}, {more} {'more' if free >= 0 else 'fewer'} once others have left"


def _release(free: Matrix, holds: Iterable[Hold], *, times: int = 1) -> None:
    for hold in holds:
        for node, row in hold.rows.items():
            free[node] += row * times


def _whose(given: Mapping[str, Given], of: Account) -> list[dict[str, str]]:
    """Who can be made to give back most, as `Reason.params`."""
    found = [
        (queue, amount)
        for toward, one in given.items()
        for queue, amount in islice(one.amounts.items(), HOLDERS + 1)
        if queue != toward
    ]
    most = sorted(found, key=lambda row: (-row[1], row[0]))[:HOLDERS]
    return [{"queue": queue, "amount": format_quantity(amount, resource=of[1])} for queue, amount in most]


def _sums(params: Mapping[str, Any]) -> Sequence[str]:
    """What may be taken of what it asks for, and what is missing then."""
    whose = ", ".join(f"{one['amount']} from {one['queue']}" for one in params["from"])
    of_all = f" of the {params['borrowed']} that others borrow" if "borrowed" in params else ""
    told = [f"{params['reclaimable']}{of_all} may be reclaimed" + (f" ({whose})" if whose else "")]
    if params["lower"] != "0":
        told.append(f"{params['lower']} of lower priority may be preempted")
    if params.get("missing", "0") != "0":
        told.append(_is(params["missing"], "missing"))
    return told


def _is(amount: str, what: str) -> str:
    return f"{amount} {_be(amount)} {what}"


def _be(amount: str) -> str:
    return "is" if amount == "1" else "are"
