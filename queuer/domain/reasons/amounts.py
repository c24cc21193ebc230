"""Amounts in the parameters of a reason, and numbers and moments in its sentence.

A reason is made with integers in base units. It is read, stored and sent with Kubernetes quantities.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from queuer.domain.quantity import format_quantity, parse_sum, readable

AMOUNTS = frozenset({
    "amount", "asks", "coming", "evictable", "free", "guaranteed", "held", "kept", "leaving", "left", "limit", "lower",
    "missing", "needs", "notYet", "room", "used",
})  # fmt: skip
"""Amounts of what `resource` names; without a `resource` the same words are numbers of pods."""
_BY_RESOURCE = frozenset({"asked", "largest", "per"})
_ROWS = frozenset({"owners", "sets"})


def shown(params: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters with quantities instead of integers."""
    return _changed(params, int, lambda amount, resource: format_quantity(amount, resource=resource))


def said(params: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters with amounts as a sentence has them; `per` and the like stay integers."""
    return _changed(
        params, int, lambda amount, resource: readable(amount, resource=resource), by_resource=False
    )


def counted(params: Mapping[str, Any]) -> dict[str, Any]:
    """The inverse of `shown`. Raises InvalidInput if an amount is no quantity."""
    return _changed(params, str, lambda amount, resource: parse_sum(amount, resource=resource))


def _changed(
    params: Mapping[str, Any],
    kind: type,
    change: Callable[[Any, str], Any],
    resource: str | None = None,
    by_resource: bool = True,
) -> dict[str, Any]:
    """`resource`: what the amounts of a nested row count, unless the row names its own."""
    found, resource = dict(params), params.get("resource", resource)
    for name, value in params.items():
        if resource is not None and name in AMOUNTS and type(value) is kind:
            found[name] = change(value, resource)
        elif by_resource and name in _BY_RESOURCE and isinstance(value, Mapping):
            found[name] = {r: change(n, r) if type(n) is kind else n for r, n in sorted(value.items())}
        elif name in _ROWS and isinstance(value, list | tuple):
            found[name] = [_changed(row, kind, change, resource, by_resource) for row in value]
    return found


def plural(number: int, thing: str) -> str:
    """`1 pod`, `2 pods`."""
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def be(amount: str | int) -> str:
    """The verb that goes with an amount."""
    return "is" if str(amount) == "1" else "are"


def moment(at: float | datetime) -> str:
    """`2026-11-24 18:43:07 UTC`: the form that the page tells in the reader's own zone. `at`: in seconds, or as REST
    has it.
    """
    known = at if isinstance(at, datetime) else datetime.fromtimestamp(at, tz=UTC)
    return f"{known.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
