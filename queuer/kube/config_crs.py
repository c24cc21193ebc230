"""Keeps the database's configuration equal to the Queue, Flavor and Topology objects of the cluster.

kopf watches the objects. For each event its handler lists all of them and has them applied as one changeset, unless a
listing has seen that event's object already. Deletions show in the comparison, at start as well, because kopf loses
those that happen while it lists again. A set with one wrong object changes nothing: the last good one stays in force.
The object says why, in its status and as an Event.

kopf runs in the caller's event loop. It writes Events, and nothing on anybody's object.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import kopf
import structlog

from queuer.domain.backoff import BackOff
from queuer.domain.errors import FieldProblem, QueuerError
from queuer.kube.client import Client, NotFoundError
from queuer.kube.config import Access
from queuer.kube.config_set import GROUP, PLURALS, VERSION, ConfigObject, ConfigSet, Listed, config_set
from queuer.kube.config_status import PERIOD, Statuses, Verdict, refusals, verdicts
from queuer.kube.decoding import decoder_of

log = structlog.get_logger(part="configuration objects")

RESYNC = 60.0
"""Seconds after which everything is listed even without an event."""
_BACK_OFF = BackOff(first=0.5, longest=30.0)
_object_of = decoder_of(ConfigObject)

Figures = Callable[[], Awaitable[Mapping[str, Mapping[str, Any]]]]
"""By queue path: parts of its status, such as `{"used": {"cpu": "4"}, "borrowed": {}, "pending": {}}`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigOutcome:
    """How the application of a set ended. Nothing was taken over where there are problems or conflicts.

    Their `field` is a path in the document: `queues.root.a.quota[0].limit`, `flavors.h100`, `topology`.
    """

    problems: tuple[FieldProblem, ...] = ()
    conflicts: tuple[FieldProblem, ...] = ()


Apply = Callable[[ConfigSet], Awaitable[ConfigOutcome]]
"""Applies a set with nothing `wrong` in one transaction. A QueuerError that it raises is tried again later."""


async def run(
    client: Client, *, access: Access, apply: Apply, figures: Figures, clock: Callable[[], float] = time.time
) -> None:
    """Keep configuration and statuses up to date until cancelled. `clock`: the time that statuses say."""
    reconciler = Reconciler(client=client, apply=apply, figures=figures, clock=clock)
    for pause in _BACK_OFF:  # kopf waits silently for definitions that are missing
        if await reconciler.reconcile():
            break
        await asyncio.sleep(pause)
    async with asyncio.TaskGroup() as group:
        group.create_task(_watch(access, reconciler), name="config-watch")
        group.create_task(reconciler.keep(), name="config-keep")
        group.create_task(reconciler.tell(), name="config-tell")


@dataclass(slots=True, kw_only=True)
class Reconciler:
    """Lists, applies and answers all objects. One round at a time; the state between two rounds is kept here.

    Statuses are written beside the rounds, one at a time: a change is in force before thousands of objects say so.
    """

    client: Client
    apply: Apply
    figures: Figures
    clock: Callable[[], float]
    listed: Listed = field(default_factory=Listed)
    verdicts: dict[str, Verdict] = field(default_factory=dict)
    statuses: Statuses = field(default_factory=Statuses)
    refused: tuple[str, ...] = ()
    """Why the set of the last round was not taken over."""
    _generations: Mapping[str, int] = field(default_factory=dict)
    _due: float = 0.0
    _pauses: Iterator[float] | None = None
    """Of the rounds that failed in a row; None where the last one did not."""
    _amounts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    _asked: float = float("-inf")
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    _writing: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def heard(self, uid: str, generation: int | None) -> None:
        """Reconcile if no listing has seen the object in this generation, None = deleted.

        Our own status writes change no generation. After a failed round `keep` tries again.
        """
        async with self._lock:
            if self._generations.get(uid) == generation or self._pauses is not None:
                return
            await self.reconcile()
        await self._report()

    async def keep(self) -> None:
        """Look once a second whether another round is due."""
        while True:
            async with self._lock:
                if time.monotonic() >= self._due:
                    await self.reconcile()
            await asyncio.sleep(1.0)

    async def tell(self) -> None:
        """Look once a second for statuses that are due."""
        while True:
            await self._report()
            await asyncio.sleep(1.0)

    async def reconcile(self) -> bool:
        """List, judge, apply. False where something did not answer."""
        self.statuses.listing()
        try:
            listed = await list_objects(self.client)
            wanted = config_set(listed)
            outcome = ConfigOutcome() if wanted.wrong else await self.apply(wanted)
        except QueuerError as error:
            missing = isinstance(error, NotFoundError)
            log.warning("not applied, to be tried again", said=str(error), definitions_missing=missing)
            self._pauses = self._pauses or iter(_BACK_OFF)
            self._due = time.monotonic() + next(self._pauses)
            return False
        self.listed, self._generations = listed, listed.generations
        self.verdicts = verdicts(listed, wanted, problems=outcome.problems, conflicts=outcome.conflicts)
        self._log(refusals(listed, self.verdicts))
        self.statuses.seen(listed)
        self._pauses, self._due = None, time.monotonic() + RESYNC
        return True

    def _log(self, refused: tuple[str, ...]) -> None:
        """Tell once that a set was refused, and that a later one was not."""
        if refused and refused != self.refused:
            log.warning("objects refused, the last good set stays in force", faults=refused)
        elif self.refused and not refused:
            log.info("objects taken over again")
        self.refused = refused

    async def _report(self) -> None:
        """Write statuses that are due; the figures in them are asked for every PERIOD seconds."""
        async with self._writing:
            now = self.clock()
            try:
                if self.listed.queues and now - self._asked >= PERIOD:  # without queues nobody would see them
                    self._amounts, self._asked = await self.figures(), now
                await self.statuses.write(
                    self.client, self.listed, self.verdicts, figures=self._amounts, now=now
                )
            except QueuerError as error:
                log.warning("status of configuration objects not written", said=str(error))


async def list_objects(client: Client) -> Listed:
    """All objects of the three kinds. Raises ApiError (NotFoundError: definitions missing) or Unavailable."""
    found: dict[str, tuple[ConfigObject, ...]] = {}
    for plural in PLURALS:
        pages = client.pages(f"/apis/{GROUP}/{VERSION}/{plural}")
        found[plural] = tuple([_object_of(raw) async for page in pages for raw in page.items or ()])
    return Listed(**found)


async def _watch(access: Access, reconciler: Reconciler) -> None:
    """Run kopf's operator until cancelled. Raises RuntimeError if it ends by itself.

    Not `kopf.operator`: at its end that cancels every task of the loop that is younger than it is.
    """
    stop = asyncio.Event()
    spawning = asyncio.create_task(_spawn(_handlers(access, reconciler), stop), name="config-operator")
    try:
        done, _ = await asyncio.wait(await asyncio.shield(spawning), return_when=asyncio.FIRST_COMPLETED)
        error = next((task.exception() for task in done if not task.cancelled()), None)
        raise RuntimeError("the watch of configuration objects ended by itself") from error
    finally:
        stop.set()
        for task in await spawning:
            task.cancel()
        await asyncio.wait(await spawning)
        for task in filter(_is_of_kopf, asyncio.all_tasks()):  # it forgets the requests of its start
            task.cancel()


def _is_of_kopf(task: asyncio.Task[Any]) -> bool:
    code = getattr(task.get_coro(), "cr_code", None)
    return code is not None and code.co_filename.startswith(kopf.__path__[0])


async def _spawn(registry: kopf.OperatorRegistry, stop: asyncio.Event) -> set[asyncio.Task[Any]]:
    """The operator's tasks. The process's signal handlers stay: kopf installs its own where the loop lets it."""
    loop = asyncio.get_running_loop()
    loop.add_signal_handler = lambda *_: None  # type: ignore[method-assign]
    try:
        tasks = await kopf.spawn_tasks(
            registry=registry, settings=_settings(), clusterwide=True, stop_flag=stop
        )
    finally:
        del loop.add_signal_handler
    return set(tasks)


def _handlers(access: Access, reconciler: Reconciler) -> kopf.OperatorRegistry:
    registry = kopf.OperatorRegistry()

    async def login(**_: Any) -> kopf.AiohttpSession:
        return kopf.AiohttpSession(server=access.url, aiohttp_session=access.session())

    async def on_event(type: str | None, body: kopf.Body, uid: str, meta: Any, **_: Any) -> None:
        await reconciler.heard(uid, None if type == "DELETED" else meta.get("generation"))
        news = reconciler.statuses.untold.pop(uid, None)
        if news is not None and type != "DELETED":
            kopf.event(body, type=news.event_type, reason=str(news.condition), message=news.message)

    kopf.on.login(registry=registry)(login)
    for plural in PLURALS:
        kopf.on.event(GROUP, VERSION, plural, registry=registry, id=f"event-{plural}")(on_event)
    return registry


def _settings() -> kopf.OperatorSettings:
    settings = kopf.OperatorSettings()
    settings.posting.reporting_component = settings.posting.reporting_instance = "queuer-controller"
    settings.posting.event_name_prefix = "queuer-"
    settings.scanning.disabled = True
    settings.peering.standalone = True
    settings.queueing.idle_timeout = 0.1
    settings.queueing.exit_timeout = 0.0
    settings.watching.server_timeout = 240
    settings.watching.client_timeout = 270
    settings.watching.connect_timeout = 5
    settings.networking.request_timeout = 20
    return settings
