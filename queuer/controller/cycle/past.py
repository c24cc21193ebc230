"""Keeps the queues' decayed past use in memory (policy `halfLife`), summed from the ledger now and then.

Between two sums only the newest use is missing, which the present share shows anyway.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from queuer.controller.memory.state import ClusterState
from queuer.domain.past import Past, half_lives, rolled_up
from queuer.domain.queue import QueueTree
from queuer.store import ledger
from queuer.store.engine import begin

EVERY = 30.0


async def load(connection: AsyncConnection, tree: QueueTree, *, now: float) -> Past:
    """The past of every queue whose past counts; asks nothing where there is none."""
    wanted = frozenset(half_lives(tree).values())
    return rolled_up(tree, await ledger.past_use(connection, wanted, now=now))


async def follow(
    engine: AsyncEngine,
    state: ClusterState,
    *,
    clock: Callable[[], float] = time.time,
    every: float = EVERY,
) -> None:
    """Sum anew for ever."""
    while True:
        await asyncio.sleep(every)
        async with begin(engine) as connection:
            state.past = await load(connection, state.rules.tree, now=clock())
