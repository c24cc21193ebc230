"""Shared by the shapes of all REST answers. Amounts are Kubernetes quantities, times RFC 3339, names
camelCase.

Additive only within `/api/v1`: fields may be added, never removed or given another meaning.
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

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
