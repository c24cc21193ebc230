"""Follows one workload's steps as far as they go now, and sums up what must be written down for them.

Pure: `landing.next_step` says what follows, here it is taken. Several steps of a moment (patched, landed,
running, finished) become one write.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from queuer.controller.landing.steps import CORRECT, Move, Step, Tally, next_step
from queuer.controller.memory.live import JobView, Live
from queuer.domain.backoff import BackOff
from queuer.domain.workload import Cause, State

_MOST_STEPS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The times that landing depends on, see `settings.Settings`."""

    landing_deadline: float
    avoid: BackOff
    lost_node: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of one workload. `live` is how memory holds it once all is written; None = forgotten.

    `state`: to be written, with `cause`; None = as it was. `suspend`: the job must be suspended. `release`:
    close the ledger. `recharge`: pod sets whose charge changes. `vanished`: the job object is gone.
    `confirm`: only if a consistent read finds no pod of it. `ran`: seconds, where a run has ended by itself.
    """

    before: Live
    live: Live | None
    steps: tuple[Step, ...]
    state: State | None = None
    cause: str = ""
    suspend: bool = False
    release: bool = False
    vanished: bool = False
    confirm: bool = False
    recharge: tuple[str, ...] = ()
    ran: float | None = None

    @property
    def note(self) -> str:
        """The last step's sentence for people."""
        return next((step.note for step in reversed(self.steps) if step.note), "")

    @property
    def hosts(self) -> Mapping[str, Mapping[str, int]] | None:
        """Where its pods run, once all do."""
        return next((step.hosts for step in reversed(self.steps) if step.hosts), None)


def settle(live: Live, job: JobView | None, seen: Tally, *, now: float, limits: Limits) -> Outcome | None:
    """Everything that follows for this workload now; None where nothing does."""
    steps: list[Step] = []
    after: Live | None = live
    while after is not None and len(steps) < _MOST_STEPS:
        step = next_step(after, job, seen, now=now, landing_deadline=limits.landing_deadline)
        if step is None:
            break
        steps.append(step)
        after = _after(after, step, now=now, limits=limits)
        if step.move in (Move.REQUEUE, Move.EVICT, Move.LEFT):
            break  # what comes next depends on how this one is received
    return _sum_up(live, after, tuple(steps), now=now) if steps else None


def _after(live: Live, step: Step, *, now: float, limits: Limits) -> Live | None:
    match step.move:
        case Move.PATCHED:
            return patched(live, now=now)
        case Move.LANDED:
            return replace(live, landed=now, short=step.short, failures=0)
        case Move.RUNNING:
            return replace(live, state=State.RUNNING, running=live.running or now, first=False)
        case Move.DIFFERS:
            sets = tuple(
                replace(p, requests=step.requests.get(p.name, p.requests)) for p in live.workload.pod_sets
            )
            return replace(live, workload=replace(live.workload, pod_sets=sets))
        case Move.RETURNS | Move.RETURNED:
            assert live.placement is not None
            returns = step.move is Move.RETURNS
            reduced = live.placement.reduced if returns else step.held
            due = now + CORRECT if returns else None
            return replace(live, placement=replace(live.placement, reduced=reduced, due=due))
        case Move.SHRUNK:
            return replace(live, short=step.short)
        case Move.WHOLE:
            return replace(live, short=None)
        case Move.EVICT:
            return evicting(_given_up(live, step, now=now, limits=limits), now=now)
        case Move.LEFT:
            return replace(live, state=State.EVICTING, left=now, displaced_by=frozenset())
        case Move.FINISHED:
            assert step.outcome is not None
            ended = replace(live, state=step.outcome, left=live.left or now)
            return ended if live.charged else None
        case Move.VANISHED:
            gone = replace(live, state=State.FAILED, deleted=True, left=live.left or now)
            return gone if live.charged else None
        case Move.REQUEUE:
            return requeued(live)
        case Move.RELEASE:
            return None


def patched(live: Live, *, now: float) -> Live:
    """The job carries the admission."""
    assert live.placement is not None
    return replace(live, state=State.PLACING, placement=replace(live.placement, patched=now))


def requeued(live: Live) -> Live:
    """Back in its queue with its first submit time, one attempt further, holding nothing."""
    state = State.HELD if live.workload.hold else State.QUEUED
    return replace(
        live, state=state, attempt=live.attempt + 1, placement=None,
        landed=None, running=None, short=None, left=None,
    )  # fmt: skip


def evicting(live: Live, *, now: float) -> Live:
    """On its way back: the eviction is committed, its PATCH is still to be confirmed."""
    assert live.placement is not None
    return replace(
        live, state=State.EVICTING, placement=replace(live.placement, unconfirmed=True), left=now,
        evictions=(*live.lately(now=now), now),
    )  # fmt: skip


def _given_up(live: Live, step: Step, *, now: float, limits: Limits) -> Live:
    live = replace(live, displaced_by=frozenset())
    if step.cause is Cause.LANDING_TIMEOUT:
        return failed(live, refused=step.refused, now=now, limits=limits)
    return replace(live, first=True)


def failed(live: Live, *, refused: Collection[str] = (), now: float, limits: Limits) -> Live:
    """After a landing that failed on these nodes, if on any.

    The first time it goes to other nodes at once, first in its line. A gang that fails again, or that no node refused,
    rests for a growing time: what keeps it is most likely the same everywhere.
    """
    failures = live.failures + 1
    pause = limits.avoid.after(failures)
    avoid = {node: end for node, end in live.avoid.items() if end > now} | dict.fromkeys(refused, now + pause)
    elsewhere = failures == 1 and bool(refused)
    rest = None if elsewhere else now + pause
    return replace(live, avoid=avoid, failures=failures, first=elsewhere, rest=rest)


def _sum_up(before: Live, after: Live | None, steps: tuple[Step, ...], *, now: float) -> Outcome:
    moves = {step.move for step in steps}
    vanished = Move.VANISHED in moves
    ended = next((s.outcome for s in steps if s.move is Move.FINISHED), None)
    state = ended or (State.FAILED if vanished and before.charged else None)
    if state is None and after is not None and after.state is not before.state:
        state = after.state
    cause = next((s.cause.value for s in steps if s.cause is not None), Cause.DELETED if vanished else "")
    landed = before.landed is not None or Move.LANDED in moves
    recharge = {name for step in steps for name in step.requests}
    if after is not None and after.placement is not None and before.placement is not None:
        was = before.placement.held
        recharge |= {name for name, count in after.placement.held.items() if was.get(name) != count}
    ran = None
    if ended is not None and before.placement is not None and before.state is not State.EVICTING:
        ran = now - (before.running or before.placement.at)
    return Outcome(
        before=before,
        live=after,
        steps=steps,
        state=state,
        cause=cause,
        suspend=Move.EVICT in moves,
        release=Move.RELEASE in moves,
        recharge=tuple(sorted(recharge)),
        vanished=vanished,
        ran=ran,
        confirm=Move.REQUEUE in moves
        or (Move.RELEASE in moves and (before.deleted or vanished or not landed)),
    )
