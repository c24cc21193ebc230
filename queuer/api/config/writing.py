"""The one way in which REST writes the configuration: a wish becomes a draft, and the draft is applied.

`/changesets` keeps a draft for somebody to look at before it is applied. `PUT /queue-tree` and `:hold`, `:drain` and
`:resume` of a queue plan and apply in one request. The report and the caller's rights,
which may fail, are asked for before anything is applied.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, replace
from typing import Annotated
from uuid import uuid4

from fastapi import Depends, Request
from sqlalchemy.ext.asyncio import AsyncConnection

from queuer.api.config.changes import fields_of
from queuer.api.config.planning import Seen, report
from queuer.api.config.views import root_of
from queuer.api.deps import Asking, Engine, Latest, Settings, one_view
from queuer.api.http.pointers import placed
from queuer.api.http.problems import OwnedElsewhere, StaleRevision
from queuer.api.identity.rights import source
from queuer.api.request_keys import check_same, once
from queuer.domain.document import LEAST_REASON, TreeDocument, parse
from queuer.domain.errors import Conflict, FieldProblem, InvalidInput
from queuer.domain.queue import ROOT, ManagedBy, check_path
from queuer.store import changesets as history
from queuer.store import commands, drafts
from queuer.store import queues as store
from queuer.store.changeset import JudgedChangeset
from queuer.store.changesets import Applied
from queuer.store.commands import NewCommand
from queuer.store.config import Name
from queuer.store.cuts import Cuts, cuts
from queuer.store.drafts import Draft
from queuer.store.migrate import writing
from queuer.store.tables import CommandVerb, DraftState, Effect

TTL = 15 * 60.0
"""Seconds for which a plan may be applied."""
Wish = Callable[[AsyncConnection, ManagedBy], Awaitable[JudgedChangeset]]
"""Plans what somebody wants, as this writer."""
_AGAIN = "plan again and look at the difference"


@dataclass(frozen=True, slots=True)
class Desk:
    """A route's dependency: who writes, in which way, and what a report is made of."""

    engine: Engine
    asker: Asking
    latest: Latest
    settings: Settings
    request: Request

    @property
    def writer(self) -> ManagedBy:
        """As whom the caller writes."""
        return self.settings.writer(self.asker.caller.name)

    async def parsed(self, body: object) -> TreeDocument:
        """The QueueTree document in a body. Looking through a large one takes seconds, so that the right to write it
        comes first. Raises Forbidden and InvalidInput.
        """
        said = body.get("root") if isinstance(body, dict) else None
        root = said if isinstance(said, str) else ROOT
        with placed(body):
            check_path(root, field="root")
            await self.asker.require_administers(root)
            return await asyncio.to_thread(parse, body)

    async def plan(
        self,
        wish: Wish,
        *,
        root: str | None = None,
        effect: Effect = Effect.DRAIN,
        evict_after: float | None = None,
        document: object = None,
        key: str | None = None,
        impact: bool = True,
    ) -> Draft:
        """A draft that nobody has kept yet. `root`: None = the nearest queue above all changes; `document`: the body
        in which problems have their places; `key`: the request; `impact`: see `report`.

        Raises Forbidden, InvalidInput and OwnedElsewhere.
        """
        if root is not None:
            await self.asker.require_administers(root)
        async with one_view(self.engine) as connection:
            changeset = await wish(connection, self.writer)
            whose = root_of(changeset.changes) if root is None else root
            await self.asker.require_administers(whose)
            with placed(document):
                check(changeset)
                seen = await Seen.of(connection, changeset, document=document)
                _require_room(effect, seen.cuts)
        told = await report(seen, self.latest, party=self.asker.caller.party, impact=impact)
        return Draft(
            id=uuid4(),
            at=seen.at,
            expires=seen.at + TTL,
            actor=self.asker.caller.name,
            source=source(self.request),
            root=whose,
            changeset=changeset,
            report=told.model_dump(mode="json"),
            effect=effect,
            evict_after=evict_after,
            request=key,
        )

    async def keep(self, draft: Draft) -> None:
        """Keep a draft, for its 15 minutes."""
        with once():
            async with writing(self.engine) as connection:
                await drafts.keep(connection, draft)

    async def before(self, key: str | None) -> Draft | None:
        """The draft that this very request has made before. Raises InvalidInput where its key was used for another."""
        if key is None:
            return None
        async with one_view(self.engine) as connection:
            found = await drafts.requested(connection, key)
        if found is not None:
            check_same(key if key in (found.request, found.applied_by) else None, key)
        return found

    async def carry_out(self, draft: Draft, wish: Wish, *, reason: str) -> Applied | None:
        """Apply the wish of a draft that was just planned to what is there now; None where nothing is left to change.

        The wish is planned again under the lock, as anybody may have edited the tree while the report was made.
        """
        if not draft.changeset.changes:
            return None
        with once():
            async with writing(self.engine) as connection:
                await store.lock(connection)
                changeset = await wish(connection, self.writer)
                return await self._write(connection, draft, changeset, reason=reason)

    async def apply(
        self, connection: AsyncConnection, draft: Draft, *, reason: str, pointer: str = ""
    ) -> Applied | None:
        """Apply a draft as it was shown; None where nothing is left to change. `pointer`: of the reason in the body.

        Raises StaleRevision where what it touches has been changed, InvalidInput and Conflict.
        """
        try:
            changeset = await store.rebase(connection, draft.changeset)
        except store.Moved as moved:
            raise await stale(connection, moved.message, since=moved.base, names=moved.names) from moved
        return await self._write(connection, draft, changeset, reason=reason, pointer=pointer)

    async def _write(
        self,
        connection: AsyncConnection,
        draft: Draft,
        changeset: JudgedChangeset,
        *,
        reason: str,
        pointer: str = "",
    ) -> Applied | None:
        """Write a draft. `changeset`: made of it under the lock, which is kept."""
        check(changeset)
        taken = await cuts(connection, changeset)
        _require_reason(taken, reason, pointer=pointer)
        _require_room(draft.effect, taken)
        _require_shown(draft, taken)
        if not changeset.changes:
            return None
        actor, way = self.asker.caller.name, source(self.request)
        revision = await store.apply(connection, changeset, actor=actor, source=way, reason=reason)
        await drafts.keep(
            connection, replace(draft, changeset=changeset, state=DraftState.APPLIED, revision=revision)
        )
        if draft.effect is Effect.EVICT:
            why = f"revision {revision}: {reason}"
            orders = _evictions(draft, taken, revision=revision)
            await commands.add(connection, orders, actor=actor, source=way, reason=why)
        return await history.one(connection, revision)


Writes = Annotated[Desk, Depends()]


def check(changeset: JudgedChangeset) -> None:
    """Raise InvalidInput where the result would be wrong, OwnedElsewhere where it belongs to another writer."""
    if changeset.problems:
        raise InvalidInput(*changeset.problems)
    if changeset.conflicts:
        raise OwnedElsewhere(*changeset.conflicts)


async def stale(
    connection: AsyncConnection,
    message: str,
    *,
    since: int,
    root: str = ROOT,
    names: Collection[Name] | None = None,
) -> StaleRevision:
    """The refusal of a plan on a revision that is no more, with the fields that moved. `root`: what is told concerns
    this queue.
    """
    moved = [
        FieldProblem(
            field=field, message=f"{text} in revision {move.by.revision}, by {move.by.actor}", hint=_AGAIN
        )
        for move in await history.moves(connection, since=since, names=names)
        if history.concerns(move.change, root)
        for field, text in fields_of(move.change)
    ]
    return StaleRevision(message, *moved, hint=_AGAIN)


def _require_reason(taken: Cuts, reason: str, *, pointer: str) -> None:
    """Raise InvalidInput where something is taken away and it is not said why."""
    if taken.reductions and len(reason.strip()) < LEAST_REASON:
        what = "; ".join(f"{row.field}: {row.message}" for row in taken.reductions)
        message = f"is needed, as this takes away: {what}"
        hint = f"say why in at least {LEAST_REASON} characters"
        raise InvalidInput.at("reason", message, hint, pointer=pointer)


def _require_room(effect: Effect, taken: Cuts) -> None:
    if effect is Effect.REFUSE and taken.over:
        hint = "the effect drain lets jobs end, evict evicts them"
        raise InvalidInput(
            *(
                replace(
                    row.problem, message=f"{row.problem.message}: the effect refuse refuses that", hint=hint
                )
                for row in taken.over
            )
        )


def _require_shown(draft: Draft, taken: Cuts) -> None:
    """Raise Conflict where somebody would be evicted whom the draft did not show."""
    shown = {job["uid"] for job in draft.report["victims"]["jobs"]}
    new = [holding for holding in taken.victims if holding.uid not in shown]
    if draft.effect is Effect.EVICT and new:
        raise Conflict(
            f"{len(new)} running jobs would be evicted that the plan did not show",
            hint="plan again and look at who goes",
        )


def _evictions(draft: Draft, taken: Cuts, *, revision: int) -> list[NewCommand]:
    """Orders for those who must go for the limits to hold, each as far as that is still so when it is due."""
    return [
        NewCommand(
            verb=CommandVerb.EVICT, uid=holding.uid, administers=holding.queue, arguments={"revision": revision},
            delay=draft.evict_after or 0.0,
        )
        for holding in taken.victims
    ]  # fmt: skip
