"""Refusals as the API gives them."""

from __future__ import annotations

from typing import Any

import httpx2


def problem_of(response: httpx2.Response, *, status: int, code: str) -> dict[str, Any]:
    """The body of a problem, after checking that it is one of this kind."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    body: dict[str, Any] = response.json()
    assert (body["status"], body["code"], body["type"]) == (status, code, f"/problems/{code}")
    assert body["requestId"] == response.headers["x-request-id"]
    assert body["title"]
    assert body["detail"]
    return body
