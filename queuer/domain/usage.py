"""The arithmetic on a `QuotaBook`: use at one moment, room for more, entitlement.

Amounts lie in one list, so that a copy is cheap and a question costs a few additions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TypeVar

from queuer.domain.queue import ROOT, QueueTree
from queuer.domain.quota import Account, Charge, CountedCharge, Guarantee, LimitCheck, QuotaBook, Shortfall

K = TypeVar("K")
N = TypeVar("N", int, float)


def subtree_sums(tree: QueueTree, own: Mapping[str, Mapping[K, N]]) -> dict[str, dict[K, N]]:
    """Sums over the subtree of each queue, of `own` amounts by queue. Amounts of a deleted queue count at its nearest
    ancestor that exists.
    """
    total: dict[str, dict[K, N]] = {queue.path: {} for queue in tree}
    for path, amounts in own.items():
        for above in tree.lineage(path):
            if above in tree:
                held = total[above]
                for key, amount in amounts.items():
                    held[key] = held.get(key, 0) + amount
    return total


class Usage:
    """The use of every queue's subtree, and the part that its parent counts, in one list by the cells of the book.
    `add` with `times=-1` releases.
    """

    __slots__ = ("_amounts", "book")

    def __init__(self, book: QuotaBook) -> None:
        self.book = book
        self._amounts = list(book.idle)

    def copy(self) -> Usage:
        """An independent copy."""
        twin = Usage.__new__(Usage)
        twin.book = self.book
        twin._amounts = self._amounts.copy()
        return twin

    def _now(self) -> list[int]:
        """Amounts for all cells that the book knows by now."""
        amounts, idle = self._amounts, self.book.idle
        if len(amounts) < len(idle):
            amounts += idle[len(amounts) :]
        return amounts

    def add(self, path: str, charge: Charge, *, times: int = 1) -> None:
        """Count a charge in the queue and all its ancestors."""
        self.count(self.book.counted(path, charge), times=times)

    def count(self, charge: CountedCharge, *, times: int = 1) -> None:
        """Count a prepared charge, as `add` does."""
        amounts = self._now()
        for cell, amount in charge.cells:
            amounts[cell] += amount * times
        for account, amount in charge.keeps_back:
            self._add_where_kept_back(charge.path, account, amount * times)

    def _add_where_kept_back(self, path: str, account: Account, delta: int) -> None:
        """A parent counts what is kept back instead, where that is more."""
        seen = delta
        for queue in self.book.lineage(path):
            cell, kept = self.book.cell(queue, account), self.book.kept(queue, account)
            self._amounts[cell.used] += delta
            before = self._amounts[cell.base]
            self._amounts[cell.base] = before + seen
            seen = max(before + seen, kept) - max(before, kept)

    def used(self, path: str, account: Account) -> int:
        """The use of the subtree."""
        cell = self.book.cell(path, account).used
        return self._now()[cell]

    def _base(self, path: str, account: Account) -> int:
        cell = self.book.cell(path, account).base
        return self._now()[cell]

    def held(self, path: str, account: Account) -> int:
        """The amount that counts against the queue's limit: its use, or Σ seen(children) if that is more."""
        return max(self.used(path, account), self._base(path, account))

    def rooms(self, path: str, account: Account) -> Iterator[tuple[str, int]]:
        """How much one workload in `path` may ask for at each queue of its path that limits the account, seen from
        the leaf. Ancestors count the part that a queue keeps back already, used or not.
        """
        kept_back = 0
        for queue in self.book.lineage(path):
            used, base = self.used(queue, account), self._base(queue, account)
            limit = self.book.limit(queue, account)
            if limit is not None:
                yield queue, max(0, min(limit - used, max(0, limit - base) + kept_back))
            kept_back += max(0, self.book.kept(queue, account) - base)

    def fits(self, path: str, charge: Charge, *, live: bool = True) -> bool:
        """Whether the charge breaks no row on the path. `live=False`: the live capacity aside."""
        return self.first_broken(path, charge, live=live) is None

    def first_broken(self, path: str, charge: Charge, *, live: bool = True) -> LimitCheck | None:
        """The limit of the first of `shortfalls`; None = the charge fits."""
        where = self.book.charge_path(path, tuple(charge))
        if where.keeps_back:
            short = next(self.shortfalls(path, charge, live=live), None)
            if short is None:
                return None
            cell = self.book.cell(short.queue, short.account).used
            return LimitCheck(tuple(charge).index(short.account), cell, short.limit, short.queue, short.live)
        amounts, asks = self._now(), tuple(charge.values())
        for check in where.limits if live else where.stated:
            if amounts[check.cell] + asks[check.at] > check.limit:
                return check
        return None

    def shortfalls(self, path: str, charge: Charge, *, live: bool = True) -> Iterator[Shortfall]:
        """Rows on the path that this charge would break, by account and from the leaf. `live=False`: the live
        capacity aside.
        """
        for account, asks in charge.items():
            seen = asks
            for queue in self.book.lineage(path):
                limit = self.book.limit(queue, account, live=live)
                base, kept = self._base(queue, account), self.book.kept(queue, account)
                after = max(base + seen, kept)
                seen = after - max(base, kept)
                if limit is None:
                    continue
                used = self.used(queue, account)
                above = seen > 0 and after > limit
                if used + asks > limit or above:
                    held = after - asks if above else used
                    yield self._short(queue, account, asks, limit=limit, held=held)

    def _short(self, queue: str, account: Account, asks: int, *, limit: int, held: int) -> Shortfall:
        return Shortfall(
            queue=queue,
            account=account,
            limit=limit,
            used=self.used(queue, account),
            held=held,
            asks=asks,
            live=self.book.is_live(queue, account, limit),
        )

    def binding(self, path: str, charge: Charge) -> frozenset[Account]:
        """Accounts of the charge in which something else than the live capacity can bind on this path."""
        return self.book.charge_path(path, tuple(charge)).binding

    def entitled(self, path: str, charge: Charge, *, at: str) -> bool:
        """Whether a workload in `path` with this charge, counted in, stays inside what `at` is guaranteed
        (3.3).
        """
        if at == ROOT:
            return False
        claims, some = self.book.claimed_at(path, at), False
        amounts = self._now()
        for cell, guaranteed, account in claims:
            asks = charge.get(account)
            if asks is not None:
                if amounts[cell] + asks > guaranteed:
                    return False
                some = True
        return some

    def entitlements(self, path: str, charge: Charge) -> tuple[bool, ...]:
        """Whether it is `entitled` at each queue of its path below root, from the leaf."""
        charge_path, found = self.book.charge_path(path, tuple(charge)), list[bool]()
        amounts, asks = self._now(), tuple(charge.values())
        for claims in charge_path.claims:
            inside = bool(claims)
            for at, cell, guaranteed in claims:
                if amounts[cell] + asks[at] > guaranteed:
                    inside = False
                    break
            found.append(inside)
        return tuple(found)

    def exceeds(self, rows: Iterable[Iterable[Guarantee]]) -> bool:
        """Whether in one of these rows more is used everywhere than is guaranteed."""
        amounts = self._now()
        for row in rows:
            for cell, guaranteed, _ in row:
                if amounts[cell] <= guaranteed:
                    break
            else:
                return True
        return False

    def excess(self, guarantee: Guarantee) -> int:
        """How much more is used there than is guaranteed."""
        return self._now()[guarantee.cell] - guarantee.guaranteed

    def share(self, path: str, charge: Charge) -> float:
        """Weighted dominant share of what the queue borrows, with the charge counted in (3.4)."""
        most, resources = 0.0, self.book.share_parts(path)
        amounts = self._now()
        for live, parts in resources:
            excess = 0
            for cell, guaranteed, account in parts:
                over = amounts[cell] + charge.get(account, 0) - guaranteed
                if over > 0:
                    excess += over
            if excess and excess / live > most:
                most = excess / live
        return most / self.book.tree[path].weight
