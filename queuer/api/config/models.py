"""The shapes of answers about changes of the configuration."""

from __future__ import annotations

from typing import Any

from queuer.api.models import Model


class Change(Model):
    """One object that differs from the wish. `before`, `after`: as a document spells it, null = absent."""

    kind: str
    name: str
    action: str
    before: dict[str, Any] | None
    after: dict[str, Any] | None
    text: str


class TreePlan(Model):
    """What a document would change, or (`applied`) has changed, and what is odd though legal."""

    base_revision: int
    revision: int
    applied: bool
    changes: list[Change]
    warnings: list[str]
