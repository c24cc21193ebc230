"""A gang that has landed, and what its pods do then, as the controller looks at them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from queuer.controller.landing.settle import settle
from queuer.controller.landing.steps import Move
from queuer.controller.landing.tally import tally
from queuer.controller.memory.live import Live
from queuer.controller.memory.pods import PodIndex
from queuer.controller.settings import Settings
from queuer.domain.workload import Cause, State
from tests.unit.make import gang, job_view, placed, pod_view

DEADLINE = 60.0
LIMITS = Settings(database_url="", landing_deadline=DEADLINE, avoid=60.0, avoid_limit=600.0)
PATIENT = 4 * DEADLINE


@dataclass(slots=True)
class Scene:
    """A gang of `size` pods that has landed, with a job that owes as many completions as it takes."""

    size: int
    left: int | None = 1_000_000
    live: Live = field(init=False)
    pods: PodIndex = field(default_factory=PodIndex)
    evicted: float | None = None
    note: str = ""

    def __post_init__(self) -> None:
        placement = placed({"n1": self.size}, patched=0.0)
        workload = gang(pods=self.size, name="job")
        self.live = Live(workload=workload, state=State.PLACING, placement=placement)
        for i in range(self.size):
            self.put(f"p{i}", "n1")
        self.look(0.0)
        assert self.live.landed == 0.0

    def put(self, uid: str, node: str | None = None, **facts: Any) -> None:
        """A pod comes or changes."""
        running = node is not None and not facts.keys() - {"requests"}
        self.pods.put(pod_view(uid, node, running=running, **facts))

    def end(self, uid: str) -> None:
        """A pod succeeds."""
        self.put(uid, "n1", succeeded=True)

    def since(self) -> float | None:
        """Since when it misses pods without getting on; None = it is whole."""
        return None if self.live.short is None else self.live.short.since

    def look(self, now: float) -> float | None:
        """One look of the controller, as `settle_touched` does it. When it was evicted, None = not yet."""
        job = job_view(name="job", suspended=False, admission="adm", left=self.left)
        seen = tally(self.pods.of(self.live.workload))
        outcome = settle(self.live, job, seen, now=now, limits=LIMITS)
        if outcome is None:
            return self.evicted
        self.live = outcome.after
        if Move.EVICT in outcome.moves and self.evicted is None:
            assert outcome.cause == Cause.LOST_PODS
            self.evicted, self.note = now, outcome.note
        return self.evicted
