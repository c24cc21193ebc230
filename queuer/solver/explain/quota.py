"""What quota tells a waiting gang: every row that stands in its way, the room at each level, and who holds it.

Thousands of gangs wait for the same few rows: root is asked once for each charge, and equal answers are one object.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache, cached_property
from typing import Any

import numpy as np

from queuer.domain.quantity import format_quantity
from queuer.domain.queue import ROOT
from queuer.domain.quota import Account, Charge, Shortfall
from queuer.domain.reasons import Reason, Token
from queuer.solver.board import Board
from queuer.solver.order import Gang

HOLDERS = 3
"""How many holders are named at most."""


class QuotaWords:
    """Quota of one board in words."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self._told: dict[tuple[Shortfall, Token], Reason] = {}
        self._fits_root: dict[object, bool] = {}
        self._there: dict[object, list[dict[str, Any]]] = {}
        self._free: dict[object, dict[str, str]] = {}
        self._rooms: dict[object, tuple[Mapping[str, str], ...]] = {}
        self._limited = cache(self._find_limited)
        self._below_root = cache(self._find_below_root)
        self._unused = cache(self._find_unused)
        self.holders = cache(self._find_holders)

    # What stands in the way

    def only_root(self, queue: str, charge: Charge) -> bool:
        """Whether no row below root can be in the way of the charge, now or ever."""
        plain, rooms = self._below_root(queue)
        if plain:
            for account, room in rooms:
                if charge.get(account, 0) > room:
                    return False
        return plain

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

    def _find_below_root(self, queue: str) -> tuple[bool, tuple[tuple[Account, int], ...]]:
        """Whether all queues of the path lend all that they do not use, so that root counts just what is asked; and
        what the rows below root leave in each account that they limit.
        """
        book, sheets = self._board.book, self._board.sheets()
        plain = all(row.lend is None for path in book.lineage(queue) for row in book.tree[path].quota)
        rooms = []
        for account in self._limited(queue):
            found = [r for sheet in sheets for path, r in sheet.usage.rooms(queue, account) if path != ROOT]
            rooms.append((account, min(found)))
        return plain, tuple(rooms)

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

    def _find_limited(self, queue: str) -> tuple[Account, ...]:
        """Accounts that a queue of the path below root limits."""
        book = self._board.book
        rows = (row for path in book.lineage(queue) if path != ROOT for row in book.tree[path].quota)
        return tuple(dict.fromkeys((row.flavor, row.resource) for row in rows if row.limit is not None))

    def reason(self, gang: Gang, short: Shortfall) -> Reason:
        """One row that stands in the way of a gang."""
        token = Token.WAITING_FOR_QUOTA
        if (
            short.queue != ROOT
            and self._guaranteed(short)
            and not any(self.entitled(gang.queue, charge) for charge in gang.shape.charges)
        ):
            token = Token.BORROWING_LIMIT_REACHED
        key = (short, token)
        if key not in self._told:
            self._told[key] = self._tell(short, token)
        return self._told[key]

    def _guaranteed(self, short: Shortfall) -> int:
        return self._board.book.guaranteed(short.queue, short.account) if short.queue != ROOT else 0

    def entitled(self, queue: str, charge: Charge) -> bool:
        """Whether a workload of the queue is entitled at any queue of its path."""
        claims = self._board.book.claims(queue)
        asks = [(account, amount) for account, amount in charge.items() if account in claims]
        return bool(asks) and any(
            all(amount <= unused.get(account, 0) for account, amount in asks)
            for unused in self._unused(queue)
        )

    def _find_unused(self, queue: str) -> tuple[Mapping[Account, int], ...]:
        """By queue of the path below root, the part of its guarantee that is not used, in each account claimed."""
        book, claimed = self._board.book, self._board.claimed
        return tuple(
            {a: book.guaranteed(path, a) - claimed.used(path, a) for a in book.claims(queue)}
            for path in book.lineage(queue)
            if path != ROOT
        )

    def _tell(self, short: Shortfall, token: Token) -> Reason:
        resource, bound = short.account[1], self._bound(short)
        used = short.used - bound
        params = amounts(short.queue, short.account, asks=short.asks, limit=short.limit, used=used)
        params["guaranteed"] = format_quantity(self._guaranteed(short), resource=resource)
        limit = "the live capacity" if short.live else "the limit"
        text = (
            f"{short.queue} uses {params['used']} of {params['limit']} {self.name(short.account)} ({limit})"
        )
        if bound:
            leaving = self._board.now.usage.used(short.queue, short.account) - used
            params["held"] = format_quantity(bound, resource=resource)
            params["leaving"] = format_quantity(leaving, resource=resource)
            text += f" beside {params['leaving']} that are leaving" if leaving else ""
            text += f", {params['held']} are held for jobs that start when evicted ones have left"
        if short.held > short.used:
            params["kept"] = format_quantity(short.held - short.used, resource=resource)
            text += f", {params['kept']} are kept for queues that do not lend them"
        return Reason(token=token, text=f"{text}; this job asks {params['asks']}.", params=params)

    def _bound(self, short: Shortfall) -> int:
        """What counts in the row because it is held for bound gangs: 0 where what is used now is in the way."""
        now = self._board.now.usage.used(short.queue, short.account)
        return 0 if short.used == now else self._board.claimed.used(short.queue, short.account) - now

    def name(self, account: Account) -> str:
        """The resource, with its flavor where there are several to tell apart."""
        flavor, resource = account
        return resource if flavor is None or not self._board.snapshot.flavors else f"{resource} on {flavor}"

    # Never

    def over(self, queue: str, charge: Charge) -> Reason | None:
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
                text = f"Asks {params['asks']} {self.name(account)}; {bound} {params['limit']}."
                return Reason(token=Token.EXCEEDS_MAX_QUOTA, text=text, params=params)
        return None

    def entitlement(self, gang: Gang, charge: Charge) -> Reason:
        """Work that nobody may evict does not borrow."""
        board, queue = self._board, gang.queue
        claims = [a for a in charge if a in board.book.claims(queue)]
        if not claims:
            text = f"Work that is not preemptible starts only inside a guarantee; {queue} has none for this."
            return Reason(token=Token.EXCEEDS_MAX_QUOTA, text=text, params={"queue": queue})
        used = {a: board.claimed.used(queue, a) for a in claims}
        worst = max(claims, key=lambda a: used[a] + charge[a] - board.book.guaranteed(queue, a))
        guaranteed = board.book.guaranteed(queue, worst)
        params = amounts(queue, worst, asks=charge[worst], used=used[worst], guaranteed=guaranteed)
        text = (
            f"Work that is not preemptible does not borrow: {queue} uses {params['used']} of its guaranteed "
            f"{params['guaranteed']} {self.name(worst)}; this job asks {params['asks']}."
        )
        never = charge[worst] > guaranteed
        return Reason(
            token=Token.EXCEEDS_MAX_QUOTA if never else Token.WAITING_FOR_QUOTA, text=text, params=params
        )

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
            if queue != ROOT and self._below_root(queue)[0]:
                above = self._headroom(self._board.book.lineage(queue)[1], flavor, resources)
                self._rooms[key] = (*self._levels(queue, flavor, resources, alone=True), *above)
            else:
                self._rooms[key] = self._levels(queue, flavor, resources, alone=False)
        return self._rooms[key]

    def _levels(
        self, queue: str, flavor: str, resources: Sequence[str], *, alone: bool
    ) -> tuple[Mapping[str, str], ...]:
        """`alone`: the queue itself and none of its ancestors."""
        least: dict[str, dict[str, int]] = {}
        for resource in resources:
            for account in ((flavor, resource), (None, resource)):
                if alone and account not in self._limited(queue):
                    continue
                for sheet in self._board.sheets():
                    for path, room in sheet.usage.rooms(queue, account):
                        if path != queue and alone:
                            break
                        there = least.setdefault(path, {})
                        there[resource] = min(room, there.get(resource, room))
        return tuple(
            {"queue": path, **{r: format_quantity(n, resource=r) for r, n in least[path].items()}}
            for path in self._board.book.lineage(queue)
            if path in least
        )

    def in_the_way(self, short: Shortfall) -> tuple[Mapping[str, Any], ...]:
        """Who holds most of what a row counts."""
        return self.holders(short.queue, short.account, bool(self._bound(short)))

    def _find_holders(self, queue: str, account: Account, later: bool) -> tuple[Mapping[str, Any], ...]:
        """Who uses most of an account in a queue: its children, or the workloads of a leaf. `later`: without what is
        leaving, with the bound gangs.
        """
        board, resource = self._board, account[1]
        bound = self._bound_in(queue, account) if later else {}
        kids = board.book.tree.children[queue]
        if kids:
            used = {kid: board.now.usage.used(kid, account) for kid in kids}
            if later:
                held_in = {kid: sum(self._bound_in(kid, account).values()) for kid in kids}
                used = {kid: board.later.usage.used(kid, account) - held_in[kid] for kid in kids}
        else:
            gone = board.leaving if later else set()
            rows = [uid for uid in self._running.get(queue, ()) if uid not in gone]
            used = {uid: board.holds[uid].charge.get(account, 0) for uid in rows}
        return tuple(
            promised(board, name, resource, n)
            if name in bound
            else {"queue": name, **held(resource, n)}
            if kids
            else workload(board, name, resource, n)
            for name, n in most({**used, **bound})
        )

    def _bound_in(self, queue: str, account: Account) -> dict[str, int]:
        """What is held for each bound gang of the queue's subtree."""
        board = self._board
        found = {
            uid: charge.get(account, 0)
            for uid, (w, charge) in board.bound.items()
            if queue in board.book.lineage(w.queue)
        }
        return {uid: amount for uid, amount in found.items() if amount}

    @cached_property
    def _running(self) -> Mapping[str, Sequence[str]]:
        """Uids of what is admitted, by leaf."""
        found: dict[str, list[str]] = {}
        for uid, hold in self._board.holds.items():
            found.setdefault(hold.admitted.workload.queue, []).append(uid)
        return found


def most(amounts_by: Mapping[str, int]) -> list[tuple[str, int]]:
    """The largest amounts above 0, equal ones by name."""
    found = sorted(amounts_by.items(), key=lambda item: (-item[1], item[0]))[:HOLDERS]
    return [(name, amount) for name, amount in found if amount > 0]


def held(resource: str, amount: int) -> dict[str, str]:
    """What a holder holds."""
    return {"resource": resource, "amount": format_quantity(amount, resource=resource)}


def workload(board: Board, uid: str, resource: str, amount: int) -> dict[str, Any]:
    """A workload that holds something, and when it is expected to end if that is known."""
    admitted = board.holds[uid].admitted
    own = admitted.workload
    found = {"workload": uid, "name": own.name, "namespace": own.namespace, "queue": own.queue}
    ends = {} if admitted.expected_end is None else {"ends": admitted.expected_end}
    leaving = {"leaving": True} if admitted.releasing or uid in board.leaving else {}
    return {**found, **held(resource, amount), **ends, **leaving}


def promised(board: Board, uid: str, resource: str, amount: int) -> dict[str, Any]:
    """A bound gang, for which something is held."""
    own = board.bound[uid][0]
    found = {"workload": uid, "name": own.name, "namespace": own.namespace, "queue": own.queue}
    return {**found, **held(resource, amount), "held": True}


def amounts(queue: str, account: Account, **given: int) -> dict[str, Any]:
    """Figures of an account as `Reason.params`."""
    flavor = {} if account[0] is None else {"flavor": account[0]}
    shown = {name: format_quantity(amount, resource=account[1]) for name, amount in given.items()}
    return {"queue": queue, "resource": account[1], **flavor, **shown}
