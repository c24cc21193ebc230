"""What quota tells a waiting gang: every row that stands in its way, and the room at each level.

Thousands of gangs wait for the same few rows: root is asked once for each charge, and equal answers are one object.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np

from queuer.domain.quantity import format_quantity
from queuer.domain.queue import ROOT
from queuer.domain.quota import Account, Charge, Shortfall
from queuer.domain.reasons import Reason, Token
from queuer.domain.usage import Usage
from queuer.solver.board import Board
from queuer.solver.contested import Variant
from queuer.solver.order import Gang

BOUND = "jobs that start when others have left"
"""Whom bound gangs are called before those who do not know them."""


class QuotaWords:
    """Quota of one board in words."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self._told: dict[tuple[Shortfall, Token, str], Reason] = {}
        self._fits_root: dict[object, bool] = {}
        self._by_shape: dict[int, bool] = {}
        self._there: dict[object, list[dict[str, Any]]] = {}
        self._free: dict[object, dict[str, str]] = {}
        self._rooms: dict[object, tuple[Mapping[str, str], ...]] = {}
        self._below_root = cache(self._find_below_root)
        self._own_rooms = cache(self._find_own_rooms)
        self._entitled: dict[tuple[object, ...], bool] = {}
        self._idle = Usage(board.book)

    # What stands in the way

    def only_root(self, queue: str, charge: Charge) -> bool:
        """Whether no row below root can be in the way of the charge, now or ever."""
        rooms = self._below_root(queue)
        return rooms is not None and all(charge.get(account, 0) <= room for account, room in rooms.items())

    def only_root_bars(self, gang: Gang) -> bool:
        """The same for every choice of flavors that a gang has."""
        number, least = gang.shape.number, gang.shape.smallest
        known = self._by_shape.get(number)
        if known is None:
            known = bool(least) and all(self.only_root(gang.queue, charge) for _, charge in least)
            self._by_shape[number] = known
        return known

    def shortfalls(self, queue: str, charge: Charge) -> tuple[Shortfall, ...]:
        """Every row that the charge would break now, nearest first, the live capacity last, one for each queue and
        resource.
        """
        return self._ranked(queue, self._found(queue, charge))

    def fits(self, queue: str, charge: Charge, *, kind: object) -> bool:
        """Whether no row is in the way. `kind`: equal for equal charges, whatever their queues."""
        if not self.only_root(queue, charge):
            return not self._found(queue, charge)
        if kind not in self._fits_root:
            self._fits_root[kind] = not self._found(ROOT, charge)
        return self._fits_root[kind]

    def _find_below_root(self, queue: str) -> Mapping[Account, int] | None:
        """What the rows below root leave in each account that they limit. None: some queue of the path does not lend
        all that it does not use, so that root counts more than what is asked.
        """
        book = self._board.book
        if any(row.lend is not None for row in book.tree[queue].quota):
            return None
        if queue == ROOT:
            return {}
        above = self._below_root(book.lineage(queue)[1])
        if above is None:
            return None
        own = self._own_rooms(queue)
        return {**above, **{account: min(room, above.get(account, room)) for account, room in own.items()}}

    def _find_own_rooms(self, queue: str) -> Mapping[Account, int]:
        """What a queue's own rows leave in each account that they limit, where its path lends all."""
        usages = [sheet.usage for sheet in self._board.sheets()]
        limited = [
            (row.flavor, row.resource) for row in self._board.book.tree[queue].quota if row.limit is not None
        ]
        return {account: min(next(u.rooms(queue, account))[1] for u in usages) for account in limited}

    def _found(self, queue: str, charge: Charge) -> list[Shortfall]:
        return [s for sheet in self._board.sheets() for s in sheet.usage.shortfalls(queue, charge)]

    def _ranked(self, queue: str, found: Iterable[Shortfall]) -> tuple[Shortfall, ...]:
        """One for each queue and resource; a limit that is written tells more than the live capacity."""
        kept: dict[tuple[str, str], Shortfall] = {}
        for short in found:
            known = kept.setdefault((short.queue, short.account[1]), short)
            if known.live and not short.live:
                kept[short.queue, short.account[1]] = short
        depth = {path: i for i, path in enumerate(self._board.book.lineage(queue))}
        return tuple(sorted(kept.values(), key=lambda s: (s.live, depth[s.queue], str(s.account))))

    def reason(self, gang: Gang, short: Shortfall) -> Reason:
        """One row that stands in the way of a gang."""
        token = Token.WAITING_FOR_QUOTA
        asks = asks_of(gang)
        if (
            short.queue != ROOT
            and self._guaranteed(short)
            and not any(self.entitled(gang, variant) for variant in gang.shape.variants)
        ):
            token = Token.BORROWING_LIMIT_REACHED
        key = (short, token, asks)
        if key not in self._told:
            self._told[key] = self._tell(short, token, asks)
        return self._told[key]

    def _guaranteed(self, short: Shortfall) -> int:
        return self._board.book.guaranteed(short.queue, short.account) if short.queue != ROOT else 0

    def entitled(self, gang: Gang, variant: Variant) -> bool:
        """Whether it is inside a guarantee on its path, at its smallest size."""
        alike = (gang.shape.number, *variant.flavors.values())
        if alike not in self._entitled:
            _, charge = smallest(gang, variant)
            self._entitled[alike] = any(self._board.claimed.entitlements(gang.queue, charge))
        return self._entitled[alike]

    def _tell(self, short: Shortfall, token: Token, asks: str) -> Reason:
        """`used + held - leaving + kept + asks > limit`; without `held` where `used` alone is too much."""
        account = short.account
        used, held = self._used(short.queue, account)
        counts = held > 0 and self.counts_held(short)
        leaving = used + held - short.used if counts else 0
        kept = short.held - short.used
        guaranteed = self._guaranteed(short)
        params = amounts(
            short.queue,
            account,
            asks=short.asks,
            limit=short.limit,
            used=used,
            held=held,
            guaranteed=guaranteed,
        )
        limit = "the live capacity" if short.live else "the limit"
        text = f"{short.queue} uses {params['used']} of {params['limit']} {self.name(account)} ({limit})"
        if leaving:
            params |= amounts(short.queue, account, leaving=leaving)
            text += f", {params['leaving']} of these {_be(leaving)} leaving"
        if counts:
            text += f", {params['held']} more {_be(held)} held for {BOUND}"
        if kept:
            params |= amounts(short.queue, account, kept=kept)
            text += f", {params['kept']} {_be(kept)} kept for queues that do not lend {'it' if kept == 1 else 'them'}"
        return Reason(token=token, text=f"{text}; this job {asks} {params['asks']}.", params=params)

    def counts_held(self, short: Shortfall) -> bool:
        """Whether what is held for bound gangs counts in the row, not what is used now."""
        return short.used != self._board.now.usage.used(short.queue, short.account)

    def _used(self, queue: str, account: Account) -> tuple[int, int]:
        """What is used, and what is held for bound gangs."""
        used = self._board.now.usage.used(queue, account)
        return used, self._board.claimed.used(queue, account) - used

    def claimed(self, queue: str, account: Account) -> tuple[dict[str, Any], str]:
        """What counts against the guarantee of a queue: `used`, `held`, `guaranteed` and a sentence about them."""
        used, held = self._used(queue, account)
        guaranteed = self._board.book.guaranteed(queue, account)
        params = amounts(queue, account, used=used, held=held, guaranteed=guaranteed)
        text = f"{queue} uses {params['used']} of its guaranteed {params['guaranteed']} {self.name(account)}"
        return params, f"{text}, {params['held']} more {_be(held)} held for {BOUND}" if held else text

    def name(self, account: Account) -> str:
        """The resource, with its flavor where there are several to tell apart."""
        flavor, resource = account
        return resource if flavor is None or not self._board.snapshot.flavors else f"{resource} on {flavor}"

    # Never

    def over(self, gang: Gang, queue: str, charge: Charge) -> Reason | None:
        """Larger by itself than a limit on the path, the live capacity included: the least of these is named."""
        book = self._board.book
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
                params = amounts(path, account, asks=charge[account], limit=limit)
                live = path == ROOT and limit == book.live.get(account, 0)
                bound = "the cluster has" if live else f"{path} may never use more than"
                text = f"{asks_of(gang).capitalize()} {params['asks']} {self.name(account)}; {bound} {params['limit']}."
                return Reason(token=Token.EXCEEDS_MAX_QUOTA, text=text, params=params)
        return None

    def unlent(self, gang: Gang, queue: str, charge: Charge) -> Reason | None:
        """Beside what others do not lend it is too much for a limit on the path, though nothing runs at all: the
        nearest is named.
        """
        short = next(iter(self._ranked(queue, self._idle.shortfalls(queue, charge))), None)
        if short is None:
            return None
        account, book = short.account, self._board.book
        path, room = book.lineage(queue), max(0, short.limit - short.held)
        kept = {q.path: book.kept(q.path, account) for q in book.tree if q.path not in path}
        keeper = max((q for q in kept if q.startswith(f"{short.queue}.")), key=lambda q: kept[q])
        params = amounts(
            short.queue,
            account,
            asks=short.asks,
            limit=short.limit,
            left=room,
            kept=short.held,
            keeps=kept[keeper],
            missing=short.held + short.asks - short.limit,
        )
        limit = "the live capacity" if short.live else "the limit"
        text = f"{asks_of(gang).capitalize()} {params['asks']} {self.name(account)}; even when nothing runs "
        text += f"{params['left']} of the {params['limit']} of {short.queue} ({limit}) {_be(room)} left, as "
        if kept[keeper] < short.held:
            text += f"{params['kept']} {_be(short.held)} not lent, {params['keeps']} of these by {keeper}"
        else:
            text += f"{keeper} does not lend {params['kept']}"
        text += f". It could start if {params['missing']} more were lent"
        text += f", or if it asked for {params['left']} at most." if room else "."
        params["keeper"] = keeper
        return Reason(token=Token.EXCEEDS_MAX_QUOTA, text=text, params=params)

    def entitlement(self, gang: Gang, charge: Charge) -> Reason | None:
        """Work that nobody may evict does not borrow. None: it would not have to, as things are."""
        board, queue = self._board, gang.queue
        claims = [a for a in charge if a in board.book.claims(queue)]
        if not claims:
            asked = ", ".join(
                f"{format_quantity(amount, resource=resource)} {resource}"
                for (flavor, resource), amount in charge.items()
                if flavor is None and amount and resource != "pods"
            )
            text = "Work that is not preemptible starts only inside a guarantee: "
            text += (
                f"this job {asks_of(gang)} {asked or 'for pods alone'}; {queue} is guaranteed none of that."
            )
            return Reason(token=Token.EXCEEDS_MAX_QUOTA, text=text, params={"queue": queue})
        over = {a: board.claimed.used(queue, a) + charge[a] - board.book.guaranteed(queue, a) for a in claims}
        beyond = {a: charge[a] > board.book.guaranteed(queue, a) for a in claims}
        worst = max(claims, key=lambda a: (beyond[a], over[a]))
        if over[worst] <= 0:
            return None
        params, text = self.claimed(queue, worst)
        params |= amounts(queue, worst, asks=charge[worst])
        text = f"Work that is not preemptible does not borrow: {text}; this job {asks_of(gang)} {params['asks']}."
        token = Token.EXCEEDS_MAX_QUOTA if beyond[worst] else Token.WAITING_FOR_QUOTA
        return Reason(token=token, text=text, params=params)

    def beyond_guarantee(self, gang: Gang, charge: Charge) -> Reason | None:
        """Work that nobody may evict is larger by itself than what its queue is guaranteed."""
        reason = None if gang.pending.workload.preemptible else self.entitlement(gang, charge)
        return reason if reason is not None and reason.token is Token.EXCEEDS_MAX_QUOTA else None

    def never_entitled(self, gang: Gang) -> Reason | None:
        """The same whatever its flavors."""
        reason = None
        for _, charge in gang.shape.smallest:
            reason = self.beyond_guarantee(gang, charge)
            if reason is None:
                return None
        return reason

    # What there is

    def available(
        self, queue: str, flavors: tuple[str, ...], resources: tuple[str, ...]
    ) -> list[dict[str, Any]]:
        """By flavor what is free on its usable nodes, and the room that limits leave at each level, nearest first."""
        key = (queue, flavors, resources)
        if key not in self._there:
            self._there[key] = [
                {
                    "flavor": flavor,
                    "free": self._free_on(flavor, resources),
                    "headroom": list(self._headroom(queue, flavor, resources)),
                }
                for flavor in flavors
            ]
        return self._there[key]

    def _free_on(self, flavor: str, resources: tuple[str, ...]) -> dict[str, str]:
        key = (flavor, resources)
        if key not in self._free:
            frame = self._board.frame
            usable = [
                i
                for i in frame.in_flavor[flavor].nonzero()[0]
                if (node := frame.snapshot.nodes[i].node).ready and not node.unschedulable
            ]
            free = np.minimum.reduce([sheet.free[usable] for sheet in self._board.sheets()])
            free = free.clip(min=0).sum(axis=0)
            self._free[key] = {r: format_quantity(int(free[frame.column[r]]), resource=r) for r in resources}
        return self._free[key]

    def _headroom(self, queue: str, flavor: str, resources: tuple[str, ...]) -> Sequence[Mapping[str, str]]:
        """By level what a workload of the queue may still ask for; what no row limits is left out."""
        key = (queue, flavor, resources)
        if key not in self._rooms:
            if queue != ROOT and self._below_root(queue) is not None:
                own = self._own_level(queue, flavor, resources)
                above = self._headroom(self._board.book.lineage(queue)[1], flavor, resources)
                self._rooms[key] = (*own, *above)
            else:
                self._rooms[key] = self._levels(queue, flavor, resources)
        return self._rooms[key]

    def _own_level(self, queue: str, flavor: str, resources: Sequence[str]) -> tuple[Mapping[str, str], ...]:
        """The queue alone, where its path lends all; () where it limits none of these."""
        own = self._own_rooms(queue)
        rooms = [(r, own[a]) for r in resources for a in ((flavor, r), (None, r)) if a in own]
        return _told_rooms(queue, rooms)

    def _levels(self, queue: str, flavor: str, resources: Sequence[str]) -> tuple[Mapping[str, str], ...]:
        """The queue and its ancestors."""
        found: dict[str, list[tuple[str, int]]] = {}
        for resource in resources:
            for account in ((flavor, resource), (None, resource)):
                for sheet in self._board.sheets():
                    for path, room in sheet.usage.rooms(queue, account):
                        found.setdefault(path, []).append((resource, room))
        lineage = self._board.book.lineage(queue)
        return tuple(level for path in lineage for level in _told_rooms(path, found.get(path, ())))


def amounts(queue: str, account: Account, **given: int) -> dict[str, Any]:
    """Figures of an account as `Reason.params`."""
    flavor = {} if account[0] is None else {"flavor": account[0]}
    shown = {name: format_quantity(amount, resource=account[1]) for name, amount in given.items()}
    return {"queue": queue, "resource": account[1], **flavor, **shown}


def _told_rooms(queue: str, rooms: Iterable[tuple[str, int]]) -> tuple[Mapping[str, str], ...]:
    """The least room in each resource at a queue that has any."""
    least: dict[str, int] = {}
    for resource, room in rooms:
        least[resource] = min(room, least.get(resource, room))
    if not least:
        return ()
    return ({"queue": queue, **{r: format_quantity(n, resource=r) for r, n in least.items()}},)


def smallest(gang: Gang, variant: Variant) -> tuple[Variant, Charge]:
    """The variant at the gang's smallest size, with its charge."""
    return next(found for found in gang.shape.smallest if found[0].flavors == variant.flavors)


def asks_of(gang: Gang) -> str:
    """How what it asks for begins: figures are those of its smallest size."""
    sets = gang.pending.workload.pod_sets
    return "asks" if all(gang.shape.least[p.name] == p.count for p in sets) else "asks at least"


def _be(amount: int) -> str:
    return "is" if amount == 1 else "are"
