"""What quota tells a waiting gang: the rows in its way, what it could never have, and what its guarantee leaves.

Figures are of the state once all have had their turns.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from queuer.core.shapes import Gang
from queuer.core.state import State
from queuer.domain.queue import ROOT
from queuer.domain.quota import Account, Bar, Charge, Shortfall
from queuer.domain.reasons import Reason, Token
from queuer.domain.usage import Usage


class Quotas:
    """Quota of one state as reasons."""

    def __init__(self, state: State) -> None:
        self._state, self._book = state, state.book
        self._idle = Usage(state.book)

    # Now

    def row(self, gang: Gang, charge: Charge, bar: Bar | None = None) -> Reason | None:
        """The first row in the way of this charge; a limit that is written tells more than the live capacity. `bar`:
        the one that was in its way at its turn. None: none is any more.
        """
        if bar is not None and not bar.live:
            account = next(a for i, a in enumerate(charge) if i == bar.at)
            reason = self._told(gang, charge, bar.queue, account, bar.limit, live=False)
            if reason is not None:
                return reason
        return next(self.rows(gang, charge), None)

    def rows(self, gang: Gang, charge: Charge) -> Iterator[Reason]:
        """All rows in the way, written limits first, nearest first, the live capacity last; for each queue and resource
        one.
        """
        known = set[tuple[str, str]]()
        for short in self.shortfalls(gang, charge):
            key = (short.queue, short.account[1])
            reason = None
            if key not in known:
                known.add(key)
                reason = self._told(gang, charge, short.queue, short.account, short.limit, live=short.live)
            if reason is not None:
                yield reason

    def shortfalls(self, gang: Gang, charge: Charge) -> list[Shortfall]:
        """The rows in the way, in that order."""
        depth = {path: i for i, path in enumerate(self._book.lineage(gang.queue))}
        found = [s for usage in self._state.usages() for s in usage.shortfalls(gang.queue, charge)]
        return sorted(found, key=lambda s: (s.live, depth[s.queue], str(s.account)))

    def _told(
        self, gang: Gang, charge: Charge, queue: str, account: Account, limit: int, *, live: bool
    ) -> Reason | None:
        """`used + held - leaving + kept + asks > limit`, what is leaving and held only where `used` is not too much."""
        state, asks = self._state, charge[account]
        found = next(
            (
                (usage, counts)
                for usage in state.usages()
                if (counts := self._counts(usage, gang, charge, queue, account)) + asks > limit
            ),
            None,
        )
        if found is None:
            return None
        usage, counts = found
        params = self._used(queue, account)
        params |= {"asks": asks, "limit": limit}
        there = usage.used(queue, account)
        if usage is not state.now and (leaving := params["used"] + params["held"] - there):
            params["leaving"] = leaving
        if counts > there:
            params["kept"] = counts - there
        if live:
            params["live"] = True
        token = Token.WAITING_FOR_QUOTA
        if queue != ROOT and params["guaranteed"] and not self.entitled(gang):
            token = Token.BORROWING_LIMIT_REACHED
        return Reason(token, marked(gang, params))

    def _counts(self, usage: Usage, gang: Gang, charge: Charge, queue: str, account: Account) -> int:
        """What counts in a row beside what is asked."""
        if self._book.lends_all(gang.queue, account):
            return usage.held(queue, account, surely=True)
        rows = usage.shortfalls(gang.queue, charge)
        return next((s.held for s in rows if (s.queue, s.account) == (queue, account)), 0)

    def _used(self, queue: str, account: Account) -> dict[str, Any]:
        """What is used, held for bound gangs, and guaranteed."""
        used = self._state.now.used(queue, account)
        return {
            **named(queue, account),
            "used": used,
            "held": self._state.claimed.used(queue, account) - used,
            "guaranteed": 0 if queue == ROOT else self._book.guaranteed(queue, account),
        }

    def entitled(self, gang: Gang) -> bool:
        """Whether it is inside a guarantee on its path on any flavor, at its smallest size."""
        return any(any(self._state.claimed.entitlements(gang.queue, c)) for _, c in gang.shape.least)

    # Never

    def possible(self, gang: Gang, charge: Charge) -> Charge | None:
        """This charge, if limits permit it when nothing runs; else that of the first flavor for which they do, if any."""
        if self._idle.fits(gang.queue, charge):
            return charge
        return next((c for _, c in gang.shape.least if self._idle.fits(gang.queue, c)), None)

    def beyond_limits(self, gang: Gang, charge: Charge) -> Reason | None:
        """The least limit on the path that this charge exceeds by itself; else what others do not lend."""
        book, queue = self._book, gang.queue
        for resource in dict.fromkeys(resource for _, resource in charge):
            found = [
                (limit, account, path)
                for account, asks in charge.items()
                for path in book.lineage(queue)
                if account[1] == resource
                and (limit := book.limit(path, account)) is not None
                and asks > limit
            ]
            if found:
                limit, account, path = min(found, key=lambda f: f[0])
                params = {**named(path, account), "asks": charge[account], "limit": limit}
                if book.is_live(path, account, limit):
                    params["live"] = True
                return Reason(Token.EXCEEDS_MAX_QUOTA, marked(gang, params))
        return self._unlent(gang, charge)

    def _unlent(self, gang: Gang, charge: Charge) -> Reason | None:
        """Too much beside what others do not lend, though nothing runs at all."""
        book = self._book
        short = min(self._idle.shortfalls(gang.queue, charge), key=lambda s: s.live, default=None)
        if short is None:
            return None
        account, path = short.account, book.lineage(gang.queue)
        kept = {q.path: book.kept(q.path, account) for q in book.tree if q.path not in path}
        keeper = max((q for q in kept if q.startswith(f"{short.queue}.")), key=lambda q: kept[q])
        params = {
            **named(short.queue, account),
            "asks": short.asks,
            "limit": short.limit,
            "left": max(0, short.limit - short.held),
            "kept": short.held,
            "keeps": kept[keeper],
            "keeper": keeper,
            "missing": short.held + short.asks - short.limit,
        }
        if short.live:
            params["live"] = True
        return Reason(Token.EXCEEDS_MAX_QUOTA, marked(gang, params))

    # Work that nobody may evict

    def never_entitled(self, gang: Gang) -> Reason | None:
        """Work that is not preemptible is larger than what its queue is guaranteed, on every flavor that it may use."""
        reason = None
        for _, charge in gang.shape.least:
            reason = self.entitlement(gang, charge)
            if reason is None or reason.token is not Token.EXCEEDS_MAX_QUOTA:
                return None
        return reason

    def nearest_guarantee(self, gang: Gang, charge: Charge) -> Reason | None:
        """Of the first flavor whose guarantee it could ever keep within; else of this charge."""
        if gang.workload.preemptible:
            return None
        told = [self.entitlement(gang, least) for _, least in gang.shape.least]
        hopeful = (r for r in told if r is not None and r.token is not Token.EXCEEDS_MAX_QUOTA)
        return next(hopeful, None) or self.entitlement(gang, charge)

    def entitlement(self, gang: Gang, charge: Charge) -> Reason | None:
        """Work that nobody may evict does not borrow. None: it would not have to, as things are."""
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


def marked(gang: Gang, params: dict[str, Any]) -> dict[str, Any]:
    """With a mark where figures are those of a smaller size than the full one."""
    if any(p.min_count is not None and p.min_count < p.count for p in gang.workload.pod_sets):
        params["atLeast"] = True
    return params
