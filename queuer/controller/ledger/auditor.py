"""What the leader does now and then: compare the ledger with the cluster, and let old history go.

Drift is reported, not repaired.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from sqlalchemy.ext.asyncio import AsyncEngine

from queuer.controller.health.metrics import Metrics
from queuer.controller.logs import logger
from queuer.controller.memory.state import ClusterState
from queuer.store import ledger, retention
from queuer.store.engine import begin

log = logger("auditor")

EVERY = 60.0
PRUNE_EVERY = 600.0


async def audit(engine: AsyncEngine, state: ClusterState, metrics: Metrics, *, every: float = EVERY) -> None:
    """Export drift.

    Charges of what memory does not hold, holders without a charge, pods of nobody charged.
    """
    while True:
        async with begin(engine) as connection:
            charged = {row.uid for row in await ledger.load_open(connection)}
        holding = {live.uid for live in state.lives() if live.charged}
        running = {
            live.uid for live in state.lives() if any(p.charged_to for p in state.pods.of(live.workload))
        }
        drift = {"ledger": len(charged ^ holding), "pods": len(running - charged)}
        for kind, number in drift.items():
            metrics.drift.labels(kind).set(number)
        if any(drift.values()):
            log.warning("drift", **drift)
        await asyncio.sleep(every)


async def prune(
    engine: AsyncEngine, *, epoch: int, clock: Callable[[], float] = time.time, every: float = PRUNE_EVERY
) -> None:
    """Delete what the retention rules say, a batch of each table at a time."""
    while True:
        async with begin(engine) as connection:
            gone = await retention.prune(connection, epoch, now=clock())
        if any(gone.values()):
            log.info("history pruned", **gone)
        if not any(number >= retention.BATCH for number in gone.values()):
            await asyncio.sleep(every)
