"""Pages as JSON lines, for programs that export: one entry a line, the next page in `Link`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fastapi import Request, Response

from queuer.api.models import Model

JSONL = "application/jsonl"
LINES: dict[int | str, dict[str, Any]] = {200: {"content": {JSONL: {"schema": {"type": "string"}}}}}
"""What a route that answers so declares."""


def wants_lines(request: Request) -> bool:
    """Whether the caller asked for lines."""
    accepted = request.headers.get("accept", "").split(",")
    return any(each.partition(";")[0].strip().lower() == JSONL for each in accepted)


def lines(items: Sequence[Model], link: str | None) -> Response:
    """The page as lines."""
    body = "".join(f"{item.model_dump_json(by_alias=True)}\n" for item in items)
    headers = {"Vary": "Accept"} | ({"Link": link} if link is not None else {})
    return Response(body, media_type=JSONL, headers=headers)


def link_to(request: Request, parameter: str, following: int | None) -> str | None:
    """The header that names the next page, None = there is none."""
    if following is None:
        return None
    return f'<{request.url.include_query_params(**{parameter: following})}>; rel="next"'
