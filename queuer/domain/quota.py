"""Quota arithmetic over the queue tree: who uses what, what still fits, who is entitled (DESIGN 3.1, 3.3).

A `QuotaBook` is compiled from a tree and the live capacity; a `Usage` is the mutable state of one moment.
What a workload asks for is a `Charge`: amounts by account, each (flavor, resource) amount counted in (any,
resource) too. All amounts are base units.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache

from queuer.domain.quantity import Resources
from queuer.domain.queue import ROOT, QueueTree, QuotaRow
from queuer.domain.workload import Workload

Account = tuple[str | None, str]
"""(flavor, resource); flavor None = any flavor."""
Charge = Mapping[Account, int]


def charge_of(parts: Mapping[str, Resources]) -> dict[Account, int]:
    """The charge of amounts given by flavor. Zero amounts charge nothing."""
    total: dict[Account, int] = {}
    for flavor, amounts in parts.items():
        for resource, amount in amounts.items():
            if amount:
                for account in ((flavor, resource), (None, resource)):
                    total[account] = total.get(account, 0) + amount
    return total


def charge_for(
    workload: Workload, flavors: Mapping[str, str], counts: Mapping[str, int]
) -> dict[Account, int]:
    """What a workload asks for at these flavors and sizes, both by pod set name."""
    parts: dict[str, dict[str, int]] = {}
    for pod_set in workload.pod_sets:
        count = counts.get(pod_set.name, 0)
        total = parts.setdefault(flavors.get(pod_set.name, ""), {})
        for resource, amount in pod_set.requests.items():
            total[resource] = total.get(resource, 0) + amount * count
    return charge_of(parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortfall:
    """The first row that a charge would break, seen from the leaf: `held + asks > limit` in `account` of
    `queue`.

    `held`: what counts there already, unlent guarantees of its children included (`used` is without those).
    `live`: the limit is the live capacity, not a row.
    """

    queue: str
    account: Account
    limit: int
    used: int
    held: int
    asks: int
    live: bool = False


class QuotaBook:
    """The rows of a tree by queue and account, with `root` bounded by the live capacity."""

    def __init__(self, tree: QueueTree, capacity: Mapping[str, Resources]) -> None:
        """`capacity`: allocatable amounts by flavor."""
        self.tree = tree
        self.live: dict[Account, int] = charge_of(capacity)
        self._rows: dict[str, dict[Account, QuotaRow]] = {
            queue.path: {(row.flavor, row.resource): row for row in queue.quota} for queue in tree
        }
        self._flavors = tuple(capacity)
        self._lineage = cache(self._find_lineage)
        self.guaranteed = cache(self._find_guaranteed)
        self.claims = cache(self._find_claims)
        self.lends_all = cache(self._find_lends_all)
        self.bound = cache(self._find_bound)
        self.initial = self._unlent()

    def lineage(self, path: str) -> tuple[str, ...]:
        """The queue and its ancestors; for a queue that is gone, those of its nearest ancestor left."""
        return self._lineage(path)

    def _find_lineage(self, path: str) -> tuple[str, ...]:
        return tuple(p for p in self.tree.lineage(path) if p in self.tree) or (ROOT,)

    def limit(self, path: str, account: Account, *, live: bool = True) -> int | None:
        """What the subtree may use; None = unbounded here. For root never more than the live capacity, unless
        `live` is off.
        """
        row = self._rows[path].get(account)
        stated = None if row is None else row.limit
        if path != ROOT or not live:
            return stated
        there = self.live.get(account, 0)
        return there if stated is None else min(stated, there)

    def kept(self, path: str, account: Account) -> int:
        """The part of the guarantee that is not lent."""
        row = self._rows[path].get(account)
        if row is None or row.lend is None:
            return 0
        return max(0, self.guaranteed(path, account) - row.lend)

    def _find_lends_all(self, path: str, account: Account) -> bool:
        """Whether no queue of the path keeps anything back, so that each parent counts just what is used."""
        return not any(self.kept(queue, account) for queue in self.lineage(path))

    def _find_bound(
        self, path: str, account: Account, live: bool
    ) -> tuple[bool, tuple[tuple[str, int], ...]]:
        """Whether all is lent on the path, and its queues that bound the account, with their limits, from the leaf."""
        limits = ((queue, self.limit(queue, account, live=live)) for queue in self.lineage(path))
        bars = tuple((queue, limit) for queue, limit in limits if limit is not None)
        return self.lends_all(path, account), bars

    def _find_guaranteed(self, path: str, account: Account) -> int:
        flavor, resource = account
        row = self._rows[path].get(account)
        if row is not None and row.guaranteed is not None:
            return row.guaranteed
        below = sum(self.guaranteed(kid, account) for kid in self.tree.children[path])
        if below or flavor is not None:
            return below
        rows = self._rows[path].items()
        return sum(r.guaranteed or 0 for (f, name), r in rows if f is not None and name == resource)

    def _find_claims(self, path: str) -> frozenset[Account]:
        return frozenset(
            account
            for queue in self.lineage(path)
            if queue != ROOT
            for account, row in self._rows[queue].items()
            if row.guaranteed
        )

    def _unlent(self) -> dict[str, dict[Account, int]]:
        """Σ seen(children) of an idle tree, where it is not 0."""
        base: dict[str, dict[Account, int]] = {queue.path: {} for queue in self.tree}
        for queue in sorted(self.tree, key=lambda q: -q.path.count(".")):
            if queue.parent is None:
                continue
            rows = self._rows[queue.path]
            for account in {*base[queue.path], *(a for a, row in rows.items() if row.lend is not None)}:
                seen = max(base[queue.path].get(account, 0), self.kept(queue.path, account))
                if seen:
                    above = base[queue.parent]
                    above[account] = above.get(account, 0) + seen
        return base

    def excess(self, path: str, used: Mapping[Account, int], resource: str) -> int:
        """(used - guaranteed)+ of a resource, summed over flavors where its guarantee is by flavor."""
        by_flavor = [(f, resource) for f in self._flavors if self.guaranteed(path, (f, resource))]
        accounts = [(f, resource) for f in self._flavors] if by_flavor else [(None, resource)]
        return sum(max(0, used.get(a, 0) - self.guaranteed(path, a)) for a in accounts)

    def past_share(self, path: str, amounts: Mapping[str, float]) -> float:
        """Weighted dominant share of what a queue used in the past, by resource (policy `halfLife`)."""
        if path not in self.tree:
            return 0.0
        there = ((amount, self.live.get((None, resource), 0)) for resource, amount in amounts.items())
        return max((amount / live for amount, live in there if live), default=0.0) / self.tree[path].weight


class Usage:
    """What every queue's subtree uses, and what its parent counts of it. `add` with `times=-1` releases.

    Copies share the amounts of a queue until one of them changes these.
    """

    __slots__ = ("_base", "_own", "book", "used")

    def __init__(self, book: QuotaBook) -> None:
        self.book = book
        self.used: dict[str, dict[Account, int]] = {path: {} for path in book.initial}
        self._base = {path: dict(amounts) for path, amounts in book.initial.items()}
        self._own = set(self.used)

    def copy(self) -> Usage:
        """An independent copy."""
        twin = Usage.__new__(Usage)
        twin.book = self.book
        twin.used = dict(self.used)
        twin._base = dict(self._base)
        twin._own = set()
        self._own.clear()
        return twin

    def _claim(self, queue: str) -> None:
        """Let no copy share what is about to change."""
        self.used[queue] = dict(self.used[queue])
        self._base[queue] = dict(self._base[queue])
        self._own.add(queue)

    def add(
        self, path: str, charge: Charge, *, times: int = 1, only: frozenset[Account] | None = None
    ) -> None:
        """Count a charge in the queue and all its ancestors; `only`: no other accounts than these."""
        lineage = self.book.lineage(path)
        for queue in lineage:
            if queue not in self._own:
                self._claim(queue)
        for account, amount in charge.items():
            if only is not None and account not in only:
                continue
            delta = amount * times
            seen = delta
            plain = self.book.lends_all(path, account)
            for queue in lineage:
                used = self.used[queue]
                used[account] = used.get(account, 0) + delta
                if plain:
                    base = self._base[queue]
                    base[account] = base.get(account, 0) + delta
                elif seen:
                    base, kept = self._base[queue], self.book.kept(queue, account)
                    before = base.get(account, 0)
                    base[account] = before + seen
                    seen = max(before + seen, kept) - max(before, kept)

    def held(self, path: str, account: Account, *, surely: bool) -> int:
        """What counts in a queue: what is used, and `surely` also what its children are guaranteed and do not lend."""
        used = self.used[path].get(account, 0)
        return max(used, self._base[path].get(account, 0)) if surely else used

    def rooms(self, path: str, account: Account) -> Iterator[tuple[str, int]]:
        """How much one workload in `path` may ask for at each queue of its path that limits the account, seen from
        the leaf. What a queue keeps back and does not use costs its ancestors nothing more.
        """
        kept_back = 0
        for queue in self.book.lineage(path):
            used, base = self.used[queue].get(account, 0), self._base[queue].get(account, 0)
            limit = self.book.limit(queue, account)
            if limit is not None:
                yield queue, max(0, min(limit - used, max(0, limit - base) + kept_back))
            kept_back += max(0, self.book.kept(queue, account) - base)

    def shortfall(self, path: str, charge: Charge, *, live: bool = True) -> Shortfall | None:
        """The first of `shortfalls`; None = the charge fits."""
        for account, asks in charge.items():
            plain, bars = self.book.bound(path, account, live)
            for queue, limit in bars if plain else ():
                most = limit - asks
                if self.used[queue].get(account, 0) > most or self._base[queue].get(account, 0) > most:
                    return next(self.shortfalls(path, charge, live=live))
            if not plain and any(self._where_not_all_is_lent(path, account, asks, live=live)):
                return next(self.shortfalls(path, charge, live=live))
        return None

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
                used, base = self.used[queue].get(account, 0), self._base[queue].get(account, 0)
                if max(used, base) + asks > limit:
                    yield self._short(queue, account, asks, limit=limit, held=max(used, base))

    def _where_not_all_is_lent(
        self, path: str, account: Account, asks: int, *, live: bool
    ) -> Iterator[Shortfall]:
        seen = asks
        for queue in self.book.lineage(path):
            limit = self.book.limit(queue, account, live=live)
            base, kept = self._base[queue].get(account, 0), self.book.kept(queue, account)
            after = max(base + seen, kept)
            seen = after - max(base, kept)
            if limit is None:
                continue
            used = self.used[queue].get(account, 0)
            if used + asks > limit or (seen > 0 and after > limit):
                yield self._short(queue, account, asks, limit=limit, held=max(used, after - seen))

    def _short(self, queue: str, account: Account, asks: int, *, limit: int, held: int) -> Shortfall:
        return Shortfall(
            queue=queue,
            account=account,
            limit=limit,
            used=self.used[queue].get(account, 0),
            held=held,
            asks=asks,
            live=queue == ROOT and limit == self.book.live.get(account, 0),
        )

    def binding(self, path: str, charge: Charge) -> frozenset[Account]:
        """Accounts of the charge in which something else than the live capacity can bind on this path."""
        lineage, unlent = self.book.lineage(path), self.book.initial[ROOT]
        return frozenset(
            a
            for a in charge
            if a in unlent or any(self.book.limit(q, a, live=False) is not None for q in lineage)
        )

    def entitled(self, path: str, charge: Charge, *, at: str) -> bool:
        """Whether a workload in `path` with this charge, counted in, stays inside what `at` is guaranteed
        (3.3).
        """
        if at == ROOT:
            return False
        used, some = self.used[at], False
        for account in self.book.claims(path):
            if account in charge:
                some = True
                if used.get(account, 0) + charge[account] > self.book.guaranteed(at, account):
                    return False
        return some

    def above(self, path: str, account: Account) -> bool:
        """Whether the queue uses more in this account than it is guaranteed."""
        return self.used[path].get(account, 0) > self.book.guaranteed(path, account)

    def share(self, path: str, charge: Charge) -> float:
        """Weighted dominant share of what the queue borrows, with the charge counted in (3.4)."""
        used = self.used[path]
        with_it = {**used, **{account: used.get(account, 0) + amount for account, amount in charge.items()}}
        weight = self.book.tree[path].weight
        return (
            max(
                (
                    self.book.excess(path, with_it, account[1]) / live
                    for account in with_it
                    if account[0] is None and (live := self.book.live.get(account, 0))
                ),
                default=0.0,
            )
            / weight
        )
