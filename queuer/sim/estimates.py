"""How good start ranges were: in a replay, forecasts are made now and then and held against the real starts."""

from __future__ import annotations

from collections.abc import Mapping

from queuer.domain.estimates import StartRange
from queuer.sim.engine import Simulation
from queuer.sim.forecast import Effort, forecast
from queuer.sim.report import Accuracy, Estimates, Spread

EFFORT = Effort(decisions=30, gangs=100)
"""Less than a controller may spend: a replay makes many forecasts."""


class Watcher:
    """Makes a forecast every so many seconds of virtual time and remembers what each gang was told first and last."""

    def __init__(self, *, every: float, seed: int) -> None:
        self._every, self._seed = every, seed
        self._due = float("-inf")
        self._made = 0
        self._first: dict[str, StartRange] = {}
        self._last: dict[str, StartRange] = {}

    def look(self, simulation: Simulation, *, now: float) -> None:
        """Called at every time that has settled."""
        if now < self._due or not (snapshot := simulation.snapshot()).pending:
            return
        self._due = now + self._every
        self._made += 1
        for uid, told in forecast(snapshot, now=now, seed=self._seed, effort=EFFORT).items():
            self._first.setdefault(uid, told)
            self._last[uid] = told

    def result(self, starts: Mapping[str, float]) -> Estimates:
        """What came of it. `starts`: first real start by uid."""
        return Estimates(
            forecasts=self._made, first=_accuracy(self._first, starts), last=_accuracy(self._last, starts)
        )


def _accuracy(told: Mapping[str, StartRange], starts: Mapping[str, float]) -> Accuracy:
    pairs = [(found, starts[uid]) for uid, found in told.items()]
    inside = [f for f, start in pairs if f.earliest <= start and (f.latest is None or start <= f.latest)]
    errors = [abs(start - f.likely) for f, start in pairs if f.likely is not None]
    return Accuracy(
        told=len(pairs),
        inside=len(inside) / len(pairs) if pairs else None,
        early=sum(start < f.earliest for f, start in pairs),
        late=sum(f.latest is not None and start > f.latest for f, start in pairs),
        open=sum(f.latest is None for f, _ in pairs),
        error=Spread.of(errors) if errors else None,
    )
