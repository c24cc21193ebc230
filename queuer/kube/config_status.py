"""The status of Queue, Flavor and Topology objects: whether each is in force, and what a queue holds.

Written only where it differs from what the object says, and to one object at most once in `PERIOD` seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from queuer.kube.client import Client, NotFoundError
from queuer.kube.config_set import Listed

PERIOD = 10.0
"""Seconds between two writes to one object."""
ACCEPTED = "Accepted"
_LONGEST_MESSAGE = 4096


class Standing(StrEnum):
    """Reason of the Accepted condition."""

    IN_FORCE = "InForce"
    INVALID = "Invalid"
    CONFLICT = "Conflict"
    SET_REFUSED = "SetRefused"  # itself right, but nothing is taken over while another object is wrong


_STATUS = {Standing.IN_FORCE: "True", Standing.SET_REFUSED: "Unknown"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What is to be said of one object."""

    standing: Standing
    message: str


def body(
    verdict: Verdict,
    *,
    generation: int,
    present: Mapping[str, Any],
    figures: Mapping[str, Any],
    now: float,
) -> dict[str, Any] | None:
    """The merge patch of `.status`, None where `present` says the same.

    `figures`: fields to set beside the condition, e.g. `{"used": {"cpu": "4"}}`.
    """
    old = accepted(present)
    if verdict.standing is Standing.SET_REFUSED and _in_force(old, generation):
        condition = dict(old)  # the last good set holds it as it is
    else:
        condition = {
            "type": ACCEPTED,
            "status": _STATUS.get(verdict.standing, "False"),
            "reason": str(verdict.standing),
            "message": verdict.message[:_LONGEST_MESSAGE],
            "observedGeneration": generation,
        }
    same = {key: value for key, value in old.items() if key != "lastTransitionTime"} == {
        key: value for key, value in condition.items() if key != "lastTransitionTime"
    }
    stale = {
        name: _replaced(present.get(name) or {}, wanted)
        for name, wanted in figures.items()
        if present.get(name) != wanted
    }
    if same and not stale and present.get("observedGeneration") == generation:
        return None
    kept = old.get("status") == condition["status"] and "lastTransitionTime" in old
    condition["lastTransitionTime"] = old["lastTransitionTime"] if kept else stamp(now)
    others = [c for c in present.get("conditions", ()) if c.get("type") != ACCEPTED]
    return {"observedGeneration": generation, "conditions": [*others, condition], **stale}


def accepted(status: Mapping[str, Any]) -> Mapping[str, Any]:
    """The Accepted condition of a status; {} where there is none."""
    return next((c for c in status.get("conditions", ()) if c.get("type") == ACCEPTED), {})


def _in_force(condition: Mapping[str, Any], generation: int) -> bool:
    return condition.get("status") == "True" and condition.get("observedGeneration") == generation


def _replaced(present: Any, wanted: Any) -> Any:
    """A merge patch that makes a mapping exactly `wanted`: keys that go are null."""
    if not isinstance(wanted, Mapping) or not isinstance(present, Mapping):
        return wanted
    return {**dict.fromkeys(present), **wanted}


def stamp(now: float) -> str:
    """A time as Kubernetes writes it, whole seconds."""
    return datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass(slots=True, kw_only=True)
class Statuses:
    """The statuses as they are, as far as is known, and when each was written last (seconds, by uid)."""

    known: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    written: dict[str, float] = field(default_factory=dict)

    def seen(self, listed: Listed) -> None:
        """Take over what a listing says; forget objects that are gone."""
        self.known = {item.metadata.uid: item.status for _, item in listed.items()}
        self.written = {uid: at for uid, at in self.written.items() if uid in self.known}

    async def write(
        self,
        client: Client,
        listed: Listed,
        said: Mapping[str, Verdict],
        *,
        figures: Mapping[str, Mapping[str, Any]],
        now: float,
    ) -> None:
        """Write what differs, sparing objects written less than PERIOD ago. `figures` by queue path."""
        for plural, item in listed.items():
            meta = item.metadata
            if now - self.written.get(meta.uid, float("-inf")) < PERIOD:
                continue
            status = body(
                said[meta.uid],
                generation=meta.generation,
                present=self.known.get(meta.uid, {}),
                figures=figures.get(str(item.spec.get("path")), {}) if plural == "queues" else {},
                now=now,
            )
            if status is None:
                continue
            self.written[meta.uid] = now
            path = f"/apis/queuer.dev/v1/{plural}/{meta.name}/status"
            patch = {"metadata": {"uid": meta.uid}, "status": status}
            try:
                await client.merge_patch(path, patch, resource=f"{plural}/status")
            except NotFoundError:
                continue  # deleted meanwhile
            self.known[meta.uid] = _merged(self.known.get(meta.uid, {}), status)


def _merged(target: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """JSON merge patch (RFC 7386)."""
    result = dict(target)
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, Mapping):
            inner = result.get(key)
            result[key] = _merged(inner if isinstance(inner, Mapping) else {}, value)
        else:
            result[key] = value
    return result
