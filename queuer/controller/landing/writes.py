"""From what was heard to what must be written: results of PATCHes and the steps of the workloads touched."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from math import ceil

from queuer.controller.apply.jobs import ClusterJobs
from queuer.controller.health.metrics import Metrics, queue_label
from queuer.controller.landing.confirm import Confirmer
from queuer.controller.landing.settle import Limits, Outcome, failed, patched, requeued, settle
from queuer.controller.landing.steps import tally
from queuer.controller.ledger.batch import Batch
from queuer.controller.ledger.rows import charges
from queuer.controller.logs import logger
from queuer.controller.memory.live import Live
from queuer.controller.memory.state import ClusterState
from queuer.domain.queue import QueueTree
from queuer.domain.reasons import LONGEST, Explanation, Token, simple
from queuer.domain.workload import Cause, State
from queuer.store.cycles import NewEviction
from queuer.store.ledger import LedgerRow
from queuer.store.outbox import Effect, Result
from queuer.store.tables import EntryKind
from queuer.store.tables import Outcome as Ended
from queuer.store.workloads import StateChange

log = logger("landing")


def take_results(
    batch: Batch, results: Iterable[Result], *, state: ClusterState, jobs: ClusterJobs, limits: Limits
) -> None:
    """Write down how PATCHes ended, and what follows where they did not go through."""
    for result in results:
        batch.results.append(result)
        state.touch(result.entry.uid)
        with batch.apart(result.entry.uid):
            _take_result(batch, result, state=state, jobs=jobs, limits=limits)


def _take_result(
    batch: Batch, result: Result, *, state: ClusterState, jobs: ClusterJobs, limits: Limits
) -> None:
    entry = result.entry
    live = batch.view(entry.uid, state.live)
    if live is None or live.placement is None or live.placement.id != entry.admission_id:
        return
    match entry.kind, result.outcome:
        case EntryKind.ADMIT, Ended.APPLIED if live.state is State.ADMITTED:
            batch.after[live.uid] = patched(live, now=batch.now)
        case EntryKind.ADMIT, Ended.CONFLICT | Ended.INVALID if live.state is State.ADMITTED:
            _withdraw(batch, live, result, state=state, jobs=jobs, limits=limits)
        case EntryKind.EVICT, _:
            confirmed = replace(live.placement, unconfirmed=False)
            batch.after[live.uid] = replace(live, placement=confirmed)
        case EntryKind.WITHDRAW, Ended.APPLIED:
            change = StateChange(
                uid=live.uid, state=requeued(live).state, at=batch.now, cause=Cause.WITHDRAWN
            )
            batch.changes[live.uid] = change
            batch.release.append(live.uid)  # a later step of this round may take the change's place
            batch.after[live.uid] = requeued(live)


def _withdraw(
    batch: Batch, live: Live, result: Result, *, state: ClusterState, jobs: ClusterJobs, limits: Limits
) -> None:
    """Take an admission back that did not reach the job.

    A write that moves its resourceVersion, then the ledger. A job that is gone needs neither.
    """
    if live.uid not in state.jobs:
        return
    batch.effects.append(
        Effect(
            kind=EntryKind.WITHDRAW,
            uid=live.uid,
            admission_id=result.entry.admission_id,
            patch=jobs.withdraw(live),
        )
    )
    if result.outcome is Ended.INVALID:
        text = f"the API server refused to start the job: {result.message}"
        _explain(batch, failed(live, now=batch.now, limits=limits), text)


def _explain(batch: Batch, live: Live, text: str) -> None:
    """Say why it was taken back, and when it is tried again."""
    explanation = simple(Token.ADMITTED_NOT_PLACED, text) if live.rest is None else resting(live, text)
    batch.explanations[live.uid] = explanation
    batch.after[live.uid] = replace(live, explanation=explanation)


def resting(live: Live, why: str = "it could not start") -> Explanation:
    """The explanation of a workload that rests after starts that failed, or after it was sent back by command."""
    assert live.rest is not None
    again = ceil(live.rest)
    at = f"{datetime.fromtimestamp(again, tz=UTC):%Y-%m-%d %H:%M:%S} UTC"
    if not live.failures:
        return simple(Token.PENDING_EVALUATION, f"{why[:LONGEST]}; considered again from {at}", retryAt=again)
    text = (
        f"{why[:LONGEST]}. Start {live.failures} in a row that failed; tried again at {at}, "
        "or as soon as the job is edited, or held and released"
    )
    return simple(Token.ADMITTED_NOT_PLACED, text, failures=live.failures, retryAt=again)


def settle_touched(
    batch: Batch,
    uids: Sequence[str],
    *,
    state: ClusterState,
    jobs: ClusterJobs,
    confirmer: Confirmer,
    limits: Limits,
    metrics: Metrics,
) -> None:
    """Take every step that follows for these workloads now; what a consistent read must confirm, once it has."""
    for uid in uids:
        live = batch.view(uid, state.live)
        if live is None:
            _note_gone(batch, uid, state)
            continue
        with batch.apart(uid):
            pods = state.holding(live.workload, now=batch.now, lost_after=limits.lost_node)
            seen = tally(pods)
            outcome = settle(live, state.jobs.get(uid), seen, now=batch.now, limits=limits)
            confirmed = confirmer.take_word(uid)
            if outcome is None:
                continue
            if outcome.confirm and not confirmed:
                confirmer.ask(live)
                continue
            _write_down(batch, outcome, jobs=jobs)
            if outcome.live is None:
                _note_gone(batch, uid, state)
            if outcome.ran is not None:
                batch.ran.append((outcome.before.workload, outcome.ran))
            _observe(outcome, batch, metrics, state.rules.tree)


def _note_gone(batch: Batch, uid: str, state: ClusterState) -> None:
    """Of a workload that has ended, only whether its job is still there is written down from then on."""
    if uid not in state.jobs and uid not in state.elsewhere and uid not in batch.forget:
        batch.forget.append(uid)


def _write_down(batch: Batch, outcome: Outcome, *, jobs: ClusterJobs) -> None:
    before, uid = outcome.before, outcome.before.uid
    if outcome.suspend:
        batch.evictions.append(
            NewEviction(uid=uid, cause=outcome.cause, patch=jobs.evict(before), note=outcome.note)
        )
    elif outcome.state is not None:
        batch.changes[uid] = StateChange(
            uid=uid,
            state=outcome.state,
            at=batch.now,
            cause=outcome.cause,
            hosts=outcome.hosts,
        )
    if outcome.recharge and outcome.live is not None and not outcome.release:
        batch.recharges += _recharges(outcome.live, outcome.recharge, at=batch.now)
    if outcome.vanished:
        batch.forget.append(uid)
    if outcome.release:
        batch.release.append(uid)
    batch.after[uid] = outcome.live
    if outcome.live is not None and outcome.suspend:
        _explain(batch, outcome.live, f"evicted: {outcome.note}")
    if outcome.note:
        log.info("step", workload=uid, queue=before.workload.queue, moves=[s.move for s in outcome.steps],
                 said=outcome.note)  # fmt: skip


def _recharges(live: Live, names: tuple[str, ...], *, at: float) -> list[LedgerRow]:
    assert live.placement is not None
    return [
        LedgerRow(
            uid=live.uid, attempt=live.attempt, queue=live.workload.queue, pod_set=charge.pod_set,
            flavor=charge.flavor, count=charge.count, amounts=charge.amounts, opened=at,
        )
        for charge in charges(live.workload, live.placement.assignments, held=live.placement.held)
        if charge.pod_set in names
    ]  # fmt: skip


def _observe(outcome: Outcome, batch: Batch, metrics: Metrics, tree: QueueTree) -> None:
    before, after = outcome.before, outcome.live
    if outcome.suspend or outcome.state is State.EVICTING:
        metrics.evictions.labels(queue_label(before.workload.queue, tree), outcome.cause).inc()
    if after is not None and after.landed == batch.now and after.placement and after.placement.patched:
        metrics.placing.observe(batch.now - after.placement.patched)
