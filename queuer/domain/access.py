"""The `access` of a queue as plain data: who may use it, and what their jobs may ask.

access:
  users: [alice]                     # with `groups`: who may use it; nobody named = all of its namespaces
  groups: [ml-research]
  maxPriority: high                  # a PriorityClass
  maxRuntime: 12h                    # that a job must promise
  maxPending: 500                    # jobs of a namespace
  perUser: {limits: {nvidia.com/gpu: 16}, maxRunning: 4}
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from queuer.domain.fields import (
    Field,
    FieldTable,
    Reader,
    format_duration,
    kind_of,
    twice,
    whole_field,
)
from queuer.domain.quantity import format_resources, parse_quantity
from queuer.domain.queue import SYSTEM_CLASSES, Access, PerUser

_CLASS = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")


def _names(reader: Reader, key: str) -> tuple[str, ...]:
    """Names as the cluster knows them. Groups are stamped on a job a line each, so a name is one line."""
    names = reader.texts(key)
    for name in twice(names):
        reader.problems.note(reader.path(key), f"{name} is there twice", "keep one of them")
    for index, name in enumerate(names):
        if not name.isprintable() or name != name.strip():
            reader.problems.note(
                f"{reader.path(key)}[{index}]", f"{name!r} is not a name", "write it in one line"
            )
    return names


def _class(reader: Reader, key: str) -> str | None:
    highest, at = reader.text(key), reader.path(key)
    if highest is not None and not _CLASS.fullmatch(highest):
        reader.problems.note(at, f"{highest!r} is not a name", "write the name of a PriorityClass")
    elif highest is not None and highest.startswith(SYSTEM_CLASSES):
        reader.problems.note(at, f"{highest} never orders a queued job", "name a class of your own")
    return highest


def _runtime(reader: Reader, key: str) -> float | None:
    seconds = reader.duration(key)
    if seconds is not None and seconds < 1:
        reader.problems.note(reader.path(key), "no job ends within that", "write 1s or more")
    return seconds


def _per_user(reader: Reader, key: str) -> PerUser | None:
    if not reader.said(key):
        return None
    body, at = reader.values[key], reader.path(key)
    if isinstance(body, Mapping) and body.get("limits") is None and body.get("maxRunning") is None:
        reader.problems.note(at, "says no limit", "give limits or maxRunning")
    return _PER_USER.parse(body, at=at, problems=reader.problems)


def _limits(reader: Reader, key: str) -> dict[str, int]:
    limits = reader.values.get(key) or {}
    if not isinstance(limits, Mapping):
        message, hint = f"a mapping is needed, got {kind_of(limits)}", "write limits: {nvidia.com/gpu: 16}"
        reader.problems.note(reader.path(key), message, hint)
        limits = {}
    amounts = {str(name): _amount(reader, str(name), value) for name, value in limits.items()}
    return {name: amount for name, amount in amounts.items() if amount is not None}


def _amount(reader: Reader, resource: str, value: Any) -> int | None:
    at = reader.path(f"limits.{resource}")
    if not resource:
        reader.problems.note(at, "names no resource", "write e.g. nvidia.com/gpu: 16")
        return None
    found: int | None = reader.problems.attempt(
        lambda: parse_quantity(value, resource=resource, field=at, whole=True)
    )
    return found


_PER_USER = FieldTable(
    PerUser, Field(name="limits", read=_limits, show=format_resources), whole_field("maxRunning", least=1)
)
ACCESS = FieldTable(
    Access,
    Field(name="users", read=_names, show=list),
    Field(name="groups", read=_names, show=list),
    Field(name="maxPriority", read=_class),
    Field(name="maxRuntime", read=_runtime, show=format_duration),
    whole_field("maxPending", least=1),
    Field(name="perUser", read=_per_user, show=_PER_USER.show),
)
"""The fields of `access`."""
