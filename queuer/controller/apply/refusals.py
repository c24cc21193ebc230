"""Why Kubernetes makes no pod of a gang: read from its job's Events.

While it lands, a refusal that is repeated (an invalid spec, a quota, a policy) ends the try. When it is taken back, the
words are told. Best effort, beside the rounds.
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
from queuer.domain.backoff import BackOff
from queuer.domain.errors import Unavailable
from queuer.domain.reasons import Token, simple
from queuer.domain.workload import Cause, State, Workload
from queuer.kube.client import ApiError
from queuer.kube.events import PodRefusal

log = logger("refusals")

_LOOKS = BackOff(first=5.0, longest=40.0)
"""Pauses before each look at a gang of which pods are still to be made: nearly all are made within the first."""
_AT_ONCE = 4


class Events(Protocol):
    """The Events of the cluster."""

    async def refusal(self, workload: Workload, *, since: float = 0.0) -> PodRefusal:
        """The newest Event since then about a pod that could not be created. Raises ApiError or Unavailable."""


class Refusals:
    """Asks the API server, and leaves word in memory. `looks`: pauses before each look at a gang that lands."""

    def __init__(self, events: Events, state: ClusterState, *, looks: BackOff = _LOOKS) -> None:
        self._events, self._state, self._looks = events, state, looks
        self._asked: asyncio.Queue[Live] = asyncio.Queue()
        self._landing: asyncio.Queue[Live] = asyncio.Queue()
        self._slots = asyncio.Semaphore(_AT_ONCE)

    def look(self, evictions: Iterable[Change]) -> None:
        """Gangs that are taken back. Those of which a pod waits for a node lack no pod, as the scheduler tells."""
        for eviction in evictions:
            live = self._state.live.get(eviction.uid)
            late = live is not None and eviction.cause == Cause.LANDING_TIMEOUT
            if live is None or not late:
                continue
            if all(pod.ended or pod.node is not None for pod in self._state.pods.of(live.workload)):
                self._asked.put_nowait(live)

    def follow(self, changes: Iterable[Change]) -> None:
        """Gangs that begin to land. Their Events are read for as long as nobody makes the pods that they miss."""
        for change in changes:
            was = change.before is not None and _waits_for_pods(change.before)
            if change.after is not None and _waits_for_pods(change.after) and not was:
                self._landing.put_nowait(change.after)

    async def run(self) -> None:
        """Ask until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._explain(), name="refusals")
            while True:
                landing = await self._landing.get()
                group.create_task(self._follow(landing), name="refusals of one")

    async def _explain(self) -> None:
        while True:
            asked = await self._asked.get()
            if said := (await self._read(asked, since=0.0)).said:
                self._tell(asked, said)

    async def _follow(self, landing: Live) -> None:
        placement, earlier = landing.placement, PodRefusal()
        assert placement is not None
        for pause in self._looks:
            await asyncio.sleep(pause)
            if not self._still_lands(landing.uid, placement.id):
                return
            async with self._slots:
                refusal = await self._read(landing, since=placement.patched or placement.at)
            # It may have ended while the API server was asked.
            if not self._still_lands(landing.uid, placement.id):
                return
            if refusal.stands_after(earlier):
                self._state.refusals[landing.uid] = refusal.said
                self._state.touch(landing.uid)
                return
            earlier = refusal

    def _still_lands(self, uid: str, admission: str) -> bool:
        """Whether this admission still misses pods that nobody has made."""
        live = self._state.live.get(uid)
        if live is None or live.placement is None or live.placement.id != admission:
            return False
        return _waits_for_pods(live)

    async def _read(self, live: Live, *, since: float) -> PodRefusal:
        try:
            return await self._events.refusal(live.workload, since=since)
        except (ApiError, Unavailable, msgspec.MsgspecError, ValueError) as error:
            log.warning("events not read", workload=live.uid, said=str(error))
            return PodRefusal()

    def _tell(self, asked: Live, said: str) -> None:
        """Unless something newer is known of it, or it says so already."""
        live = self._state.live.get(asked.uid)
        if live is None or live.explanation is None or live.explanation != asked.explanation:
            return
        primary = live.explanation.primary
        text = (
            primary.text if said[:200] in primary.text else f"{primary.text}. Its pods were refused: {said}"
        )
        self._state.tell(live, simple(Token.ADMITTED_NOT_PLACED, text, **primary.params, refusal=said))


def _waits_for_pods(live: Live) -> bool:
    """Whether it lands, and misses pods that nobody has made."""
    lands = live.state is State.PLACING and live.landed is None
    return lands and live.short is not None and not live.short.made
