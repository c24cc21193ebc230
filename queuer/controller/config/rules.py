"""Keeps the configuration in memory at the database's newest revision."""

from __future__ import annotations

import asyncio

from sqlalchemy.ext.asyncio import AsyncEngine

from queuer.controller.logs import logger
from queuer.controller.memory.state import ClusterState
from queuer.store.config import load_config, revision
from queuer.store.engine import begin

log = logger("rules")

EVERY = 0.5
"""Seconds between looks at the revision, one indexed read."""


async def follow(engine: AsyncEngine, state: ClusterState, *, every: float = EVERY) -> None:
    """Take over each new revision. Ends by DatabaseUnavailable, which ends the leadership too."""
    while True:
        await asyncio.sleep(every)
        async with begin(engine) as connection:
            if await revision(connection) == state.rules.revision:
                continue
            rules = await load_config(connection)
        state.configure(rules)
        log.info("configuration", revision=rules.revision, queues=len(rules.tree.queues))
