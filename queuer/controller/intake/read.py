"""New and edited jobs: read, checked against the queues, given their place in line, written down.

Nothing that a user writes can crash this.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import cache

from queuer.controller.apply.jobs import ClusterJobs
from queuer.controller.intake.checks import check
from queuer.controller.ledger.batch import Batch
from queuer.controller.memory.live import JobView, Live
from queuer.controller.memory.state import ClusterState
from queuer.domain.errors import InvalidInput
from queuer.domain.override import Override, overridden
from queuer.domain.reasons import LONGEST, Explanation, Token, malformed, simple
from queuer.domain.workload import State
from queuer.store.workloads import Intake

_RELEASED = State.HELD, State.QUEUED


def take_in(batch: Batch, uids: Iterable[str], *, state: ClusterState, jobs: ClusterJobs) -> None:
    """Read these jobs, where they wait or are new, into the batch."""
    for uid in uids:
        job, known = state.jobs.get(uid), batch.view(uid, state.live)
        if job is None or job.outcome is not None or (known is not None and not known.state.waiting):
            continue
        with batch.apart(uid):
            found = _in_line(read(job, known, state=state, jobs=jobs), state)
            if known is None or not _same(known, found):
                batch.intakes.append(_intake(found, job))
                batch.after[uid] = found


def _intake(live: Live, job: JobView) -> Intake:
    return Intake(
        workload=live.workload,
        template=live.template,
        resource_version=job.resource_version,
        state=live.state,
        explanation=live.explanation,
    )


def _in_line(live: Live, state: ClusterState) -> Live:
    """Give what is to be decided on its place in line, and tell what is beyond `maxPending` so."""
    own = live.workload
    wrong = live.explanation is not None and live.explanation.primary.token is Token.MISCONFIGURED
    waits = live.state is State.QUEUED and not wrong
    state.read_again(state.lines.put(own) if waits else state.lines.discard(own.uid))
    if own.uid not in state.lines.beyond:
        return live
    return replace(live, explanation=_beyond(own.queue, own.namespace, state.rules.max_pending(own.queue)))


@cache
def _beyond(queue: str, namespace: str, most: int) -> Explanation:
    text = f"{most} jobs of namespace {namespace} wait in {queue} before this one, as many as are considered at a time"
    said = f"{text} (maxPending {most}); it is considered when some of them have started or gone."
    return simple(Token.BEHIND_IN_QUEUE, said, queue=queue, namespace=namespace, maxPending=most)


def read(job: JobView, known: Live | None, *, state: ClusterState, jobs: ClusterJobs) -> Live:
    """The workload that a waiting job asks for, with what is wrong with it as its explanation."""
    explanation: Explanation | None = None
    override = None if known is None else known.override
    try:
        workload = overridden(jobs.workload(job), override)
    except InvalidInput as error:
        workload, explanation = overridden(jobs.bare_workload(job), override), malformed(error.problems)
    else:
        facts = jobs.facts(job)
        explanation = check(workload, state.rules, state.nodes.values(), facts=facts, before=known)
    if known is None:
        workload = replace(workload, estimate=state.estimates.of(workload))
    else:
        workload = replace(workload, submitted=known.workload.submitted, estimate=known.workload.estimate)
    waiting = State.HELD if workload.hold else State.QUEUED
    if explanation is None and workload.hold:
        explanation = _on_hold(override)
    template = jobs.template(job)
    if known is not None and (workload != known.workload or (known.state, waiting) == _RELEASED):
        known = replace(known, avoid={}, failures=0, rest=None)  # its owner has done something about it
    if known is None:
        return Live(workload=workload, state=waiting, template=template, explanation=explanation)
    if explanation is None and workload == known.workload and not _settled_here(known):
        explanation = known.explanation  # the decision's word stands until the next one
    return replace(known, workload=workload, state=waiting, template=template, explanation=explanation)


def _on_hold(override: Override | None) -> Explanation:
    if override is None or not override.hold:
        return simple(Token.ON_HOLD, "held by the annotation queuer.dev/hold; remove it to release the job")
    why = f": {override.reason[:LONGEST]}" if override.reason else ""
    return simple(Token.ON_HOLD, f"held by {override.by}{why}; `queuer release` lets it go")


def _settled_here(live: Live) -> bool:
    """Whether its explanation was given at intake rather than by a decision."""
    if live.explanation is None:
        return False
    primary = live.explanation.primary
    tokens = (Token.MISCONFIGURED, Token.ON_HOLD, Token.QUARANTINED)
    return primary.token in tokens or "maxPending" in primary.params


def _same(known: Live, found: Live) -> bool:
    return (known.workload, known.state, known.template, known.explanation) == (
        found.workload, found.state, found.template, found.explanation,
    )  # fmt: skip
