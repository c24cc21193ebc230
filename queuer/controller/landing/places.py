"""Which places of a landed gang are empty, and each since when, followed from look to look.

A gang of which some pod is always missing is not short of a place as long as the missing ones follow each other; one
pod that finds none, or that is made anew over and over, is noticed among them. Due are those of the looks: the
controller's own clock, never the API server's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """`empty`: since when no pod of it is on a node. `waits`: since when pods made for it wait for one, whichever of
    them; None = there was none since it is empty.
    """

    empty: float
    waits: float | None = None

    @property
    def since(self) -> float:
        """What its deadline counts from."""
        return self.empty if self.waits is None else self.waits


@dataclass(frozen=True, slots=True, kw_only=True)
class Unplaced:
    """`waiting`: the places of pods that are on no node, by uid; `vacant`: those that have no pod, as they are filled:
    first those that an unbound pod has left; `heard`: the last `PodView.arrival` that is counted in.

    Each place that is empty, at least one. Only in memory: after a restart all times begin anew.
    """

    waiting: Mapping[str, Place] = field(default_factory=dict)
    vacant: tuple[Place, ...] = ()
    heard: int = 0

    @property
    def oldest(self) -> float:
        """Since when the place is empty that is so for longest."""
        return min(place.empty for place in (*self.waiting.values(), *self.vacant))

    def overdue(self, *, patience: float, back_off: float) -> tuple[float, float]:
        """When the first of these places has been empty for too long, and what that counts from: a place in which a pod
        waits has `patience`, one for which nobody has made a pod `back_off`.
        """
        waiting = ((place.since + patience, place.since) for place in self.waiting.values())
        return min((*waiting, *((place.since + back_off, place.since) for place in self.vacant)))

    def after(self, unbound: Set[str], arrived: Mapping[str, int], *, short: int, now: float) -> Unplaced:
        """The same at the next look, where `short` places are empty, at least as many as pods are `unbound`. `arrived`:
        arrivals of pods on nodes by uid, those since `heard` among them.

        Only who comes onto a node fills a place: its own, or a vacant one where nobody saw it unbound (vacant places
        are alike). Who comes there and is lost again has filled it: that is for the job's own back-off limit.
        """
        came = {uid for uid, arrival in arrived.items() if arrival > self.heard}
        left = [place for uid, place in self.waiting.items() if uid not in came and uid not in unbound]
        left.sort(key=_order)
        vacant = (*left, *self.vacant[len(came - self.waiting.keys()) :])
        new = sorted(unbound - self.waiting.keys())
        stay = {uid: place for uid, place in self.waiting.items() if uid in unbound}
        waiting = stay | _entered(new, vacant, now=now)
        return Unplaced(
            waiting=_aged(waiting, left),
            vacant=_vacant(vacant[len(new) :], left[: len(new)], number=short - len(waiting), now=now),
            heard=max((self.heard, *arrived.values())),
        )


def _order(place: Place) -> tuple[bool, float]:
    return place.waits is None, place.since


def _entered(new: Sequence[str], vacant: Sequence[Place], *, now: float) -> dict[str, Place]:
    """New pods take vacant places, those that unbound pods have left with their time; all else begins now."""
    known = (Place(empty=p.empty, waits=now if p.waits is None else p.waits) for p in vacant)
    begun = (Place(empty=now, waits=now) for _ in new)
    return dict(zip(new, (*known, *begun), strict=False))


def _aged(waiting: Mapping[str, Place], left: Sequence[Place]) -> dict[str, Place]:
    """Whoever goes without having been on a node leaves its time to all who wait: any may be made in its stead."""
    if not left:
        return dict(waiting)
    empty, since = min(place.empty for place in left), min(place.since for place in left)
    return {
        uid: Place(empty=min(place.empty, empty), waits=min(place.since, since))
        for uid, place in waiting.items()
    }


def _vacant(known: Sequence[Place], taken: Sequence[Place], *, number: int, now: float) -> tuple[Place, ...]:
    """So many vacant places. Of those known the first are not missed any more. What is more was lost just now, unless a
    place that was left and `taken` at once is still vacant, as who took it is the successor of somebody else.
    """
    kept = known[max(0, len(known) - number) :]
    more = number - len(kept)
    again = taken[:more]
    return tuple(sorted((*kept, *again, *[Place(empty=now)] * (more - len(again))), key=_order))
