"""Amounts among the parameters of a reason: integers in base units where it is made, quantities where it is read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from queuer.domain.quantity import format_quantity, parse_quantity

AMOUNTS = frozenset({"asks", "guaranteed", "held", "kept", "leaving", "left", "limit", "missing", "used"})
"""Amounts of what `resource` names; without a `resource` the same words are numbers of pods."""
_BY_RESOURCE = frozenset({"asked", "per"})


def shown(params: Mapping[str, Any]) -> dict[str, Any]:
    """With quantities instead of integers."""
    return _changed(params, int, lambda amount, resource: format_quantity(amount, resource=resource))


def counted(params: Mapping[str, Any]) -> dict[str, Any]:
    """The inverse of `shown`. Raises InvalidInput where an amount is no quantity."""
    return _changed(params, str, lambda amount, resource: parse_quantity(amount, resource=resource))


def _changed(params: Mapping[str, Any], kind: type, change: Callable[[Any, str], Any]) -> dict[str, Any]:
    found, resource = dict(params), params.get("resource")
    for name, value in params.items():
        if resource is not None and name in AMOUNTS and type(value) is kind:
            found[name] = change(value, resource)
        elif name in _BY_RESOURCE and isinstance(value, Mapping):
            found[name] = {r: change(n, r) if type(n) is kind else n for r, n in sorted(value.items())}
        elif name == "sets" and isinstance(value, list | tuple):
            found[name] = [_changed(row, kind, change) for row in value]
    return found


def devices(demand: Mapping[str, str]) -> str:
    """What a job asks for in few words: its devices, else its cpu. Amounts are quantities."""
    plain = ("cpu", "memory", "ephemeral-storage", "pods")
    few = [name for name in demand if name not in plain] or [name for name in plain if name in demand][:1]
    return ", ".join(f"{demand[name]} {name.rsplit('/', 1)[-1]}" for name in few)
