"""What all lists have in common: how much is asked for, how a page says what follows, and where a stream goes on."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, TypedDict, TypeVar

from fastapi import Query, Request, Response
from pydantic import Field
from sqlalchemy.ext.asyncio import AsyncConnection

from queuer.api.http.lines import JSONL, lines, wants_lines
from queuer.api.models import Model
from queuer.api.words import instant
from queuer.domain.errors import FieldProblem, InvalidInput
from queuer.domain.fields import nearest
from queuer.store import events, lookup

W = TypeVar("W", bound=StrEnum)
MOST = 1000
"""Rows of a page."""
BELOW = ".**"


class Counting(StrEnum):
    """Whether all that match are counted."""

    NONE = "none"
    EXACT = "exact"


Limit = Annotated[int, Query(ge=1, le=MOST, description="Rows of a page at most.")]
Cursor = Annotated[str | None, Query(description="`next` of the page before.")]
Fields = Annotated[
    str | None,
    Query(max_length=1000, description="Comma-separated: each item has these fields alone, required or not."),
]
Count = Annotated[Counting, Query(description="`exact`: `total` says how many match.")]
QueueAndBelow = Annotated[
    str | None, Query(max_length=253, description="This queue and all below it; `root.a.**` means the same.")
]


class NewestCycle(Model):
    """The newest run of the decision."""

    id: int
    finished: datetime
    status: str


class Page(Model):
    """What every list says beside its items. A stream that starts at `seq` misses nothing that came after `asOf`."""

    as_of: datetime
    cycle: NewestCycle | None = Field(description="The newest decision; null before the first.")
    seq: int = Field(description="The newest event of all, shown or not.")
    total: int | None = Field(
        default=None, description="How many match, with all pages; null: was not asked for."
    )


class Standing(TypedDict):
    """From when a page is."""

    as_of: datetime
    cycle: NewestCycle | None
    seq: int


async def standing(connection: AsyncConnection) -> Standing:
    """The moment of this view."""
    return Standing(
        as_of=instant(await lookup.now(connection)),
        cycle=newest_cycle(await lookup.newest_cycle(connection)),
        seq=await events.newest(connection),
    )


def newest_cycle(found: lookup.NewestCycle | None) -> NewestCycle | None:
    """As REST says it."""
    if found is None:
        return None
    return NewestCycle(id=found.id, finished=instant(found.finished_at), status=found.status)


def chosen(fields: str | None, row: type[Model]) -> frozenset[str] | None:
    """Attributes of the rows' model that are asked for, None = all. Raises InvalidInput for names that it has not."""
    if fields is None:
        return None
    known = {info.serialization_alias or info.alias or name: name for name, info in row.model_fields.items()}
    asked = [name for name in fields.split(",") if name]
    wrong = [name for name in asked if name not in known]
    if wrong or not asked:
        problem = f"the rows have no {', '.join(wrong)}" if wrong else "no field is named"
        hint = f"allowed: {', '.join(sorted(known))}"
        raise InvalidInput(FieldProblem(field="fields", message=problem, hint=hint))
    return frozenset(known[name] for name in asked)


def answer(
    request: Request,
    page: Page,
    *,
    fields: frozenset[str] | None,
    following: int | str | None,
    exports: bool = False,
) -> Response:
    """The page as the caller wants it: whole rows or the `chosen` fields, with a `Link`; where the list `exports`, also
    as lines of JSON.
    """
    headers = {"Vary": "Accept"} if exports else {}
    if following is not None:
        headers["Link"] = f'<{request.url.include_query_params(cursor=following)}>; rel="next"'
    if exports and wants_lines(request):
        return Response(lines(getattr(page, "items"), fields), media_type=JSONL, headers=headers)  # noqa: B009
    include: Any = None
    if fields is not None:
        include = dict.fromkeys(type(page).model_fields, True) | {"items": {"__all__": fields}}
    body = page.model_dump_json(by_alias=True, include=include)
    return Response(body, media_type="application/json", headers=headers)


def queue_of(text: str | None) -> str | None:
    """The queue that is meant with all below it."""
    return None if text is None else text.removesuffix(BELOW)


def words(text: str | None, known: type[W], *, field: str) -> tuple[W, ...]:
    """Comma-separated words. Raises InvalidInput with the nearest one."""
    return tuple(word(part, known, field=field) for part in (text or "").split(",") if part)


def word(text: str, known: Iterable[W], *, field: str) -> W:
    """One of the words. Raises InvalidInput with the nearest one."""
    by_text = {str(each): each for each in known}
    if text not in by_text:
        problem = f"{text!r} is not one of the words"
        raise InvalidInput(FieldProblem(field=field, message=problem, hint=nearest(text, by_text)))
    return by_text[text]
