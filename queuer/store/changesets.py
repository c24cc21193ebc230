"""Applied changesets, as history: pages of them, one of them, and what moved since a revision."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import Row, text
from sqlalchemy.ext.asyncio import AsyncConnection

from queuer.domain.errors import NotFound
from queuer.domain.queue import ROOT, ManagedBy
from queuer.store.changeset import Change, changes_of
from queuer.store.codec import record_of
from queuer.store.config import Name, ObjectKind

_PAGE = text("""
    SELECT * FROM changeset
    WHERE revision < :before AND (:root = 'root' OR EXISTS (
        SELECT FROM jsonb_array_elements(changes) AS change WHERE change->>'kind' = 'queue'
            AND (change->>'name' = :root OR starts_with(change->>'name', :root || '.'))))
    ORDER BY revision DESC LIMIT :count
""")
_ONE = text("SELECT * FROM changeset WHERE revision = :revision")
_SINCE = text("SELECT * FROM changeset WHERE revision > :since ORDER BY revision DESC LIMIT :count")
_AUDITED = text("SELECT revision FROM audit WHERE id = :id")
_LAST = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """A changeset that made `revision`. `at`: seconds; `reverts`: the revision that it took back."""

    revision: int
    at: float
    actor: str
    source: str
    writer: ManagedBy
    reason: str
    changes: tuple[Change, ...]
    reverts: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """One object that an applied changeset has changed."""

    by: Applied
    change: Change


async def page(
    connection: AsyncConnection, *, root: str = ROOT, before: int | None = None, count: int = 100
) -> list[Applied]:
    """Newest first. `root`: those that touched this queue or one below it; `before`: revisions below this one."""
    values = {"root": root, "before": _LAST if before is None else before, "count": count}
    return [_applied(row) for row in await connection.execute(_PAGE, values)]


async def one(connection: AsyncConnection, revision: int) -> Applied:
    """The changeset that made a revision. Raises NotFound."""
    row = (await connection.execute(_ONE, {"revision": min(revision, _LAST)})).one_or_none()
    if row is None:
        raise NotFound(f"there is no changeset {revision}")
    return _applied(row)


def about(made: Applied, root: str) -> Applied:
    """The part of a changeset about a queue and those below it. One that speaks of others loses its reason."""
    kept = tuple(change for change in made.changes if concerns(change, root))
    return made if len(kept) == len(made.changes) else replace(made, changes=kept, reason="")


def concerns(change: Change, root: str) -> bool:
    """Whether a queue, or one below it, is changed; flavors and topology concern the root."""
    if change.kind is not ObjectKind.QUEUE:
        return root == ROOT
    return change.name == root or change.name.startswith(f"{root}.")


async def audited(connection: AsyncConnection, audit: int) -> int | None:
    """The revision that an audit row tells of; None = of none. Raises NotFound."""
    row = (await connection.execute(_AUDITED, {"id": min(audit, _LAST)})).one_or_none()
    if row is None:
        raise NotFound(f"there is no audit entry {audit}")
    revision: int | None = row.revision
    return revision


async def moves(
    connection: AsyncConnection, *, since: int, names: Collection[Name] | None = None, count: int = 100
) -> list[Move]:
    """All changes after a revision, newest first, of these objects alone if given; of the newest `count`
    changesets.
    """
    found = [
        _applied(row) for row in await connection.execute(_SINCE, {"since": max(since, -1), "count": count})
    ]
    return [
        Move(by=applied, change=change)
        for applied in found
        for change in applied.changes
        if names is None or (change.kind, change.name) in names
    ]


def _applied(row: Row[Any]) -> Applied:
    return record_of(Applied, row, changes=changes_of(row.changes))
