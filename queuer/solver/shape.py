"""Whether a record from another process is one through and through: each field of the type that it is declared with.

Unpickling makes records without a look at what is in them, and whoever reads them relies on it. What is declared as
`Any` must be what JSON has values for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import is_dataclass
from functools import cache
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

import msgspec

MOST = 2**63
"""Numbers are smaller: whoever is told them has 64 bits."""
Check = Callable[[Any], bool]


def misfits(record: Any) -> list[str]:
    """Fields of the record that are not what they are declared to be."""
    kind: Any = type(record)
    return [name for name, fits in _fields(kind) if not fits(getattr(record, name))]


@cache
def _fields(kind: Any) -> list[tuple[str, Check]]:
    return [(name, _fits(hint)) for name, hint in get_type_hints(kind).items()]


@cache
def _fits(kind: Any) -> Check:
    """A check for values of one type; it is made once."""
    origin, parts = get_origin(kind), [_fits(part) for part in get_args(kind) if part is not ...]
    if kind is Any:
        return _is_json
    if kind in (int, float):
        return lambda value: (type(value) is kind or type(value) is int) and -MOST < value < MOST
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


def _is_json(value: Any) -> bool:
    try:
        msgspec.json.encode(value, enc_hook=dict)
    except (TypeError, ValueError):
        return False
    return True
