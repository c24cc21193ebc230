"""A workload's history in sentences: each step, eviction and reason as one line with its time."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

from queuer.api.workloads import models
from queuer.store.reads import Moment


def timeline(moments: Iterable[Moment]) -> list[models.Moment]:
    """All moments, oldest first, in words."""
    return [
        models.Moment(at=datetime.fromtimestamp(moment.at, tz=UTC), what=moment.what, text=_text(moment))
        for moment in moments
    ]


def _text(moment: Moment) -> str:
    data = moment.data
    match moment.what:
        case "reason" if data.get("token"):
            return f"{data['token']}: {data['text']}"
        case "reason":
            return "waits no longer"
        case "workload.submitted":
            return "seen for the first time"
        case "workload.edited":
            return "the job was edited"
        case "workload.deleted":
            return "the job was deleted"
        case "workload.command":
            why = f" ({data['reason']})" if data.get("reason") else ""
            return f"{data['verb']} by {data['by']}{why}, {data['outcome']}: {data['message']}"
        case "workload.state":
            cause = f", {data['cause']}" if data.get("cause") else ""
            attempt = f", attempt {data['attempt']}" if data.get("attempt", 1) > 1 else ""
            return f"{data.get('from')} -> {data.get('to')}{cause}{attempt}"
    return moment.what
