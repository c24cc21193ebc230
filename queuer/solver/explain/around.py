"""What is around a waiting gang: reservations that it must leave whole, what the nodes lack and who is on them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from queuer.domain.queue import ROOT
from queuer.domain.reasons import Exclusion, Reason
from queuer.domain.workload import Workload
from queuer.solver import floors
from queuer.solver.contested import Variant
from queuer.solver.cycle import Cycle
from queuer.solver.explain.holders import Holders
from queuer.solver.explain.place import Closest, Fit, PlaceWords
from queuer.solver.explain.quota import QuotaWords, smallest
from queuer.solver.explain.sentences import MADE_ROOM, behind
from queuer.solver.horizon import Horizon
from queuer.solver.order import Gang
from queuer.solver.outcome import Block, Refusal


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Around:
    """What the nodes lack for gangs that placement cannot tell apart, reservations aside (None: nothing), and the parts
    of the explanation about nodes.
    """

    lack: Reason | None
    detail: Mapping[str, Any]


class Surroundings:
    """Asked once all have had their turns."""

    def __init__(self, cycle: Cycle, quota: QuotaWords, place: PlaceWords, who: Holders) -> None:
        self._cycle = cycle
        self._board = cycle.board
        self._quota = quota
        self._place = place
        self._who = who
        self._known: dict[object, Around] = {}
        self._binding: dict[object, tuple[Horizon, ...]] = {}

    def bars(self, gang: Gang, variant: Variant) -> tuple[str, ...]:
        """Owners of the reservations that the gang must leave whole on these flavors."""
        workload = gang.pending.workload
        key = (gang.shape.number, workload.priority, *variant.flavors.values())
        if key not in self._binding:
            rank = self._rank(gang, variant)
            self._binding[key] = tuple(h for h in self._board.horizons.values() if rank <= h.rank)
        return tuple([h.uid for h in self._binding[key] if self._board.binds(h, workload, rank=h.rank)])

    def reserved(self, gang: Gang) -> tuple[tuple[int, bool], ...]:
        """The reservations of this cycle, ended ones included, that bind it when it is entitled (True) or is not: if it
        asked for less, it might be.
        """
        board, workload = self._board, gang.pending.workload
        return tuple(
            [
                (number, entitled)
                for number, horizon in enumerate((*board.horizons.values(), *board.former))
                for entitled in (False, True)
                if board.binds(horizon, workload, rank=(entitled, workload.priority))
            ]
        )

    def no_place(
        self, gang: Gang, refusal: Refusal, bars: tuple[str, ...], lack: Reason | None
    ) -> tuple[Reason, ...]:
        """Reservations that are in the way, or what nodes lack. Either may be gone since its turn."""
        lacks = () if lack is None else (lack,)
        if refusal.block is Block.DEFERRED or refusal.variant is None:
            return lacks
        owners = tuple(uid for uid in refusal.owners if uid in bars)
        if lack is None and not owners:
            least, _ = smallest(gang, refusal.variant)
            if not self._cycle.fits_beside(gang, least, bars):
                owners = self._cycle.in_the_way(gang, least, bars)
        return (self._reserved_for(owners), *lacks) if owners else lacks or (MADE_ROOM,)

    def _reserved_for(self, owners: Sequence[str]) -> Reason:
        """The gang would have to break all of these, of which the first is named."""
        nodes, others = len(self._board.horizons[owners[0]].nodes), len(owners) - 1
        why = f"holds a reservation of {nodes} {'node' if nodes == 1 else 'nodes'} that this job would break"
        if others:
            why += f", as well as {others} {'other' if others == 1 else 'others'}"
        return behind(self._waiting(owners[0]), why)

    def of(self, gang: Gang, variant: Variant, bars: tuple[str, ...], *, owners: tuple[str, ...]) -> Around:
        """`bars`: owners of the reservations that it must leave whole; `owners`: those that refused it."""
        avoid = gang.pending.avoid
        key = (gang.shape.form, *variant.flavors.values(), avoid, bars, owners)
        if key not in self._known:
            job, (least, _) = gang.pending.workload, smallest(gang, variant)
            closest = self._place.closest(job, least, avoid)
            if closest is None:
                return Around(lack=self._place.nowhere(job), detail={})
            lack = self._place.shut(job, least, avoid)
            if lack is None:
                fit = Fit.NO if closest.missing else self._place.fits(job, least, avoid, form=gang.shape.form)
                lack = None if fit is Fit.YES else self._place.lack(closest, fit)
            behind_them = floors.now(self._board, job, rank=self._rank(gang, variant)).free if bars else None
            flavor = variant.flavors[closest.part.name]
            excluded = self._place.excluded(closest, flavor, behind_them)
            kept = any(cause["why"] == Exclusion.RESERVED for cause in excluded["by"])
            holders = self._holders(closest, bars if kept else owners)
            self._known[key] = Around(lack=lack, detail={"excluded": excluded, "holders": holders})
        return self._known[key]

    def _rank(self, gang: Gang, variant: Variant) -> tuple[bool, int]:
        """As at its turn: on some flavors it may be entitled and not on others."""
        return self._quota.entitled(gang, variant), gang.pending.workload.priority

    def _holders(self, closest: Closest, reservations: Iterable[str]) -> list[Mapping[str, Any]]:
        """Reservations that keep nodes from it, and who holds most of what is scarce where it comes closest."""
        found: list[Mapping[str, Any]] = []
        for uid in reservations:
            if uid in self._board.horizons:  # it may have ended since the gang's turn
                owner, starts = self._waiting(uid), self._board.horizons[uid].start
                name = {"name": owner.name, "namespace": owner.namespace}
                found.append({"reservation": uid, **name, "starts": starts})
        scarce = self._place.scarce(closest)
        if scarce is not None and closest.at is None:
            found += self._who.in_queue(ROOT, (None, scarce), bool(self._board.bound))
        elif scarce is not None:
            found += self._who.on_nodes(self._place.nodes(closest), scarce)
        return found

    def _waiting(self, uid: str) -> Workload:
        """The owner of a reservation."""
        return self._board.arrays.offers.gangs[uid].pending.workload
