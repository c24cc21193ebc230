"""Changesets: plan a change, look at what it does, apply or discard it, take it back.

A plan is kept for 15 minutes. It is applied as it was shown or not at all: where something that it touches has been
changed meanwhile it is stale, whatever else has been changed beside it.
"""

from __future__ import annotations

from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Body, Path, Query, Request, Response
from sqlalchemy.ext.asyncio import AsyncConnection

from queuer.api.config import models
from queuer.api.config.planning import Seen, drafted
from queuer.api.config.views import applied, planned, visible
from queuer.api.config.writing import check, require_reason, root_of, stale, warn
from queuer.api.deps import PREFIX, Asking, Engine, NewestCycle, Settings, Snapshot, one_view, source
from queuer.api.http.cursor import make_cursor, read_cursor
from queuer.api.http.documents import DOCUMENT_BODY, read_document
from queuer.api.http.idempotency import Idempotent
from queuer.api.http.lists import link_to
from queuer.api.http.pointers import placed
from queuer.api.http.problems import OwnedElsewhere
from queuer.api.identity.rights import Asker, Resource, Right, Verb
from queuer.domain.document import TreeDocument, parse
from queuer.domain.errors import Conflict, FieldProblem, InvalidInput, NotFound
from queuer.domain.fields import parse_duration
from queuer.domain.queue import ROOT, ManagedBy
from queuer.store import changesets as history
from queuer.store import commands, drafts
from queuer.store import queues as store
from queuer.store.commands import NewCommand
from queuer.store.cuts import Cuts, cuts
from queuer.store.drafts import Draft
from queuer.store.engine import begin
from queuer.store.tables import CommandVerb, DraftState, Effect

router = APIRouter(prefix=PREFIX, tags=["changesets"], route_class=Idempotent)
LONGEST_DELAY = 30 * 86400.0
"""Seconds after which evictions by a changeset begin, at most."""
_LARGEST = 2**63 - 1

DryRun = Annotated[bool, Query(alias="dryRun", description="Keep nothing.")]
Prune = Annotated[
    bool | None, Query(description="Delete own queues that are not named; default: as written.")
]
EffectOfCuts = Annotated[
    Effect, Query(description="What becomes of running work where a limit is cut below its use.")
]
EvictAfter = Annotated[
    str | None, Query(alias="evictAfter", max_length=20, description="With `effect=evict`: when, e.g. `10m`.")
]
Number = Annotated[int, Path(ge=0, le=_LARGEST)]


@router.post(
    "/changesets",
    status_code=201,
    openapi_extra=DOCUMENT_BODY,
    responses={200: {"model": models.Changeset, "description": "Nothing to apply, or a dry run."}},
)
async def plan_changeset(
    request: Request,
    response: Response,
    engine: Engine,
    asker: Asking,
    newest: NewestCycle,
    settings: Settings,
    *,
    dry_run: DryRun = False,
    prune: Prune = None,
    effect: EffectOfCuts = Effect.DRAIN,
    evict_after: EvictAfter = None,
) -> models.Changeset:
    """Plan what a QueueTree document asks for, or `{revert: 7}`: that revision 7 be taken back. Writes nothing."""
    document = await read_document(request)
    with placed(document):
        revision = _reverted(document)
        wish = parse(document) if revision is None else revision
    draft = await _plan(
        engine, asker, newest, request, wish,
        prune=prune, writer=settings.writer(asker.caller.name), effect=effect,
        evict_after=_delay(effect, evict_after), document=document,
    )  # fmt: skip
    return await _kept(engine, asker, response, draft, dry_run=dry_run)


@router.post(
    "/audit/{audit}:revert",
    status_code=201,
    responses={200: {"model": models.Changeset, "description": "Nothing is left to take back."}},
)
async def revert_audited(
    request: Request,
    response: Response,
    engine: Engine,
    asker: Asking,
    newest: NewestCycle,
    settings: Settings,
    audit: Number,
) -> models.Changeset:
    """Plan that the change which an audit entry tells of be taken back."""
    async with one_view(engine) as connection:
        revision = await history.audited(connection, audit)
    if revision is None:
        raise Conflict(f"audit entry {audit} is about no change of the configuration")
    draft = await _plan(engine, asker, newest, request, revision, writer=settings.writer(asker.caller.name))
    return await _kept(engine, asker, response, draft, dry_run=False)


@router.get("/changesets")
async def list_changesets(
    snapshot: Snapshot,
    asker: Asking,
    request: Request,
    response: Response,
    *,
    root: Annotated[str, Query(max_length=63, description="That touched this queue or one below it.")] = ROOT,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    cursor: str | None = None,
) -> models.ChangesetList:
    """Applied changesets, newest first."""
    await _require_history(asker, root)
    before = None if cursor is None else read_cursor(cursor, "revision", int)[0]
    found = await history.page(snapshot, root=root, before=before, count=limit + 1)
    items = [applied(each) for each in found[:limit]]
    following = make_cursor("revision", found[limit - 1].revision) if len(found) > limit else None
    if following is not None:
        response.headers["Link"] = link_to(request, following)
    return models.ChangesetList(items=items, next=following)


@router.get("/changesets/{id}")
async def get_changeset(
    snapshot: Snapshot,
    asker: Asking,
    id: Annotated[str, Path(max_length=36, description="Of a plan, or the revision that one has made.")],
) -> models.Changeset:
    """A plan with its report, or an applied changeset by its revision."""
    if id.isascii() and id.isdigit():
        made = await history.one(snapshot, int(id))
        await _require_history(asker, root_of(made.changes))
        draft = await drafts.behind(snapshot, made.revision)
        return await visible(applied(made, draft), asker)
    draft = await drafts.read(snapshot, _uuid(id))
    if asker.caller.name != draft.actor:
        await asker.require_administers(draft.root)
    became = None if draft.revision is None else await history.one(snapshot, draft.revision)
    return await visible(planned(draft, made=became), asker)


@router.post("/changesets/{id}:apply")
async def apply_changeset(
    engine: Engine,
    asker: Asking,
    request: Request,
    id: UUID,
    body: Annotated[models.ReasonGiven | None, Body()] = None,
) -> models.Changeset:
    """Apply a plan: all of it, or nothing where what it touches has been changed since."""
    reason = body.reason if body is not None else ""
    async with one_view(engine) as connection:
        await asker.require_administers((await drafts.read(connection, id)).root)
    async with begin(engine) as connection:
        draft = await drafts.read(connection, id, take=True)
        _require_planned(draft)
        try:
            changeset = await store.rebase(connection, draft.changeset)
        except store.Moved as moved:
            raise await stale(connection, moved.message, since=moved.base, names=moved.names) from moved
        check(changeset)
        taken = await cuts(connection, changeset)
        with placed(body):
            require_reason(taken, reason)
        _require_room(draft.effect, taken)
        _require_shown(draft, taken)
        revision = await store.apply(
            connection, changeset, actor=asker.caller.name, source=source(request), reason=reason
        )
        if revision == changeset.base:
            raise Conflict("nothing is left to change: the tree is as this plan wants it")
        await drafts.end(connection, id, DraftState.APPLIED, revision=revision)
        await _evict(
            connection, draft, taken, revision=revision, asker=asker, source=source(request), reason=reason
        )
        made = await history.one(connection, revision)
        done = await drafts.read(connection, id)
    return await visible(planned(done, made=made), asker)


@router.post("/changesets/{id}:discard")
async def discard_changeset(engine: Engine, asker: Asking, id: UUID) -> models.Changeset:
    """Give a plan up."""
    async with one_view(engine) as connection:
        draft = await drafts.read(connection, id)
    if asker.caller.name != draft.actor:
        await asker.require_administers(draft.root)
    async with begin(engine) as connection:
        draft = await drafts.read(connection, id, take=True)
        if draft.state is DraftState.APPLIED:
            _require_planned(draft)
        await drafts.end(connection, id, DraftState.DISCARDED)
        draft = await drafts.read(connection, id)
    return await visible(planned(draft), asker)


# Planning


def _reverted(document: Any) -> int | None:
    """The revision of `{revert: 7}`; None = it is a document."""
    if not isinstance(document, dict) or "revert" not in document:
        return None
    revision = document["revert"]
    if len(document) > 1 or isinstance(revision, bool) or not isinstance(revision, int) or revision < 1:
        hint = "write {revert: 7} and nothing beside it, or a QueueTree document"
        raise InvalidInput(FieldProblem(field="revert", message="a revision is needed, alone", hint=hint))
    return revision


def _delay(effect: Effect, text: str | None) -> float | None:
    if text is None:
        return None
    seconds = parse_duration(text, field="evictAfter")
    if effect is not Effect.EVICT:
        raise InvalidInput(FieldProblem(field="evictAfter", message="goes with effect=evict alone"))
    if seconds > LONGEST_DELAY:
        raise InvalidInput(FieldProblem(field="evictAfter", message="is 30d at most"))
    return seconds


async def _plan(
    engine: Engine,
    asker: Asker,
    newest: NewestCycle,
    request: Request,
    wish: TreeDocument | int,
    *,
    prune: bool | None = None,
    writer: ManagedBy,
    effect: Effect = Effect.DRAIN,
    evict_after: float | None = None,
    document: object = None,
) -> Draft:
    """The plan of a document, or of taking a revision back."""
    if isinstance(wish, TreeDocument):
        await asker.require_administers(wish.root)
    async with one_view(engine) as connection:
        if isinstance(wish, TreeDocument):
            changeset = await store.plan(connection, wish, writer=writer, prune=prune)
            root = wish.root
        else:
            changeset = await store.plan_revert(connection, wish)
            root = root_of(changeset.changes)
            if changeset.writer is not writer:
                named = FieldProblem(
                    field="revert",
                    message=f"revision {wish} was written by {changeset.writer}, {writer} cannot take it back",
                    hint=f"change it where {changeset.writer} keeps it",
                )
                raise OwnedElsewhere(named)
        await asker.require_administers(root)
        with placed(document):
            check(changeset)
            seen = await Seen.of(connection, changeset, newest, document=document)
            _require_room(effect, seen.cuts)
    return await drafted(
        seen, newest, actor=asker.caller.name, source=source(request), root=root, effect=effect, evict_after=evict_after
    )  # fmt: skip


async def _kept(
    engine: Engine, asker: Asker, response: Response, draft: Draft, *, dry_run: bool
) -> models.Changeset:
    """The answer to a plan, which is kept if there is something to apply."""
    answer = await visible(planned(draft), asker)
    warn(response, answer.warnings)
    if dry_run or not draft.changeset.changes:
        response.status_code = 200
        return answer.model_copy(update={"id": None, "expires": None})
    async with begin(engine) as connection:
        await drafts.put(connection, draft)
    response.headers["Location"] = f"{PREFIX}/changesets/{draft.id}"
    return answer


# What may be done


def _require_planned(draft: Draft) -> None:
    if draft.state is DraftState.APPLIED:
        raise Conflict(f"this changeset was applied as revision {draft.revision}")
    if draft.state is DraftState.DISCARDED:
        raise Conflict("this changeset was discarded", hint="plan again")
    if draft.expired:
        raise Conflict("this plan is older than 15 minutes", hint="plan again and look at the difference")


def _require_room(effect: Effect, taken: Cuts) -> None:
    if effect is Effect.REFUSE and taken.over:
        raise InvalidInput(*(row.problem for row in taken.over))


def _require_shown(draft: Draft, taken: Cuts) -> None:
    """Who goes must have been shown: what came since may stay, or be planned anew."""
    shown = {job["uid"] for job in draft.report["victims"]["jobs"]}
    new = [holding for holding in taken.victims if holding.uid not in shown]
    if draft.effect is Effect.EVICT and new:
        raise Conflict(
            f"{len(new)} running jobs would be evicted that the plan did not show",
            hint="plan again and look at who goes",
        )


async def _evict(
    connection: AsyncConnection,
    draft: Draft,
    taken: Cuts,
    *,
    revision: int,
    asker: Asker,
    source: str,
    reason: str,
) -> None:
    """Have those evicted who must go for the limits to hold, each as far as that is still so when it is due."""
    if draft.effect is not Effect.EVICT:
        return
    rows = [
        NewCommand(
            verb=CommandVerb.EVICT, uid=holding.uid, administers=holding.queue, arguments={"revision": revision},
            delay=draft.evict_after or 0.0,
        )
        for holding in taken.victims
    ]  # fmt: skip
    await commands.add(
        connection, rows, actor=asker.caller.name, source=source, reason=f"revision {revision}: {reason}"
    )


async def _require_history(asker: Asker, root: str) -> None:
    if not await asker.administers(root):
        await asker.require(Right(verb=Verb.GET, resource=Resource.AUDIT))


def _uuid(id: str) -> UUID:
    try:
        return UUID(id)
    except ValueError as error:
        raise NotFound(
            f"there is no changeset {id}", hint="an id is that of a plan, or a revision"
        ) from error
