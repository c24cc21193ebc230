"""Places in line after the newest stored cycle, asked for once and kept until there is a newer one."""

from __future__ import annotations

from typing import Annotated, cast

from fastapi import Depends, Request

from queuer.api.latest_cycle import CycleAnswer, LatestCycle
from queuer.api.single_flight import SingleFlight
from queuer.solver import ask

Ranks = dict[str, int]
"""Places in the order of a cycle, by uid."""


def queue_ranks(latest: LatestCycle) -> SingleFlight[CycleAnswer[Ranks] | None]:
    """The cache of an app; None: no cycle is stored that this program reads."""

    async def renew(known: CycleAnswer[Ranks] | None) -> CycleAnswer[Ranks] | None:
        if known is not None and known.cycle == await latest.number():
            return known
        return await latest.ask(ask.QueueRanks())

    return SingleFlight(renew)


def _ranks(request: Request) -> SingleFlight[CycleAnswer[Ranks] | None]:
    return cast(SingleFlight[CycleAnswer[Ranks] | None], request.app.state.ranks)


RankCache = Annotated[SingleFlight[CycleAnswer[Ranks] | None], Depends(_ranks)]
