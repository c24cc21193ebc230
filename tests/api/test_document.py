"""The published document: names to generate from, and every way to fail. Its copy is compared in tests/docs."""

from __future__ import annotations

from typing import Any

import pytest

from tools.reference.rest import document as reference


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
