"""Holds an admission back until the earlier ones that it could collide with have landed.

Gangs of one wave land in any order, whatever kube-scheduler picks inside their pins. One of a later wave is
safe only once the earlier ones that share a host with it are on their nodes (or gone).

Of a gang that had landed and lost pods it waits for those that are missing when all others are out of its way, which is
after its own decision: that one proved it safe once the pods that it saw missing lie on nodes, and knew nothing of
later ones, whether the gang is whole in between or not. What others were given since is proven whenever these pods come
(`verify.places`). Each of these places is filled or has its gang evicted in time, so nobody waits for ever beside a
gang of which some pod is always missing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from queuer.controller.live import Live
from queuer.controller.snapshot import hosts_when_open
from queuer.controller.state import ClusterState
from queuer.domain.workload import State
from queuer.store.outbox import Entry
from queuer.store.tables import EntryKind

_UNLANDED = frozenset({State.ADMITTED, State.PLACING})
_STAYING = _UNLANDED | {State.RUNNING}
"""Who is on its way out brings no pods any more, whatever it had lost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Held:
    """An entry that waits. `since`: when it began to wait for nothing but pods that landed gangs had lost; after a
    restart it begins anew, as their times do.
    """

    entry: Entry
    since: float | None = None


class Waves:
    """Entries that are committed and not yet sent."""

    def __init__(self, *, send: Callable[[Entry], None]) -> None:
        self._send = send
        self._held: list[_Held] = []

    def add(self, entry: Entry) -> None:
        """Take over an entry; it is sent by the next `release` that finds nothing in its way."""
        self._held.append(_Held(entry=entry))

    def release(self, state: ClusterState, *, now: float) -> None:
        """Send everything that may be sent now, in the order in which it was committed."""
        held, self._held = self._held, []
        for one in held:
            before = _before(one.entry, state)
            if one.since is None and all(other.landed is not None for other in before):
                one = replace(one, since=now)
            if any(_in_the_way(other, one) for other in before):
                self._held.append(one)
            else:
                self._send(one.entry)

    def pointless(self, state: ClusterState) -> list[Entry]:
        """Take out the admissions whose workload is not waiting for them any more."""
        entries = [one.entry for one in self._held]
        found = [e for e in entries if e.kind is EntryKind.ADMIT and not _wanted(e, state)]
        self._held = [one for one in self._held if one.entry not in found]
        return found


def _before(entry: Entry, state: ClusterState) -> list[Live]:
    """Who misses pods and came earlier to a host of this entry's gang."""
    live = state.live.get(entry.uid)
    if entry.kind is not EntryKind.ADMIT or entry.wave == 0 or live is None:
        return []
    hosts = _hosts(live, state)
    return [
        other
        for other in state.lives()
        if other.uid != live.uid and _earlier(other, entry) and hosts & _hosts(other, state)
    ]


def _in_the_way(other: Live, held: _Held) -> bool:
    """Whether pods of `other` are still to come that `held` waits for."""
    if other.landed is None or other.unplaced is None or held.since is None:
        return True
    return other.unplaced.since <= held.since


def _wanted(entry: Entry, state: ClusterState) -> bool:
    live = state.live.get(entry.uid)
    placement = live.placement if live is not None else None
    return (
        live is not None
        and placement is not None
        and placement.id == entry.admission_id
        and live.state is State.ADMITTED
    )


def _earlier(other: Live, entry: Entry) -> bool:
    """Whether `other` was admitted in an earlier cycle, or an earlier wave of the same, and has not landed, or has lost
    pods since.

    What an earlier cycle left unlanded is counted as landing by the decision: its places are taken by later
    waves only.
    """
    placement = other.placement
    return (
        placement is not None
        and (placement.cycle, placement.wave) < (entry.cycle or 0, entry.wave)
        and other.state in (_UNLANDED if other.unplaced is None else _STAYING)
        and (other.landed is None or other.unplaced is not None)
    )


def _hosts(live: Live, state: ClusterState) -> frozenset[str]:
    """The nodes on which pods of the gang may come to be, closed ones, too: once the gang is sent it cannot be called
    back when they open.
    """
    assert live.placement is not None
    terms = {p.name: p.terms for p in live.workload.pod_sets}
    return frozenset(
        host
        for a in live.placement.assignments
        for host in hosts_when_open(a, terms[a.pod_set], nodes=state.nodes, flavors=state.rules.flavors)
    )
