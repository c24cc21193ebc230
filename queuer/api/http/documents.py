"""Reads a body that holds one document, JSON or YAML, strictly: a key given twice is a mistake."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Annotated, Any

import yaml
from fastapi import Depends, Request

from queuer.api.http.problems import UnsupportedMediaType
from queuer.domain.errors import InvalidInput

JSON = "application/json"
YAML = "application/yaml"
MAX_VALUES = 100_000
MAX_YAML = 256 * 1024
"""Bytes; reading YAML takes a hundred times as long as JSON."""
DOCUMENT_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "description": "A QueueTree document.",
        "content": {media: {"schema": {"type": "object"}} for media in (JSON, YAML)},
    }
}
"""What a route says of a body that `read_document` reads."""
_YAMLS = frozenset({YAML, "application/x-yaml", "text/yaml", "text/x-yaml"})


async def read_document(request: Request, body: bytes | None = None) -> Any:
    """The body, unless it was read before, as plain data.

    Raises InvalidInput with the place of the mistake, or UnsupportedMediaType.
    """
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    body = await request.body() if body is None else body
    try:
        # In a thread: probes and other requests must not wait for a long document.
        if media_type == JSON:
            return await asyncio.to_thread(_json, body)
        if media_type in _YAMLS:
            return await asyncio.to_thread(_yaml, body)
    except (yaml.YAMLError, ValueError) as error:
        raise InvalidInput.at("body", " ".join(str(error).split())) from error
    except RecursionError as error:
        raise InvalidInput.at("body", "nested too deeply") from error
    raise UnsupportedMediaType(
        f"a body of type {media_type or 'none'} is not understood here", hint=f"send {JSON} or {YAML}"
    )


async def _raw(request: Request) -> bytes:
    return await request.body()


RawBody = Annotated[bytes, Depends(_raw)]
"""The body as it was sent; the guard bounds it."""


class _Refused(ValueError):
    """Values that the parser would accept and we do not."""


def _json(body: bytes) -> Any:
    return _sound(json.loads(body, object_pairs_hook=_no_duplicates, parse_constant=_no_constant))


def _yaml(body: bytes) -> Any:
    if len(body) > MAX_YAML:
        raise _Refused(f"YAML above {MAX_YAML} bytes takes too long to read; send it as {JSON}")
    return _sound(yaml.load(body, Loader=_StrictLoader))


def _sound(document: Any) -> Any:
    """The document, if it is of a sane size, YAML aliases followed, and all its texts can be stored."""
    left, seen = [document], 0
    while left:
        value = left.pop()
        seen += 1
        if seen > MAX_VALUES:
            raise _Refused(f"holds more than {MAX_VALUES} values")
        if isinstance(value, dict):
            left += [*value.keys(), *value.values()]
        elif isinstance(value, list | tuple | set):
            left += value
        elif isinstance(value, str):
            _check_text(value)
    return document


def _check_text(text: str) -> None:
    if any(ord(c) < 32 and c not in "\t\n\r" for c in text):
        raise _Refused(f"{text[:20]!r} holds a control character")
    if any(0xD800 <= ord(c) < 0xE000 for c in text):
        raise _Refused(f"{text[:20]!r} is no text: it holds half of a surrogate pair")


def _no_duplicates(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise _Refused(f"{key!r} is given twice")
        found[key] = value
    return found


def _no_constant(name: str) -> Any:
    raise _Refused(f"{name} is not JSON")


class _StrictLoader(yaml.SafeLoader):
    """SafeLoader that refuses a mapping with the same key twice."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value in seen and key.value != "<<":
                raise yaml.constructor.ConstructorError(
                    None, None, f"{key.value!r} is given twice", key.start_mark
                )
            seen.add(str(key.value))
        found: dict[Any, Any] = super().construct_mapping(node, deep=deep)
        return found
