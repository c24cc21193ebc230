"""What a decision derives from a snapshot alone, whatever the time: nodes as arrays, quota rows, what runs, who waits.

It is kept from cycle to cycle and moved on by what differs between two snapshots; a decision reads it and changes
copies. Records are compared by identity first, so whoever makes snapshots should keep the records that stay the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from queuer.domain.quota import QuotaBook, charge_for
from queuer.domain.usage import Usage
from queuer.solver.floor import Floor
from queuer.solver.frame import Frame
from queuer.solver.landing import Landings
from queuer.solver.offers import Offers
from queuer.solver.problem import Admitted, Snapshot
from queuer.solver.sheet import Hold, Sheet, leaves
from queuer.solver.sound import MOST_AMOUNT, check_tree, faults_of_sums, reckonable, refusing, unsound


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Arrays:
    """Of one snapshot; nobody changes them. `sheet`: use and free amounts now. `holds`: what runs, by uid.

    `idle`: places on the nodes were they empty and well. `landings`: remembers who lands on these nodes; it alone is
    added to.
    """

    snapshot: Snapshot
    frame: Frame
    book: QuotaBook
    sheet: Sheet
    holds: Mapping[str, Hold]
    idle: Floor
    offers: Offers
    landings: Landings = field(default_factory=Landings)

    @classmethod
    def of(cls, snapshot: Snapshot) -> Arrays:
        """From the snapshot alone. Raises InvalidInput, with the fields, where that would give a wrong plan."""
        with refusing(snapshot):
            return cls._of(snapshot)

    @classmethod
    def _of(cls, snapshot: Snapshot) -> Arrays:
        frame = Frame(snapshot)
        rounded = frame.alloc.sum(axis=0, dtype=np.float64).max(initial=0)
        if rounded > MOST_AMOUNT / 2 and any(faults_of_sums(snapshot)):
            raise unsound(snapshot)
        if _is_odd(frame):
            raise unsound(snapshot)
        book = _book(snapshot, frame)
        holds, sheet = _running(snapshot, frame, Usage(book), {})
        return cls(
            snapshot=snapshot,
            frame=frame,
            book=book,
            sheet=sheet,
            holds=holds,
            idle=Floor(frame, frame.alloc, idle=True),
            offers=Offers.of(snapshot, frame),
        )

    def follow(self, snapshot: Snapshot) -> Arrays:
        """The arrays of another snapshot, by what differs; a decision cannot tell them from `Arrays.of`."""
        if snapshot is self.snapshot:
            return self
        with refusing(snapshot):
            return self._follow(snapshot)

    def _follow(self, snapshot: Snapshot) -> Arrays:
        frame = self.frame.follow(snapshot)
        if frame is None or self.offers.crowded or not frame.knows(self._named_anew(snapshot)):
            return Arrays.of(snapshot)
        book = self.book if snapshot.tree == self.book.tree else _book(snapshot, frame)
        offers = self.offers.follow(snapshot, frame)
        stays = offers.kinds is self.offers.kinds and frame.accepts_as(self.frame)
        if book is self.book:
            holds, sheet = _running(snapshot, frame, self.sheet.usage.copy(), self.holds)
        else:
            holds, sheet = _running(snapshot, frame, Usage(book), {})
        return Arrays(
            snapshot=snapshot,
            frame=frame,
            book=book,
            sheet=sheet,
            holds=holds,
            idle=self.idle.on(frame) if stays else Floor(frame, frame.alloc, idle=True),
            offers=offers,
        )

    def __post_init__(self) -> None:
        """Every uid is there once, and no node is used by less than nothing."""
        snapshot, offers, frame = self.snapshot, self.offers, self.frame
        if np.any(frame.bound_free > frame.alloc):
            raise unsound(snapshot)
        waiting, admitted = len(offers.gangs) + len(offers.aside), len(self.holds)
        if (waiting, admitted) != (len(snapshot.pending), len(snapshot.admitted)) or not (
            offers.gangs.keys().isdisjoint(offers.aside.keys())
            and self.holds.keys().isdisjoint(offers.gangs.keys())
            and self.holds.keys().isdisjoint(offers.aside.keys())
        ):
            raise unsound(snapshot)

    def _named_anew(self, snapshot: Snapshot) -> Iterator[str]:
        """The resources that records name which were not there before."""
        gangs, holds = self.offers.gangs, self.holds
        for pending in snapshot.pending:
            gang = gangs.get(pending.workload.uid)
            if gang is None or gang.pending is not pending:
                for pod_set in pending.workload.pod_sets:
                    yield from pod_set.requests
        for admitted in snapshot.admitted:
            hold = holds.get(admitted.workload.uid)
            if hold is None or hold.admitted is not admitted:
                for pod_set in admitted.workload.pod_sets:
                    yield from pod_set.requests
                for amounts in admitted.bound.values():
                    yield from amounts


def _is_odd(frame: Frame) -> bool:
    """Whether a node, flavor or level is there twice, or less than nothing is on a node."""
    snapshot, keys = frame.snapshot, frame.snapshot.topology.keys
    names = len(frame.index) + len(frame.flavors) + len(set(keys))
    told = len(snapshot.nodes) + max(1, len(snapshot.flavors)) + len(keys)
    return names < told or int(frame.alloc.min(initial=0)) < 0


def _book(snapshot: Snapshot, frame: Frame) -> QuotaBook:
    """The quota of queues that make a tree."""
    check_tree(snapshot)
    return QuotaBook(snapshot.tree, frame.capacity())


def _running(
    snapshot: Snapshot, frame: Frame, usage: Usage, known: Mapping[str, Hold]
) -> tuple[dict[str, Hold], Sheet]:
    """What runs, and the sheet with it. `known`: what `usage` counts already; it is taken over where it is the same."""
    sheet = Sheet(usage, frame.bound_free.copy())
    holds: dict[str, Hold] = {}
    for admitted in snapshot.admitted:
        uid = admitted.workload.uid
        hold = known.get(uid)
        if hold is None or not hold.stands(admitted):
            hold = _hold(admitted, frame, sheet)
        holds[uid] = hold
    for uid, hold in known.items():
        if holds.get(uid) is not hold:
            usage.add(hold.admitted.workload.queue, hold.charge, times=-1)
    return holds, sheet


def _hold(admitted: Admitted, frame: Frame, sheet: Sheet) -> Hold:
    """What one gang holds, counted on the sheet."""
    if not reckonable(admitted):
        raise unsound(frame.snapshot)
    charge = charge_for(admitted.workload, admitted.flavors, admitted.counts)
    bound, loose = frame.bound_rows(admitted), frame.loose_ends(admitted)
    hold = Hold(admitted, charge, bound, loose, leaves(bound, loose, frame.alloc))
    sheet.usage.add(admitted.workload.queue, charge)
    sheet.land(hold)
    return hold
