"""Shared by all lists: the size of a page, its cursor, words as filters, and where a stream goes on."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterable
from datetime import datetime
from enum import StrEnum
from typing import Annotated, TypedDict, TypeVar

from fastapi import Query
from pydantic import Field
from sqlalchemy.ext.asyncio import AsyncConnection

from queuer.api.models import Instant, Model, instant
from queuer.domain.errors import InvalidInput
from queuer.domain.fields import nearest
from queuer.store import events, lookup

W = TypeVar("W", bound=StrEnum)
MOST = 1000
"""Rows of a page."""
BELOW = ".**"


Limit = Annotated[int, Query(ge=1, le=MOST, description="Rows of a page at most.")]
Cursor = Annotated[str | None, Query(description="`next` of the page before.")]
QueueAndBelow = Annotated[
    str | None, Query(max_length=253, description="This queue and all below it; `root.a.**` means the same.")
]


class NewestCycle(Model):
    """The newest decision on record: one that changes nothing is not kept. `controller` says when the last one was."""

    id: int
    finished: Instant
    status: str


class Page(Model):
    """The fields of every list beside its items. A stream that starts at `seq` misses nothing that came after
    `asOf`.
    """

    as_of: Instant
    cycle: NewestCycle | None = Field(description="The newest decision on record; null before the first.")
    seq: int = Field(description="The newest event of all, shown or not.")


class ViewStamp(TypedDict):
    """From when a page is."""

    as_of: Instant
    cycle: NewestCycle | None
    seq: int


async def standing(connection: AsyncConnection) -> ViewStamp:
    """The moment of this view."""
    return ViewStamp(
        as_of=instant(await lookup.now(connection)),
        cycle=newest_cycle(await lookup.newest_cycle(connection)),
        seq=await events.newest(connection),
    )


def newest_cycle(found: lookup.NewestCycle | None) -> NewestCycle | None:
    """As REST says it."""
    return None if found is None else NewestCycle.from_record(found, finished=found.finished_at)


def queue_of(text: str | None) -> str | None:
    """The queue that is meant with all below it."""
    return None if text is None else text.removesuffix(BELOW)


def check_times(since: datetime | None, until: datetime | None) -> None:
    """Raise InvalidInput where no time is within both."""
    if since is not None and until is not None and since > until:
        raise InvalidInput.at("since", "is after until", "swap them, or leave one out")


def words(text: str | None, known: type[W], *, field: str) -> tuple[W, ...]:
    """Comma-separated words. Raises InvalidInput with the nearest one."""
    return tuple(word(part, known, field=field) for part in (text or "").split(",") if part)


def word(text: str, known: Iterable[W], *, field: str) -> W:
    """One of the words, in any case of its letters. Raises InvalidInput with the nearest one."""
    by_text = {str(each): each for each in known}
    text = next((each for each in by_text if each.lower() == text.lower()), text)
    if text not in by_text:
        problem = f"{text!r} is not one of the words"
        raise InvalidInput.at(field, problem, nearest(text, by_text))
    return by_text[text]


K = TypeVar("K", int, float, str)
_FARTHEST = 1e11
"""Seconds; later instants have no representation as a date."""
_LARGEST = 2**63


def make_cursor(order: str, key: float | str, uid: str = "") -> str:
    """The place after a row in an order of a list: what it is ordered by, and what tells it from its equals."""
    return base64.urlsafe_b64encode(json.dumps([order, key, uid]).encode()).decode().rstrip("=")


def read_cursor(text: str, order: str, kind: type[K]) -> tuple[K, str]:
    """The inverse of `make_cursor`; `kind`: of the key. Raises InvalidInput for what it did not make for this order."""
    try:
        made, key, uid = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
        if made != order or not isinstance(uid, str) or "\0" in uid or not _fits(key, kind):
            raise ValueError(text)
    except (ValueError, TypeError, binascii.Error) as error:
        problem = "not a cursor of this list"
        raise InvalidInput.at("cursor", problem, "leave it out to begin anew") from error
    return kind(key), uid


def _fits(key: object, kind: type) -> bool:
    if kind is str:
        return isinstance(key, str) and "\0" not in key
    if isinstance(key, bool) or not isinstance(key, int | float):
        return False
    return 0 <= key < _FARTHEST if kind is float else isinstance(key, int) and -_LARGEST <= key < _LARGEST
