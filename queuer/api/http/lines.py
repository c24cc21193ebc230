"""Pages as JSON lines, for programs that export: one entry a line, the next page in `Link`."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from fastapi import Request

from queuer.api.models import Model

JSONL = "application/jsonl"
LINES: dict[int | str, dict[str, Any]] = {200: {"content": {JSONL: {"schema": {"type": "string"}}}}}
"""What a list that answers so declares."""


def wants_lines(request: Request) -> bool:
    """Whether the caller asked for lines."""
    accepted = request.headers.get("accept", "").split(",")
    return any(each.partition(";")[0].strip().lower() == JSONL for each in accepted)


def lines(items: Sequence[Model], fields: Collection[str] | None) -> str:
    """The items as lines; `fields`: these attributes alone, None = all."""
    include = None if fields is None else set(fields)
    return "".join(f"{item.model_dump_json(by_alias=True, include=include)}\n" for item in items)
