"""Which places of a landed gang are empty, and each since when, followed from look to look.

A gang of which some pod is always missing is not short of a place as long as the missing ones follow each other; one
pod that finds none, or that is made anew over and over, is noticed among them. Times are those of the looks: the
controller's own clock, never the API server's.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Unplaced:
    """`waiting`: since when the place of each pod is empty that is on no node, by its uid; `vacant`: the same of places
    that have no pod, oldest first; `heard`: the last `PodView.arrival` that is counted in.

    One time for each place that is empty, at least one. Only in memory: after a restart all times begin anew.
    """

    waiting: Mapping[str, float] = field(default_factory=dict)
    vacant: tuple[float, ...] = ()
    heard: int = 0

    @property
    def since(self) -> float:
        """Since when the oldest of these places is empty: what all deadlines count from."""
        return min((*self.waiting.values(), *self.vacant))

    def after(self, unbound: Set[str], arrived: Mapping[str, int], *, short: int, now: float) -> Unplaced:
        """The same at the next look, where `short` places are empty, at least as many as pods are `unbound`. `arrived`:
        arrivals of pods on nodes by uid, those since `heard` among them.

        Only who comes onto a node fills a place: its own, or the oldest vacant one where nobody saw it unbound (vacant
        places are alike). Who comes there and is lost again has filled it: that is for the job's own back-off limit.
        Whoever goes without having been seen there leaves its time to all places that are empty: any of them may be
        its own. Of places that are not missed any more the oldest go.
        """
        came = {uid for uid, arrival in arrived.items() if arrival > self.heard}
        seen = came | unbound
        left = min((at for uid, at in self.waiting.items() if uid not in seen), default=now)
        vacant = self.vacant[len(came - self.waiting.keys()) :]
        new = sorted(unbound - self.waiting.keys())
        taken = dict(zip(new, (*vacant, *[now] * len(new)), strict=False))
        waiting = {uid: at for uid, at in self.waiting.items() if uid in unbound} | taken
        vacant, spare = vacant[len(new) :], short - len(waiting)
        vacant = (*vacant[max(0, len(vacant) - spare) :], *[now] * (spare - len(vacant)))
        return Unplaced(
            waiting={uid: min(at, left) for uid, at in waiting.items()},
            vacant=tuple(min(at, left) for at in vacant),
            heard=max((self.heard, *arrived.values())),
        )
