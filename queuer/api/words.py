"""How REST spells times and amounts."""

from __future__ import annotations

from datetime import UTC, datetime

from queuer.domain.quantity import format_quantity


def instant(seconds: float) -> datetime:
    """A time as REST says it."""
    return datetime.fromtimestamp(seconds, tz=UTC)


def instant_or_none(seconds: float | None) -> datetime | None:
    """The same of a time that may be missing."""
    return None if seconds is None else instant(seconds)


def quantity_or_none(amount: int | None, resource: str) -> str | None:
    """An amount in base units as a Kubernetes quantity."""
    return None if amount is None else format_quantity(amount, resource=resource)
