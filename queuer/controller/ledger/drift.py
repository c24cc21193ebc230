"""Where the ledger, the charges in memory and the pods of the cluster disagree, pod set by pod set. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from queuer.controller.ledger.rows import charges
from queuer.controller.memory.live import Live
from queuer.controller.memory.pods import PodView
from queuer.domain.quantity import NOTHING, Resources, add
from queuer.domain.queue import ROOT, QueueTree
from queuer.store.ledger import LedgerRow

Key = tuple[str, str]
"""Uid and pod set."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """What differs of one pod set. `booked`: its open row; `charged`: the row that memory would have; None = none.
    `over`: what its pods on nodes request beyond the charge.

    Two looks that find an equal one have found the same fault, though pods may have come and gone.
    """

    queue: str
    booked: LedgerRow | None
    charged: LedgerRow | None
    over: Resources = field(default_factory=lambda: NOTHING, compare=False)

    @property
    def misbooked(self) -> bool:
        """Whether the ledger is wrong, and not only the charge too low."""
        return _content(self.booked) != _content(self.charged)

    def amounts(self) -> dict[str, int]:
        """By resource how far the ledger and the pods are from the charge, base units."""
        booked, charged = (NOTHING if row is None else row.amounts for row in (self.booked, self.charged))
        if (
            self.booked is not None
            and self.charged is not None
            and _account(self.booked) == _account(self.charged)
        ):
            off = {r: abs(booked.get(r, 0) - charged.get(r, 0)) for r in {*booked, *charged}}
        else:
            off = add(booked, charged)
        return {r: n for r, n in add(off, self.over).items() if n}


def differences(
    book: Iterable[LedgerRow], lives: Mapping[str, Live], pods: Mapping[str, Iterable[PodView]]
) -> dict[Key, Difference]:
    """All that differ. `pods`: by uid of the job those that hold something, lost ones left out."""
    booked = {(row.uid, row.pod_set): row for row in book}
    charged = {(row.uid, row.pod_set): row for live in lives.values() for row in _charged(live)}
    bound = {key: amounts for uid in pods if uid in lives for key, amounts in _bound(uid, pods[uid])}
    found = {}
    for key in {*booked, *charged, *bound}:
        row, wanted = booked.get(key), charged.get(key)
        limit = NOTHING if wanted is None else wanted.amounts
        over = {r: n - limit.get(r, 0) for r, n in bound.get(key, NOTHING).items() if n > limit.get(r, 0)}
        if over or _content(row) != _content(wanted):
            queue = row.queue if row is not None else lives[key[0]].workload.queue
            found[key] = Difference(queue=queue, booked=row, charged=wanted, over=over)
    return found


def by_queue(tree: QueueTree, found: Iterable[Difference]) -> dict[tuple[str, str], int]:
    """Amounts that differ by queue and resource. What names a queue that is gone counts where its use does."""
    total: dict[tuple[str, str], int] = defaultdict(int)
    for difference in found:
        queue = next((path for path in tree.lineage(difference.queue) if path in tree), ROOT)
        for resource, amount in difference.amounts().items():
            total[queue, resource] += amount
    return total


def _charged(live: Live) -> Iterator[LedgerRow]:
    if live.placement is None:
        return
    for charge in charges(live.workload, live.placement.assignments, held=live.placement.held):
        if charge.count:
            yield LedgerRow(
                uid=live.uid, attempt=live.attempt, queue=live.workload.queue, pod_set=charge.pod_set,
                flavor=charge.flavor, count=charge.count, amounts=charge.amounts, opened=live.placement.at,
            )  # fmt: skip


def _bound(uid: str, pods: Iterable[PodView]) -> Iterator[tuple[Key, Resources]]:
    """What the pods on nodes request, by pod set."""
    total: dict[str, dict[str, int]] = {}
    for pod in pods:
        if pod.charged_to is not None and pod.pod_set is not None:
            total[pod.pod_set] = add(total.get(pod.pod_set, {}), pod.requests)
    return (((uid, name), amounts) for name, amounts in total.items())


def _account(row: LedgerRow) -> tuple[str, str]:
    return row.queue, row.flavor


def _content(row: LedgerRow | None) -> LedgerRow | None:
    """What of a row must agree: not when it was opened, nor resources of which it holds 0."""
    if row is None:
        return None
    return replace(row, opened=0.0, amounts={r: n for r, n in sorted(row.amounts.items()) if n})
