"""Whether a record from another process is one through and through: each field of the type that it is declared with.

Unpickling makes records without a look at what is in them, and whoever reads them relies on it. What is declared as
`Any` must be what JSON has values for. Texts, moments and counts must be such as can be stored and added up.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import is_dataclass
from functools import cache
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

import msgspec

from queuer.solver.problem import Bond, CycleStats, Passes, Reservation

MOST = 2**63
"""Numbers are smaller: whoever is told them has 64 bits."""
LATEST = 253_402_300_800
"""Moments are before the year 10000, with which calendars end."""
_WITHIN = {CycleStats: (0, MOST), Passes: (0, MOST), Bond: (0, LATEST), Reservation: (0, LATEST)}
"""From where on, and below what, the numbers are that a record itself has."""
_NUL_IN_JSON = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")
Check = Callable[[Any], bool]


def misfits(record: Any) -> list[str]:
    """Fields of the record that are not what they are declared to be."""
    kind: Any = type(record)
    return [name for name, fits in _fields(kind) if not fits(getattr(record, name))]


@cache
def _fields(kind: Any) -> list[tuple[str, Check]]:
    least, below = _WITHIN.get(kind, (1 - MOST, MOST))
    return [(name, _fits(hint, least, below)) for name, hint in get_type_hints(kind).items()]


@cache
def _fits(kind: Any, least: int, below: int) -> Check:
    """A check for values of one type, with numbers from `least` to `below`; it is made once."""
    origin = get_origin(kind)
    parts = [_fits(part, least, below) for part in get_args(kind) if part is not ...]
    if kind is Any:
        return _is_json
    if kind is str:
        return lambda value: type(value) is str and _is_text(value)
    if kind in (int, float):
        return lambda value: (type(value) is kind or type(value) is int) and least <= value < below
    if isinstance(kind, type) and is_dataclass(kind):
        fields = _fields(kind)
        return lambda value: type(value) is kind and all(fits(getattr(value, name)) for name, fits in fields)
    if origin is UnionType:
        return lambda value: any(fits(value) for fits in parts)
    if origin is Mapping:
        key, item = parts
        return lambda value: isinstance(value, Mapping) and all(key(k) and item(i) for k, i in value.items())
    if origin is not None:
        return lambda value: type(value) is origin and all(parts[0](one) for one in value)
    return lambda value: type(value) is kind


def _is_text(value: str) -> bool:
    """Whether UTF-8 and PostgreSQL have it: no half of a pair, no NUL."""
    if value.isascii():
        return "\0" not in value
    try:
        return b"\0" not in value.encode()
    except UnicodeEncodeError:
        return False


def _is_json(value: Any) -> bool:
    try:
        text = msgspec.json.encode(value, enc_hook=dict)
    except (TypeError, ValueError):
        return False
    return rb"\u0000" not in text or _NUL_IN_JSON.search(text) is None
