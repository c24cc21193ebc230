"""The rows of the queue tree, compiled once for all that asks about them. The state of one moment is
a `queuer.domain.usage.Usage`.

A workload asks for a `Charge`: amounts by account. Each (flavor, resource) amount counts in (any, resource)
too. All amounts are base units.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
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
    """A workload's charge at these flavors and sizes, both by pod set name."""
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

    `held`: the amount that counts beside the charge, guarantees that others do not lend included. `used` is
    without those. The charge may use the part that its own path does not lend.
    `live`: the limit is the live capacity, not a row.
    """

    queue: str
    account: Account
    limit: int
    used: int
    held: int
    asks: int
    live: bool = False

    @property
    def lacking(self) -> int:
        """How much has to go from the queue's subtree."""
        return self.held + self.asks - self.limit


class Cell(NamedTuple):
    """Positions of a queue's account in the list of a `Usage`.

    `used`: what the subtree uses. `base`: Σ seen(children). Both are one position where no queue of the tree keeps
    anything of the account back, since the amounts are equal then.
    """

    used: int
    base: int


class Guarantee(NamedTuple):
    """The guarantee of a queue in an account. `cell`: the position of its use."""

    cell: int
    guaranteed: int
    account: Account


class LimitCheck(NamedTuple):
    """A limit on the path. `at`: number of the account in the charge; `cell`: position of the amount that counts.

    `live`: the limit is the live capacity, not a row.
    """

    at: int
    cell: int
    limit: int
    queue: str
    live: bool


@dataclass(frozen=True, slots=True)
class ChargePath:
    """Where charges of one leaf with the same accounts, in this order, are counted and checked.

    `counts`: by account the cells that it is added to; None where the path keeps something back. `keeps_back`: those
    accounts. `limits`: all limits, by account and from the leaf; `stated`: those without the live capacity.
    `binding`: accounts in which something else than the live capacity can bind. `claims`: by queue below root, from
    the leaf, the claimed accounts as (number of the account, cell of the use, guaranteed).
    """

    counts: tuple[tuple[int, ...] | None, ...]
    limits: tuple[LimitCheck, ...]
    stated: tuple[LimitCheck, ...]
    keeps_back: tuple[Account, ...]
    binding: frozenset[Account]
    claims: tuple[tuple[tuple[int, int, int], ...], ...]


class CountedCharge(NamedTuple):
    """A charge of a queue, ready to be counted many times.

    `cells`: (cell, amount) to add. `keeps_back`: amounts of accounts for which that depends on what else is used.
    """

    path: str
    cells: tuple[tuple[int, int], ...]
    keeps_back: tuple[tuple[Account, int], ...]


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
        self.guaranteed = cache(lambda path, account: tree.guaranteed(path, *account))
        self.claims = cache(self._find_claims)
        self.lends_all = cache(self._find_lends_all)
        self.initial = self._unlent()
        self._kept_back = frozenset(
            account for rows in self._rows.values() for account, row in rows.items() if row.lend is not None
        )
        self.idle: list[int] = []
        self.cell = cache(self._new_cell)
        self.charge_path = cache(self._find_charge_path)
        self.claimed_at = cache(self._find_claimed_at)
        self.share_parts = cache(self._find_share_parts)
        self.guarantee = cache(self._find_guarantee)

    def _find_lineage(self, path: str) -> tuple[str, ...]:
        """The queue and its ancestors; for a queue that is gone, those of its nearest ancestor left."""
        return tuple(p for p in self.tree.lineage(path) if p in self.tree) or (ROOT,)

    def limit(self, path: str, account: Account, *, live: bool = True) -> int | None:
        """The bound of the subtree's use; None = unbounded here. For root never more than the live capacity,
        unless
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

    def _new_cell(self, path: str, account: Account) -> Cell:
        self.idle.append(0)
        used = len(self.idle) - 1
        if account not in self._kept_back:
            return Cell(used, used)
        self.idle.append(self.initial[path].get(account, 0))
        return Cell(used, used + 1)

    def _find_charge_path(self, path: str, accounts: tuple[Account, ...]) -> ChargePath:
        lineage, unlent = self.lineage(path), self.initial[ROOT]
        rows = [[self.cell(queue, account) for queue in lineage] for account in accounts]
        plain = [self.lends_all(path, account) for account in accounts]
        stated = tuple(self._limits(lineage, accounts, live=False))
        bounded = {check.at for check in stated}
        return ChargePath(
            counts=tuple(
                tuple(dict.fromkeys(n for cell in row for n in cell)) if lends else None
                for row, lends in zip(rows, plain, strict=True)
            ),
            limits=tuple(self._limits(lineage, accounts, live=True)),
            stated=stated,
            keeps_back=tuple(account for account, lends in zip(accounts, plain, strict=True) if not lends),
            binding=frozenset(a for at, a in enumerate(accounts) if at in bounded or a in unlent),
            claims=tuple(
                tuple(
                    (at, self.cell(queue, account).used, self.guaranteed(queue, account))
                    for at, account in enumerate(accounts)
                    if account in self.claims(path)
                )
                for queue in lineage
                if queue != ROOT
            ),
        )

    def _limits(
        self, lineage: tuple[str, ...], accounts: tuple[Account, ...], *, live: bool
    ) -> Iterator[LimitCheck]:
        for at, account in enumerate(accounts):
            for queue in lineage:
                limit = self.limit(queue, account, live=live)
                if limit is not None:
                    whole = self.is_live(queue, account, limit)
                    for cell in dict.fromkeys(self.cell(queue, account)):
                        yield LimitCheck(at, cell, limit, queue, whole)

    def counted(self, path: str, charge: Charge) -> CountedCharge:
        """Where this charge is counted."""
        where = self.charge_path(path, tuple(charge))
        found = zip(charge.items(), where.counts, strict=True)
        cells = tuple((cell, amount) for (_, amount), cells in found for cell in cells or ())
        return CountedCharge(path, cells, tuple((account, charge[account]) for account in where.keeps_back))

    def _find_claimed_at(self, path: str, at: str) -> tuple[Guarantee, ...]:
        """The guarantees of `at` in the claims of a workload in `path`."""
        return tuple(self.guarantee(at, account) for account in self.claims(path))

    def _find_share_parts(self, path: str) -> tuple[tuple[int, tuple[Guarantee, ...]], ...]:
        """By resource the live capacity, and the guarantees above which its use counts in a share: by flavor where the
        queue has them.
        """
        found = []
        for (flavor, resource), live in self.live.items():
            if flavor is None and live:
                by_flavor = any(self.guaranteed(path, (f, resource)) for f in self._flavors)
                accounts = [(f, resource) for f in self._flavors] if by_flavor else [(None, resource)]
                found.append((live, tuple(self.guarantee(path, account) for account in accounts)))
        return tuple(found)

    def _find_guarantee(self, path: str, account: Account) -> Guarantee:
        return Guarantee(self.cell(path, account).used, self.guaranteed(path, account), account)

    def past_share(self, path: str, amounts: Mapping[str, float]) -> float:
        """Weighted dominant share of what a queue used in the past, by resource (policy `halfLife`)."""
        if path not in self.tree:
            return 0.0
        there = ((amount, self.live.get((None, resource), 0)) for resource, amount in amounts.items())
        return max((amount / live for amount, live in there if live), default=0.0) / self.tree[path].weight
