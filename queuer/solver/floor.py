"""What is free on the nodes at one moment, with the places found there.

Gangs that placement cannot tell apart get the same answer, so thousands of waiting gangs cost one search for each form.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from queuer.domain.workload import Workload
from queuer.solver.capacity import place
from queuer.solver.contested import Variant
from queuer.solver.frame import Frame, Matrix, Numbers
from queuer.solver.landing import Effort
from queuer.solver.parts import Limits, Spread, parts_of
from queuer.solver.slots import Slots

IDLE = 1_000
"""Steps of a search on idle nodes. What is found there is kept from cycle to cycle, so it depends on nothing else."""


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """A place by pod set, not to be changed; None = there is none, which is a proof where `exact`. `crossing`: there is
    room, but all places were looked at and in none of them the sets land beside each other.
    """

    spreads: Mapping[str, Spread] | None
    exact: bool
    crossing: bool = False

    @property
    def nowhere(self) -> bool:
        """Whether it is proven that there is none."""
        return self.spreads is None and self.exact

    @property
    def room(self) -> Room:
        """Whether there is one."""
        if self.spreads is not None:
            return Room.SOME
        return Room.NONE if self.exact else Room.UNKNOWN


class Room(StrEnum):
    """Whether there is a place, wherever it is. `UNKNOWN`: none was found, which is no proof."""

    SOME = "some"
    NONE = "none"
    UNKNOWN = "unknown"


class Floor:
    """Free amounts (N x R) and what was looked for on them. `idle`: cordons and unreadiness are disregarded."""

    __slots__ = ("_effort", "_frame", "_idle", "_known", "_rooms", "free", "slots")

    def __init__(
        self,
        frame: Frame,
        free: Matrix,
        *,
        idle: bool = False,
        slots: Slots | None = None,
        effort: Effort | None = None,
    ) -> None:
        """`slots`: tables of `free`, where there are any yet. `effort`: see `Limits`."""
        self.free = free
        self._idle = idle
        self._frame = frame
        self._effort = effort
        self._known: dict[object, Found] = {}
        self._rooms: dict[object, Room] = {}
        self.slots = slots or Slots(frame, free)

    def on(self, frame: Frame) -> Floor:
        """The same on a later frame whose nodes take the same pods and are free alike."""
        twin = Floor(frame, self.free, idle=self._idle)
        twin._known, twin._rooms = self._known, self._rooms
        return twin

    def copy(self) -> Floor:
        """One of its own with as much free."""
        return Floor(self._frame, self.free.copy(), idle=self._idle, effort=self._effort)

    def but(self, nodes: Numbers, free: Matrix) -> Floor:
        """The same with this much free on some nodes (K x R). It is to be used before anything here changes."""
        slots = self.slots.but(nodes, free)
        return Floor(self._frame, slots.free, idle=self._idle, slots=slots, effort=self._effort)

    def renew(self, nodes: Numbers, free: Matrix) -> bool:
        """This much is free on some nodes now (K x R). Answers whether something has become more there; what had no
        place still has none unless it has.
        """
        before = self.free[nodes]
        moved, more = (free != before).any(axis=1), bool((free > before).any())
        if moved.any():
            self._known = {} if more else {k: found for k, found in self._known.items() if found.nowhere}
            self._rooms = {} if more else {k: room for k, room in self._rooms.items() if room is Room.NONE}
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
            limits = Limits(effort=Effort(IDLE) if self._idle else self._effort)
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
            crossing = spreads is None and limits.crossing
            known = Found(spreads, limits.exact and not crossing, limits.exact and crossing)
            self._known[key] = known
        return known

    def room(self, workload: Workload, variant: Variant, *, form: int, avoid: frozenset[str]) -> Room:
        """Whether `place` finds one; mostly the tables say so without looking where."""
        key = key_of(workload, variant, form=form, avoid=avoid)
        known = self._rooms.get(key)
        if known is None:
            sure = self._bears(workload, variant, avoid)
            if sure is None:
                known = self.place(workload, variant, form=form, avoid=avoid).room
            else:
                known = Room.SOME if sure else Room.NONE
            self._rooms[key] = known
        return known

    def _bears(self, workload: Workload, variant: Variant, avoid: frozenset[str]) -> bool | None:
        """What slots say; None = nothing, as several sets share the nodes."""
        frame, find = self._frame, self._frame.snapshot.topology.find
        parts = parts_of(frame, workload, variant, frame.closed(avoid), idle=self._idle)
        if len(parts) != 1:
            return None
        (part,) = parts
        asked = [workload.required, *(pod_set.required for pod_set in workload.pod_sets)]
        if any(level and find(level) is None for level in asked):
            return False
        own = find(workload.required) if workload.required else None
        levels = [level for level in (own, part.required) if level is not None]
        enough = self.slots.total(part.need, part.accepting, part.closed) >= part.count
        if not enough or not levels:
            return enough
        there = self.slots.by_domain(part.need, part.accepting, part.closed, max(levels), min(levels))
        return bool((there >= part.count).any())


def key_of(workload: Workload, variant: Variant, *, form: int, avoid: frozenset[str]) -> object:
    """Equal for gangs that are alike in all that placement depends on."""
    flavors = tuple([variant.flavors[p.name] for p in workload.pod_sets])
    counts = tuple([variant.counts[p.name] for p in workload.pod_sets])
    return (form, workload.required, flavors, counts, avoid)
