"""When something that memory knows of ends by itself, so that the loop wakes for it."""

from __future__ import annotations

from queuer.controller.landing import deadlines
from queuer.controller.state import ClusterState


def landing_ends(
    state: ClusterState, *, after: float, until: float, landing_deadline: float
) -> list[tuple[float, str]]:
    """Deadlines of landing after one time and up to another, with the workload of each."""
    return [
        (at, live.uid)
        for live in (state.live[uid] for uid in state.moving)
        for at in deadlines(live, landing_deadline=landing_deadline)
        if after < at <= until
    ]


def holding_ends(state: ClusterState) -> list[float]:
    """When waiting work may be offered again, may use nodes that it avoids, or something held for it ends."""
    times = [b.deadline for b in state.bonds] + [r.start for r in state.reservations]
    for live in (state.live[uid] for uid in state.timed):
        times += live.avoid.values()
        times += () if live.rest is None else (live.rest,)
    return times
