"""The OpenAPI document: what FastAPI makes of the routes, and the ways in which each of them may fail."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI

from queuer.api.deps import PREFIX
from queuer.api.http.problems import KINDS, MEDIA_TYPE
from queuer.api.models import Problem

_MODEL = "#/components/schemas/{model}"
_ANY = ("400", "401", "403", "404", "405", "421", "422", "429", "500", "503", "default")
_WRITES = ("408", "409", "412", "413", "415", "428")
"""Statuses of problems that any request may meet, and a write beside them."""


class DocumentedApi(FastAPI):
    """An app whose document says of every operation how it may fail."""

    def openapi(self) -> dict[str, Any]:
        """The document, made once."""
        if self.openapi_schema is not None:
            return self.openapi_schema
        document = super().openapi()
        problem = Problem.model_json_schema(ref_template=_MODEL)
        components = document["components"]
        components["schemas"] |= problem.pop("$defs") | {Problem.__name__: problem}
        components["responses"] = _responses()
        for path, operations in document["paths"].items():
            for method, operation in operations.items():
                if path.startswith(PREFIX):
                    _may_fail(operation, _ANY if method == "get" else (*_ANY, *_WRITES))
        return document


def _responses() -> dict[str, Any]:
    """One for each status of a problem."""
    content = {MEDIA_TYPE: {"schema": {"$ref": _MODEL.format(model=Problem.__name__)}}}
    titles: dict[str, list[str]] = {"default": ["A problem (RFC 9457)"]}
    for kind in KINDS.values():
        titles.setdefault(str(kind.status), []).append(kind.title)
    return {
        f"Problem-{status}": {"description": ", or: ".join(several), "content": content}
        for status, several in titles.items()
    }


def _may_fail(operation: dict[str, Any], statuses: tuple[str, ...]) -> None:
    answers = operation["responses"]
    answers |= {status: {"$ref": f"#/components/responses/Problem-{status}"} for status in statuses}
    operation["responses"] = dict(sorted(answers.items()))
