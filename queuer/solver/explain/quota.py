"""Reasons that quota gives: the rows in a gang's way, limits that it exceeds by itself, and its guarantee.

Figures are of the state once all have had their turns.
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from functools import cache
from typing import Any

from queuer.domain.queue import ROOT
from queuer.domain.quota import Account, Charge, Shortfall
from queuer.domain.reasons import Reason, Token
from queuer.domain.usage import Usage
from queuer.solver.shapes import Gang
from queuer.solver.state import State


class Quotas:
    """Quota of one state as reasons."""

    def __init__(self, state: State) -> None:
        self._state, self._book = state, state.book
        self._idle = Usage(state.book)
        self._figures = cache(self._find_figures)

    # Now

    def row(self, gang: Gang, charge: Charge) -> Reason | None:
        """The first row in the way of this charge, or None if nothing is in its way any more. An idle cluster would
        have enough, see `unstartable`.
        """
        queue = gang.queue
        for usage in self._state.usages():
            broken = usage.first_broken(queue, charge, live=False) or usage.first_broken(queue, charge)
            if broken is not None:
                account = tuple(charge)[broken.at]
                if not self._book.lends_all(queue, account):
                    return self.rows(gang, charge)[0]
                figures = self._figures(broken.queue, account, usage)
                return self._told(gang, figures, charge[account], broken.limit, live=broken.live)
        return None

    def rows(self, gang: Gang, charge: Charge) -> list[Reason]:
        """All rows in the way, written limits first, nearest first, the live capacity last; for each queue and resource
        one.
        """
        told: dict[tuple[str, str], Reason] = {}
        for s, usage in self._short(gang, charge):
            figures = dict(self._figures(s.queue, s.account, usage))
            if not self._book.lends_all(gang.queue, s.account):  # what its own path keeps back is its to use
                figures.pop("kept", None)
                figures |= {"kept": s.held - s.used} if s.held > s.used else {}
            reason = self._told(gang, figures, s.asks, s.limit, live=s.live)
            told.setdefault((s.queue, s.account[1]), reason)
        return [*told.values()]

    def shortfalls(self, gang: Gang, charge: Charge) -> list[Shortfall]:
        """The rows in the way, in that order."""
        return [s for s, _ in self._short(gang, charge)]

    def _short(self, gang: Gang, charge: Charge) -> list[tuple[Shortfall, Usage]]:
        depth = {path: i for i, path in enumerate(self._book.lineage(gang.queue))}
        found = [(s, usage) for usage in self._state.usages() for s in usage.shortfalls(gang.queue, charge)]
        return sorted(found, key=lambda pair: (pair[0].live, depth[pair[0].queue], str(pair[0].account)))

    def _find_figures(self, queue: str, account: Account, usage: Usage) -> Mapping[str, Any]:
        """The figures of a row: `used + held - leaving + kept`. Work is leaving only at the later moment."""
        figures, there = self._used(queue, account), usage.used(queue, account)
        if usage is not self._state.used_now and (leaving := figures["used"] + figures["held"] - there):
            if leaving > 0:
                figures["leaving"] = leaving
            else:  # kept for gangs that fit but for what is still landing
                figures["held"] -= leaving
        if kept := usage.held(queue, account) - there:
            figures["kept"] = kept
        return figures

    def _told(self, gang: Gang, figures: Mapping[str, Any], asks: int, limit: int, *, live: bool) -> Reason:
        borrows = figures["guaranteed"] and not any(
            any(self._state.claimed.entitlements(gang.queue, charge)) for _, charge in gang.shape.least
        )
        token = Token.BORROWING_LIMIT_REACHED if borrows else Token.WAITING_FOR_QUOTA
        return Reason(token, marked(gang, {**figures, "asks": asks, "limit": limit}, live=live))

    def _used(self, queue: str, account: Account) -> dict[str, Any]:
        """Amounts used, held for bound gangs, and guaranteed."""
        used = self._state.used_now.used(queue, account)
        return {
            **named(queue, account),
            "used": used,
            "held": self._state.claimed.used(queue, account) - used,
            "guaranteed": 0 if queue == ROOT else self._book.guaranteed(queue, account),
        }

    # Unstartable

    def unstartable(self, gang: Gang, charge: Charge) -> Reason | None:
        """This charge exceeds a limit even when nothing runs, or a guarantee if the work may not borrow."""
        owed = None if gang.workload.preemptible else self._entitlement(gang, charge)
        if owed is not None and owed.token is Token.EXCEEDS_MAX_QUOTA:
            return owed
        return self._exceeds(gang, charge)

    def _exceeds(self, gang: Gang, charge: Charge) -> Reason | None:
        """The least limit on the path that it exceeds by itself, or beside what others do not lend."""
        if self._idle.first_broken(gang.queue, charge) is None:
            return None
        resources = [resource for _, resource in charge]
        short = min(
            self._idle.shortfalls(gang.queue, charge),
            key=lambda s: (s.asks <= s.limit, resources.index(s.account[1]), s.limit - s.held, s.live),
        )
        params = {**named(short.queue, short.account), "asks": short.asks, "limit": short.limit}
        if short.asks <= short.limit:
            params |= {"kept": short.held, "left": max(0, short.limit - short.held)}
            params["missing"] = short.held + short.asks - short.limit
        resource, nodes = short.account[1], self._state.nodes
        largest = int(nodes.alloc[:, nodes.column(resource)].max(initial=0)) if nodes.knows([resource]) else 0
        if 0 < largest < max(p.requests.get(resource, 0) for p in gang.workload.pod_sets):
            params["largest"] = {resource: largest}
        if short.live and not self._state.capacity.get(resource):
            there = [name for name, amount in self._state.capacity.items() if amount]
            params["nearest"] = get_close_matches(resource, there, n=1)
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
        guaranteed = book.guaranteed(queue, worst)
        if charge[worst] > guaranteed:  # whatever is used, so that nobody tells it otherwise later
            params = {**named(queue, worst), "guaranteed": guaranteed, "asks": charge[worst]}
            return Reason(Token.EXCEEDS_MAX_QUOTA, marked(gang, params))
        params = {**self._used(queue, worst), "asks": charge[worst]}
        return Reason(Token.WAITING_FOR_QUOTA, marked(gang, params))


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
