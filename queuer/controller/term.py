"""What the parts of one leadership share: memory, the cluster's jobs, the database, and who is told what."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from sqlalchemy.ext.asyncio import AsyncEngine

from queuer.controller.apply.applier import Applier
from queuer.controller.apply.jobs import ClusterJobs
from queuer.controller.apply.notes import Notes
from queuer.controller.apply.refusals import Refusals
from queuer.controller.health.metrics import Metrics
from queuer.controller.logs import logger
from queuer.controller.memory.state import ClusterState
from queuer.controller.settings import Settings
from queuer.store.outbox import Entry

log = logger("term")


@dataclass(slots=True, kw_only=True)
class Term:
    """One leadership. `cycle`: number of the last one."""

    state: ClusterState
    jobs: ClusterJobs
    engine: AsyncEngine
    settings: Settings
    metrics: Metrics
    notes: Notes
    refusals: Refusals
    applier: Applier
    epoch: int
    cycle: int
    clock: Callable[[], float]
    new_id: Callable[[], str]

    def next_cycle(self) -> int:
        """The number of a new cycle."""
        self.cycle += 1
        return self.cycle

    def send(self, entries: Iterable[Entry]) -> None:
        """Have effects applied that are committed."""
        for entry in entries:
            self.applier.send(entry)

    def set_aside(self, failed: Mapping[str, Exception]) -> None:
        """Leave these workloads alone for a while, each for what it failed with."""
        for uid, error in failed.items():
            log.error("set aside", workload=uid, said=str(error), exc_info=error)
            self.metrics.set_aside.inc()
            self.state.set_aside(uid, error, now=self.clock())
