"""The answer about one job: its record, the word of the newest stored cycle, and the next step of its reader."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from queuer.api.identity.rights import Asker
from queuer.api.workloads import models
from queuer.api.workloads.detail import Detail, WouldAdmit
from queuer.api.workloads.paragraphs import paragraphs
from queuer.api.workloads.views import Recorded
from queuer.domain.estimates import FORETOLD
from queuer.domain.reasons import (
    ROWS,
    AdvisedJob,
    Explanation,
    JobChange,
    Verdict,
    hide,
    look_at,
    namespaces_in,
)
from queuer.domain.workload import State

_ON_NODES = frozenset({State.ADMITTED, State.PLACING, State.RUNNING, State.EVICTING})


async def explained(
    found: Recorded, told: Explanation | None, asker: Asker, *, silent: str = ""
) -> models.WorkloadDetail:
    """The workload with what the newest stored cycle tells of it, in words, as this caller may have it.

    An edit or another cycle may have come since that cycle; then it tells nothing. Tables name no job of another
    namespace anyhow, but a cycle knows all of them. `silent`: why no answer came about the cycle.
    """
    job, recorded = found.detail, found.detail.explanation
    primary = recorded.primary
    if primary is None or told is None or told.primary.token is not primary.token:
        told = None
    detail: Mapping[str, Any] = recorded.detail.model_dump(exclude_unset=True)
    named = {*namespaces_in(detail), *namespaces_in(told)}
    readable = (await asker.readable(named)).__contains__ if named else named.__contains__
    told, detail = hide(told, readable), hide(detail, readable)
    more: dict[str, Any] = {}
    if primary is not None and told is not None:
        job = job.model_copy(update={"reason": models.Reason.from_record(told.primary)})
        primary = models.ReasonDetail.from_record(told.primary).model_copy(update={"since": primary.since})
        more = {"verdict": told.verdict, "primary": primary}
        more["others"] = [models.ReasonDetail.from_record(other) for other in told.others]
        more["would_admit"] = [WouldAdmit.from_record(change) for change in told.would_admit]
        detail = {**told.detail, **detail}
    explanation = recorded.model_copy(update={**more, "detail": Detail.model_validate(detail)})
    more = {"next": _next_step(job, primary, told.would_admit if told else ())}
    unknown = f"not known just now: {silent}" if silent else _no_estimate(explanation)
    more["detail"] = explanation.detail.model_copy(update={"no_estimate": unknown})
    explanation = explanation.model_copy(update=more)
    more = {"paragraphs": paragraphs(job.model_copy(update={"explanation": explanation}), found.past)}
    return job.model_copy(update={"explanation": explanation.model_copy(update=more)})


def _next_step(
    job: models.WorkloadDetail, primary: models.ReasonDetail | None, would_admit: Sequence[JobChange]
) -> str:
    """The token of a job that waits says the step; any other job is looked at."""
    advised = AdvisedJob(
        uid=job.uid,
        kind=job.kind,
        namespace=job.namespace,
        name=job.name,
        queue=job.queue,
        params=primary.params if primary else {},
        changes=would_admit,
        commanded=job.override is not None and bool(job.override.hold),
    )
    if primary is None:
        return look_at(advised, runs=job.state in _ON_NODES)
    return ROWS[primary.token].next(advised)


def _no_estimate(told: models.Explanation) -> str:
    """Why a job that waits for others is told no time."""
    detail = told.detail
    if told.verdict is not Verdict.WAIT or detail.estimate is not None:
        return ""
    if any(holder.workload and holder.ends is None and not holder.leaving for holder in detail.holders):
        return "no estimate: who holds what it lacks declares no end"
    if detail.ahead is not None and detail.ahead.gangs >= FORETOLD:
        return f"no estimate: it is worked out for the first {FORETOLD} of a queue"
    return "no estimate: it is not known when room is given back" if detail.holders else ""
