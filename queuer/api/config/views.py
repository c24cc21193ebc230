"""From records of the store to answers about changesets. A caller sees the jobs of namespaces that it may read."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from itertools import takewhile
from typing import TypeVar

from queuer.api.config import models
from queuer.api.config.changes import describe, nameless_change
from queuer.api.identity.rights import Asker
from queuer.api.models import Model
from queuer.domain.fields import format_duration
from queuer.domain.queue import ROOT
from queuer.store.changeset import Change
from queuer.store.changesets import Applied
from queuer.store.config import ObjectKind
from queuer.store.drafts import Draft
from queuer.store.tables import DraftState

_OF_IMPACT = ("starts", "evicted", "unstartable", "unstartable_running")
_OF_STATE = ("running", "waiting")
T = TypeVar("T", bound=Model)


def planned(draft: Draft, *, made: Applied | None = None) -> models.Changeset:
    """A plan with all of its report. `made`: what it became."""
    changeset, by = draft.changeset, draft if made is None else made
    expired = draft.state is DraftState.PLANNED and draft.expired
    return models.Changeset.from_record(
        draft,
        **dict(_report(draft)),
        id=str(draft.id),
        state="expired" if expired else draft.state.value,
        base_revision=changeset.base,
        reverts=changeset.reverts,
        actor=by.actor,
        source=by.source,
        managed_by=changeset.writer,
        reason=None if made is None else made.reason,
        evict_after=None if draft.evict_after is None else format_duration(draft.evict_after),
        planned=draft.at,
        applied=None if made is None else made.at,
        changes=[change(each) for each in changeset.changes],
    )


def _report(draft: Draft | None) -> models.Report:
    """The report of a draft, empty for a changeset that was applied without one."""
    if draft is None:
        return models.Report(impact_missing="it is told of plans")
    return models.Report.model_validate(draft.report)


def applied(made: Applied, draft: Draft | None = None) -> models.Changeset:
    """One of the history; `draft`: the plan behind it, while that is kept."""
    return models.Changeset.from_record(
        made,
        **dict(_report(draft)),
        id=str(made.revision),
        state="applied",
        root=root_of(made.changes),
        base_revision=made.revision - 1,
        managed_by=made.writer,
        applied=made.at,
        changes=[change(each) for each in made.changes],
    )


def public(made: Applied) -> Applied:
    """As anybody may have it: without people, and without a reason that speaks of several objects."""
    reason = made.reason if len(made.changes) == 1 else ""
    return replace(made, changes=tuple(map(nameless_change, made.changes)), reason=reason)


async def readable(draft: Draft | None, asker: Asker) -> frozenset[str]:
    """The namespaces of a report whose jobs the caller may read."""
    told = _report(draft)
    return await asker.readable({job.namespace for each in _jobs(told) for job in each.jobs})


def masked(answer: models.Changeset, readable: Collection[str]) -> models.Changeset:
    """Without the names of jobs of other namespaces; their counts and amounts stay."""

    def cut(each: models.Jobs) -> models.Jobs:
        return each.model_copy(update={"jobs": [job for job in each.jobs if job.namespace in readable]})

    def cut_in(told: T, parts: Iterable[str]) -> T:
        return told.model_copy(update={name: cut(getattr(told, name)) for name in parts})

    seen = answer.impact and cut_in(answer.impact, _OF_IMPACT)
    states = [cut_in(state, _OF_STATE) for state in answer.states]
    return answer.model_copy(update={"victims": cut(answer.victims), "impact": seen, "states": states})


def _jobs(told: models.Report) -> list[models.Jobs]:
    return [
        told.victims,
        *(getattr(told.impact, name) for name in _OF_IMPACT if told.impact),
        *(getattr(state, name) for state in told.states for name in _OF_STATE),
    ]


def change(made: Change) -> models.Change:
    """As REST says it."""
    return models.Change.from_record(made, text=describe(made))


def root_of(changes: Iterable[Change]) -> str:
    """The nearest queue that has all that is changed below it; `root` where flavors or topology are."""
    made = list(changes)
    if any(change.kind is not ObjectKind.QUEUE for change in made):
        return ROOT
    levels = zip(*(change.name.split(".") for change in made), strict=False)
    return ".".join(level[0] for level in takewhile(lambda level: len({*level}) == 1, levels)) or ROOT
