"""What is free on the nodes at one moment, with the places found there.

Gangs that placement cannot tell apart get the same answer, so thousands of waiting gangs cost one search for each form.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from queuer.domain.workload import Workload
from queuer.solver.capacity import Limits, Spread, place
from queuer.solver.contested import Variant
from queuer.solver.frame import Frame, Matrix
from queuer.solver.slots import Slots


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """A place by pod set, not to be changed; None = there is none, which is a proof where `exact`."""

    spreads: Mapping[str, Spread] | None
    exact: bool


class Floor:
    """Free amounts (N x R) that do not change, and what was looked for on them. `idle`: cordons and unreadiness are
    disregarded.
    """

    __slots__ = ("_frame", "_idle", "_known", "_slots", "_totals", "free", "in_vain")

    def __init__(self, frame: Frame, free: Matrix, *, idle: bool = False) -> None:
        self.free = free
        self._idle = idle
        self.in_vain: set[object] = set()
        self._frame = frame
        self._known: dict[object, Found] = {}
        self._totals: dict[str, Matrix] = {}
        self._slots = Slots(frame, free)

    def on(self, frame: Frame) -> Floor:
        """The same on a later frame whose nodes take the same pods and are free alike."""
        twin = Floor(frame, self.free, idle=self._idle)
        twin._known, twin._totals = self._known, self._totals
        return twin

    def place(self, workload: Workload, variant: Variant, *, form: int, avoid: frozenset[str]) -> Found:
        """`capacity.place`, once for each form. `form`: number of what placement depends on, the required level of
        the workload and the variant aside.
        """
        key = key_of(workload, variant, form=form, avoid=avoid)
        known = self._known.get(key)
        if known is None:
            limits = Limits()
            closed = self._frame.closed(avoid)
            spreads = place(
                self._frame,
                self.free,
                workload,
                variant,
                closed=closed,
                limits=limits,
                idle=self._idle,
                slots=self._slots,
            )
            known = self._known[key] = Found(spreads, limits.exact)
        return known

    def total(self, flavor: str) -> Matrix:
        """What is free on all nodes of a flavor together (R)."""
        if flavor not in self._totals:
            inside = self.free[self._frame.in_flavor[flavor]]
            self._totals[flavor] = np.maximum(inside, 0).sum(axis=0)
        return self._totals[flavor]


def key_of(workload: Workload, variant: Variant, *, form: int, avoid: frozenset[str]) -> object:
    """Equal for gangs that are alike in all that placement depends on."""
    flavors = tuple([variant.flavors[p.name] for p in workload.pod_sets])
    counts = tuple([variant.counts[p.name] for p in workload.pod_sets])
    return (form, workload.required, flavors, counts, avoid)
