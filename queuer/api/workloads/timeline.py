"""A workload's history: each step, eviction and reason as one line with its time, and all of it as spans."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime

from queuer.api.words import instant, instant_or_none
from queuer.api.workloads import models
from queuer.api.workloads.spans import held_of, spans_of, waited
from queuer.domain.workload import State
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
            return "the job, or a rule that it is under, was changed"
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


def spans(uid: str, moments: Sequence[Moment], *, submitted: float, now: float) -> models.Timeline:
    """The past in spans, as of `now`."""
    states = spans_of(moments, submitted=submitted)
    return models.Timeline(
        uid=uid,
        as_of=instant(now),
        submitted=instant(submitted),
        waited_seconds=waited(states, now=now),
        spans=[
            models.Span(
                state=span.state,
                begin=instant(span.begin),
                end=instant_or_none(span.end),
                seconds=(now if span.end is None else span.end) - span.begin,
                attempt=span.attempt,
                cause=span.cause,
            )
            for span in states
        ],
        reasons=[
            models.ReasonSpan(
                token=row.token,
                text=row.text,
                begin=instant(row.begin),
                end=instant_or_none(row.end),
                seconds=(now if row.end is None else row.end) - row.begin,
                cycle=row.cycle,
            )
            for row in held_of(moments, states)
        ],
        ticks=list(_ticks(moments)),
    )


def _ticks(moments: Sequence[Moment]) -> Iterator[models.Tick]:
    for moment in moments:
        data = moment.data
        if data.get("cycle") is None:
            continue
        if moment.what == "reason" and data.get("token"):
            yield models.Tick(cycle=data["cycle"], at=instant(moment.at), decision=data["token"])
        elif moment.what == "workload.state" and data.get("to") in (State.ADMITTED, State.EVICTING):
            yield models.Tick(cycle=data["cycle"], at=instant(moment.at), decision=data["to"])
