"""Where the ledger, the charges in memory and the pods of the cluster disagree, pod set by pod set. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from queuer.controller.ledger.round import charges
from queuer.controller.memory.live import Live
from queuer.controller.memory.pods import PodView
from queuer.domain.quantity import NOTHING, Resources, add
from queuer.domain.queue import ROOT, QueueTree
from queuer.store.ledger import LedgerRow
from queuer.store.repairs import Repair

Key = tuple[str, str]
"""Uid and pod set."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference(Repair):
    """The difference of one pod set: `found` is its open row, `wanted` the row that memory would have. `over`: what
    its pods on nodes request beyond the charge.

    Two looks that find an equal one have found the same fault, though pods may have come and gone.
    """

    queue: str
    over: Resources = field(default_factory=lambda: NOTHING, compare=False)

    @property
    def misbooked(self) -> bool:
        """Whether the ledger is wrong, and not only the charge too low."""
        return _content(self.found) != _content(self.wanted)

    def amounts(self) -> dict[str, int]:
        """By resource how far the ledger and the pods are from the charge, base units."""
        found, wanted = _numbers(self.found), _numbers(self.wanted)
        off: Resources = add(found, wanted)
        if self.found and self.wanted and _account(self.found) == _account(self.wanted):
            off = {r: abs(found.get(r, 0) - wanted.get(r, 0)) for r in {*found, *wanted}}
        return {r: n for r, n in add(off, self.over).items() if n}


def differences(
    book: Iterable[LedgerRow], lives: Mapping[str, Live], pods: Mapping[str, Iterable[PodView]]
) -> tuple[dict[Key, Difference], dict[str, Exception]]:
    """All that differ, and the workloads of which that cannot be said, with why. `pods`: by uid of the job those that
    hold something, lost ones left out.
    """
    booked: dict[str, dict[str, LedgerRow]] = defaultdict(dict)
    for row in book:
        booked[row.uid][row.pod_set] = row
    found, failed = dict[Key, Difference](), dict[str, Exception]()
    for uid in {*booked, *lives}:
        try:
            for pod_set, difference in _of(booked[uid], lives.get(uid), pods.get(uid, ())):
                found[uid, pod_set] = difference
        except Exception as error:  # noqa: BLE001 -- whatever it is, it is told
            failed[uid] = error
    return found, failed


def _of(
    booked: Mapping[str, LedgerRow], live: Live | None, pods: Iterable[PodView]
) -> list[tuple[str, Difference]]:
    """The differences of one workload, by pod set; `live`: None = memory does not know it."""
    charged = {} if live is None else {row.pod_set: row for row in _charged(live)}
    bound = {} if live is None else _bound(pods)
    queue = ROOT if live is None else live.workload.queue
    found = []
    for name in {*booked, *charged, *bound}:
        row, wanted = booked.get(name), charged.get(name)
        limit = NOTHING if wanted is None else wanted.amounts
        over = {r: n - limit.get(r, 0) for r, n in bound.get(name, NOTHING).items() if n > limit.get(r, 0)}
        if over or _content(row) != _content(wanted):
            at = queue if row is None else row.queue
            found.append((name, Difference(queue=at, found=row, wanted=wanted, over=over)))
    return found


def by_queue(tree: QueueTree, found: Iterable[Difference]) -> dict[tuple[str, str], int]:
    """Amounts that differ by queue and resource. A queue that is gone counts where its use does: in its nearest
    ancestor.
    """
    total: dict[tuple[str, str], int] = defaultdict(int)
    for difference in found:
        queue = next((path for path in tree.lineage(difference.queue) if path in tree), ROOT)
        for resource, amount in difference.amounts().items():
            total[queue, resource] += amount
    return total


def _charged(live: Live) -> Iterator[LedgerRow]:
    if live.placement is None:
        return
    placed, asked = set(live.placement.counts), {pod_set.name for pod_set in live.workload.pod_sets}
    if placed != asked:
        raise ValueError(f"its admission is for the pod sets {sorted(placed)}, but it has {sorted(asked)}")
    yield from (row for row in charges(live, at=live.placement.at) if row.count)


def _bound(pods: Iterable[PodView]) -> Mapping[str, Resources]:
    """Requests of the pods on nodes, by pod set."""
    total: dict[str, dict[str, int]] = {}
    for pod in pods:
        if pod.charged_to is not None and pod.pod_set is not None:
            total[pod.pod_set] = add(total.get(pod.pod_set, {}), pod.requests)
    return total


def _numbers(row: LedgerRow | None) -> Resources:
    """Its amounts; what somebody wrote there that is no number counts as nothing."""
    return NOTHING if row is None else {r: n for r, n in row.amounts.items() if type(n) is int}


def _account(row: LedgerRow) -> tuple[str, str]:
    return row.queue, row.flavor


def _content(row: LedgerRow | None) -> LedgerRow | None:
    """The part of a row that must agree: not when it was opened, nor resources of which it holds 0."""
    if row is None:
        return None
    return replace(row, opened=0.0, amounts={r: n for r, n in sorted(row.amounts.items()) if n})
