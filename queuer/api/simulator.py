"""Limits on simulations, which cost the most of all questions: nobody may ask all the time, and few may wait."""

from __future__ import annotations

import asyncio

from queuer.api.budget import CallerBudget
from queuer.api.latest_cycle import CycleAnswer, LatestCycle
from queuer.domain.errors import Unavailable
from queuer.solver.ask import SimulateJob
from queuer.solver.whatif import Simulated

LINE = 8
"""Simulations that may wait."""
A_MINUTE, AT_ONCE = 30.0, 10.0
"""Simulations of one caller."""


class Simulator:
    """Of one app."""

    def __init__(self, latest: LatestCycle) -> None:
        self._latest = latest
        self._budget = CallerBudget("simulations", a_minute=A_MINUTE, at_once=AT_ONCE)
        self._turn = asyncio.Lock()
        self._waiting = 0

    async def ask(self, caller: str, question: SimulateJob) -> CycleAnswer[Simulated] | None:
        """The answer on the newest cycle; None: no cycle is stored. `caller`: its party.

        Raises TooMany, Unavailable, and what the decision refuses.
        """
        self._budget.spend(caller)
        if self._waiting >= LINE:
            raise Unavailable("many simulations wait already", hint="ask again in some seconds")
        self._waiting += 1
        try:
            async with self._turn:  # other questions wait for one simulation at most
                return await self._latest.ask(question, party=caller)
        finally:
            self._waiting -= 1
