"""Where in a document a field is, as a JSON pointer (RFC 6901): `queues.root.a.weight` → `/queues/root.a/weight`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from queuer.domain.errors import QueuerError

_STEP = re.compile(r"\[(\d+)\]|\.?([^.\[]+)")


@contextmanager
def placed(document: object) -> Iterator[None]:
    """Problems that are found inside and have no place yet get theirs in this document."""
    try:
        yield
    except QueuerError as error:
        error.problems = tuple(
            replace(p, pointer=p.pointer or place(p.field, document)) for p in error.problems
        )
        raise


def place(field: str, document: object) -> str:
    """The place of a dotted field. Keys of the document that hold dots are taken whole; what is missing in it is split
    at dots.
    """
    steps: list[str] = []
    value: Any = document
    while field:
        key = _longest(field, value) if isinstance(value, Mapping) else None
        if key is not None:
            step, field = key, field[len(key) :]
        else:
            match = _STEP.match(field)
            if match is None:
                break
            step, field = match[1] or match[2], field[match.end() :]
        field = field.removeprefix(".")
        steps.append(step)
        value = _inside(value, step)
    return pointer(steps)


def pointer(steps: Iterable[object]) -> str:
    """These steps into a document as one pointer."""
    return "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in steps)


def _longest(field: str, value: Mapping[Any, Any]) -> str | None:
    """The longest key that the field begins with."""
    fitting = (str(key) for key in value if field == str(key) or field.startswith((f"{key}.", f"{key}[")))
    return max((key for key in fitting if key), key=len, default=None)


def _inside(value: Any, step: str) -> Any:
    if isinstance(value, Mapping):
        return next((item for key, item in value.items() if str(key) == step), None)
    if isinstance(value, list) and step.isdigit() and int(step) < len(value):
        return value[int(step)]
    return None
