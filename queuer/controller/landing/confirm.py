"""Consistent reads of whether a gang's pods are gone, one task per gang beside the rounds.

The watches may be behind, and nobody's capacity is given away by their word alone. A read that fails, or that still
finds a pod, is made again after growing pauses; nobody else waits for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol
from weakref import WeakValueDictionary

import msgspec

from queuer.controller.logs import logger
from queuer.controller.memory.live import Live
from queuer.controller.memory.state import ClusterState
from queuer.domain.backoff import BackOff
from queuer.domain.errors import Unavailable
from queuer.domain.workload import Workload
from queuer.kube.client import ApiError

log = logger("confirm")

_BACK_OFF = BackOff(first=0.25, longest=5.0)
_READ_SECONDS = 5.0
_AT_ONCE = 4
"""Reads of one namespace: the slow reads of one must not take all connections."""


class Pods(Protocol):
    """The pods of the cluster, as the API server has them now."""

    async def has_pods(self, workload: Workload, *, now: float, lost_after: float) -> bool:
        """Whether pods of the job still hold something. Raises ApiError or Unavailable."""


class Confirmer:
    """Asks the API server, and leaves word in memory. `lost_after`: see `ClusterState.given_up`."""

    def __init__(
        self, pods: Pods, state: ClusterState, *, lost_after: float, clock: Callable[[], float]
    ) -> None:
        self._pods, self._state, self._lost_after, self._clock = pods, state, lost_after, clock
        self._asked: asyncio.Queue[Live] = asyncio.Queue()
        self._under_way: set[tuple[str, str]] = set()
        self._gone: set[str] = set()
        self._slots: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    def take_word(self, uid: str) -> bool:
        """Whether a read has found no pod of it since it was last looked at."""
        gone = uid in self._gone
        self._gone.discard(uid)
        return gone

    def ask(self, live: Live) -> None:
        """Have its pods read until there are none; the workload is touched then."""
        if _key(live) not in self._under_way:
            self._under_way.add(_key(live))
            self._asked.put_nowait(live)

    async def run(self) -> None:
        """Read until cancelled."""
        async with asyncio.TaskGroup() as group:
            while True:
                live = await self._asked.get()
                group.create_task(self._confirm(live), name="confirm")

    async def _confirm(self, live: Live) -> None:
        slots, pauses = self._slots_of(live.workload.namespace), iter(_BACK_OFF)
        try:
            while self._stands(live):
                async with slots:
                    gone = await self._are_gone(live.workload)
                if gone and self._stands(live):
                    self._gone.add(live.uid)
                    self._state.touch(live.uid)
                    return
                await asyncio.sleep(next(pauses))
        finally:
            self._under_way.discard(_key(live))

    def _slots_of(self, namespace: str) -> asyncio.Semaphore:
        slots = self._slots.get(namespace)
        if slots is None:
            self._slots[namespace] = slots = asyncio.Semaphore(_AT_ONCE)
        return slots

    def _stands(self, live: Live) -> bool:
        """Whether it still is in the admission that it was asked about."""
        now = self._state.live.get(live.uid)
        return now is not None and _key(now) == _key(live)

    async def _are_gone(self, workload: Workload) -> bool:
        try:
            async with asyncio.timeout(_READ_SECONDS):
                held = await self._pods.has_pods(workload, now=self._clock(), lost_after=self._lost_after)
        except (ApiError, Unavailable, TimeoutError, msgspec.MsgspecError) as error:
            log.warning("pods not read, nothing released", workload=workload.uid, said=str(error))
            return False
        return not held


def _key(live: Live) -> tuple[str, str]:
    return live.uid, live.placement.id if live.placement is not None else ""
