"""A workload's past, told twice: each step as one line with its time, and all of it as spans.

A span says which state from when to when, or for which reason it waited, second for second. While a workload waits
without a recorded reason no cycle had looked at it. So durations of reasons sum to the time that it waited.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from queuer.api.models import instant
from queuer.api.workloads import models
from queuer.domain.events import event_text
from queuer.domain.reasons import Token
from queuer.domain.workload import State
from queuer.store.reads import Moment

UNSEEN = "no cycle had looked at it"
_SAID = frozenset({"workload.submitted", "workload.edited"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Seconds since the epoch; `end` None = it goes on."""

    state: State
    begin: float
    end: float | None
    attempt: int
    cause: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """A reason that held so long while it waited; `end` None = it goes on."""

    token: Token
    text: str
    begin: float
    end: float | None
    cycle: int | None


def spans_of(moments: Sequence[Moment], *, submitted: float) -> list[Span]:
    """States one after the other, from the submit time on: of a job that was released, from when it was first seen."""
    first = min(submitted, moments[0].at) if moments else submitted
    made = [Span(state=State.QUEUED, begin=first, end=None, attempt=1)]
    for moment in moments:
        last, data = made[-1], moment.data
        at = max(moment.at, last.begin)
        if moment.what in _SAID and data.get("state") in (State.QUEUED, State.HELD):
            state = State(data["state"])
            if last.state.waiting and state is not last.state:
                begun = moment.what == "workload.submitted"  # what it was from the first on
                made[-1:] = [replace(last, state=state)] if begun else _next(last, at, state=state)
        elif moment.what == "workload.state" and data.get("to") != last.state:
            attempt = int(data.get("attempt") or last.attempt)
            made[-1:] = _next(
                last, at, state=State(data["to"]), attempt=attempt, cause=str(data.get("cause") or "")
            )
        elif moment.what == "workload.deleted" and last.end is None:
            made[-1] = replace(last, end=at)
    return made


def _next(last: Span, at: float, *, state: State, **more: Any) -> list[Span]:
    fresh = replace(last, state=state, begin=at, end=None, **{"cause": "", **more})
    return [replace(last, end=at), fresh]


def held_of(moments: Sequence[Moment], spans: Sequence[Span]) -> list[Held]:
    """The reasons of all waiting spans, without a gap; those of no length are left out, but for the last one."""
    told = [m for m in moments if m.what == "reason"]
    found: list[Held] = []
    for span in spans:
        if span.state.waiting:
            found += _within(told, span)
    return [row for row in found if row.end is None or row.end > row.begin]


def _within(told: Sequence[Moment], span: Span) -> Iterator[Held]:
    end = float("inf") if span.end is None else span.end
    before = [m for m in told if m.at <= span.begin]
    inside = [m for m in told if span.begin < m.at < end]
    begin, current = span.begin, before[-1] if before else None
    for mark in inside:
        yield _held(current, begin, mark.at)
        begin, current = mark.at, mark
    yield _held(current, begin, span.end)


def _held(mark: Moment | None, begin: float, end: float | None) -> Held:
    data = mark.data if mark is not None else {}
    if not data.get("token"):
        return Held(token=Token.PENDING_EVALUATION, text=UNSEEN, begin=begin, end=end, cycle=None)
    token = Token(data["token"])
    return Held(token=token, text=data["text"], begin=begin, end=end, cycle=data.get("cycle"))


def waited(spans: Sequence[Span], *, now: float) -> float:
    """Seconds in which it waited, all attempts together."""
    return sum((now if s.end is None else s.end) - s.begin for s in spans if s.state.waiting)


def timeline(moments: Sequence[Moment]) -> list[models.Moment]:
    """All moments, oldest first, in words; the end of a reason beside the step that ended it says nothing more."""
    steps = {moment.at for moment in moments if moment.what != "reason"}
    return [
        models.Moment(at=instant(moment.at), what=moment.what, text=event_text(moment.what, moment.data))
        for moment in moments
        if moment.what != "reason" or moment.data.get("token") or moment.at not in steps
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
