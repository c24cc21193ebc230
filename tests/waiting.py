"""Waiting in asyncio for what no event tells: another process, thread or connection acts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from inspect import isawaitable
from typing import Any

PATIENCE = 60.0
"""Seconds: a loaded machine is slow, and a test that passes never waits so long."""


async def until(condition: Callable[[], Any], *, within: float = PATIENCE, every: float = 0.01) -> Any:
    """Ask until the answer is true, and return it. `condition` may be a coroutine function. Raises TimeoutError."""
    async with asyncio.timeout(within):
        while True:
            found = condition()
            if isawaitable(found):
                found = await found
            if found:
                return found
            await asyncio.sleep(every)


@asynccontextmanager
async def beside(work: Coroutine[Any, Any, None]) -> AsyncIterator[asyncio.Task[None]]:
    """The work goes on beside the block. Afterwards it is called off and has ended."""
    task = asyncio.create_task(work)
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.wait([task])
