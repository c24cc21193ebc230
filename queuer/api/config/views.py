"""From records of the store to answers about changesets. A caller sees the jobs of namespaces that it may read."""

from __future__ import annotations

from typing import Any, Literal

from queuer.api.config import models
from queuer.api.config.writing import change, root_of
from queuer.api.identity.rights import Asker
from queuer.api.words import instant
from queuer.domain.fields import format_duration
from queuer.store.changesets import Applied
from queuer.store.drafts import Draft
from queuer.store.tables import DraftState

_OF_IMPACT = ("starts", "evicted", "never")
State = Literal["planned", "expired", "discarded", "applied"]


def planned(draft: Draft, *, made: Applied | None = None) -> models.Changeset:
    """A plan with all of its report. `made`: what it became."""
    changeset = draft.changeset
    return models.Changeset(
        **_report(draft),
        id=str(draft.id),
        state=_state(draft),
        root=draft.root,
        base_revision=changeset.base,
        revision=draft.revision,
        reverts=changeset.reverts,
        actor=draft.actor if made is None else made.actor,
        source=draft.source if made is None else made.source,
        managed_by=changeset.writer,
        reason=None if made is None else made.reason,
        effect=draft.effect,
        evict_after=None if draft.evict_after is None else format_duration(draft.evict_after),
        planned=instant(draft.at),
        expires=instant(draft.expires),
        applied=None if made is None else instant(made.at),
        changes=[change(each) for each in changeset.changes],
    )


def _state(draft: Draft) -> State:
    if draft.state is DraftState.APPLIED:
        return "applied"
    if draft.state is DraftState.DISCARDED:
        return "discarded"
    return "expired" if draft.expired else "planned"


def _report(draft: Draft | None) -> dict[str, Any]:
    """What was told of a plan; of what was applied without one nothing was."""
    told = models.Report(impact_missing="it is told of plans")
    if draft is not None:
        told = models.Report.model_validate(draft.report)
    return {name: getattr(told, name) for name in models.Report.model_fields}


def applied(made: Applied, draft: Draft | None = None) -> models.Changeset:
    """One of the history; `draft`: the plan behind it, while that is kept."""
    return models.Changeset(
        **_report(draft),
        id=str(made.revision),
        state="applied",
        root=root_of(made.changes),
        base_revision=made.revision - 1,
        revision=made.revision,
        reverts=made.reverts,
        actor=made.actor,
        source=made.source,
        managed_by=made.writer,
        reason=made.reason,
        applied=instant(made.at),
        changes=[change(each) for each in made.changes],
    )


async def visible(answer: models.Changeset, asker: Asker) -> models.Changeset:
    """Without the names of jobs whose namespace the caller may not read; their counts and amounts stay."""
    impact = answer.impact
    lists = [answer.victims, *(getattr(impact, name) for name in _OF_IMPACT if impact)]
    readable = await asker.readable({job.namespace for each in lists for job in each.jobs})

    def cut(each: models.Jobs) -> models.Jobs:
        return each.model_copy(update={"jobs": [job for job in each.jobs if job.namespace in readable]})

    seen = impact and impact.model_copy(update={name: cut(getattr(impact, name)) for name in _OF_IMPACT})
    return answer.model_copy(update={"victims": cut(answer.victims), "impact": seen})
