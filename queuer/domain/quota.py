"""The rows of the queue tree, compiled once for all that asks about them. The state of one moment is
a `queuer.domain.usage.Usage`.

What a workload asks for is a `Charge`: amounts by account, each (flavor, resource) amount counted in (any,
resource) too. All amounts are base units.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

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
                for account in _counted_in(flavor, resource):
                    total[account] = total.get(account, 0) + amount
    return total


@cache
def _counted_in(flavor: str, resource: str) -> tuple[Account, Account]:
    """The accounts of an amount. Each is one object: charges are looked up by their accounts all the time."""
    return (flavor, resource), (None, resource)


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

    `held`: what counts there beside what is asked, guarantees that others do not lend included (`used` is without
    those; what its own path does not lend is there for the charge).
    `live`: the limit is the live capacity, not a row.
    """

    queue: str
    account: Account
    limit: int
    used: int
    held: int
    asks: int
    live: bool = False


class Spot(NamedTuple):
    """Where amounts of a queue and account are kept: what is used, and what the parent counts of it before the queue's
    own guarantee; one spot where nobody in the tree keeps anything of the account back, as both are equal then.
    """

    used: int
    base: int


class Mark(NamedTuple):
    """Where a queue's use of an account is, and what it is guaranteed there."""

    spot: int
    guaranteed: int
    account: Account


class Bar(NamedTuple):
    """A limit on the path: number of the account in the charge, where its amount is, and whose limit it is; `live`:
    that is the live capacity, not a row.
    """

    at: int
    spot: int
    limit: int
    queue: str
    live: bool


@dataclass(frozen=True, slots=True)
class Layout:
    """Where charges of one leaf with the same accounts, in this order, are counted.

    `counts`: by account the spots that it is added to; None where the path keeps something back (`uneven`). `bars`: its
    limits, by account and from the leaf; `stated`: those without the live capacity. `binding`: accounts in which
    something else than the live capacity can bind. `claims`: by queue below root, from the leaf, the numbers of the
    accounts that it claims, each with where its use is and what is guaranteed there.
    """

    counts: tuple[tuple[int, ...] | None, ...]
    bars: tuple[Bar, ...]
    stated: tuple[Bar, ...]
    uneven: tuple[Account, ...]
    binding: frozenset[Account]
    claims: tuple[tuple[tuple[int, int, int], ...], ...]


class Entry(NamedTuple):
    """A charge of a queue as it is counted again and again: `spots`, what to add where; `uneven`, amounts of accounts
    for which that depends on what else is used.
    """

    path: str
    spots: tuple[tuple[int, int], ...]
    uneven: tuple[tuple[Account, int], ...]


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
        self.lineage = cache(self._find_lineage)
        self.guaranteed = cache(self._find_guaranteed)
        self.claims = cache(self._find_claims)
        self.lends_all = cache(self._find_lends_all)
        self.bound = cache(self._find_bound)
        self.initial = self._unlent()
        self._kept_back = frozenset(
            account for rows in self._rows.values() for account, row in rows.items() if row.lend is not None
        )
        self.idle: list[int] = []
        self.spot = cache(self._new_spot)
        self.layout = cache(self._find_layout)
        self.claim_spots = cache(self._find_claim_spots)
        self.excess_spots = cache(self._find_excess_spots)
        self.guarantee_spot = cache(self._find_guarantee_spot)

    def _find_lineage(self, path: str) -> tuple[str, ...]:
        """The queue and its ancestors; for a queue that is gone, those of its nearest ancestor left."""
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

    def is_live(self, path: str, account: Account, limit: int) -> bool:
        """Whether a limit is the live capacity."""
        return path == ROOT and limit == self.live.get(account, 0)

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

    def _new_spot(self, path: str, account: Account) -> Spot:
        self.idle.append(0)
        used = len(self.idle) - 1
        if account not in self._kept_back:
            return Spot(used, used)
        self.idle.append(self.initial[path].get(account, 0))
        return Spot(used, used + 1)

    def _find_layout(self, path: str, accounts: tuple[Account, ...]) -> Layout:
        lineage, unlent = self.lineage(path), self.initial[ROOT]
        spots = [[self.spot(queue, account) for queue in lineage] for account in accounts]
        bars: dict[bool, list[Bar]] = {True: [], False: []}
        for at, (account, row) in enumerate(zip(accounts, spots, strict=True)):
            for queue, spot in zip(lineage, row, strict=True):
                for live, found in bars.items():
                    limit = self.limit(queue, account, live=live)
                    if limit is not None:
                        whole = self.is_live(queue, account, limit)
                        found += [Bar(at, n, limit, queue, whole) for n in dict.fromkeys(spot)]
        alike = [self.lends_all(path, account) for account in accounts]
        stated = {bar.at for bar in bars[False]}
        return Layout(
            counts=tuple(
                tuple(dict.fromkeys(n for spot in row for n in spot)) if plain else None
                for row, plain in zip(spots, alike, strict=True)
            ),
            bars=tuple(bar for bar in bars[True] if alike[bar.at]),
            stated=tuple(bar for bar in bars[False] if alike[bar.at]),
            uneven=tuple(account for account, plain in zip(accounts, alike, strict=True) if not plain),
            binding=frozenset(a for at, a in enumerate(accounts) if at in stated or a in unlent),
            claims=tuple(
                tuple(
                    (at, self.spot(queue, account).used, self.guaranteed(queue, account))
                    for at, account in enumerate(accounts)
                    if account in self.claims(path)
                )
                for queue in lineage
                if queue != ROOT
            ),
        )

    def entry(self, path: str, charge: Charge) -> Entry:
        """Where this charge is counted."""
        layout = self.layout(path, tuple(charge))
        found = zip(charge.items(), layout.counts, strict=True)
        spots = [(spot, amount) for (_, amount), spots in found for spot in spots or ()]
        return Entry(path, tuple(spots), tuple((account, charge[account]) for account in layout.uneven))

    def _find_claim_spots(self, path: str, at: str) -> tuple[tuple[Account, int, int], ...]:
        """Claims of a workload in `path`, each with where its use in `at` is, and what that is guaranteed."""
        return tuple((a, self.spot(at, a).used, self.guaranteed(at, a)) for a in self.claims(path))

    def _find_excess_spots(self, path: str) -> tuple[tuple[int, tuple[tuple[Account, int, int], ...]], ...]:
        """By resource the live capacity, and accounts of which it counts what is used above the guarantee: by flavor
        where the guarantee is.
        """
        found = []
        for (flavor, resource), live in self.live.items():
            if flavor is None and live:
                by_flavor = any(self.guaranteed(path, (f, resource)) for f in self._flavors)
                accounts = [(f, resource) for f in self._flavors] if by_flavor else [(None, resource)]
                parts = tuple((a, self.spot(path, a).used, self.guaranteed(path, a)) for a in accounts)
                found.append((live, parts))
        return tuple(found)

    def _find_guarantee_spot(self, path: str, account: Account) -> Mark:
        return Mark(self.spot(path, account).used, self.guaranteed(path, account), account)

    def past_share(self, path: str, amounts: Mapping[str, float]) -> float:
        """Weighted dominant share of what a queue used in the past, by resource (policy `halfLife`)."""
        if path not in self.tree:
            return 0.0
        there = ((amount, self.live.get((None, resource), 0)) for resource, amount in amounts.items())
        return max((amount / live for amount, live in there if live), default=0.0) / self.tree[path].weight
