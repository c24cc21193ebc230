"""Why Kubernetes made no pod of a gang: read from its job's Events when it is taken back for that, and told.

Best effort, beside the rounds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Protocol

import msgspec

from queuer.controller.ledger.round import Change
from queuer.controller.logs import logger
from queuer.controller.memory.live import Live
from queuer.controller.memory.state import ClusterState
from queuer.domain.errors import Unavailable
from queuer.domain.reasons import Token, simple
from queuer.domain.workload import Cause, Workload
from queuer.kube.client import ApiError

log = logger("refusals")


class Events(Protocol):
    """The Events of the cluster."""

    async def refusal(self, workload: Workload) -> str:
        """The newest Event's words on pods that could not be created; "" if there is none. Raises ApiError or
        Unavailable.
        """


class Refusals:
    """Asks the API server, and leaves word in memory."""

    def __init__(self, events: Events, state: ClusterState) -> None:
        self._events, self._state = events, state
        self._asked: asyncio.Queue[Live] = asyncio.Queue()

    def look(self, evictions: Iterable[Change]) -> None:
        """Gangs that are taken back. Only gangs that never got a pod are looked up."""
        for eviction in evictions:
            live = self._state.live.get(eviction.uid)
            late = live is not None and eviction.cause == Cause.LANDING_TIMEOUT
            if live is not None and late and not self._state.pods.of(live.workload):
                self._asked.put_nowait(live)

    async def run(self) -> None:
        """Ask until cancelled."""
        while True:
            asked = await self._asked.get()
            try:
                said = await self._events.refusal(asked.workload)
            except (ApiError, Unavailable, msgspec.MsgspecError) as error:
                log.warning("events not read", workload=asked.uid, said=str(error))
                continue
            if said:
                self._tell(asked, said)

    def _tell(self, asked: Live, said: str) -> None:
        """Unless something newer is known of it."""
        live = self._state.live.get(asked.uid)
        if live is None or live.explanation is None or live.explanation != asked.explanation:
            return
        primary = live.explanation.primary
        text = f"{primary.text}. Its pods were refused: {said}"
        self._state.tell(live, simple(Token.ADMITTED_NOT_PLACED, text, **primary.params, refusal=said))
