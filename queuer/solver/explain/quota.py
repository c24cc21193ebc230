"""What quota tells a waiting gang: the rows in its way, what it could never have, and what its guarantee leaves.

Figures are of the state once all have had their turns.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

from queuer.domain.queue import ROOT
from queuer.domain.quota import Account, Charge, Shortfall
from queuer.domain.reasons import Reason, Token
from queuer.domain.usage import Usage
from queuer.solver.shapes import Gang
from queuer.solver.state import State

Counts = tuple[tuple[int, dict[str, Any]], ...]
"""By distinct use what counts in a row beside what is asked, and the figures that say so."""


class Row(NamedTuple):
    """A limit on the path of a queue. `at`: number of its account in a charge; `room`: what may be asked for now;
    `idle`: what could be, if nothing ran; `live`: it is the live capacity.
    """

    at: int
    account: Account
    queue: str
    limit: int
    live: bool
    room: int
    idle: int


class Quotas:
    """Quota of one state as reasons."""

    def __init__(self, state: State) -> None:
        self._state, self._book = state, state.book
        self._idle = Usage(state.book)
        self._rows = cache(self._find_rows)
        self._counts = cache(self._count)

    # Now

    def row(self, gang: Gang, charge: Charge) -> Reason | None:
        """The first row in the way of this charge; that even an idle cluster has too little comes first. None: nothing
        is in its way any more.
        """
        rows, asks = self._rows(gang.queue, tuple(charge)), tuple(charge.values())
        if rows is None:
            return self.never(gang, charge) or next(iter(self.rows(gang, charge)), None)
        short = None
        for row in rows:
            if asks[row.at] > row.room:
                if asks[row.at] > row.idle:
                    return self._beyond(gang, charge)
                short = short or row
        if short is None:
            return None
        counts = self._counts(short.queue, short.account)
        return self._told(gang, short.limit, asks[short.at], counts, live=short.live)

    def rows(self, gang: Gang, charge: Charge) -> list[Reason]:
        """All rows in the way, written limits first, nearest first, the live capacity last; for each queue and resource
        one.
        """
        told: dict[tuple[str, str], Reason | None] = {}
        for s in self.shortfalls(gang, charge):
            counts = self._counts(s.queue, s.account)
            if not self._book.lends_all(gang.queue, s.account):
                counts = tuple((s.held, figures) for _, figures in counts)
            reason = self._told(gang, s.limit, s.asks, counts, live=s.live)
            told.setdefault((s.queue, s.account[1]), reason)
        return [reason for reason in told.values() if reason is not None]

    def shortfalls(self, gang: Gang, charge: Charge) -> list[Shortfall]:
        """The rows in the way, in that order."""
        depth = {path: i for i, path in enumerate(self._book.lineage(gang.queue))}
        found = [s for usage in self._state.usages() for s in usage.shortfalls(gang.queue, charge)]
        return sorted(found, key=lambda s: (s.live, depth[s.queue], str(s.account)))

    def _find_rows(self, queue: str, accounts: tuple[Account, ...]) -> tuple[Row, ...] | None:
        """The limits on a path, as told; None: something on it is not lent, so that they depend on the charge."""
        book = self._book
        if any(book.kept(queue, account) for account in accounts):
            return None
        own = [
            Row(
                at=at,
                account=account,
                queue=queue,
                limit=limit,
                live=book.is_live(queue, account, limit),
                room=limit - max(counts for counts, _ in self._counts(queue, account)),
                idle=limit - self._idle.held(queue, account, surely=True),
            )
            for at, account in enumerate(accounts)
            if (limit := book.limit(queue, account)) is not None
        ]
        if queue == ROOT:
            return tuple(sorted(own, key=lambda row: row.live))
        above = self._rows(book.lineage(queue)[1], accounts)
        return None if above is None else (*own, *above)

    def _count(self, queue: str, account: Account) -> Counts:
        state, found = self._state, []
        for usage in state.usages():
            figures, there = self._used(queue, account), usage.used(queue, account)
            counts = usage.held(queue, account, surely=True)
            if usage is not state.now and (leaving := figures["used"] + figures["held"] - there):
                figures["leaving"] = leaving
            if counts > there:
                figures["kept"] = counts - there
            found.append((counts, figures))
        return tuple(found)

    def _told(self, gang: Gang, limit: int, asks: int, counts: Counts, *, live: bool) -> Reason | None:
        """`used + held - leaving + kept + asks > limit`, what is leaving only where `used` alone is not too much."""
        figures = next((figures for counted, figures in counts if counted + asks > limit), None)
        if figures is None:
            return None
        params = {**figures, "asks": asks, "limit": limit}
        borrows = params["guaranteed"] and not any(
            any(self._state.claimed.entitlements(gang.queue, charge)) for _, charge in gang.shape.least
        )
        token = Token.BORROWING_LIMIT_REACHED if borrows else Token.WAITING_FOR_QUOTA
        return Reason(token, marked(gang, params, live=live))

    def _used(self, queue: str, account: Account) -> dict[str, Any]:
        """What is used, held for bound gangs, and guaranteed."""
        used = self._state.now.used(queue, account)
        return {
            **named(queue, account),
            "used": used,
            "held": self._state.claimed.used(queue, account) - used,
            "guaranteed": 0 if queue == ROOT else self._book.guaranteed(queue, account),
        }

    # Never

    def never(self, gang: Gang, charge: Charge) -> Reason | None:
        """What keeps this charge from starting even when nothing runs; None: nothing does."""
        return None if self._idle.fits(gang.queue, charge) else self._beyond(gang, charge)

    def _beyond(self, gang: Gang, charge: Charge) -> Reason | None:
        """The least limit on the path that the charge exceeds by itself, or beside what others do not lend."""
        resources = [resource for _, resource in charge]
        short = min(
            self._idle.shortfalls(gang.queue, charge),
            key=lambda s: (s.asks <= s.limit, resources.index(s.account[1]), s.limit - s.held, s.live),
            default=None,
        )
        if short is None:
            return None
        params = {**named(short.queue, short.account), "asks": short.asks, "limit": short.limit}
        if short.asks <= short.limit:
            params |= {"kept": short.held, "left": max(0, short.limit - short.held)}
            params["missing"] = short.held + short.asks - short.limit
        return Reason(Token.EXCEEDS_MAX_QUOTA, marked(gang, params, live=short.live))

    # Work that nobody may evict

    def entitlements(self, gang: Gang) -> list[Reason | None]:
        """By flavor why work that is not preemptible may not start; None: it would not have to borrow."""
        return [self._entitlement(gang, charge) for _, charge in gang.shape.least]

    def _entitlement(self, gang: Gang, charge: Charge) -> Reason | None:
        queue, book = gang.queue, self._book
        claims = [account for account in charge if account in book.claims(queue)]
        if not claims:
            asked = {r: n for (flavor, r), n in charge.items() if flavor is None and n and r != "pods"}
            return Reason(Token.EXCEEDS_MAX_QUOTA, marked(gang, {"queue": queue, "asked": asked}))
        over = {a: self._state.claimed.used(queue, a) + charge[a] - book.guaranteed(queue, a) for a in claims}
        worst = max(claims, key=lambda a: (charge[a] > book.guaranteed(queue, a), over[a]))
        if over[worst] <= 0:
            return None
        never = charge[worst] > book.guaranteed(queue, worst)
        params = {**self._used(queue, worst), "asks": charge[worst]}
        return Reason(Token.EXCEEDS_MAX_QUOTA if never else Token.WAITING_FOR_QUOTA, marked(gang, params))


def named(queue: str, account: Account) -> dict[str, Any]:
    """An account of a queue as parameters."""
    flavor, resource = account
    found = {"queue": queue, "resource": resource}
    return found if flavor is None else {**found, "flavor": flavor}


def marked(gang: Gang, params: dict[str, Any], *, live: bool = False) -> dict[str, Any]:
    """With marks: figures are those of a smaller size than the full one; the limit is the `live` capacity."""
    shape = gang.shape
    if shape.least and shape.least[0][1] is not shape.charges[0]:
        params["atLeast"] = True
    if live:
        params["live"] = True
    return params
