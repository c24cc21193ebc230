"""Changesets: plan a change, look at what it does, apply or discard it, take it back.

A plan is kept for 15 minutes. It is applied as it was shown or not at all. Where something that it touches has been
changed meanwhile the plan is stale, whatever else has been changed beside it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Body, Path, Query, Request, Response
from sqlalchemy.ext.asyncio import AsyncConnection

from queuer.api.config import models
from queuer.api.config.views import applied, masked, planned, public, readable, root_of
from queuer.api.config.writing import Desk, Wish, Writes
from queuer.api.deps import PREFIX, Asking, Engine, one_view
from queuer.api.http.documents import DOCUMENT_BODY, RawBody, read_document
from queuer.api.http.lists import make_cursor, read_cursor
from queuer.api.http.parameters import check_queue
from queuer.api.http.pointers import placed
from queuer.api.http.problems import OwnedElsewhere
from queuer.api.identity.rights import Resource, Right, Verb
from queuer.api.request_keys import RequestKey, RequiredKey, once
from queuer.domain.document import TreeDocument
from queuer.domain.errors import Conflict, FieldProblem, InvalidInput, NotFound
from queuer.domain.fields import parse_duration
from queuer.domain.queue import ROOT, ManagedBy
from queuer.store import changesets as history
from queuer.store import drafts
from queuer.store import queues as store
from queuer.store.changeset import JudgedChangeset
from queuer.store.drafts import Draft
from queuer.store.migrate import writing
from queuer.store.tables import DraftState, Effect

router = APIRouter(prefix=PREFIX, tags=["changesets"])
LONGEST_DELAY = 30 * 86400.0
"""Seconds after which evictions by a changeset begin, at most."""
_LARGEST = 2**63 - 1
_AUDIT = Right(verb=Verb.GET, resource=Resource.AUDIT)

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
    desk: Writes,
    request: Request,
    response: Response,
    body: RawBody,
    key: RequestKey,
    *,
    dry_run: DryRun = False,
    prune: Prune = None,
    effect: EffectOfCuts = Effect.DRAIN,
    evict_after: EvictAfter = None,
) -> models.Changeset:
    """Plan what a QueueTree document asks for, or `{revert: 7}`: that revision 7 be taken back. Writes nothing."""
    document = await read_document(request, body)
    if before := await desk.before(key):
        return await _shown(desk, response, before)
    with placed(document):
        revision = _reverted(document)
    tree = await desk.parsed(document) if revision is None else None
    draft = await desk.plan(
        _revert(revision or 0) if tree is None else _put(tree, prune),
        root=None if tree is None else tree.root,
        effect=effect,
        evict_after=_delay(effect, evict_after),
        document=document,
        key=key,
    )
    if dry_run:
        return await _only_told(desk, response, draft)
    return await _kept(desk, response, draft)


@router.post(
    "/audit/{audit}:revert",
    status_code=201,
    responses={200: {"model": models.Changeset, "description": "Nothing is left to take back."}},
)
async def revert_audited(
    desk: Writes, response: Response, key: RequestKey, audit: Number
) -> models.Changeset:
    """Plan that the change which an audit entry tells of be taken back."""
    if before := await desk.before(key):
        return await _shown(desk, response, before)
    async with one_view(desk.engine) as connection:
        revision = await history.audited(connection, audit)
    if revision is None:
        raise Conflict(f"audit entry {audit} is about no change of the configuration")
    return await _kept(desk, response, await desk.plan(_revert(revision), key=key))


@router.get("/changesets")
async def list_changesets(
    engine: Engine,
    asker: Asking,
    *,
    root: Annotated[str, Query(max_length=63, description="That touched this queue or one below it.")] = ROOT,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    cursor: str | None = None,
) -> models.ChangesetList:
    """Applied changesets, newest first. Who may not read the audit is told of `root` and all below it."""
    if not await asker.administers(root):
        await asker.require(_AUDIT)
    everything = root == ROOT or await asker.may(_AUDIT)
    before = None if cursor is None else read_cursor(cursor, "revision", int)[0]
    async with one_view(engine) as connection:
        found = await history.page(connection, root=root, before=before, count=limit + 1)
        if not found and before is None:
            await check_queue(connection, root)  # one that was deleted has changesets
    items = [applied(each if everything else history.about(each, root)) for each in found[:limit]]
    following = make_cursor("revision", found[limit - 1].revision) if len(found) > limit else None
    return models.ChangesetList(items=items, next=following)


@router.get("/changesets/{id}")
async def get_changeset(
    engine: Engine,
    asker: Asking,
    id: Annotated[str, Path(max_length=36, description="Of a plan, or the revision that one has made.")],
) -> models.Changeset:
    """A plan with its report, or an applied changeset by its revision.

    Everybody may read what was changed. The report, people by name, and a reason that speaks of several objects are
    for who may read the audit or administers all that changed.
    """
    if id.isascii() and id.isdigit():
        async with one_view(engine) as connection:
            made = await history.one(connection, int(id))
            report = await drafts.behind(connection, made.revision)
        root = root_of(made.changes)
        if not (await asker.administers(root) or await asker.may(_AUDIT)):
            return applied(public(made))
        return masked(applied(made, report), await readable(report, asker))
    async with one_view(engine) as connection:
        draft = await drafts.read(connection, _uuid(id))
        became = None if draft.revision is None else await history.one(connection, draft.revision)
    if asker.caller.name != draft.actor:
        await asker.require_administers(draft.root)
    return masked(planned(draft, made=became), await readable(draft, asker))


@router.post("/changesets/{id}:apply")
async def apply_changeset(
    desk: Writes, id: UUID, key: RequiredKey, body: Annotated[models.ReasonGiven | None, Body()] = None
) -> models.Changeset:
    """Apply a plan: all of it, or nothing where what it touches has been changed since."""
    await desk.before(key)
    async with one_view(desk.engine) as connection:
        draft = await drafts.read(connection, id)
    await desk.asker.require_administers(draft.root)
    seen = await readable(draft, desk.asker)
    reason = body.reason if body is not None else ""
    with once():
        async with writing(desk.engine) as connection:
            draft = await drafts.read(connection, id, take=True)
            if draft.applied_by == key and draft.revision is not None:
                return masked(planned(draft, made=await history.one(connection, draft.revision)), seen)
            _require_planned(draft)
            made = await desk.apply(
                connection, replace(draft, applied_by=key), reason=reason, pointer="/reason"
            )
            if made is None:
                raise Conflict("nothing is left to change: the tree is as this plan wants it")
            done = await drafts.read(connection, id)
    return masked(planned(done, made=made), seen)


@router.post("/changesets/{id}:discard")
async def discard_changeset(desk: Writes, id: UUID, key: RequestKey) -> models.Changeset:
    """Give a plan up."""
    await desk.before(key)
    async with one_view(desk.engine) as connection:
        draft = await drafts.read(connection, id)
    if desk.asker.caller.name != draft.actor:
        await desk.asker.require_administers(draft.root)
    seen = await readable(draft, desk.asker)
    async with writing(desk.engine) as connection:
        draft = await drafts.read(connection, id, take=True)
        if draft.state is DraftState.APPLIED:
            _require_planned(draft)
        draft = replace(draft, state=DraftState.DISCARDED)
        await drafts.keep(connection, draft)
    return masked(planned(draft), seen)


# Planning


def _reverted(document: Any) -> int | None:
    """The revision of `{revert: 7}`; None = it is a document."""
    if not isinstance(document, dict) or "revert" not in document:
        return None
    revision = document["revert"]
    if len(document) > 1 or isinstance(revision, bool) or not isinstance(revision, int) or revision < 1:
        hint = "write {revert: 7} and nothing beside it, or a QueueTree document"
        raise InvalidInput.at("revert", "a revision is needed, alone", hint)
    return revision


def _delay(effect: Effect, text: str | None) -> float | None:
    if text is None:
        return None
    seconds = parse_duration(text, field="evictAfter")
    if effect is not Effect.EVICT:
        raise InvalidInput.at("evictAfter", "goes with effect=evict alone")
    if seconds > LONGEST_DELAY:
        raise InvalidInput.at("evictAfter", "is 30d at most")
    return seconds


def _put(tree: TreeDocument, prune: bool | None) -> Wish:
    async def wish(connection: AsyncConnection, writer: ManagedBy) -> JudgedChangeset:
        return await store.plan(connection, tree, writer=writer, prune=prune)

    return wish


def _revert(revision: int) -> Wish:
    async def wish(connection: AsyncConnection, writer: ManagedBy) -> JudgedChangeset:
        changeset = await store.plan_revert(connection, revision)
        if changeset.writer is not writer:
            named = FieldProblem(
                field="revert",
                message=f"revision {revision} was written by {changeset.writer}, {writer} cannot take it back",
                hint=f"change it where {changeset.writer} keeps it",
            )
            raise OwnedElsewhere(named)
        return changeset

    return wish


async def _kept(desk: Desk, response: Response, draft: Draft) -> models.Changeset:
    """The answer to a plan, which is kept if there is something to apply."""
    if not draft.changeset.changes:
        return await _only_told(desk, response, draft)
    answer = await _shown(desk, response, draft)
    await desk.keep(draft)
    return answer


async def _shown(desk: Desk, response: Response, draft: Draft) -> models.Changeset:
    response.headers["Location"] = f"{PREFIX}/changesets/{draft.id}"
    return masked(planned(draft), await readable(draft, desk.asker))


async def _only_told(desk: Desk, response: Response, draft: Draft) -> models.Changeset:
    response.status_code = 200
    told = planned(draft).model_copy(update={"id": None, "expires": None})
    return masked(told, await readable(draft, desk.asker))


# What may be done


def _require_planned(draft: Draft) -> None:
    if draft.state is DraftState.APPLIED:
        raise Conflict(f"this changeset was applied as revision {draft.revision}")
    if draft.state is DraftState.DISCARDED:
        raise Conflict("this changeset was discarded", hint="plan again")
    if draft.expired:
        raise Conflict("this plan is older than 15 minutes", hint="plan again and look at the difference")


def _uuid(id: str) -> UUID:
    try:
        return UUID(id)
    except ValueError as error:
        raise NotFound(
            f"there is no changeset {id}", hint="an id is that of a plan, or a revision"
        ) from error
