"""From what was heard to what must be written: results of PATCHes and the steps of the workloads touched."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import ceil
from typing import Any

from queuer.controller.apply.jobs import ClusterJobs
from queuer.controller.apply.made_jobs import left_patch
from queuer.controller.landing.confirm import Confirmer
from queuer.controller.landing.settle import SettleResult, evicting, failed, patched, requeued, settle
from queuer.controller.landing.steps import Move, is_full, missing_claim
from queuer.controller.landing.tally import tally
from queuer.controller.ledger.round import Round, effect
from queuer.controller.logs import logger
from queuer.controller.memory.live import JobView, Live
from queuer.controller.memory.pods import PodView
from queuer.controller.memory.state import ClusterState
from queuer.controller.settings import Settings
from queuer.domain.reasons import LONGEST, Explanation, Reason, Token, moment, simple
from queuer.domain.reasons.job_sentences import REFUSES
from queuer.domain.workload import Cause, State
from queuer.store.outbox import Effect, Result
from queuer.store.tables import EntryKind, EntryOutcome, NotAsked

log = logger("landing")


def take_results(
    changes: Round, results: Iterable[Result], *, state: ClusterState, jobs: ClusterJobs, limits: Settings
) -> None:
    """Write down how PATCHes ended, and what follows where they did not go through."""
    for result in results:
        changes.put(result.entry.uid, results=[result])
        state.touch(result.entry.uid)
        with changes.isolate(result.entry.uid):
            _take_result(changes, result, state=state, jobs=jobs, limits=limits)


def _take_result(
    changes: Round, result: Result, *, state: ClusterState, jobs: ClusterJobs, limits: Settings
) -> None:
    entry = result.entry
    live = changes.live(entry.uid)
    placement = live.placement if live is not None else None
    if live is None or placement is None or placement.id != entry.admission_id:
        return
    if tells_refusal(live):  # this write is tried no more
        live = replace(live, explanation=None)
        changes.put(live.uid, after=live)
    match entry.kind, result.outcome:
        case EntryKind.ADMIT, EntryOutcome.APPLIED if live.state is State.ADMITTED:
            changes.put(live.uid, after=patched(live, now=changes.now))
        case EntryKind.ADMIT, EntryOutcome.CONFLICT | EntryOutcome.INVALID if live.state is State.ADMITTED:
            _withdraw(changes, live, result, state=state, jobs=jobs, limits=limits)
        case EntryKind.EVICT, _:
            changes.put(live.uid, after=replace(live, placement=replace(placement, unconfirmed=False)))
        case EntryKind.WITHDRAW, EntryOutcome.APPLIED:
            changes.put(live.uid, after=requeued(live), cause=Cause.WITHDRAWN)


def _withdraw(
    changes: Round, live: Live, result: Result, *, state: ClusterState, jobs: ClusterJobs, limits: Settings
) -> None:
    """Take an admission back that did not reach the job.

    A write that moves its resourceVersion, then the ledger. A job that is gone needs neither.
    """
    if live.uid not in state.jobs:
        return
    after = live
    if result.outcome is EntryOutcome.INVALID:
        text = f"the API server refused to start the job: {result.message}"
        after = _explained(failed(live, now=changes.now, limits=limits), text)
    if jobs.gated(live):  # some of its pods may have started: it is back in its queue when they are gone
        given_up = evicting(after, now=changes.now)
        undo = [effect(EntryKind.EVICT, live, jobs.evict(live))]
        changes.put(live.uid, after=given_up, effects=undo, cause=Cause.WITHDRAWN)
        return
    changes.put(live.uid, after=after, effects=[effect(EntryKind.WITHDRAW, live, jobs.withdraw(live))])


def _explained(live: Live, text: str) -> Live:
    """With the reason why it was taken back, and when it is tried again."""
    if live.rest is None:
        return replace(live, explanation=simple(Token.ADMITTED_NOT_PLACED, text, **_claim(text)))
    return replace(live, explanation=resting(live, text))


def _claim(said: str) -> dict[str, str]:
    """The missing PersistentVolumeClaim as a parameter."""
    found = missing_claim(said)
    return {} if found is None else {"claim": found}


def resting(live: Live, why: str = "") -> Explanation:
    """The explanation of a workload that rests after starts that failed, or after it was sent back by command. One that
    it has of this rest stays, unless there is another one.
    """
    assert live.rest is not None
    again = ceil(live.rest)
    at = moment(again)
    told = live.explanation
    if not why and told is not None and told.primary.params.get("retryAt") == again:
        return told
    why = why or ("it could not start" if live.failures else "it was evicted by order")
    if not live.failures:
        return simple(Token.PENDING_EVALUATION, f"{why[:LONGEST]}; considered again from {at}", retryAt=again)
    claim = _claim(why)
    owner = f"; its owner has to create PersistentVolumeClaim {claim['claim']}" if claim else ""
    text = (
        f"{why[:LONGEST]}{owner}. Start {live.failures} in a row that failed; tried again at {at}, "
        "or as soon as the job is edited, or held and released"
    )
    return simple(Token.ADMITTED_NOT_PLACED, text, failures=live.failures, retryAt=again, **claim)


def stuck(live: Live, why: str, **params: Any) -> Explanation:
    """The explanation of a workload that does not leave, or does not start. It is still told until when it rests."""
    if live.rest is None:
        return simple(Token.ADMITTED_NOT_PLACED, why[:LONGEST], **params)
    again = ceil(live.rest)
    text = f"{why[:LONGEST]}; considered again from {moment(again)}"
    return simple(Token.ADMITTED_NOT_PLACED, text, retryAt=again, **params)


def tells_refusal(live: Live) -> bool:
    """Whether its explanation says that the API server refuses a write."""
    return live.explanation is not None and live.explanation.primary.text.startswith(REFUSES)


def settle_touched(
    changes: Round,
    uids: Sequence[str],
    *,
    state: ClusterState,
    jobs: ClusterJobs,
    confirmer: Confirmer,
    limits: Settings,
) -> None:
    """Take every step that follows for these workloads now; what a consistent read must confirm, once it has."""
    for uid in uids:
        live = changes.live(uid)
        if live is None:
            _note_gone(changes, uid, state)
            continue
        with changes.isolate(uid):
            if live.state.waiting and _opted_out(changes, live, state.elsewhere.get(uid)):
                continue
            pods = state.holding(live.workload, now=changes.now, lost_after=limits.lost_node)
            seen = tally(pods)
            if uid in state.failures and is_full(live, seen):
                del state.failures[uid]  # the pod that failed is replaced
            seen = replace(seen, refused=state.refusals.get(uid, ""), failed=state.failures.get(uid, ""))
            found = settle(live, state.jobs.get(uid), seen, now=changes.now, limits=limits)
            confirmed = confirmer.take_word(uid)
            if found is None:
                continue
            if found.confirm and not confirmed:
                confirmer.ask(live)
                continue
            _write_down(changes, live, found, pods, jobs=jobs)
            if found.after.is_over:
                _note_gone(changes, uid, state)


def _opted_out(changes: Round, live: Live, job: JobView | None) -> bool:
    """Whether its job, in a namespace that takes no part any more, is still there. Then it keeps its state and its
    submit time, for when the namespace opts in again, and is told why it is in no line.
    """
    if job is None or job.deleting or job.outcome is not None:
        return False
    told = {} if live.explanation is None else live.explanation.primary.params
    since, namespace = told.get("unmanagedSince", changes.now), live.workload.namespace
    params = {"namespace": namespace, "unmanagedSince": since, "started": not job.suspended}
    why = Explanation(primary=Reason(Token.SUSPENDED, params))
    if live.not_asked is not NotAsked.MISCONFIGURED or live.explanation != why:
        after = replace(live, not_asked=NotAsked.MISCONFIGURED, explanation=why)
        changes.put(live.uid, after=after, reread=True)
    return True


def _note_gone(changes: Round, uid: str, state: ClusterState) -> None:
    """Of a workload that has ended, only whether its job is still there is written down from then on."""
    if uid not in state.jobs and uid not in state.elsewhere:
        changes.put(uid, gone=True)


def _write_down(
    changes: Round, live: Live, found: SettleResult, pods: Iterable[PodView], *, jobs: ClusterJobs
) -> None:
    after, effects = found.after, list[Effect]()
    if Move.EVICT in found.moves:
        effects = [effect(EntryKind.EVICT, live, jobs.evict(live))]
        after = _explained(after, f"evicted: {found.note}")
    elif Move.TAKE_DOWN in found.moves:
        effects = [effect(EntryKind.EVICT, live, left_patch(pods))]
        after = replace(after, explanation=stuck(live, found.note))
    elif Move.SHRUNK in found.moves and live.landed is not None and jobs.gated(live):
        effects = [effect(EntryKind.ADMIT, live, jobs.admit_again(live))]
    changes.put(
        live.uid, after=after, effects=effects, cause=found.cause, note=found.note, hosts=found.hosts,
        ran=found.ran, gone=Move.VANISHED in found.moves, lost=found.lost,
    )  # fmt: skip
    if found.note:
        log.info("step", workload=live.uid, queue=live.workload.queue, moves=[s.move for s in found.steps],
                 said=found.note)  # fmt: skip
