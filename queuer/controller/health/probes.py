"""`/livez`, `/readyz`, `/metrics` of the controller process, and its heartbeat in the database.

Alive means that the loop goes round, not that the process or its lock exists. A controller that hangs, also
while it loads, must be replaced. Ready means that it leads with everything listed, or stands by to do so. The API reads
the heartbeat: it goes on while the loop is stuck, and then says since when.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from enum import StrEnum
from math import inf

from aiohttp import web
from sqlalchemy.ext.asyncio import AsyncEngine

from queuer.controller.clock import SteadyClock
from queuer.controller.health.metrics import Metrics
from queuer.controller.memory.state import ClusterState
from queuer.store import heartbeat
from queuer.store.engine import begin
from queuer.store.heartbeat import Heartbeat, LastCycle

LOADING = 120.0
"""Seconds without progress after which listing, or reading the database, is taken to hang."""
FRESH = 5.0
"""Seconds for which the text of `/metrics` is answered again."""
BEAT = 1.0
"""Seconds between two heartbeats in the database."""
LAST_BEAT = 1.0
"""Seconds that the end of a term waits for its last one."""
LONG_DECISION = 5.0
"""Seconds after which a decision that is under way is told. An API of an older version takes the word for the end of
the term, so short decisions do not say it.
"""


class Phase(StrEnum):
    """How far this process came."""

    STARTING = "starting"
    STANDBY = "standby"
    LISTING = "listing"
    LEADING = "leading"
    DECIDING = "deciding"  # in the heartbeat alone: it leads, and thinks for long
    FAILING = "failing"  # in the heartbeat alone: it leads, and its last decision had no plan to commit
    STOPPING = "stopping"


@dataclass(slots=True)
class Health:
    """Written by the loops, read by the probes and the heartbeat. `cycle`: the last that was concluded; `away_since`:
    by `clock`, since when the API server has not answered. `unguarded`: the fault of the guard's policies or of the
    Kubernetes version, for which nothing new is admitted. A restart would mend neither: they end no readiness.
    `deciding_since`: by `clock`, since when a decision is under way. `failing`: whether somebody waits and the last
    decision had no plan that could be committed.

    `beat` is called whenever a round is done, with or without work, and while everything is read for the first time
    whenever something came. Read by other threads too.
    """

    stalled: float
    clock: Callable[[], float] = time.monotonic
    phase: Phase = Phase.STARTING
    cycle: LastCycle | None = None
    away_since: float | None = None
    unguarded: str | None = None
    deciding_since: float | None = None
    failing: bool = False
    last: float = field(init=False)

    def __post_init__(self) -> None:
        self.last = self.clock()

    def enter(self, phase: Phase) -> None:
        """Begin a phase."""
        self.beat()
        self.phase, self.deciding_since, self.failing = phase, None, False

    def beat(self) -> None:
        """A round is done, or some of what is loaded has come."""
        self.last = self.clock()

    @property
    def silent(self) -> float:
        """Seconds since the last beat."""
        return self.clock() - self.last

    @property
    def away(self) -> float | None:
        """Seconds since the API server answered; None while it does."""
        return None if self.away_since is None else self.clock() - self.away_since

    @property
    def told_phase(self) -> Phase:
        """The phase that the heartbeat says."""
        since = self.deciding_since
        long = since is not None and self.clock() - since >= LONG_DECISION
        if self.phase is not Phase.LEADING:
            return self.phase
        return Phase.FAILING if self.failing else Phase.DECIDING if long else self.phase

    @property
    def alive(self) -> bool:
        """Whether the loop goes round, or what it begins with is coming in. A standby only waits."""
        longest = {Phase.LEADING: self.stalled, Phase.LISTING: LOADING}.get(self.phase, inf)
        return self.silent < longest

    @property
    def ready(self) -> bool:
        """Whether this process does its part."""
        return self.phase in (Phase.LEADING, Phase.STANDBY) and self.alive


class Figures:
    """The exposition of the metrics, made at most every `FRESH` seconds. It may be asked for without a pause, and is
    made beside the decisions of the same process. Its text, the most of the work, is made in a thread.
    """

    def __init__(
        self,
        metrics: Metrics,
        state: ClusterState,
        health: Health,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._metrics, self._state, self._health, self._clock = metrics, state, health, clock
        self._text, self._made = b"", -inf
        self._making = asyncio.Lock()

    async def text(self) -> bytes:
        """As it is now, or was a few seconds ago."""
        async with self._making:
            if self._clock() >= self._made + FRESH:
                made = self._clock()
                self._count()
                self._text = await asyncio.to_thread(self._metrics.exposition)
                self._made = made
            return self._text

    def _count(self) -> None:
        # The present leader counts what an earlier one still remembers.
        state = self._state if self._health.phase is Phase.LEADING else ClusterState()
        self._metrics.in_quarantine.set(len(state.quarantine))
        self._metrics.count(state.live.values(), state.rules.tree, pods=state.pods.of, now=time.time())


@asynccontextmanager
async def serve(
    health: Health, metrics: Metrics, state: ClusterState, *, host: str, port: int
) -> AsyncIterator[int]:
    """Answer the probes while the block runs; gives the port."""

    figures = Figures(metrics, state, health)

    async def livez(_: web.Request) -> web.Response:
        text = f"{health.phase}, last sign of life {health.silent:.1f} s ago\n"
        return web.Response(text=text, status=200 if health.alive else 503)

    async def readyz(_: web.Request) -> web.Response:
        away = "" if health.away is None else f", the API server has not answered for {health.away:.0f} s"
        guard = "" if health.unguarded is None else f", nothing new is admitted: {health.unguarded}"
        return web.Response(text=f"{health.phase}{away}{guard}\n", status=200 if health.ready else 503)

    async def show_metrics(_: web.Request) -> web.Response:
        return web.Response(body=await figures.text(), headers={"Content-Type": "text/plain; version=0.0.4"})

    app = web.Application()
    app.add_routes([web.get("/livez", livez), web.get("/readyz", readyz), web.get("/metrics", show_metrics)])
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        site = web.TCPSite(runner, host, port)
        await site.start()
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


async def write_heartbeat(
    engine: AsyncEngine,
    health: Health,
    *,
    epoch: int,
    holder: str,
    clock: SteadyClock,
    every: float = BEAT,
) -> None:
    """Say in the database that this process leads, until cancelled; then that it does so no more, if it can. The
    database says what time it is.
    """

    async def write(phase: Phase) -> None:
        now = clock()
        beat = Heartbeat(
            holder=holder, epoch=epoch, phase=phase, at=now, round_at=now - health.silent,
            away_at=None if health.away is None else now - health.away, unguarded=health.unguarded,
            cycle=health.cycle,
        )  # fmt: skip
        async with begin(engine) as connection:
            clock.hear(await heartbeat.write(connection, beat))

    try:
        while True:
            await write(health.told_phase)
            await asyncio.sleep(every)
    except asyncio.CancelledError:
        with suppress(Exception):  # the next term, or the silence, tells it too
            async with asyncio.timeout(LAST_BEAT):
                await write(Phase.STANDBY)
        raise
