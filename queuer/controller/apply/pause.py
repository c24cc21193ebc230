"""One pause for all of our requests: what the API server asks of one holds for all.

A pause per request would let every other one run into the same refusal, and add to what the server suffers from.
"""

from __future__ import annotations

import asyncio

from queuer.domain.backoff import BackOff

BACK_OFF = BackOff(first=0.1, longest=10.0)
"""Seconds, where the server does not say how long."""


class Pause:
    """Doubles while the server goes on to refuse; one answer ends that."""

    def __init__(self) -> None:
        self._until = 0.0
        self._pauses = iter(BACK_OFF)

    async def over(self) -> None:
        """Wait for the end of the pause that is on, if any."""
        await asyncio.sleep(max(0.0, self._until - asyncio.get_running_loop().time()))

    def begin(self, *, asked: float | None = None) -> None:
        """A request was refused; `asked`: the seconds that the server wants.

        Those that were under way with it are the same refusal.
        """
        now = asyncio.get_running_loop().time()
        if now >= self._until:
            self._until = now + next(self._pauses)
        self._until = max(self._until, now + (asked or 0.0))

    def answered(self) -> None:
        """The server takes requests again."""
        self._pauses = iter(BACK_OFF)
