"""Records with one value in them spoiled: a number that is none, a name of nothing, an entry twice or gone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from math import inf, nan
from random import Random
from typing import Any

NUMBERS = (nan, inf, -inf, -1, 0, 2**31, 2.0**62, 2**63, 1e300)
NAMES = ("ghost", "", "root", "rack", "n0", "main")


def spoiled(rng: Random, value: Any) -> Any:
    """The value with one place inside it changed; as it is where nothing can be."""
    if isinstance(value, bool | Enum):
        return rng.choice([*type(value)]) if isinstance(value, Enum) else not value
    if isinstance(value, int | float):
        number = rng.choice(NUMBERS)
        return int(number) if isinstance(value, int) and abs(number) < inf else number
    if isinstance(value, str):
        return rng.choice(NAMES)
    if isinstance(value, tuple):
        return _entries(rng, value)
    if isinstance(value, Mapping):
        return _keys(rng, dict(value))
    if is_dataclass(value) and not isinstance(value, type):
        field = rng.choice(fields(value)).name
        return replace(value, **{field: spoiled(rng, getattr(value, field))})
    return value


def _entries(rng: Random, values: tuple[Any, ...]) -> tuple[Any, ...]:
    if not values:
        return values
    at, what = rng.randrange(len(values)), rng.randrange(10)
    middle = [(), (values[at], values[at])][what] if what < 2 else (spoiled(rng, values[at]),)
    return (*values[:at], *middle, *values[at + 1 :])


def _keys(rng: Random, values: dict[Any, Any]) -> dict[Any, Any]:
    if values:
        key, what = rng.choice([*values]), rng.randrange(5)
        if what < 2:
            gone = values.pop(key)
            if what:
                values["ghost"] = gone
        else:
            values[key] = spoiled(rng, values[key])
    return values
