"""New and edited jobs: read, checked against the queues, written down.

Nothing that a user writes can crash this.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from queuer.controller.apply.jobs import ClusterJobs
from queuer.controller.intake.checks import check
from queuer.controller.ledger.batch import Batch
from queuer.controller.memory.live import JobView, Live
from queuer.controller.memory.state import ClusterState
from queuer.domain.errors import InvalidInput
from queuer.domain.reasons import Explanation, Token, malformed, simple
from queuer.domain.workload import State
from queuer.store.workloads import Intake


def take_in(batch: Batch, uids: Iterable[str], *, state: ClusterState, jobs: ClusterJobs) -> None:
    """Read these jobs, where they wait or are new, into the batch."""
    for uid in uids:
        job, known = state.jobs.get(uid), batch.view(uid, state.live)
        if job is None or job.outcome is not None or (known is not None and not known.state.waiting):
            continue
        found = read(job, known, state=state, jobs=jobs)
        if known is not None and _same(known, found):
            continue
        batch.intakes.append(
            Intake(
                workload=found.workload,
                template=found.template,
                resource_version=job.resource_version,
                state=found.state,
                explanation=found.explanation,
            )
        )
        batch.after[uid] = found


def read(job: JobView, known: Live | None, *, state: ClusterState, jobs: ClusterJobs) -> Live:
    """The workload that a waiting job asks for, with what is wrong with it as its explanation."""
    explanation: Explanation | None = None
    try:
        workload = jobs.workload(job)
    except InvalidInput as error:
        workload, explanation = jobs.bare_workload(job), malformed(error.problems)
    else:
        facts = jobs.facts(job)
        explanation = check(workload, state.rules, state.nodes.values(), facts=facts, before=known)
    if known is None:
        workload = replace(workload, estimate=state.estimates.of(workload))
    else:
        workload = replace(workload, submitted=known.workload.submitted, estimate=known.workload.estimate)
    waiting = State.HELD if workload.hold else State.QUEUED
    if explanation is None and workload.hold:
        text = "held by the annotation queuer.dev/hold; remove it to release the job"
        explanation = simple(Token.ON_HOLD, text)
    template = jobs.template(job)
    if known is None:
        return Live(workload=workload, state=waiting, template=template, explanation=explanation)
    if explanation is None and workload == known.workload and not _settled_here(known):
        explanation = known.explanation  # the decision's word stands until the next one
    return replace(known, workload=workload, state=waiting, template=template, explanation=explanation)


def _settled_here(live: Live) -> bool:
    """Whether its explanation was given at intake rather than by a decision."""
    tokens = (Token.MISCONFIGURED, Token.ON_HOLD)
    return live.explanation is not None and live.explanation.primary.token in tokens


def _same(known: Live, found: Live) -> bool:
    return (known.workload, known.state, known.template, known.explanation) == (
        found.workload, found.state, found.template, found.explanation,
    )  # fmt: skip
