"""A change of the configuration in one line for people: what, from which value to which."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from queuer.api.identity.rights import nameless
from queuer.store.changeset import Change
from queuer.store.config import ObjectKind

_AMOUNTS = ("guaranteed", "limit", "lend")
_NOTHING = "none"
_DEFAULTS = {"weight": 1, "state": "open"}


def describe(change: Change) -> str:
    """`root.a: new, quota nvidia.com/gpu guaranteed none -> 8`."""
    named = (
        change.name
        if change.kind is ObjectKind.QUEUE
        else f"{change.kind} {change.name}".removesuffix(" topology")
    )
    lead = {"create": "new", "delete": "deleted"}.get(change.action)
    parts = [lead] if lead else []
    if change.action != "delete":
        parts += [text for field, before, after in change.fields for text in _field(field, before, after)]
    return f"{named}: {', '.join(parts) or 'the people that it names'}"


def fields_of(change: Change) -> Iterator[tuple[str, str]]:
    """The differences by field: (`queues.root.a.weight`, `weight 1 -> 2`)."""
    at = str(change.kind) if change.kind is ObjectKind.TOPOLOGY else f"{change.kind}s.{change.name}"
    if change.action != "update":
        yield at, f"{change.action}d"
        return
    for field, before, after in change.fields:
        yield f"{at}.{field}", ", ".join(_field(field, before, after))


def _field(field: str, before: Any, after: Any) -> Iterator[str]:
    if field == "quota":
        yield from _quota(before or (), after or ())
    elif isinstance(before or after, Mapping):
        old, new = before or {}, after or {}
        for key in sorted(old.keys() | new.keys()):
            if old.get(key) != new.get(key):
                yield from _field(f"{field} {key}", old.get(key), new.get(key))
    else:
        default = _DEFAULTS.get(field)
        old, new = (default if value in (None, [], ()) else value for value in (before, after))
        yield f"{field} {_value(old)} -> {_value(new)}"


def _quota(before: Sequence[Mapping[str, Any]], after: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    old, new = ({(row.get("flavor"), row["resource"]): row for row in rows} for rows in (before, after))
    for account in sorted(old.keys() | new.keys(), key=lambda pair: (pair[1], pair[0] or "")):
        flavor, resource = account
        named = f"quota {resource}" + (f" ({flavor})" if flavor else "")
        for amount in _AMOUNTS:
            left, right = (rows.get(account, {}).get(amount) for rows in (old, new))
            if left != right:
                yield f"{named} {amount} {_value(left)} -> {_value(right)}"
    if list(old) != list(new) and old.keys() == new.keys():
        yield "quota rows in another order"


def _value(value: Any) -> str:
    if value is None:
        return _NOTHING
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        return "(" + ", ".join(f"{key} {_value(each)}" for key, each in value.items()) + ")"
    return ", ".join(map(_value, value)) if isinstance(value, list | tuple) else str(value)


def nameless_change(change: Change) -> Change:
    """A change without the people that it names."""
    before, after = (None if form is None else nameless(form) for form in (change.before, change.after))
    return replace(change, before=before, after=after)
