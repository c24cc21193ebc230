"""Who keeps off which hosts in the next attempt, where gangs could not land beside others in this one (DESIGN 3.5)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from queuer.solver.apart import Hosts, Late, hosts_of, shared
from queuer.solver.greedy import Greedy
from queuer.solver.holding import holds, lift, restore
from queuer.solver.outcome import Chosen
from queuer.solver.pins import Pinner

FEW = 64
"""Settled gangs up to which it is looked who of those beside a gang keep it from landing: all are pinned anew for each
of them. Among more, all that were settled later keep off.
"""
KeptOff = dict[str, Hosts]
"""Nodes that gangs keep off, by uid."""


@dataclass(frozen=True, slots=True)
class Yielding:
    """`off`: what gangs should keep off in the next attempt. `instead`: what those for whose sake others do might keep
    off so that none of these has to. `later`: what gangs after these might, so that they have the room of those.
    """

    off: KeptOff = field(default_factory=dict)
    instead: KeptOff = field(default_factory=dict)
    later: KeptOff = field(default_factory=dict)

    @property
    def others(self) -> list[KeptOff]:
        """What else may be tried, the last gangs first."""
        return [kept_off for kept_off in (self.later, self.instead) if kept_off]


def yielding(greedy: Greedy, waits: Sequence[Chosen], pinner: Pinner, late: Late) -> Yielding:
    """Of those settled after one of these, which cannot land, the ones in its way keep off its hosts; who cannot land
    even alone, or would rob a bond of an earlier cycle, keeps off those where it meets itself, others that land, or
    such a bond.
    """
    found, settled = Yielding(), list(greedy.chosen.values())
    for one in waits:
        if not pinner.lands_alone(one):
            found.off[one.gang.uid] = shared(greedy, one)
            continue
        own = hosts_of(greedy, one)
        near = [other for other in settled if other is not one and hosts_of(greedy, other) & own]
        after = [other for other in near if settled.index(other) > settled.index(one)]
        away = _in_the_way(greedy, one, after, late)
        for other in away:
            _more(found.instead, one, hosts_of(greedy, other))
            _more(found.off, other, own)
        for other in after[after.index(away[0]) + 1 :] if away else ():
            if other not in away:
                _more(found.later, other, own | hosts_of(greedy, *away))
        if not after:
            found.off[one.gang.uid] = shared(greedy, one) | hosts_of(greedy, *near)
    return found


def _in_the_way(greedy: Greedy, one: Chosen, after: Sequence[Chosen], late: Late) -> Sequence[Chosen]:
    """Of those settled after it, the ones beside which it cannot land, and those before them. Not who lies in room that
    one of these leaves: its next turn will be another.
    """
    if len(after) < 2 or len(greedy.chosen) > FEW:
        return after
    before, away = dict(greedy.chosen), list[Chosen]()
    lift(greedy, after)
    if one not in late():
        for other in after:
            greedy.take(other)
            has_room = holds(greedy, (), [other])
            if not has_room or one in late():
                lift(greedy, [other])
                away += [other] * has_room
    restore(greedy, before)
    return away or after


def _more(kept_off: KeptOff, one: Chosen, hosts: Hosts) -> None:
    kept_off[one.gang.uid] = kept_off.get(one.gang.uid, frozenset()) | hosts
