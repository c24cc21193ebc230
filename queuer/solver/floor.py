"""What is free on the nodes at one moment, with the places found there.

Gangs that placement cannot tell apart get the same answer, so thousands of waiting gangs cost one search for each form.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from queuer.domain.workload import Workload
from queuer.solver.capacity import Limits, Spread, place
from queuer.solver.contested import Variant
from queuer.solver.frame import Frame, Matrix, Numbers
from queuer.solver.slots import Slots


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """A place by pod set, not to be changed; None = there is none, which is a proof where `exact`."""

    spreads: Mapping[str, Spread] | None
    exact: bool

    @property
    def nowhere(self) -> bool:
        """Whether it is proven that there is none."""
        return self.spreads is None and self.exact


@dataclass(frozen=True, slots=True, eq=False)
class Place:
    """A place of one pod set: its nodes, and what it takes there (K x R; the least number where that is nothing)."""

    found: Found
    nodes: Numbers
    amounts: Matrix

    @classmethod
    def of(cls, found: Found, rows: Sequence[tuple[int, Matrix]]) -> Place:
        """`rows`: what it takes by node (vectors of R)."""
        amounts = np.array([row for _, row in rows], dtype=np.int64)
        amounts[amounts == 0] = np.iinfo(np.int64).min
        return cls(found, np.array([node for node, _ in rows], dtype=np.intp), amounts)

    def free_on(self, free: Matrix) -> bool:
        """Whether this much leaves it free (N x R)."""
        return bool((free[self.nodes] >= self.amounts).all())


class Floor:
    """Free amounts (N x R) and what was looked for on them. `idle`: cordons and unreadiness are disregarded."""

    __slots__ = ("_frame", "_idle", "_known", "free", "slots")

    def __init__(self, frame: Frame, free: Matrix, *, idle: bool = False, slots: Slots | None = None) -> None:
        """`slots`: tables of `free`, where there are any yet."""
        self.free = free
        self._idle = idle
        self._frame = frame
        self._known: dict[object, Found] = {}
        self.slots = slots or Slots(frame, free)

    def on(self, frame: Frame) -> Floor:
        """The same on a later frame whose nodes take the same pods and are free alike."""
        twin = Floor(frame, self.free, idle=self._idle)
        twin._known = self._known
        return twin

    def but(self, nodes: Numbers, free: Matrix) -> Floor:
        """The same with this much free on some nodes (K x R). It is to be used before anything here changes."""
        slots = self.slots.but(nodes, free)
        return Floor(self._frame, slots.free, idle=self._idle, slots=slots)

    def renew(self, nodes: Numbers, free: Matrix) -> bool:
        """This much is free on some nodes now (K x R). Answers whether something has become more there; what had no
        place still has none unless it has.
        """
        before = self.free[nodes]
        moved, more = (free != before).any(axis=1), bool((free > before).any())
        if moved.any():
            self._known = {} if more else {k: found for k, found in self._known.items() if found.nowhere}
            self.free[nodes] = free
            self.slots.renew(*nodes[moved].tolist())
        return more

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
                slots=self.slots,
            )
            known = self._known[key] = Found(spreads, limits.exact)
        return known


def key_of(workload: Workload, variant: Variant, *, form: int, avoid: frozenset[str]) -> object:
    """Equal for gangs that are alike in all that placement depends on."""
    flavors = tuple([variant.flavors[p.name] for p in workload.pod_sets])
    counts = tuple([variant.counts[p.name] for p in workload.pod_sets])
    return (form, workload.required, flavors, counts, avoid)
