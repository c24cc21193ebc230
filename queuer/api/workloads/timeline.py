"""A workload's history: each step, eviction and reason as one line with its time, and all of it as spans."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from queuer.api.models import instant
from queuer.api.workloads import models
from queuer.api.workloads.spans import Held, Span, held_of, spans_of, waited
from queuer.domain.events import event_text
from queuer.domain.workload import State
from queuer.store.reads import Moment


def timeline(moments: Iterable[Moment]) -> list[models.Moment]:
    """All moments, oldest first, in words."""
    return [
        models.Moment(at=instant(moment.at), what=moment.what, text=event_text(moment.what, moment.data))
        for moment in moments
    ]


def spans(uid: str, moments: Sequence[Moment], *, submitted: float, now: float) -> models.Timeline:
    """The past in spans, as of `now`."""
    states = spans_of(moments, submitted=submitted)

    def fields(row: Span | Held) -> dict[str, object]:
        return {name: getattr(row, name) for name in row.__slots__} | {
            "seconds": (now if row.end is None else row.end) - row.begin
        }

    return models.Timeline(
        uid=uid,
        as_of=instant(now),
        submitted=instant(submitted),
        waited_seconds=waited(states, now=now),
        spans=[models.Span.model_validate(fields(span)) for span in states],
        reasons=[models.ReasonSpan.model_validate(fields(row)) for row in held_of(moments, states)],
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
