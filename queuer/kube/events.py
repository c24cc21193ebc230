"""Kubernetes Events about a job: ours, which `kubectl describe` and `kubectl get events` show its owner, and others'
that tell why it has no pods.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec

from queuer.kube.decoding import decoder_of
from queuer.kube.kinds import JobKind
from queuer.kube.objects import Meta

COMPONENT = "queuer-controller"
_LONGEST_MESSAGE = 1024  # more is refused
_LONGEST_NAME = 200


_LONGEST_QUOTE = 600
_FINAL = re.compile(r"\bis (invalid|forbidden)\b|\bdenied the request\b")
"""Words of an API server that judged the pod: by its spec, a quota, a policy or a webhook. A timeout judges nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodRefusal:
    """The words of an Event about a pod that could not be created, on one line, and its time in epoch seconds.

    Without words there was none.
    """

    said: str = ""
    at: float = 0.0

    def stands_after(self, earlier: PodRefusal) -> bool:
        """Whether the API server judged the pod twice: asking again is in vain.

        Once proves nothing. It says `is forbidden` too while a new namespace has no service account yet, while a quota
        is not yet known, and while pods that are gone are still counted.
        """
        return self.at > earlier.at and all(_FINAL.search(each.said) for each in (self, earlier))


class _Told(msgspec.Struct, rename="camel"):
    reason: str = ""
    message: str = ""
    last_timestamp: str | None = None


class _List(msgspec.Struct):
    items: list[_Told] | None = None


_list_of = decoder_of(_List)


def events_path(namespace: str) -> str:
    """API path of a namespace's Events (core/v1)."""
    return f"/api/v1/namespaces/{namespace}/events"


def event_about(
    kind: JobKind, job: Meta, *, reason: str, message: str, warning: bool, at: float, id: str
) -> dict[str, Any]:
    """A core/v1 Event about a job, at `at` seconds since the epoch. `id` makes its name unique."""
    moment = datetime.fromtimestamp(at, tz=UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{job.name[:_LONGEST_NAME]}.{id}", "namespace": job.namespace},
        "involvedObject": {
            "apiVersion": kind.api_version,
            "kind": kind.name,
            "namespace": job.namespace,
            "name": job.name,
            "uid": job.uid,
            "resourceVersion": job.resource_version,
        },
        "type": "Warning" if warning else "Normal",
        "reason": reason,
        "message": message[:_LONGEST_MESSAGE],
        "source": {"component": COMPONENT},
        "reportingComponent": COMPONENT,
        "reportingInstance": "",
        "firstTimestamp": moment,
        "lastTimestamp": moment,
        "count": 1,
    }


def warnings_of(uid: str) -> dict[str, str]:
    """Parameters of a list that select the warnings about an object."""
    return {"fieldSelector": f"involvedObject.uid={uid},type=Warning", "limit": "100"}


def newest_refusal(found: bytes, *, reasons: tuple[str, ...], since: float = 0.0) -> PodRefusal:
    """The newest Event in a list about a pod that could not be created. `reasons`: prefixes, see `JobKind.refusals`.

    `since`: seconds since the epoch; older Events, and with it those without a time, are left out. Raises
    msgspec.MsgspecError, ValueError.
    """
    told = [event for event in _list_of(found).items or () if event.reason.startswith(reasons)]
    if since:
        told = [event for event in told if _seconds(event.last_timestamp) >= int(since)]
    newest = max(told, key=lambda event: event.last_timestamp or "", default=_Told())
    said = "".join(c if c.isprintable() else " " for c in newest.message[:_LONGEST_QUOTE])
    return PodRefusal(said=said, at=_seconds(newest.last_timestamp))


def _seconds(moment: str | None) -> float:
    return datetime.fromisoformat(moment).timestamp() if moment else 0.0
