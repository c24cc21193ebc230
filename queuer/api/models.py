"""Shared by the shapes of all REST answers, with the spelling of times and amounts.

Amounts are Kubernetes quantities, times RFC 3339, names camelCase. Within `/api/v1` fields may be added, never removed
or given another meaning.
"""

from __future__ import annotations

from datetime import UTC, datetime

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

from queuer.domain.quantity import format_quantity

Amounts = dict[str, str]
"""Kubernetes quantities by resource name."""


class Model(BaseModel):
    """Base of all answers."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, frozen=True, extra="forbid")


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


def instant(seconds: float) -> datetime:
    """A time as REST says it."""
    return datetime.fromtimestamp(seconds, tz=UTC)


def instant_or_none(seconds: float | None) -> datetime | None:
    """The same of a time that may be missing."""
    return None if seconds is None else instant(seconds)


def quantity_or_none(amount: int | None, resource: str) -> str | None:
    """An amount in base units as a Kubernetes quantity."""
    return None if amount is None else format_quantity(amount, resource=resource)
