"""Waiting in asyncio for what no event tells: another process, thread or connection acts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
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
