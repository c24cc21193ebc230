"""Events and audit entries in words: one sentence each, the same on the page, in the CLI and in exports."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from queuer.api.config.changes import describe
from queuer.domain.workload import State
from queuer.store.changeset import Change

MOST = 3
"""Objects of one change that are described; its revision has all."""

_STEPS: Mapping[str, str] = {
    State.QUEUED: "back in its queue",
    State.HELD: "on hold",
    State.ADMITTED: "admitted",
    State.PLACING: "its pods are placed",
    State.RUNNING: "all its pods run",
    State.EVICTING: "evicted",
    State.SUCCEEDED: "succeeded",
    State.FAILED: "failed",
}


def of_event(type: str, data: Mapping[str, Any]) -> str:
    """What an event says. A type that is not known is told by its figures."""
    return _EVENTS.get(type, _figures)(data)


def _step(data: Mapping[str, Any]) -> str:
    said = str(data.get("note") or _STEPS.get(str(data.get("to")), data.get("to")))
    where = ", ".join(data.get("domains") or ())
    if where:
        said += f" to {where}"
    if data.get("cause") and not data.get("note"):
        said += f": {data['cause']}"
    attempt = data.get("attempt")
    return f"{said}, attempt {attempt}" if attempt is not None and attempt > 1 else said


def _command(data: Mapping[str, Any]) -> str:
    said = f"{data['verb']}: {data['outcome']}"
    if data.get("message"):
        said += f", {data['message']}"
    return f"{said} ({data['reason']})" if data.get("reason") else said


def _changed(data: Mapping[str, Any]) -> str:
    return f"{data['name']}, revision {data['revision']}"


def _recharged(data: Mapping[str, Any]) -> str:
    return f"what it is charged was put right: {data['reason']}"


def _figures(data: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{name} {value}" for name, value in data.items() if value and not isinstance(value, dict | list)
    )


_EVENTS: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "workload.state": _step,
    "workload.command": _command,
    "workload.recharged": _recharged,
    "workload.submitted": lambda _: "submitted",
    "workload.edited": lambda _: "the job, or a rule that it is under, was changed",
    "workload.deleted": lambda _: "deleted",
    **{
        f"{kind}.{action}d": _changed
        for kind in ("queue", "flavor", "topology")
        for action in ("create", "update", "delete")
    },
}


def of_deed(action: str, detail: Mapping[str, Any], changes: Sequence[Change]) -> str:
    """What was done, to whom. `changes`: those of its revision that the reader may see."""
    if changes:
        more = f"; and {len(changes) - MOST} more" if len(changes) > MOST else ""
        return "; ".join(map(describe, changes[:MOST])) + more
    if "right" in detail:
        asked = f" ({detail['method']} {detail['path']})" if "path" in detail else ""
        return f"refused: may not {detail['right']}{asked}"
    if "kind" in detail:
        asked = ", ".join(f"{name} {value}" for name, value in (detail.get("arguments") or {}).items())
        job = f"{detail['kind'].lower()}/{detail['name']} in {detail['namespace']}"
        return f"{action.rpartition('.')[2]} {job}" + (f": {asked}" if asked else "")
    return _figures(detail)
