"""Limits on simulations, which cost the most of all questions: nobody may ask all the time, and few may wait."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from queuer.api.http.problems import TooMany
from queuer.api.latest_cycle import CycleAnswer, LatestCycle
from queuer.domain.errors import Unavailable
from queuer.solver.ask import SimulateJob
from queuer.solver.whatif import Simulated

LINE = 8
"""Simulations that may wait."""
A_MINUTE, AT_ONCE = 30.0, 10.0
"""Simulations of one caller."""
_CALLERS = 10_000


class Simulator:
    """Of one app."""

    def __init__(self, latest: LatestCycle, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._latest, self._clock = latest, clock
        self._turn = asyncio.Lock()
        self._waiting = 0
        self._budgets: dict[str, tuple[float, float]] = {}  # by caller: questions left, at a time

    async def ask(self, caller: str, question: SimulateJob) -> CycleAnswer[Simulated] | None:
        """The answer on the newest cycle; None: no cycle is stored. `caller`: its party.

        Raises TooMany, Unavailable, and what the decision refuses.
        """
        self._spend(caller)
        if self._waiting >= LINE:
            raise Unavailable("many simulations wait already", hint="ask again in some seconds")
        self._waiting += 1
        try:
            async with self._turn:  # other questions wait for one simulation at most
                return await self._latest.ask(question, party=caller)
        finally:
            self._waiting -= 1

    def _spend(self, caller: str) -> None:
        now = self._clock()
        left, at = self._budgets.pop(caller, (AT_ONCE, now))
        left = min(AT_ONCE, left + (now - at) * A_MINUTE / 60)
        self._budgets[caller] = (max(0.0, left - 1) if left >= 1 else left, now)
        while len(self._budgets) > _CALLERS:
            del self._budgets[next(iter(self._budgets))]
        if left < 1:
            raise TooMany(
                f"more than {A_MINUTE:.0f} simulations a minute were asked for",
                hint="ask again in some seconds",
            )
