"""When something ends by itself, so that the loop wakes for it though nothing was heard."""

from __future__ import annotations

from math import inf

from queuer.controller.landing.steps import deadlines
from queuer.controller.memory.state import ClusterState
from queuer.controller.settings import Settings

REEVALUATE = 10.0
"""Seconds after which waiting work is decided on again even if nothing was heard: rules depend on time."""
SWEEP = 15.0
"""Seconds between looks at all that lands or leaves: pods that are lost with their node send no event."""


class Timers:
    """Times at which something in memory ends. `decided`: the moment that the last decision was about."""

    def __init__(self, state: ClusterState, *, limits: Settings) -> None:
        self.decided = 0.0
        self._state = state
        self._limits = limits
        self._looked = self._swept = 0.0

    def next(self, *, deciding: bool) -> float:
        """When to wake at the latest. The end of a decision rings itself, and until then no other can begin."""
        due = [at for at, _ in self._landing_ends(until=inf)] + [self._state.quarantine.next]
        if not deciding:
            due += [self.decided + REEVALUATE, *(t for t in self._holding_ends() if t > self.decided)]
        return min(due, default=inf)

    def calls_for_decision(self, now: float) -> bool:
        """Whether it is time for one, or something that the last one reckoned with has ended since."""
        over = now >= self.decided + REEVALUATE
        return over or any(self.decided < t <= now for t in self._holding_ends())

    def touch_due(self, now: float) -> None:
        """Look again at the gangs whose time is up."""
        state = self._state
        state.touched.update(uid for _, uid in self._landing_ends(until=now))
        if now >= self._swept + SWEEP:
            self._swept = now
            state.touched.update(state.moving)
        self._looked = now

    def _landing_ends(self, *, until: float) -> list[tuple[float, str]]:
        """Deadlines of landing since the last look, with the workload of each."""
        return [
            (at, live.uid)
            for live in (self._state.live[uid] for uid in self._state.moving)
            for at in deadlines(live, limits=self._limits)
            if self._looked < at <= until
        ]

    def _holding_ends(self) -> list[float]:
        """When waiting work may be offered again, may use nodes that it avoids, or something held for it ends."""
        state = self._state
        times = [b.deadline for b in state.bonds] + [r.start for r in state.reservations]
        for live in (state.live[uid] for uid in state.timed):
            times += live.avoid.values()
            times += () if live.rest is None else (live.rest,)
        return times
