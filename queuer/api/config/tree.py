"""The whole configuration as one document: read it, see what a new one would change, put it in its place.

Optimistic concurrency: the ETag is the revision of the configuration, and a write names the one it was planned
against. A write is a draft that is applied at once, whole or not at all.
"""

from __future__ import annotations

import re
from typing import Annotated

import yaml
from fastapi import APIRouter, Header, Query, Request, Response
from fastapi.responses import JSONResponse
from sqlalchemy.ext.asyncio import AsyncConnection

from queuer.api.config.models import TreePlan
from queuer.api.config.views import change
from queuer.api.config.writing import Writes, stale
from queuer.api.deps import PREFIX, Asking, Engine, one_view
from queuer.api.http.documents import DOCUMENT_BODY, JSON, YAML, read_document
from queuer.api.http.parameters import no_queue
from queuer.api.http.problems import RevisionRequired
from queuer.api.identity.rights import masked_for
from queuer.domain.document import TreeDocument, export
from queuer.domain.queue import ROOT, ManagedBy
from queuer.store import queues as store
from queuer.store.changeset import JudgedChangeset
from queuer.store.config import ObjectKind, load_config

router = APIRouter(prefix=PREFIX, tags=["queue tree"])
_ETAG = re.compile(r'"\d{1,18}"')


@router.get(
    "/queue-tree",
    responses={
        200: {"content": {JSON: {"schema": {"type": "object"}}, YAML: {"schema": {"type": "string"}}}}
    },
)
async def get_queue_tree(
    engine: Engine,
    asker: Asking,
    response: Response,
    root: Annotated[str, Query(description="Only this queue and all below it.")] = ROOT,
    accept: Annotated[str, Header()] = JSON,
) -> Response:
    """The configuration as a QueueTree document to apply again; YAML where `Accept` asks for it.

    Users and groups that a queue names are there for who administers it.
    """
    async with one_view(engine) as connection:
        config = await load_config(connection)
    if root not in config.tree:
        raise no_queue(config.tree, root)
    inside = [
        queue
        for queue in config.tree
        if root in config.tree.lineage(queue.path) and (ObjectKind.QUEUE, queue.path) in config.writers
    ]
    whole = root == ROOT
    spoken = (ObjectKind.TOPOLOGY, str(ObjectKind.TOPOLOGY)) in config.writers
    document = export(
        TreeDocument(
            root=root,
            queues=tuple(inside),
            flavors=config.flavors if whole and config.flavors else None,
            topology=config.topology if whole and spoken else None,
        )
    )
    document["queues"] = await masked_for(asker, document["queues"])
    headers = {**response.headers, "ETag": etag(config.revision), "Vary": "Accept"}
    if "yaml" in accept:
        text = yaml.safe_dump(document, sort_keys=False, default_flow_style=None, width=100)
        return Response(text, media_type=YAML, headers=headers)
    return JSONResponse(document, headers=headers)


@router.put("/queue-tree", openapi_extra=DOCUMENT_BODY)
async def put_queue_tree(
    desk: Writes,
    request: Request,
    response: Response,
    *,
    dry_run: Annotated[bool, Query(alias="dryRun", description="Only say what would change.")] = False,
    reason: Annotated[str, Query(max_length=1000, description="Why, for the audit.")] = "",
    prune: Annotated[
        bool | None, Query(description="Delete own queues that are not named; default: as written.")
    ] = None,
    if_match: Annotated[str | None, Header(description="ETag of the tree planned against, or *.")] = None,
) -> TreePlan:
    """Make the configuration what the document says, all of it or nothing. `dryRun` needs no If-Match."""
    if if_match is None and not dry_run:
        said = "a write must say which revision it was planned against"
        raise RevisionRequired.at("If-Match", said, "send the ETag of the tree")
    plain = await read_document(request)
    document = await desk.parsed(plain)
    wanted = {tag.strip() for tag in (if_match or "*").split(",")}

    async def wish(connection: AsyncConnection, writer: ManagedBy) -> JudgedChangeset:
        changeset = await store.plan(connection, document, writer=writer, prune=prune)
        if wanted.isdisjoint({"*", etag(changeset.base)}):
            known = [int(tag[1:-1]) for tag in wanted if _ETAG.fullmatch(tag)]
            message = f"the tree is at revision {changeset.base}, this was planned against {if_match}"
            raise await stale(
                connection, message, since=min(known, default=changeset.base), root=document.root
            )
        return changeset

    draft = await desk.plan(wish, root=document.root, document=plain, impact=False)
    made = None if dry_run else await desk.carry_out(draft, wish, reason=reason)
    base, changes = draft.changeset.base, draft.changeset.changes
    revision = base
    if made is not None:
        base, revision, changes = made.revision - 1, made.revision, made.changes
    response.headers["ETag"] = etag(revision)
    return TreePlan(
        base_revision=base,
        revision=revision,
        applied=made is not None,
        changes=[change(each) for each in changes],
        warnings=draft.report["warnings"],
    )


def etag(revision: int) -> str:
    """The strong entity tag of a revision of the configuration."""
    return f'"{revision}"'
