"""Who uses what at one moment, what still fits, who is entitled: the arithmetic on a `QuotaBook`.

Amounts lie in one list, so that a copy is cheap and a question costs a few additions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from queuer.domain.queue import ROOT
from queuer.domain.quota import Account, Bar, Charge, Entry, Mark, QuotaBook, Shortfall


class Usage:
    """What every queue's subtree uses, and what its parent counts of it, in one list by the spots of the book. `add`
    with `times=-1` releases.
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
        """Amounts for all spots that the book knows by now."""
        amounts, idle = self._amounts, self.book.idle
        if len(amounts) < len(idle):
            amounts += idle[len(amounts) :]
        return amounts

    def add(self, path: str, charge: Charge, *, times: int = 1) -> None:
        """Count a charge in the queue and all its ancestors."""
        self.enter(self.book.entry(path, charge), times=times)

    def enter(self, entry: Entry, *, times: int = 1) -> None:
        """As `add`."""
        amounts = self._now()
        for spot, amount in entry.spots:
            amounts[spot] += amount * times
        for account, amount in entry.uneven:
            self._add_unevenly(entry.path, account, amount * times)

    def _add_unevenly(self, path: str, account: Account, delta: int) -> None:
        """A parent counts what is kept back instead, where that is more."""
        seen = delta
        for queue in self.book.lineage(path):
            spot, kept = self.book.spot(queue, account), self.book.kept(queue, account)
            self._amounts[spot.used] += delta
            before = self._amounts[spot.base]
            self._amounts[spot.base] = before + seen
            seen = max(before + seen, kept) - max(before, kept)

    def used(self, path: str, account: Account) -> int:
        """What the subtree uses."""
        spot = self.book.spot(path, account).used
        return self._now()[spot]

    def _base(self, path: str, account: Account) -> int:
        spot = self.book.spot(path, account).base
        return self._now()[spot]

    def seen(self, path: str, account: Account) -> int:
        """What the parent counts: what is used, or what is not lent where that is more, at every level below."""
        return max(self._base(path, account), self.book.kept(path, account))

    def held(self, path: str, account: Account, *, surely: bool) -> int:
        """What counts in a queue: what is used, and `surely` also what its children are guaranteed and do not lend."""
        used = self.used(path, account)
        return max(used, self._base(path, account)) if surely else used

    def rooms(self, path: str, account: Account) -> Iterator[tuple[str, int]]:
        """How much one workload in `path` may ask for at each queue of its path that limits the account, seen from
        the leaf. What a queue keeps back and does not use costs its ancestors nothing more.
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
        return self.bar(path, charge, live=live) is None

    def bar(self, path: str, charge: Charge, *, live: bool = True) -> Bar | None:
        """The limit of the first of `shortfalls`; None = the charge fits."""
        layout, found = self.book.layout(path, tuple(charge)), None
        amounts, asks = self._now(), tuple(charge.values())
        for bar in layout.bars if live else layout.stated:
            if amounts[bar.spot] + asks[bar.at] > bar.limit:
                found = bar
                break
        if not layout.uneven:
            return found
        if found is None and not any(
            any(self._where_not_all_is_lent(path, account, charge[account], live=live))
            for account in layout.uneven
        ):
            return None
        short = next(self.shortfalls(path, charge, live=live))
        spot = self.book.spot(short.queue, short.account).used
        return Bar(tuple(charge).index(short.account), spot, short.limit, short.queue, short.live)

    def shortfalls(self, path: str, charge: Charge, *, live: bool = True) -> Iterator[Shortfall]:
        """Rows on the path that this charge would break, seen from the leaf. `live=False`: the live capacity
        aside.
        """
        for account, asks in charge.items():
            plain, bars = self.book.bound(path, account, live)
            if not plain:
                yield from self._where_not_all_is_lent(path, account, asks, live=live)
                continue
            for queue, limit in bars:
                held = self.held(queue, account, surely=True)
                if held + asks > limit:
                    yield self._short(queue, account, asks, limit=limit, held=held)

    def _where_not_all_is_lent(
        self, path: str, account: Account, asks: int, *, live: bool
    ) -> Iterator[Shortfall]:
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
        return self.book.layout(path, tuple(charge)).binding

    def entitled(self, path: str, charge: Charge, *, at: str) -> bool:
        """Whether a workload in `path` with this charge, counted in, stays inside what `at` is guaranteed
        (3.3).
        """
        if at == ROOT:
            return False
        claims, some = self.book.claim_spots(path, at), False
        amounts = self._now()
        for account, spot, guaranteed in claims:
            asks = charge.get(account)
            if asks is not None:
                if amounts[spot] + asks > guaranteed:
                    return False
                some = True
        return some

    def entitlements(self, path: str, charge: Charge) -> tuple[bool, ...]:
        """Whether it is `entitled` at each queue of its path below root, from the leaf."""
        layout, found = self.book.layout(path, tuple(charge)), list[bool]()
        amounts, asks = self._now(), tuple(charge.values())
        for claims in layout.claims:
            inside = bool(claims)
            for at, spot, guaranteed in claims:
                if amounts[spot] + asks[at] > guaranteed:
                    inside = False
                    break
            found.append(inside)
        return tuple(found)

    def exceeds(self, rows: Iterable[Iterable[Mark]]) -> bool:
        """Whether in one of these rows more is used everywhere than is guaranteed."""
        amounts = self._now()
        for row in rows:
            for spot, guaranteed, _ in row:
                if amounts[spot] <= guaranteed:
                    break
            else:
                return True
        return False

    def excess(self, mark: Mark) -> int:
        """How much more is used there than is guaranteed."""
        return self._now()[mark.spot] - mark.guaranteed

    def above(self, path: str, account: Account) -> bool:
        """Whether the queue uses more in this account than it is guaranteed."""
        return self.excess(self.book.guarantee_spot(path, account)) > 0

    def share(self, path: str, charge: Charge) -> float:
        """Weighted dominant share of what the queue borrows, with the charge counted in (3.4)."""
        most, resources = 0.0, self.book.excess_spots(path)
        amounts = self._now()
        for live, parts in resources:
            excess = 0
            for account, spot, guaranteed in parts:
                over = amounts[spot] + charge.get(account, 0) - guaranteed
                if over > 0:
                    excess += over
            if excess and excess / live > most:
                most = excess / live
        return most / self.book.tree[path].weight
