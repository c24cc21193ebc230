"""Deeds with their actors and reasons. Callers with `get audit` see all of it. Admins of queues see entries
about these alone, and changes of the queues above, by which they are bound.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query
from pydantic import Field

from queuer.api.config.changes import describe, nameless_change
from queuer.api.deps import PREFIX, Asking, Engine, Snapshot, Visible, one_view
from queuer.api.http.lists import BELOW, Limit, Page, check_times, queue_of, standing
from queuer.api.http.parameters import check_queue
from queuer.api.identity.rights import Forbidden, Resource, Right, Verb
from queuer.api.models import Instant, Model
from queuer.domain.events import figures
from queuer.domain.queue import ROOT
from queuer.store import audit
from queuer.store.changeset import Change
from queuer.store.config import load_config

router = APIRouter(prefix=PREFIX, tags=["live"])
READ = Right(verb=Verb.GET, resource=Resource.AUDIT)
_NAMING = frozenset({"kind", "namespace", "name", "uid", "message"})
"""Parts of a detail that may name a job."""
MOST = 3
"""Objects of one change that are described; its revision has all."""


class AuditEntry(Model):
    """One deed. `text`: what was done; `queues`: those it is about; `revision`: of the changeset that it applied."""

    id: int
    at: Instant
    actor: str
    source: str
    action: str
    text: str
    reason: str
    revision: int | None
    queues: list[str]
    detail: dict[str, Any]


class AuditList(Page):
    """A page, newest first. It may be short, or empty, while `next` says that there is more."""

    items: list[AuditEntry]
    next: int | None = Field(description="The `cursor` of the next page; `after` means the same.")


async def _seen(engine: Engine, asker: Asking) -> frozenset[str] | None:
    """The queues whose entries the caller sees; None = all entries. Raises Forbidden for who administers none."""
    if await asker.may(READ):
        return None
    async with one_view(engine) as connection:
        paths = {ROOT, *(queue.path for queue in (await load_config(connection)).tree)}
    found = await asker.administered(paths)
    if not found:
        raise Forbidden(asker.caller, READ)
    return found


@router.get("/audit")
async def list_audit(
    paths: Annotated[frozenset[str] | None, Depends(_seen)],  # before Snapshot: see deps.Visible
    namespaces: Visible,
    snapshot: Snapshot,
    *,
    target: Annotated[
        str | None, Query(max_length=253, description="A queue with all below it, or the uid of a job.")
    ] = None,
    namespace: Annotated[str | None, Query(max_length=253, description="Of the jobs.")] = None,
    actor: Annotated[str | None, Query(max_length=1024)] = None,
    since: Annotated[Instant | None, Query(description="Done then or later.")] = None,
    until: Annotated[Instant | None, Query(description="Done before then.")] = None,
    after: Annotated[int | None, Query(ge=0, description="The same as `cursor`.")] = None,
    limit: Limit = 100,
    cursor: Annotated[int | None, Query(ge=0, description="`next` of the page before.")] = None,
) -> AuditList:
    """Entries that the caller may see, the newest first. A job is named to those who may read its namespace."""
    check_times(since, until)
    readable = None if paths is None else namespaces
    found = await audit.page(
        snapshot,
        before=after if cursor is None else cursor,
        target=queue_of(target),
        namespace=namespace,
        actor=actor,
        since=since,
        until=until,
        paths=paths,
        readable=readable,
        count=limit,
    )
    narrowed = any(each is not None for each in (namespace, actor, since, until, after, cursor))
    if target is not None and target.startswith(f"{ROOT}.") and not (found.rows or found.next or narrowed):
        await check_queue(snapshot, target.removesuffix(BELOW))  # one that was deleted has entries
    rows = [replace(row, detail=_nameless_job(row.detail, readable)) for row in found.rows]
    items = [
        AuditEntry.from_record(
            row, text=deed_text(row.action, row.detail, [_masked(change, paths) for change in row.changes])
        )
        for row in rows
    ]
    return AuditList(items=items, next=found.next, **await standing(snapshot))


def _masked(change: Change, paths: frozenset[str] | None) -> Change:
    """A change of a queue above those of the reader, without the people that it names."""
    if paths is None or any(f"{change.name}.".startswith(f"{path}.") for path in paths):
        return change
    return nameless_change(change)


def _nameless_job(detail: Mapping[str, Any], readable: frozenset[str] | None) -> Mapping[str, Any]:
    """A deed without who the job is that it was done to, where the reader may not see that; None = all may be seen."""
    namespace = detail.get("namespace")
    if namespace is None or readable is None or namespace in readable:
        return detail
    return {key: value for key, value in detail.items() if key not in _NAMING}


def deed_text(action: str, detail: Mapping[str, Any], changes: Sequence[Change]) -> str:
    """The deed, and its target. `changes`: those of its revision that the reader may see."""
    if changes:
        more = f"; and {len(changes) - MOST} more" if len(changes) > MOST else ""
        return "; ".join(map(describe, changes[:MOST])) + more
    if "right" in detail:
        asked = f" ({detail['method']} {detail['path']})" if "path" in detail else ""
        return f"refused: may not {detail['right']}{asked}"
    if "arguments" in detail:
        given = (detail.get("arguments") or {}).items()
        asked = ", ".join(
            name if value is True else f"{name} {'own' if value is None else value}"
            for name, value in given
            if value is not False
        )
        named = "kind" in detail
        job = f"{detail['kind'].lower()}/{detail['name']} in {detail['namespace']}" if named else "a job"
        said = [detail.get("outcome"), f"{action.rpartition('.')[2]} {job}", asked, detail.get("message")]
        return ": ".join(filter(None, said))
    return figures(detail)
