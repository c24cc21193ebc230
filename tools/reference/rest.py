"""REST: the OpenAPI document, and its operations for people."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from queuer.api.app import create_app
from queuer.api.http.problems import KINDS
from queuer.api.identity.rights import Anyone
from queuer.api.settings import ApiSettings, Authentication
from queuer.store.engine import make_engine
from tools.reference.markdown import code, page, table

METHODS = ("get", "put", "post", "patch", "delete")


def document() -> dict[str, Any]:
    """The OpenAPI document. No database is asked for it."""
    engine = make_engine("postgresql://nobody@127.0.0.1/none", name="reference", pool_size=1)
    settings = ApiSettings(database_url="postgresql://", authentication=Authentication.NONE)
    found: dict[str, Any] = create_app(engine, settings, Anyone()).openapi()
    return found


def schema() -> str:
    """The document as a file, in which a change of the interface is seen."""
    found = document()
    found["info"]["version"] = "v1"  # what a release is called is no change of the interface
    return json.dumps(found, indent=1, sort_keys=True) + "\n"


def made() -> str:
    """The page."""
    tags: dict[str, list[str]] = {}
    for path, method, operation in _operations(document()):
        tags.setdefault(operation["tags"][0], []).append(_section(path, method, operation))
    said = (
        "Every operation, from the [OpenAPI document](openapi.json) that the server has at `/api/v1/openapi.json`. "
        "Words, conventions and examples are in [rest.md](../rest.md)."
    )
    parts = [text for tag, sections in tags.items() for text in (f"## {tag.capitalize()}", *sections)]
    return page(
        "REST operations", said, *parts, "## Problems", _PROBLEMS, *(_problem(kind) for kind in KINDS)
    )


_PROBLEMS = (
    "A failure is `application/problem+json`. Its `type` is `/problems/CODE`, a page of the server itself that "
    "says the same as here."
)


def _problem(kind: str) -> str:
    row = KINDS[kind]
    return f"### {kind}\n\n{row.status} {row.title}. {row.advice}"


def _operations(found: Mapping[str, Any]) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    for path, item in found["paths"].items():
        yield from ((path, method, item[method]) for method in METHODS if method in item)


def _section(path: str, method: str, operation: Mapping[str, Any]) -> str:
    parts = [f"### {method.upper()} {path}", _paragraphs(operation.get("description", ""))]
    rows = [
        (code(p["name"]), p["in"], _form(p["schema"]), p.get("description", ""))
        for p in operation.get("parameters", [])
    ]
    if rows:
        parts.append(table(("parameter", "in", "value", ""), rows))
    body = operation.get("requestBody", {}).get("content", {})
    answers = (
        f"{status}: {_kinds(answer)}" for status, answer in operation["responses"].items() if status[0] == "2"
    )
    if body:
        parts.append(f"Body: {_kinds({'content': body})}.")
    return "\n\n".join([*parts, f"Answer: {'; '.join(answers)}."])


def _paragraphs(text: str) -> str:
    return "\n\n".join(" ".join(part.split()) for part in text.split("\n\n"))


def _kinds(answer: Mapping[str, Any]) -> str:
    told = (
        f"{code(media)}{named and ' of ' + code(named)}"
        for media, row in answer.get("content", {}).items()
        for named in [row.get("schema", {}).get("$ref", "").rpartition("/")[2]]
    )
    return " or ".join(told) or "nothing"


def _form(schema: Mapping[str, Any]) -> str:
    """The values of a parameter in few words."""
    options = [row for row in schema.get("anyOf", [schema]) if row.get("type") != "null"]
    told = " or ".join(filter(None, map(_one, options)))
    default = schema.get("default")
    return told if default in (None, "") else f"{told}; default {json.dumps(default)}"


def _one(schema: Mapping[str, Any]) -> str:
    if "$ref" in schema:
        return code(schema["$ref"].rpartition("/")[2])
    if "enum" in schema:
        return ", ".join(map(code, schema["enum"]))
    bounds = [f"{sign} {schema[key]}" for key, sign in (("minimum", "≥"), ("maximum", "≤")) if key in schema]
    return " ".join([str(schema.get("format") or schema.get("type") or ""), *bounds])
