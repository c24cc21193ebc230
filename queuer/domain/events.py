"""Events in words: one sentence for each type, the same in a job's history, in the list of events and on the page."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from queuer.domain.errors import InvalidInput
from queuer.domain.fields import nearest
from queuer.domain.reasons import moment
from queuer.domain.workload import State

Data = Mapping[str, Any]
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


ORDERED = "workload.ordered"
"""The type of an event that tells of an eviction at a later time."""


def utc(seconds: float) -> str:
    """A time as events hold it."""
    return datetime.fromtimestamp(seconds, tz=UTC).isoformat(timespec="seconds")


def check_type(type: str) -> None:
    """Raise InvalidInput unless events have this type, or types that begin with this word."""
    known = {*SENTENCES, *(each.partition(".")[0] for each in SENTENCES)}
    if type not in known:
        raise InvalidInput.at("type", f"there are no events of type {type[:63]!r}", nearest(type, known))


def event_text(type: str, data: Data) -> str:
    """The sentence of an event. A type that is not known is told by its figures."""
    return SENTENCES.get(type, figures)(data)


def figures(data: Data) -> str:
    """Names and values, without those that are empty or nested."""
    return ", ".join(
        f"{name} {value}" for name, value in data.items() if value and not isinstance(value, dict | list)
    )


def _step(data: Data) -> str:
    said = str(data.get("note") or _STEPS.get(str(data.get("to")), data.get("to")))
    where = ", ".join(data.get("domains") or ())
    if where:
        said += f" to {where}"
    if data.get("cause") and not data.get("note"):
        said += f": {data['cause']}"
    attempt = data.get("attempt")
    return f"{said}, attempt {attempt}" if attempt is not None and attempt > 1 else said


def _command(data: Data) -> str:
    why = f" ({data['reason']})" if data.get("reason") else ""
    said = f"{data['verb']} by {data['by']}{why}, {data['outcome']}"
    return f"{said}: {data['message']}" if data.get("message") else said


def _ordered(data: Data) -> str:
    due = moment(datetime.fromisoformat(str(data["due"])).timestamp())
    why = f': "{data["reason"]}"' if data.get("reason") else ""
    return f"to be evicted at {due} by order of {data['by']}{why}"


def _reason(data: Data) -> str:
    return f"{data['token']}: {data['text']}" if data.get("token") else "waits no longer"


def _changed(data: Data) -> str:
    return f"{data['name']}, revision {data['revision']}"


SENTENCES: Mapping[str, Callable[[Data], str]] = {
    "reason": _reason,
    "workload.state": _step,
    "workload.command": _command,
    ORDERED: _ordered,
    "workload.recharged": lambda data: f"what it is charged was put right: {data['reason']}",
    "workload.lost": lambda data: str(data["note"]),
    "workload.whole": lambda _: "all its pods are there again",
    "workload.submitted": lambda _: "submitted",
    "workload.edited": lambda _: "the job, or a rule that it is under, was changed",
    "workload.deleted": lambda _: "the job was deleted",
    **{
        f"{kind}.{action}d": _changed
        for kind in ("queue", "flavor", "topology")
        for action in ("create", "update", "delete")
    },
}
"""By the type of an event; `reason` is a change of the reason for which a job waits."""
