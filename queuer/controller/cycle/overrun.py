"""Work past the bound that it declared itself, where a reservation waits for its room: it is evicted.

Others started, and the reservation was placed, on the word of `max-runtime`. Nobody else is harmed by a late end.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from queuer.controller.memory.live import Live
from queuer.controller.memory.state import ClusterState
from queuer.domain.assignments import Reservation
from queuer.domain.quantity import NOTHING, add
from queuer.domain.workload import State

LATE = 60.0
"""Seconds that work is given beyond its bound, beside the grace of its pods: it may be about to end."""


def overrun(state: ClusterState, reservations: Iterable[Reservation], *, now: float) -> dict[str, str]:
    """Uids of who has to go now, preemptible or not, each with that of the gang for whose sake."""
    due = [r for r in reservations if r.start <= now and r.uid in state.live]
    late = [live for live in state.live.values() if _is_late(live, state, now=now)] if due else []
    found: dict[str, str] = {}
    for reservation in due if late else ():
        short = _short(reservation, state)
        for live in late:
            if live.uid not in found and any(_held(live, short, state)):
                found[live.uid] = reservation.uid
    return found


def _is_late(live: Live, state: ClusterState, *, now: float) -> bool:
    most, placement = live.workload.max_runtime, live.placement
    if most is None or placement is None or live.state not in (State.PLACING, State.RUNNING):
        return False
    grace = max((pod.grace for pod in state.pods.of(live.workload)), default=0.0)
    return now >= (live.running or placement.at) + most + LATE + grace


def _short(reservation: Reservation, state: ClusterState) -> Mapping[str, frozenset[str]]:
    """By node of the reservation the resources of which its gang finds too little there."""
    requests = {p.name: p.requests for p in state.live[reservation.uid].workload.pod_sets}
    needs: dict[str, Mapping[str, int]] = {}
    for a in reservation.assignments:
        for node, count in a.nodes.items():
            needs[node] = add(needs.get(node, NOTHING), requests.get(a.pod_set, NOTHING), times=count)
    return {name: _missing(need, state, name) for name, need in needs.items() if name in state.nodes}


def _missing(need: Mapping[str, int], state: ClusterState, name: str) -> frozenset[str]:
    taken, there = add(need, state.pods.used(name)), state.nodes[name].allocatable
    return frozenset(resource for resource in need if taken[resource] > there.get(resource, 0))


def _held(live: Live, short: Mapping[str, frozenset[str]], state: ClusterState) -> Iterator[bool]:
    """For each pod whether it holds what is short on its node."""
    for pod in state.pods.of(live.workload):
        lacking = short.get(pod.charged_to or "", frozenset())
        yield any(pod.requests.get(resource) for resource in lacking)
