"""Holds an admission back until the earlier ones that it could collide with have landed.

Gangs of one wave land in any order, whatever kube-scheduler picks inside their pins. One of a later wave is
safe only once the earlier ones that share a host with it are on their nodes (or gone).
"""

from __future__ import annotations

from collections.abc import Callable

from queuer.controller.live import Live
from queuer.controller.snapshot import hosts_when_open
from queuer.controller.state import ClusterState
from queuer.domain.workload import State
from queuer.store.outbox import Entry
from queuer.store.tables import EntryKind

_UNLANDED = frozenset({State.ADMITTED, State.PLACING})
_STAYING = _UNLANDED | {State.RUNNING}
"""Who is on its way out brings no pods any more, whatever it had lost."""


class Waves:
    """Entries that are committed and not yet sent."""

    def __init__(self, *, send: Callable[[Entry], None]) -> None:
        self._send = send
        self._held: list[Entry] = []

    def add(self, entry: Entry) -> None:
        """Take over an entry; it is sent by the next `release` that finds nothing in its way."""
        self._held.append(entry)

    def release(self, state: ClusterState) -> None:
        """Send everything that may be sent now, in the order in which it was committed."""
        held, self._held = self._held, []
        for entry in held:
            if self._blocked(entry, state):
                self._held.append(entry)
            else:
                self._send(entry)

    def pointless(self, state: ClusterState) -> list[Entry]:
        """Take out the admissions whose workload is not waiting for them any more."""
        found = [e for e in self._held if e.kind is EntryKind.ADMIT and not _wanted(e, state)]
        self._held = [e for e in self._held if e not in found]
        return found

    def _blocked(self, entry: Entry, state: ClusterState) -> bool:
        live = state.live.get(entry.uid)
        if entry.kind is not EntryKind.ADMIT or entry.wave == 0 or live is None:
            return False
        hosts = _hosts(live, state)
        return any(
            other.uid != live.uid and _earlier(other, entry) and hosts & _hosts(other, state)
            for other in state.lives()
        )


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
