"""Keeps the database's configuration equal to the Queue, Flavor and Topology objects of the cluster.

Level-triggered: an event only rings. Then all objects are listed and applied as one changeset, at start as
well, so deletions that happened while nobody watched show in the comparison. A set with one wrong object changes
nothing: the last good one stays in force and the object says why.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
import structlog

from queuer.domain.backoff import BackOff
from queuer.domain.errors import FieldProblem, QueuerError
from queuer.kube.client import Client, NotFoundError
from queuer.kube.config import Access
from queuer.kube.config_set import ConfigObject, ConfigSet, Listed, config_set
from queuer.kube.config_status import PERIOD, Standing, Statuses, Verdict
from queuer.kube.config_watch import GROUP, PLURALS, VERSION, ringing

log = structlog.get_logger(part="configuration objects")

RESYNC = 60.0
"""Seconds after which everything is listed even if nothing rang."""
_BACK_OFF = BackOff(first=0.5, longest=30.0)
_OBJECT = msgspec.json.Decoder(ConfigObject)

Figures = Callable[[], Awaitable[Mapping[str, Mapping[str, Any]]]]
"""By queue path: parts of its status, such as `{"used": {"cpu": "4"}, "borrowed": {}, "pending": {}}`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigOutcome:
    """How the application of a set ended. Nothing was taken over where there are problems or conflicts.

    Their `field` is a path in the document: `queues.root.a.quota[0].limit`, `flavors.h100`, `topology`.
    """

    revision: int = 0
    problems: tuple[FieldProblem, ...] = ()
    conflicts: tuple[FieldProblem, ...] = ()


Apply = Callable[[ConfigSet], Awaitable[ConfigOutcome]]
"""Applies a set with nothing `wrong` in one transaction. A QueuerError that it raises is tried again later."""


def verdicts(listed: Listed, wanted: ConfigSet, outcome: ConfigOutcome | None) -> dict[str, Verdict]:
    """What to say of each object, by uid. `outcome`: None where `wanted.wrong` kept the set from being applied."""
    wrong: dict[str, list[FieldProblem]] = {uid: list(found) for uid, found in wanted.wrong.items()}
    standing = dict.fromkeys(wrong, Standing.INVALID)
    homeless: list[FieldProblem] = []
    if outcome is not None:
        found = ((Standing.INVALID, outcome.problems), (Standing.CONFLICT, outcome.conflicts))
        for kind, problem in ((kind, p) for kind, problems in found for p in problems):
            uid = wanted.owner(problem)
            if uid is None:
                homeless.append(problem)
            else:
                wrong.setdefault(uid, []).append(problem)
                standing.setdefault(uid, kind)
    names = {item.metadata.uid: f"{plural}/{item.metadata.name}" for plural, item in listed.items()}
    culprits = sorted(names[uid] for uid in wrong) + [str(problem) for problem in homeless]
    refused = Verdict(
        standing=Standing.SET_REFUSED,
        message=f"mend first: {'; '.join(culprits)}; until then the last good set stays in force",
    )
    fine = Verdict(standing=Standing.IN_FORCE, message="taken over") if not culprits else refused
    return {
        uid: Verdict(standing=standing[uid], message="; ".join(map(str, wrong[uid])))
        if uid in wrong
        else fine
        for uid in names
    }


@dataclass(slots=True, kw_only=True)
class _Board:
    """What is known of the objects between two rounds."""

    listed: Listed = field(default_factory=Listed)
    verdicts: dict[str, Verdict] = field(default_factory=dict)
    statuses: Statuses = field(default_factory=Statuses)
    rung: asyncio.Event = field(default_factory=asyncio.Event)

    def heard(self, type: str | None, generation: int | None, uid: str) -> None:
        """An event of the watch. Our own status writes change no generation and ring nobody."""
        if type != "MODIFIED" or self.listed.generations.get(uid) != generation:
            self.rung.set()


async def run(
    client: Client, *, access: Access, apply: Apply, figures: Figures, clock: Callable[[], float] = time.time
) -> None:
    """Keep configuration and statuses up to date until cancelled. `clock`: what their times are told by."""
    board = _Board()
    await _first_round(client, board, apply)
    async with ringing(access, board.heard) as watching, asyncio.TaskGroup() as group:
        group.create_task(_guard(watching), name="config-watch")
        group.create_task(_configure(client, board, apply), name="config-apply")
        group.create_task(_report(client, board, figures, clock), name="config-status")


async def _guard(watching: asyncio.Future[None]) -> None:
    await asyncio.shield(watching)
    raise RuntimeError("the watch of configuration objects ended by itself")


async def _first_round(client: Client, board: _Board, apply: Apply) -> None:
    """kopf waits silently for definitions that are missing, so they are asked for here."""
    for pause in _BACK_OFF:
        if await _round(client, board, apply):
            return
        await asyncio.sleep(pause)


async def _configure(client: Client, board: _Board, apply: Apply) -> None:
    pauses, wait = iter(_BACK_OFF), RESYNC
    while True:
        try:
            async with asyncio.timeout(wait):
                await board.rung.wait()
        except TimeoutError:
            pass  # time to look anyway
        board.rung.clear()
        if await _round(client, board, apply):
            pauses, wait = iter(_BACK_OFF), RESYNC
        else:
            wait = next(pauses)


async def _round(client: Client, board: _Board, apply: Apply) -> bool:
    """List, judge, apply. False where something did not answer."""
    try:
        listed = await list_objects(client)
        wanted = config_set(listed)
        outcome = None if wanted.wrong else await apply(wanted)
    except NotFoundError as error:
        log.warning("definitions in crds/ not installed, no configuration objects read", said=str(error))
        return False
    except QueuerError as error:
        log.warning("configuration objects not applied, to be tried again", said=str(error))
        return False
    board.listed, board.verdicts = listed, verdicts(listed, wanted, outcome)
    board.statuses.seen(listed)
    return True


async def list_objects(client: Client) -> Listed:
    """All objects of the three kinds. Raises ApiError (NotFoundError: definitions missing) or Unavailable."""
    found: dict[str, tuple[ConfigObject, ...]] = {}
    for plural in PLURALS:
        pages = client.pages(f"/apis/{GROUP}/{VERSION}/{plural}")
        found[plural] = tuple([_OBJECT.decode(raw) async for page in pages for raw in page.items or ()])
    return Listed(**found)


async def _report(client: Client, board: _Board, figures: Figures, clock: Callable[[], float]) -> None:
    """Write statuses that are due, looking once a second; the figures are asked for every PERIOD seconds."""
    by_path: Mapping[str, Mapping[str, Any]] = {}
    asked = float("-inf")
    while True:
        now = clock()
        try:
            if board.listed.queues and now - asked >= PERIOD:  # where there are none nobody would see them
                by_path, asked = await figures(), now
            await board.statuses.write(client, board.listed, board.verdicts, figures=by_path, now=now)
        except QueuerError as error:
            log.warning("status of configuration objects not written", said=str(error))
        await asyncio.sleep(1.0)
