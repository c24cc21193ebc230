"""The published document: names to generate from, and every way to fail. Its copy is compared in tests/docs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest
import pytest_asyncio
from sqlalchemy.ext.asyncio import AsyncEngine

from tests.api.identity import client_of, open_to_all
from tools.reference.rest import document as reference

JSON = {"content-type": "application/json"}


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    """As it is published."""
    return reference()


def test_names_can_be_generated_from(document: dict[str, Any]) -> None:
    operations = [each for path in document["paths"].values() for each in path.values()]
    names = [each["operationId"] for each in operations]
    assert len(names) == len(set(names))
    schemas = document["components"]["schemas"]
    assert [name for name in schemas if not name.isidentifier() or "__" in name] == []
    assert "HTTPValidationError" not in schemas


def test_every_operation_says_how_it_may_fail(document: dict[str, Any]) -> None:
    failures = document["components"]["responses"]
    for path, operations in document["paths"].items():
        for method, operation in operations.items() if path.startswith("/api/v1") else ():
            answers = operation["responses"]
            assert {"400", "401", "403", "404", "422", "500", "503", "default"} <= answers.keys()
            assert method == "get" or {"409", "413", "415"} <= answers.keys()
            for status, answer in answers.items():
                if not status.startswith(("2", "3")):
                    content = failures[answer["$ref"].rpartition("/")[2]]["content"]
                    assert content.keys() == {"application/problem+json"}
            assert any(status.startswith("2") for status in answers)


@pytest_asyncio.fixture
async def api(engine: AsyncEngine, database_url: str) -> AsyncIterator[httpx2.AsyncClient]:
    app = open_to_all(engine, database_url, max_body=1024)
    async with client_of(app) as client:
        yield client


@pytest.mark.parametrize(
    ("method", "path", "headers", "body", "status"),
    [
        ("GET", "/api/v1/nowhere", {}, "", 404),
        ("GET", "/nowhere", {}, "", 404),
        ("GET", "/api/v1/queues/root.nowhere", {}, "", 404),
        ("DELETE", "/api/v1/queues", {}, "", 405),
        ("POST", "/api/v1/simulations", JSON, "{", 422),
        ("POST", "/api/v1/workloads:hold", JSON, "{", 422),
        ("POST", "/api/v1/changesets", JSON, '"' + "x" * 2000 + '"', 413),
        ("POST", "/api/v1/changesets", {"content-type": "text/plain"}, "x", 415),
        ("PUT", "/api/v1/queue-tree", JSON, "{}", 428),
        ("GET", "/api/v1/workloads?limit=0", {}, "", 422),
        ("GET", "/api/v1/workloads", {"host": "elsewhere"}, "", 421),
        ("GET", "/api/v1/workloads?name=%00", {}, "", 400),
        ("POST", "/api/v1/changesets", {**JSON, "origin": "http://evil"}, "{}", 403),
    ],
)
async def test_every_failure_is_a_problem_of_a_kind_that_is_explained(
    api: httpx2.AsyncClient, method: str, path: str, headers: dict[str, str], body: str, status: int
) -> None:
    answer = await api.request(method, path, headers=headers, content=body)
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    explained = await api.get(answer.json()["type"])
    assert explained.status_code == 200
    assert explained.text.startswith(str(status))
