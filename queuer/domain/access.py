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

from queuer.domain.fields import Problems, Reader, format_duration, kind_of, twice
from queuer.domain.quantity import format_resources, parse_quantity
from queuer.domain.queue import SYSTEM_CLASSES, Access, PerUser

_ACCESS = ("users", "groups", "maxPriority", "maxRuntime", "maxPending", "perUser")
_PER_USER = ("limits", "maxRunning")
_CLASS = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")


def parse_access(body: object, *, at: str = "access", problems: Problems | None = None) -> Access:
    """An Access from plain data; null = says nothing. Without `problems`, raises InvalidInput itself."""
    noted = Problems() if problems is None else problems
    reader = Reader(body if body is not None else {}, at=at, known=_ACCESS, problems=noted)
    access = Access(
        users=_names(reader, "users"),
        groups=_names(reader, "groups"),
        max_priority=_class(reader),
        max_runtime=_runtime(reader),
        max_pending=reader.whole("maxPending", least=1),
        per_user=_per_user(reader) if reader.said("perUser") else None,
    )
    if problems is None:
        noted.settle()
    return access


def export_access(access: Access) -> dict[str, Any]:
    """What an access says, as plain data."""
    values = {
        "users": list(access.users) or None,
        "groups": list(access.groups) or None,
        "maxPriority": access.max_priority,
        "maxRuntime": None if access.max_runtime is None else format_duration(access.max_runtime),
        "maxPending": access.max_pending,
        "perUser": None if access.per_user is None else _export_per_user(access.per_user),
    }
    return {key: value for key, value in values.items() if value is not None}


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


def _class(reader: Reader) -> str | None:
    highest, at = reader.text("maxPriority"), reader.path("maxPriority")
    if highest is not None and not _CLASS.fullmatch(highest):
        reader.problems.note(at, f"{highest!r} is not a name", "write the name of a PriorityClass")
    elif highest is not None and highest.startswith(SYSTEM_CLASSES):
        reader.problems.note(at, f"{highest} never orders a queued job", "name a class of your own")
    return highest


def _runtime(reader: Reader) -> float | None:
    seconds = reader.duration("maxRuntime")
    if seconds is not None and seconds < 1:
        reader.problems.note(reader.path("maxRuntime"), "no job ends within that", "write 1s or more")
    return seconds


def _per_user(reader: Reader) -> PerUser:
    at = reader.path("perUser")
    inner = Reader(reader.values["perUser"], at=at, known=_PER_USER, problems=reader.problems)
    limits = inner.values.get("limits") or {}
    if not isinstance(limits, Mapping):
        message, hint = f"a mapping is needed, got {kind_of(limits)}", "write limits: {nvidia.com/gpu: 16}"
        reader.problems.note(f"{at}.limits", message, hint)
        limits = {}
    if inner.readable and not (inner.said("limits") or inner.said("maxRunning")):
        reader.problems.note(at, "says no limit", "give limits or maxRunning")
    amounts = {str(name): _amount(inner, str(name), value) for name, value in limits.items()}
    return PerUser(
        limits={name: amount for name, amount in amounts.items() if amount is not None},
        max_running=inner.whole("maxRunning", least=1),
    )


def _amount(reader: Reader, resource: str, value: Any) -> int | None:
    at = reader.path(f"limits.{resource}")
    if not resource:
        reader.problems.note(at, "names no resource", "write e.g. nvidia.com/gpu: 16")
        return None
    found: int | None = reader.problems.attempt(
        lambda: parse_quantity(value, resource=resource, field=at, whole=True)
    )
    return found


def _export_per_user(per_user: PerUser) -> dict[str, Any]:
    body: dict[str, Any] = {"limits": format_resources(per_user.limits)} if per_user.limits else {}
    if per_user.max_running is not None:
        body["maxRunning"] = per_user.max_running
    return body
