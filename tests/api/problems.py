"""Refusals as the API gives them."""

from __future__ import annotations

from typing import Any

import httpx2

STATUS = {
    "bad_request": 400, "idempotency_key_required": 400, "unauthenticated": 401, "forbidden": 403,
    "foreign_origin": 403, "not_found": 404, "method_not_allowed": 405, "too_slow": 408, "conflict": 409,
    "stale_revision": 412, "too_large": 413, "unsupported_media_type": 415, "misdirected": 421, "invalid_input": 422,
    "revision_required": 428, "too_many": 429, "internal": 500, "unavailable": 503, "database_unavailable": 503,
}  # fmt: skip
"""Of each kind of problem: clients rely on it."""


def problem_of(response: httpx2.Response, code: str) -> dict[str, Any]:
    """The body of a problem, after checking that it is one of this kind."""
    status = STATUS[code]
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    body: dict[str, Any] = response.json()
    assert (body["status"], body["code"], body["type"]) == (status, code, f"/problems/{code}")
    assert body["requestId"] == response.headers["x-request-id"]
    assert body["title"]
    assert body["detail"]
    return body
