"""When waiting gangs will start, worked out beside the loop: now and then, in a child process of its own.

A forecast is shown with the reason of a waiting gang and compared with the real start. It never touches a decision.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from math import ceil, floor
from typing import Any

from queuer.controller.health.metrics import Metrics
from queuer.controller.logs import logger
from queuer.domain.errors import QueuerError
from queuer.domain.estimates import StartRange, expected_by, is_sound
from queuer.domain.reasons import Explanation, Verdict
from queuer.solver.ends import foretold_end
from queuer.solver.process import wire
from queuer.solver.process.child import Child, ChildFailure
from queuer.solver.records import Snapshot

log = logger("forecast")

FORECAST, NICE = "queuer.sim.forecast:forecast", 10
LONGEST = 300.0
"""Seconds after which a forecast is given up."""
REST = 20.0
"""A forecast that took so long is followed by so many times that without one: at most a twentieth of a core."""
MINUTE = 60


class Forecaster:
    """Keeps the newest start ranges by uid. `told` is called when there are new ones."""

    def __init__(
        self,
        *,
        every: float,
        seed: int,
        told: Callable[[], None],
        target: str = FORECAST,
    ) -> None:
        """`target`: what the child forecasts with."""
        self.ranges: Mapping[str, StartRange] = {}
        self._every, self._seed, self._told, self._target = every, seed, told, target
        self._latest: tuple[Snapshot, float] | None = None
        self._offered = asyncio.Event()

    def offer(self, snapshot: Snapshot, *, now: float) -> None:
        """The newest state of affairs; returns at once. Where nobody waits there is nothing to foretell."""
        if snapshot.pending:
            self._latest = (snapshot, now)
            self._offered.set()

    async def run(self) -> None:
        """Forecast until cancelled. Raises OSError where no child can be started."""
        while True:
            await self._offered.wait()
            self._offered.clear()
            assert self._latest is not None
            began = time.monotonic()
            snapshot, now = self._latest
            basis = basis_of(snapshot, now=now)
            snapshot = without_unsure_ends(snapshot, now=now)
            found = await self._ask(snapshot, now)
            if found is not None:
                self.ranges = {uid: replace(each, basis=basis, made=now) for uid, each in found.items()}
                self._told()
            await asyncio.sleep(max(self._every, REST * (time.monotonic() - began)))

    async def _ask(self, snapshot: Snapshot, now: float) -> dict[str, StartRange] | None:
        request = wire.ForecastRequest(snapshot=snapshot, now=now, seed=self._seed)
        child = Child(self._target, nice=NICE)
        try:
            found: dict[str, StartRange] = await child.ask(request, within=LONGEST)
        except (ChildFailure, QueuerError) as error:
            log.warning("no forecast", said=str(error))
            return None
        finally:
            await child.end()
        return found


def without_unsure_ends(snapshot: Snapshot, *, now: float) -> Snapshot:
    """The snapshot without the ends that rest on too little to be told: a range must not be made of one short run."""
    admitted = [replace(a, expected_end=foretold_end(a, now=now)[0]) for a in snapshot.admitted]
    pending = [
        p if is_sound(p.workload) else replace(p, workload=replace(p.workload, estimate=None))
        for p in snapshot.pending
    ]
    return replace(snapshot, admitted=tuple(admitted), pending=tuple(pending))


def basis_of(snapshot: Snapshot, *, now: float) -> str:
    """The ends around which run times were drawn for a forecast; empty where no running job has one."""
    ends = [foretold_end(a, now=now) for a in snapshot.admitted]
    runs = [runs for end, runs in ends if end is not None]
    kinds = ["ends that running jobs promise"] if 0 in runs else []
    if learned := [n for n in runs if n]:
        kinds.append(f"ends {expected_by(min(learned))}")
    return f"run times drawn around {' and '.join(kinds)}" if kinds else ""


def with_estimate(
    explanation: Explanation, found: StartRange | None, *, now: float, evicted: float = 0.0
) -> Explanation:
    """The explanation with `detail.estimate`: `from`, `likely` and `to`, whole minutes in seconds since the epoch,
    None = later than was looked at; `basis`. Only for what is worth waiting for, while the range is not over, and if it
    was made since the job was last `evicted`. It never ends within a minute from now: nothing is known that well.
    """
    if found is None or found.made < evicted or explanation.verdict is not Verdict.WAIT:
        return explanation
    if found.latest is not None and found.latest < now:
        return explanation
    estimate: dict[str, Any] = {
        "from": floor(found.earliest / MINUTE) * MINUTE,
        "likely": None if found.likely is None else round(found.likely / MINUTE) * MINUTE,
        "to": None if found.latest is None else ceil(max(found.latest, now + MINUTE) / MINUTE) * MINUTE,
    }
    if found.basis:
        estimate["basis"] = found.basis
    return replace(explanation, detail={**explanation.detail, "estimate": estimate})


def is_hit(explanation: Explanation | None, *, started: float) -> bool | None:
    """Whether a gang started inside the range that it was last told; None: it was told none."""
    estimate: Mapping[str, Any] | None = explanation.detail.get("estimate") if explanation else None
    if estimate is None:
        return None
    return bool(estimate["from"] <= started and (estimate["to"] is None or started <= estimate["to"]))


def compare(explanation: Explanation | None, *, started: float, metrics: Metrics) -> None:
    """Count whether a gang started inside the range that it was last told."""
    hit = is_hit(explanation, started=started)
    if hit is None:
        return
    metrics.estimates.inc()
    if hit:
        metrics.estimate_hits.inc()
