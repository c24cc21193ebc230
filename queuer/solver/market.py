"""Proofs by prices: where everyone together must pay more for slots than all slots cost, there is no arrangement.

Whatever a slot of a measure costs on a node, a gang pays at least what its pods cost on the cheapest nodes of its
cheapest domain. So any prices, wherever they come from, may prove that a gang has no place, and those that have proved
it once are likely to prove it again for others. All sums are exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from queuer.solver.contested import Laid
from queuer.solver.frame import Frame, Mask, Matrix, Need
from queuer.solver.prices import Prices

NOWHERE = 2**60
"""The cost of a place that does not exist. Prices whose sums could come near it prove nothing."""


@dataclass(slots=True, eq=False)
class _Account:
    """What is left of the worth of all slots when the first `paid` of the settled gangs have paid the least; the price
    of a pod by node, and what a gang pays, by likeness.
    """

    left: int
    paid: int = 0
    pods: dict[object, Matrix] = field(default_factory=dict)
    gangs: dict[object, int] = field(default_factory=dict)


class Market:
    """Nodes with the places of all settled gangs open. `now`, `later`: what is free (N x R), see `Layout`.

    `looked`: nodes looked at so far, one by one for each pod set.
    """

    def __init__(self, frame: Frame, now: Matrix, later: Matrix) -> None:
        self._frame = frame
        self._now = now
        self._later = later
        self.looked = 0
        self._accounts: dict[Prices, _Account | None] = {}
        self._slots: dict[object, tuple[Need, Mask, Matrix]] = {}

    def excludes(self, prices: Prices, settled: Sequence[Laid], asked: Laid) -> bool:
        """Whether there is no arrangement of these and one more. From call to call `settled` may only grow."""
        if prices not in self._accounts:
            self._accounts[prices] = self._opened(prices)
        account = self._accounts[prices]
        if account is None:
            return False
        for one in settled[account.paid :]:
            account.left -= self._cost(prices, account, one)
        account.paid = len(settled)
        return self._cost(prices, account, asked) > account.left

    def _opened(self, prices: Prices) -> _Account | None:
        worth = 0
        for measure, price in prices.by_measure.items():
            slots = measure.slots(self._now if measure.at_once else self._later)
            if float(price.astype(np.float64) @ slots) > NOWHERE / 2**8:
                return None
            worth += int(price @ slots)
        return _Account(worth)

    def _cost(self, prices: Prices, account: _Account, one: Laid) -> int:
        """The least that a gang pays."""
        key = (one.form, one.starts)
        if key not in account.gangs:
            account.gangs[key] = self._reckoned(prices, account, one)
        return account.gangs[key]

    def _reckoned(self, prices: Prices, account: _Account, one: Laid) -> int:
        frame, workload = self._frame, one.workload
        level = None if workload.required is None else frame.snapshot.topology.find(workload.required)
        if workload.required is not None and level is None:
            return NOWHERE
        domain = np.zeros(len(frame.names), dtype=np.intp) if level is None else frame.domains[level]
        number = 1 if level is None else len(frame.domain_names[level])
        total = np.zeros(number, dtype=np.int64)
        for pod_set in workload.pod_sets:
            count = one.variant.counts[pod_set.name]
            if not count:
                continue
            self.looked += len(frame.names)
            need, row = frame.need(pod_set), frame.row(pod_set.requests)
            slots = self._room(need, frame.open_to(pod_set, one.variant.flavors[pod_set.name]), one)
            price = self._price(prices, account, row, starts=one.starts)
            nodes = np.flatnonzero((slots > 0) & (domain >= 0))
            at = domain[nodes]
            cheapest = np.full(number, NOWHERE // 2**12)
            np.minimum.at(cheapest, at, price[nodes])
            there = np.bincount(at, weights=np.minimum(slots[nodes], count), minlength=number)
            total = np.where((there >= count) & (total < NOWHERE), total + cheapest * count, NOWHERE)
        return int(total.min(initial=NOWHERE))

    def _room(self, need: Need, open_: Mask, one: Laid) -> Matrix:
        """Slots for pods by node, where no other pods are."""
        key = (id(need), id(open_), id(one.closed), one.starts)
        if key not in self._slots:
            slots = need.slots(self._later)
            if one.starts:
                slots = np.minimum(slots, need.slots(self._now))
            usable = open_ if one.closed is None else open_ & ~one.closed
            self._slots[key] = (need, open_, np.where(usable, slots, 0))
        return self._slots[key][2]

    @staticmethod
    def _price(prices: Prices, account: _Account, row: Matrix, *, starts: bool) -> Matrix:
        key = (row.tobytes(), starts)
        if key not in account.pods:
            total = np.zeros(len(next(iter(prices.by_measure.values()))), dtype=np.int64)
            for measure, price in prices.by_measure.items():
                total += price * measure.taken(row, starts=starts)
            account.pods[key] = total
        return account.pods[key]
