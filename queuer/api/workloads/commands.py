"""Commands on workloads: hold, release, evict, prioritise. Each is a row that the controller takes up and answers.

Hold, release and prioritise need the right to update workloads of the namespace, or to administer the queue. Evict
needs the latter. The controller refuses commands that depend on the job's own words.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Query, Request, Response

from queuer.api.deps import PREFIX, Asking, CommandBudget, Engine, one_view
from queuer.api.http.problems import code_of
from queuer.api.identity import denied
from queuer.api.identity.rights import Asker, Forbidden, administering, source, updating
from queuer.api.request_keys import RequestKey, check_same, once
from queuer.api.workloads import ordered
from queuer.api.workloads.ordered import command
from queuer.domain.errors import Conflict, InvalidInput, QueuerError
from queuer.domain.fields import parse_duration
from queuer.store import commands
from queuer.store.commands import Command, NewCommand, Target
from queuer.store.migrate import writing
from queuer.store.reads import no_workload
from queuer.store.tables import CommandVerb

router = APIRouter(prefix=PREFIX, tags=["commands"])
LONGEST_WAIT = 10.0
A_MINUTE, AT_ONCE = 200.0, 5000.0
"""Commands of one caller on jobs whose queue it does not administer: each is an audit row for 400 days."""
_POLL = 0.1
_ADDRESS = "/workloads/{uid}"
_LARGEST = 2**63 - 1
_ANSWERED = "The controller has answered within `wait`."
_DONE: dict[int | str, dict[str, Any]] = {200: {"model": ordered.Command, "description": _ANSWERED}}
_ALL_DONE: dict[int | str, dict[str, Any]] = {200: {"model": ordered.Items, "description": _ANSWERED}}


def _wait(
    wait: Annotated[
        str | None,
        Query(max_length=20, description="Wait so long for the controller's answer, e.g. `5s`; 10s at most."),
    ] = None,
) -> float:
    seconds = 0.0 if wait is None else parse_duration(wait, field="wait")
    if not 0 <= seconds <= LONGEST_WAIT:
        raise InvalidInput.at("wait", "is 10s at most", "ask GET /commands/{id} later")
    return seconds


@dataclass(frozen=True, slots=True)
class Rights:
    """The rights of a caller to the workloads that it names."""

    asker: Asker
    administered: frozenset[str]
    updates: frozenset[str]
    reads: frozenset[str]

    @classmethod
    async def of(cls, asker: Asker, targets: Iterable[Target]) -> Rights:
        named = list(targets)
        spaces = {target.namespace for target in named}
        return cls(
            asker=asker,
            administered=await asker.administered(target.queue for target in named),
            updates=await asker.updatable(spaces),
            reads=await asker.readable(spaces),
        )

    def refusal(self, uid: str, target: Target | None, verb: CommandVerb) -> QueuerError | None:
        """Why there is no command; of a job that the caller may not see, as if there were none."""
        if target is None:
            return no_workload(uid)
        administers, updates = target.queue in self.administered, target.namespace in self.updates
        if not (administers or updates or target.namespace in self.reads):
            return no_workload(uid)
        if verb is CommandVerb.EVICT and not administers:
            return Forbidden(self.asker.caller, administering(target.queue))
        if not (administers or updates):
            return Forbidden(self.asker.caller, updating(target.namespace))
        if target.ended and not (verb is CommandVerb.EVICT and target.holds):
            return Conflict(f"{target.namespace}/{target.name} has ended or is gone")
        return None

    def may(self, target: Target) -> list[CommandVerb]:
        """The commands that are not refused."""
        return [verb for verb in CommandVerb if self.refusal(target.uid, target, verb) is None]


@dataclass(frozen=True, slots=True)
class _Desk:
    """Needed by every command route: the caller, the way, and the patience for an answer.

    `key`: the request, where it has an Idempotency-Key.
    """

    engine: Engine
    asker: Asking
    budget: CommandBudget
    request: Request
    response: Response
    wait: float
    key: str | None = None

    async def one(self, uid: str, verb: CommandVerb, *, reason: str, **arguments: Any) -> ordered.Command:
        """Put a command on one workload. Raises what refuses it."""
        found = await self._put([uid], verb, reason=reason, arguments=arguments)
        outcome = found[uid]
        if isinstance(outcome, QueuerError):
            raise outcome
        return command(outcome)

    async def many(
        self, uids: Sequence[str], verb: CommandVerb, *, reason: str, **arguments: Any
    ) -> ordered.Items:
        """Put commands on many, each for itself: some may be refused."""
        found = await self._put([*dict.fromkeys(uids)], verb, reason=reason, arguments=arguments)
        for outcome in found.values():
            if isinstance(outcome, Forbidden):
                await denied.record(self.request, outcome)
        return ordered.Items(items=[_item(uid, outcome) for uid, outcome in found.items()])

    async def _put(
        self, uids: Sequence[str], verb: CommandVerb, *, reason: str, arguments: Mapping[str, Any]
    ) -> dict[str, Command | QueuerError]:
        async with one_view(self.engine) as connection:
            known = await commands.targets(connection, uids)
            before = await commands.requested(connection, self.key) if self.key else []
        for found in before:
            check_same(found.request, self.key or "")
        rights = await Rights.of(self.asker, known.values())
        there = {found.uid for found in before}
        refused = {uid: None if uid in there else rights.refusal(uid, known.get(uid), verb) for uid in uids}
        asked = [
            NewCommand(
                verb=verb, uid=uid, arguments=arguments,
                administers=known[uid].queue if known[uid].queue in rights.administered else None,
            )
            for uid in uids if refused[uid] is None and uid not in there
        ]  # fmt: skip
        self.budget.spend(self.asker.caller.party, sum(each.administers is None for each in asked))
        with once():
            async with writing(self.engine) as connection:
                put = await commands.add(
                    connection, asked, actor=self.asker.caller.name, source=source(self.request), reason=reason,
                    request=self.key,
                )  # fmt: skip
        put = await self._answered([*before, *put])
        made: dict[str, Command] = {found.uid: found for found in put}
        return {uid: refused[uid] or made.get(uid) or _open_already(known[uid], verb) for uid in uids}

    async def _answered(self, put: list[Command]) -> list[Command]:
        """The commands, once all are answered or the wait is over; says by the status which."""
        self.response.status_code = 202
        if len(put) == 1:
            self.response.headers["Location"] = f"{PREFIX}/commands/{put[0].id}"
        end = asyncio.get_running_loop().time() + self.wait
        while put and asyncio.get_running_loop().time() < end:
            await asyncio.sleep(_POLL)
            async with one_view(self.engine) as connection:
                put = await commands.some(connection, [found.id for found in put])
            if all(found.outcome is not None for found in put):
                self.response.status_code = 200
                break
        return put


def _desk(
    engine: Engine,
    asker: Asking,
    budget: CommandBudget,
    request: Request,
    response: Response,
    wait: Annotated[float, Depends(_wait)],
) -> _Desk:
    return _Desk(engine, asker, budget, request, response, wait)


def _keyed(desk: Annotated[_Desk, Depends(_desk)], key: RequestKey) -> _Desk:
    return replace(desk, key=key)


Desk = Annotated[_Desk, Depends(_keyed)]


def _open_already(target: Target, verb: CommandVerb) -> Conflict:
    return Conflict(
        f"a command to {verb} {target.namespace}/{target.name} waits for the controller already",
        hint="ask again once that is answered",
    )


def _item(uid: str, outcome: Command | QueuerError) -> ordered.Item:
    if isinstance(outcome, QueuerError):
        return ordered.Item(uid=uid, refused=ordered.Refusal(code=code_of(outcome), detail=str(outcome)))
    return ordered.Item(uid=uid, command=command(outcome))


# One workload


@router.post(f"{_ADDRESS}:hold", status_code=202, responses=_DONE)
async def hold_workload(desk: Desk, uid: str, body: ordered.Why | None = None) -> ordered.Command:
    """Hold a job until it is released, whatever it says itself. A running job goes on, and is held when it
    waits again.
    """
    return await desk.one(uid, CommandVerb.HOLD, reason=body.reason if body else "")


@router.post(f"{_ADDRESS}:release", status_code=202, responses=_DONE)
async def release_workload(desk: Desk, uid: str, body: ordered.Why | None = None) -> ordered.Command:
    """End a hold. Where the job itself holds, that is overridden."""
    return await desk.one(uid, CommandVerb.RELEASE, reason=body.reason if body else "")


@router.post(f"{_ADDRESS}:evict", status_code=202, responses=_DONE)
async def evict_workload(desk: Desk, uid: str, body: ordered.Eviction | None = None) -> ordered.Command:
    """Send a whole gang back to its queue, preemptible or not. It is not offered for a minute, or held if asked."""
    asked = body or ordered.Eviction()
    return await desk.one(uid, CommandVerb.EVICT, reason=asked.reason, hold=asked.hold)


@router.patch(_ADDRESS, status_code=202, responses=_DONE)
async def patch_workload(
    desk: Annotated[_Desk, Depends(_desk)], uid: str, body: ordered.Prioritisation
) -> ordered.Command:
    """Give a job another priority than it says itself, or its own again (null)."""
    return await desk.one(uid, CommandVerb.PRIORITISE, reason=body.reason, priority=body.priority)


# Many


@router.post("/workloads:hold", status_code=202, responses=_ALL_DONE)
async def hold_workloads(desk: Desk, body: ordered.Those) -> ordered.Items:
    """Hold many jobs, each for itself."""
    return await desk.many(body.uids, CommandVerb.HOLD, reason=body.reason)


@router.post("/workloads:release", status_code=202, responses=_ALL_DONE)
async def release_workloads(desk: Desk, body: ordered.Those) -> ordered.Items:
    """Release many jobs, each for itself."""
    return await desk.many(body.uids, CommandVerb.RELEASE, reason=body.reason)


@router.post("/workloads:evict", status_code=202, responses=_ALL_DONE)
async def evict_workloads(desk: Desk, body: ordered.EvictionOfThose) -> ordered.Items:
    """Evict many jobs, each for itself."""
    return await desk.many(body.uids, CommandVerb.EVICT, reason=body.reason, hold=body.hold)


@router.post("/workloads:prioritise", status_code=202, responses=_ALL_DONE)
async def prioritise_workloads(desk: Desk, body: ordered.PrioritisationOfThose) -> ordered.Items:
    """Give many jobs another priority, each for itself."""
    return await desk.many(body.uids, CommandVerb.PRIORITISE, reason=body.reason, priority=body.priority)


@router.get("/commands/{id}")
async def get_command(
    engine: Engine, asker: Asking, id: Annotated[int, Path(ge=0, le=_LARGEST)]
) -> ordered.Command:
    """A command and how it ended. For who may see its job, or administers its queue."""
    async with one_view(engine) as connection:
        found = await commands.one(connection, id)
        target = (await commands.targets(connection, [found.uid]))[found.uid]
    if not (await asker.reads(target.namespace) or await asker.administers(target.queue)):
        raise commands.no_command(id)
    return command(found)
