"""`queuer serve controller`: everything of the process joined, from its first line to SIGTERM."""

from __future__ import annotations

import asyncio
import math
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from queuer.controller.apply.jobs import ClusterJobs
from queuer.controller.health.guard import GuardWatch
from queuer.controller.health.metrics import Metrics
from queuer.controller.health.probes import Health, Phase, serve
from queuer.controller.leadership import Parts, serve_term
from queuer.controller.logs import logger
from queuer.controller.memory.state import ClusterState
from queuer.controller.settings import Settings
from queuer.controller.watch.views import Facts
from queuer.controller.watch.watches import Watches, served
from queuer.domain.backoff import BackOff
from queuer.domain.errors import Conflict, QueuerError, Unavailable
from queuer.kube.client import Client
from queuer.kube.config import load_access
from queuer.kube.reflector import Timing
from queuer.kube.versions import KubernetesTooOld
from queuer.solver.process.parent import SolverProcess
from queuer.store import migrate
from queuer.store.engine import DatabaseUnavailable, PostgresTooOld, make_engine
from queuer.store.leader import LeadershipLost, lead

log = logger("main")

_PAUSE = 1.0
_POOL = 5
SAID_AGAIN = BackOff(first=4.0, longest=300.0)
"""Between two lines that say why no term begins; it is tried every second all the same."""
QUIET = 60.0
"""Seconds without a failure after which the next one is told at once."""


async def run(settings: Settings) -> None:
    """Run until SIGTERM or SIGINT. Raises QueuerError where it cannot work at all, with the fix."""
    metrics = Metrics()
    health = Health(stalled=settings.stalled)
    wake = asyncio.Event()
    state = ClusterState(on_change=wake.set)
    access = await load_access(settings.kubeconfig)
    async with (
        serve(health, metrics, state, host=settings.host, port=settings.port) as port,
        Client(access) as client,
        SolverProcess() as solver,
    ):
        metrics.count_solver(solver)
        log.info("listening", port=port, identity=settings.identity, kubernetes=access.url)
        await _wait_for_server(client)
        await _wait_for_database(settings.database_url)
        parts = Parts(
            settings=settings, access=access, client=client, solver=solver, metrics=metrics, health=health
        )
        work = asyncio.create_task(_work(parts, state, wake), name="work")
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, work.cancel)
        try:
            await work
        except asyncio.CancelledError:
            if not work.cancelled():
                raise
        except ExceptionGroup as failed:
            raise next(
                (e for e in _leaves(failed) if isinstance(e, migrate.SchemaMismatchError)), failed
            ) from None
        health.enter(Phase.STOPPING)
        log.info("stopped")


async def _wait_for_server(client: Client) -> None:
    """Wait for the API server, then refuse one that is too old."""
    while True:
        try:
            await client.form()
        except KubernetesTooOld:
            raise
        except Unavailable as error:
            log.warning("waiting for the API server", said=str(error))
            await asyncio.sleep(_PAUSE)
        else:
            return


async def _wait_for_database(url: str) -> None:
    """Wait for PostgreSQL, then refuse a schema that is not ours."""
    while True:
        try:
            return await asyncio.to_thread(migrate.check, url)
        except PostgresTooOld:
            raise
        except Unavailable as error:
            log.warning("waiting for the database", said=str(error))
            await asyncio.sleep(_PAUSE)


def _leaves(group: BaseExceptionGroup[Any]) -> Iterator[BaseException]:
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from _leaves(error)
        else:
            yield error


class TermLog:
    """Says once that a term ended, and then more and more rarely why this process cannot begin the next one."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now, self._pauses = now, iter(SAID_AGAIN)
        self._failed, self._next = -math.inf, -math.inf

    def ended(self, causes: Sequence[BaseException], *, led: bool) -> None:
        """A term of this process is over if it `led`; else none could begin."""
        now, said = self._now(), [str(cause) for cause in causes]
        if led or now - self._failed > QUIET:
            self._pauses, self._next = iter(SAID_AGAIN), now
        self._failed = now
        if led:
            log.warning("the term of office ended", said=said)
        elif now >= self._next:
            self._next = now + next(self._pauses)
            log.warning("no term of office can begin, tried again", said=said)


async def _work(parts: Parts, state: ClusterState, wake: asyncio.Event) -> None:
    """Watch from now on; lead whenever this process has the lock."""
    settings, client, health, metrics = parts.settings, parts.client, parts.health, parts.metrics
    metrics.count_writes(client.writes)
    facts = Facts(schedulers=settings.schedulers)
    timing = Timing(relist=settings.relist)
    watches = Watches(client, state, facts, kinds=await served(client), timing=timing)
    jobs = ClusterJobs(client, state, facts)
    guard = GuardWatch(
        client, health, metrics, changed=wake.set, namespace=settings.namespace, operators=settings.operators
    )
    engine = make_engine(settings.database_url, name="queuer-controller", pool_size=_POOL)
    terms = TermLog()
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(watches.run(metrics, health), name="watches")
            group.create_task(guard.run(), name="guard")
            health.enter(Phase.LISTING)
            await watches.synced(progress=health.beat)
            while True:
                health.enter(Phase.STANDBY)
                led = False
                try:
                    async with lead(
                        settings.database_url, holder=settings.identity, alive=lambda: health.alive
                    ) as leadership:
                        led = True
                        await asyncio.to_thread(migrate.check, settings.database_url)
                        await serve_term(
                            leadership, parts, state=state, jobs=jobs, engine=engine, wake=wake,
                            recall=watches.recall,
                        )  # fmt: skip
                except* (LeadershipLost, DatabaseUnavailable, Conflict) as ended:
                    causes = list(_leaves(ended))
                    terms.ended(causes, led=led)
                    for cause in {e.code for e in causes if isinstance(e, QueuerError)}:
                        metrics.terms_ended.labels(cause).inc()
                except* migrate.SchemaMismatchError:
                    raise  # a newer version leads from now on
                except* Exception:  # whatever it was: everything is read again, by whoever leads next
                    log.exception("the term of office failed")
                    metrics.terms_ended.labels("fault").inc()
                await asyncio.sleep(_PAUSE)
    finally:
        await engine.dispose()
