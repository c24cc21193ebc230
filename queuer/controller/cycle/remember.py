"""What memory and the metrics take over of a decision that is committed."""

from __future__ import annotations

from queuer.controller.cycle.forecast import compare
from queuer.controller.health.metrics import Metrics, queue_label
from queuer.controller.ledger.new_cycle import NewCycle
from queuer.controller.memory.state import ClusterState
from queuer.domain.workload import State


def remember(found: NewCycle, state: ClusterState, metrics: Metrics) -> None:
    """Take over into memory, and count, what was committed."""
    for live in found.after:
        before = state.live[live.uid]
        queue = queue_label(live.workload.queue, state.rules.tree)
        if live.state is State.ADMITTED:
            metrics.admissions.labels(queue).inc()
            compare(before.explanation, started=found.record.finished_at, metrics=metrics)
            if live.attempt == 1:
                metrics.waited.labels(queue).observe(found.record.finished_at - live.workload.submitted)
        elif live.state is State.EVICTING and before.state is not State.EVICTING:
            cause = next(e.cause for e in found.evictions if e.uid == live.uid)
            metrics.evictions.labels(queue, cause).inc()
        state.put(live)
    state.bonds, state.reservations = found.bonds, found.reservations
