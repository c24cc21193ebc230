"""Changesets that are planned and wait for somebody to apply them: kept for a while, with what was told of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import Row, text
from sqlalchemy.ext.asyncio import AsyncConnection

from queuer.domain.errors import NotFound
from queuer.domain.queue import ManagedBy
from queuer.store.changeset import Changeset, changes_of
from queuer.store.codec import instant, record_of, rows_json, to_json
from queuer.store.tables import DraftState, Effect

_KEEP = text("""
    INSERT INTO draft (id, at, expires, actor, source, writer, root, base, reverts, changes, report, effect,
        evict_after, state, revision, request, applied_by)
    VALUES (:id, :at, :expires, :actor, :source, :writer, :root, :base, :reverts, CAST(:changes AS jsonb),
        CAST(:report AS jsonb), :effect, :evict_after, :state, :revision, :request, :applied_by)
    ON CONFLICT (id) DO UPDATE SET state = excluded.state, revision = excluded.revision,
        applied_by = excluded.applied_by
""")
_FIND = "SELECT *, expires < now() AS expired FROM draft WHERE id = :id"
_READ, _TAKE = text(_FIND), text(f"{_FIND} FOR UPDATE")
_BEHIND = text("SELECT *, expires < now() AS expired FROM draft WHERE revision = :revision")
_REQUESTED = text("""
    SELECT *, expires < now() AS expired FROM draft
    WHERE split_part(request, ':', 1) = split_part(:request, ':', 1)
        OR split_part(applied_by, ':', 1) = split_part(:request, ':', 1)
    LIMIT 1
""")


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A planned changeset. `root`: whoever administers this queue may apply it. `report`: what was told of it (JSON).
    `evict_after`: seconds, None = at once. `revision`: the one that it made. `request`, `applied_by`: the requests
    that planned and applied it, in the form `key:body`. Times in seconds.
    """

    id: UUID
    at: float
    expires: float
    actor: str
    source: str
    root: str
    changeset: Changeset
    report: Mapping[str, Any]
    effect: Effect
    evict_after: float | None = None
    state: DraftState = DraftState.PLANNED
    expired: bool = False
    revision: int | None = None
    request: str | None = None
    applied_by: str | None = None


async def keep(connection: AsyncConnection, draft: Draft) -> None:
    """Insert a draft, or update what became of it."""
    planned = draft.changeset
    values = {
        "id": draft.id,
        "at": instant(draft.at),
        "expires": instant(draft.expires),
        "actor": draft.actor,
        "source": draft.source,
        "writer": planned.writer,
        "root": draft.root,
        "base": planned.base,
        "reverts": planned.reverts,
        "changes": rows_json(planned.changes),
        "report": to_json(draft.report),
        "effect": draft.effect,
        "evict_after": draft.evict_after,
        "state": draft.state,
        "revision": draft.revision,
        "request": draft.request,
        "applied_by": draft.applied_by,
    }
    await connection.execute(_KEEP, values)


async def read(connection: AsyncConnection, id: UUID, *, take: bool = False) -> Draft:
    """One by its id; `take`: nobody else may end it until the transaction is over. Raises NotFound."""
    row = (await connection.execute(_TAKE if take else _READ, {"id": id})).one_or_none()
    if row is None:
        raise NotFound(f"there is no changeset {id}", hint="a plan is kept for a day")
    return _draft(row)


async def behind(connection: AsyncConnection, revision: int) -> Draft | None:
    """The plan that has made a revision, while it is kept."""
    row = (await connection.execute(_BEHIND, {"revision": revision})).one_or_none()
    return None if row is None else _draft(row)


async def requested(connection: AsyncConnection, request: str) -> Draft | None:
    """The draft planned or applied under the key of this request, which may have had another body."""
    row = (await connection.execute(_REQUESTED, {"request": request})).one_or_none()
    return None if row is None else _draft(row)


def _draft(row: Row[Any]) -> Draft:
    planned = Changeset(
        base=row.base,
        writer=ManagedBy(row.writer),
        changes=changes_of(row.changes),
        reverts=row.reverts,
    )
    return record_of(Draft, row, changeset=planned)
