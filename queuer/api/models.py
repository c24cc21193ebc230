"""Shared by the shapes of all REST answers: an answer is made of a record of the same field names.

Amounts are Kubernetes quantities, times RFC 3339, names camelCase; records have base units and seconds since the epoch.
Within `/api/v1` fields may be added, never removed or given another meaning.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, ValidationInfo
from pydantic.alias_generators import to_camel

from queuer.domain.quantity import format_quantity, format_resources

_RFC3339 = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)")

_FIRST, _LAST = datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)


def instant(seconds: float) -> datetime:
    """A time of a record as REST says it."""
    return datetime.fromtimestamp(seconds, tz=UTC)


def _instant(value: Any) -> Any:
    if isinstance(value, int | float):
        return instant(value)
    if isinstance(value, str) and not _RFC3339.fullmatch(value):
        raise ValueError("no RFC 3339 time; write e.g. 2026-01-31T09:00:00Z")
    return value


def _in_calendar(value: datetime) -> datetime:
    """A time zone puts a time of the first or last day of the calendar outside of it."""
    if not _FIRST <= value <= _LAST:
        raise ValueError(f"is not within {_FIRST:%Y} and {_LAST:%Y} in UTC")
    return value


def _quantity(value: Any, info: ValidationInfo) -> Any:
    return format_quantity(value, resource=info.data["resource"] or "") if isinstance(value, int) else value


def _amounts(value: Any) -> Any:
    said = not isinstance(value, Mapping) or any(isinstance(amount, str) for amount in value.values())
    return value if said else format_resources(value)


Instant = Annotated[datetime, BeforeValidator(_instant), AfterValidator(_in_calendar)]
"""A time, of an answer or as a parameter."""
Quantity = Annotated[str, BeforeValidator(_quantity)]
"""An amount of the resource that the field `resource` before it names."""
Amounts = Annotated[dict[str, str], BeforeValidator(_amounts)]
"""Kubernetes quantities by resource name."""


_ABSENT = object()


class Model(BaseModel):
    """Base of all answers."""

    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, frozen=True, extra="forbid", from_attributes=True
    )

    @classmethod
    def from_record(cls, record: Any, **more: Any) -> Self:
        """A record's fields of the same names, and `more`: fields that it does not have, or says otherwise."""
        for name in cls.model_fields:
            if name not in more and (value := getattr(record, name, _ABSENT)) is not _ABSENT:
                more[name] = value
        return cls.model_validate(more)


class Job(Model):
    """A job by its names."""

    uid: str
    kind: str
    namespace: str
    name: str
    queue: str


class FieldError(Model):
    """The fault of one field, and the fix. `pointer`: its place in the body that was sent (RFC 6901)."""

    field: str
    message: str
    hint: str = ""
    pointer: str | None = None


class Problem(Model):
    """RFC 9457. `errors` names each wrong field."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    instance: str
    request_id: str
    errors: list[FieldError] = []
