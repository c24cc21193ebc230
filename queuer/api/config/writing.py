"""What every write of the configuration passes: soundness, owner, revision, reason."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from itertools import takewhile

from fastapi import Response
from sqlalchemy.ext.asyncio import AsyncConnection

from queuer.api.config import models
from queuer.api.config.changes import describe, fields_of
from queuer.api.http.problems import OwnedElsewhere, StaleRevision
from queuer.api.models import FieldError
from queuer.domain.document import LEAST_REASON
from queuer.domain.errors import FieldProblem, InvalidInput
from queuer.domain.queue import ROOT
from queuer.store import changesets
from queuer.store.changeset import Change, Changeset
from queuer.store.config import Kind, Name
from queuer.store.cuts import Cuts

MOST_WARNINGS, LONGEST_WARNING = 8, 300
"""Of the header `Warning`, and characters of one. The body has them all."""
_AGAIN = "plan again and look at the difference"


def root_of(changes: Iterable[Change]) -> str:
    """The nearest queue that has all that is changed below it; `root` where flavors or topology are."""
    made = list(changes)
    if any(change.kind is not Kind.QUEUE for change in made):
        return ROOT
    levels = zip(*(change.name.split(".") for change in made), strict=False)
    return ".".join(level[0] for level in takewhile(lambda level: len({*level}) == 1, levels)) or ROOT


def check(changeset: Changeset) -> None:
    """Raise InvalidInput where the result would be wrong, OwnedElsewhere where it belongs to another writer."""
    if changeset.problems:
        raise InvalidInput(*changeset.problems)
    if changeset.conflicts:
        raise OwnedElsewhere(*changeset.conflicts)


async def stale(
    connection: AsyncConnection, message: str, *, since: int, names: Collection[Name] | None = None
) -> StaleRevision:
    """The refusal of a plan on a revision that is no more, with the fields that moved."""
    moved = [
        FieldProblem(
            field=field,
            message=f"{text} in revision {move.by.revision}, by {move.by.actor}",
            hint=_AGAIN,
        )
        for move in await changesets.moves(connection, since=since, names=names)
        for field, text in fields_of(move.change)
    ]
    return StaleRevision(message, *moved, hint=_AGAIN)


def require_reason(cuts: Cuts, reason: str) -> None:
    """Raise InvalidInput where something is taken away and it is not said why."""
    if cuts.reductions and len(reason.strip()) < LEAST_REASON:
        taken = "; ".join(f"{row.field}: {row.message}" for row in cuts.reductions)
        hint = f"say why in at least {LEAST_REASON} characters"
        raise InvalidInput(
            FieldProblem(field="reason", message=f"is needed, as this takes away: {taken}", hint=hint)
        )


def warn(response: Response, warnings: Sequence[FieldError]) -> None:
    """Say in the headers, too, what is legal and odd: the first of it, as kubectl and people at curl read it."""
    for row in warnings[:MOST_WARNINGS]:
        text = f"{row.field}: {row.message}" + (f" ({row.hint})" if row.hint else "")
        plain = text.encode("ascii", "replace").decode()[:LONGEST_WARNING]
        quoted = plain.replace("\\", "\\\\").replace('"', '\\"')
        response.headers.append("Warning", f'299 - "{"".join(c for c in quoted if c.isprintable())}"')


def change(made: Change) -> models.Change:
    """As REST says it."""
    return models.Change(
        kind=made.kind,
        name=made.name,
        action=made.action,
        before=None if made.before is None else dict(made.before),
        after=None if made.after is None else dict(made.after),
        text=describe(made),
    )
