"""Holds an admission back until the earlier ones that it could collide with have landed.

Gangs of one wave land in any order, whatever kube-scheduler picks inside their pins. One of a later wave is
safe only once the earlier ones that share a host with it are on their nodes (or gone).

It waits for the pods that such a gang has lost since, too: until the gang is whole again, or gone. One that does not
recover (`landing.recovers`) may never be whole; of that it waits for those that are missing when all others have
landed, which is after its own decision, and not for those that are lost later. Nor does a decision count on anybody to
wait for these (`snapshot.turn_of`). Each of these places is filled or has its gang evicted in time; only where several
gangs are whole in turn, and never together, may somebody wait on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from queuer.controller.landing import BACK_OFF, follow, recovers
from queuer.controller.live import JobView, Live
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
        self._hosts = _Hosts()

    def add(self, entry: Entry) -> None:
        """Take over an entry; it is sent by the next `release` that finds nothing in its way."""
        self._held.append(_Held(entry=entry))

    def release(self, state: ClusterState, *, now: float) -> None:
        """Send everything that may be sent now, in the order in which it was committed."""
        held, self._held = self._held, []
        ahead = _Ahead(state, self._hosts) if any(one.entry.wave for one in held) else None
        for one in held:
            before = ahead.of(one.entry) if ahead and one.entry.wave else ()
            if one.since is None and all(other.landed is not None for other in before):
                one = replace(one, since=now)
            if any(_in_the_way(other, one, state.jobs.get(other.uid), now=now) for other in before):
                self._held.append(one)
            else:
                self._send(one.entry)
        if not self._held:
            self._hosts = _Hosts()

    def pointless(self, state: ClusterState) -> list[Entry]:
        """Take out the admissions whose workload is not waiting for them any more."""
        entries = [one.entry for one in self._held]
        found = [e for e in entries if e.kind is EntryKind.ADMIT and not _wanted(e, state)]
        self._held = [one for one in self._held if one.entry not in found]
        return found


class _Hosts:
    """The nodes on which pods of a gang may come to be, closed ones, too: once the gang is sent it cannot be called
    back when they open. Known by placement as long as the nodes are as they were.
    """

    def __init__(self) -> None:
        self._known: dict[str, frozenset[str]] = {}
        self._version = -1

    def of(self, live: Live, state: ClusterState) -> frozenset[str]:
        """By name. The gang is placed."""
        placement, flavors = live.placement, state.rules.flavors
        assert placement is not None
        if self._version != state.nodes_version:
            self._known, self._version = {}, state.nodes_version
        if placement.id not in self._known:
            terms = {p.name: p.terms for p in live.workload.pod_sets}
            self._known[placement.id] = frozenset(
                host
                for a in placement.assignments
                for host in hosts_when_open(a, terms[a.pod_set], nodes=state.nodes, flavors=flavors)
            )
        return self._known[placement.id]


class _Ahead:
    """Who misses pods, by the hosts on which these may come."""

    def __init__(self, state: ClusterState, hosts: _Hosts) -> None:
        self._state = state
        self._hosts = hosts
        self._on: dict[str, list[Live]] = {}
        for live in map(state.live.__getitem__, state.moving):
            for host in hosts.of(live, state) if _misses_pods(live) else ():
                self._on.setdefault(host, []).append(live)

    def of(self, entry: Entry) -> list[Live]:
        """Those that came earlier to a host of this entry's gang."""
        live = self._state.live.get(entry.uid)
        if entry.kind is not EntryKind.ADMIT or live is None:
            return []
        near = (other for host in self._hosts.of(live, self._state) for other in self._on.get(host, ()))
        found = {other.uid: other for other in near if _is_earlier(other, entry)}
        return list(found.values())


def _in_the_way(other: Live, held: _Held, job: JobView | None, *, now: float) -> bool:
    """Whether pods of `other`, that has this job, are still to come that `held` waits for."""
    unplaced, placement = other.unplaced, other.placement
    if other.landed is None or unplaced is None or held.since is None or recovers(other, job, now=now):
        return True
    assert placement is not None
    if follow(placement, job) or unplaced.begun is None:
        return unplaced.oldest <= held.since
    # What was lost until the gang was given up as one that recovers, decisions have counted on.
    return unplaced.oldest <= max(held.since, unplaced.begun + BACK_OFF)


def _wanted(entry: Entry, state: ClusterState) -> bool:
    live = state.live.get(entry.uid)
    placement = live.placement if live is not None else None
    return (
        live is not None
        and placement is not None
        and placement.id == entry.admission_id
        and live.state is State.ADMITTED
    )


def _misses_pods(live: Live) -> bool:
    """Whether it has not landed, or has lost pods since."""
    if live.placement is None:
        return False
    if live.unplaced is not None:
        return live.state in _STAYING
    return live.state in _UNLANDED and live.landed is None


def _is_earlier(other: Live, entry: Entry) -> bool:
    """Whether it was admitted in an earlier cycle, or an earlier wave of the same.

    What an earlier cycle left unlanded is counted as landing by the decision: its places are taken by later
    waves only.
    """
    assert other.placement is not None
    return (other.placement.cycle, other.placement.wave) < (entry.cycle or 0, entry.wave)
