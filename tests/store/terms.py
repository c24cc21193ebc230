"""A loop and an auditor on a real database, as tests of a term need them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from sqlalchemy.ext.asyncio import AsyncEngine

from queuer.controller.failpoints import Failpoints
from queuer.controller.health.metrics import Metrics
from queuer.controller.health.probes import Health
from queuer.controller.leadership import load
from queuer.controller.ledger.auditor import Auditor
from queuer.controller.loop import Loop
from queuer.controller.memory.state import ClusterState
from queuer.controller.settings import Settings
from queuer.store.engine import begin
from tests.store.support import NOW


def looping(
    engine: AsyncEngine, state: ClusterState, jobs: Any, *, epoch: int, clock: Callable[[], float], **given: Any
) -> Loop:  # fmt: skip
    """A loop whose decider is given, or is never asked."""
    parts: dict[str, Any] = {"decider": None, "metrics": Metrics(), "last_cycle": 1, "wake": asyncio.Event()}
    return Loop(
        state=state, jobs=jobs, engine=engine, epoch=epoch, clock=clock, settings=Settings(database_url=""),
        health=Health(stalled=30.0), **{**parts, **given},
    )  # fmt: skip


def auditing(
    engine: AsyncEngine, state: ClusterState, metrics: Metrics, *, epoch: int, quarantine: Any
) -> Auditor:
    """An auditor a minute later."""
    return Auditor(
        engine, state, metrics, epoch=epoch, actor="me", lost_node=300.0, every=60.0, failpoints=Failpoints(),
        quarantine=quarantine, clock=lambda: NOW + 60,
    )  # fmt: skip


async def restarted(engine: AsyncEngine, *, now: float = NOW, **given: Any) -> ClusterState:
    """Memory of who leads next."""
    state = ClusterState()
    async with begin(engine) as connection:
        await load(connection, state, now=now, **given)
    return state
