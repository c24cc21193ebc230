"""Follows one workload's steps as far as they go now, and sums them up.

Pure: `steps.next_step` says what follows, here it is taken. Several steps of a moment (patched, landed, running,
finished) become one change of the round.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from queuer.controller.landing.steps import CORRECT, Move, Step, next_step
from queuer.controller.landing.tally import Tally
from queuer.controller.memory.live import JobView, Live
from queuer.controller.settings import Settings
from queuer.domain.assignments import Placement
from queuer.domain.workload import Cause, State

_MOST_STEPS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class SettleResult:
    """The result for one workload: `after` is how memory holds it once the steps are written.

    `confirm`: the steps count only if a consistent read finds no pod of it. `ran`: seconds, where a run has ended by
    itself.
    """

    after: Live
    steps: tuple[Step, ...]
    confirm: bool = False
    ran: float | None = None

    @property
    def moves(self) -> frozenset[Move]:
        """Its steps by kind."""
        return frozenset(step.move for step in self.steps)

    @property
    def note(self) -> str:
        """The last step's sentence for people."""
        return next((step.note for step in reversed(self.steps) if step.note), "")

    @property
    def lost(self) -> str:
        """A sentence about the pods that it misses, where it is the first since all ran."""
        return next((step.note for step in self.steps if step.move is Move.SHRUNK), "")

    @property
    def cause(self) -> str:
        """Why it is evicted or ends, where not by itself."""
        other = Cause.DELETED if Move.VANISHED in self.moves else ""
        return next((step.cause for step in self.steps if step.cause is not None), other)

    @property
    def hosts(self) -> Mapping[str, Mapping[str, int]] | None:
        """Where its pods run, once all do."""
        return next((step.hosts for step in reversed(self.steps) if step.hosts), None)


def settle(
    live: Live, job: JobView | None, seen: Tally, *, now: float, limits: Settings
) -> SettleResult | None:
    """Everything that follows for this workload now; None where nothing does."""
    steps, after = list[Step](), live
    while len(steps) < _MOST_STEPS:
        step = next_step(after, job, seen, now=now, limits=limits)
        if step is None:
            break
        steps.append(step)
        after = _after(after, step, now=now, limits=limits)
        if after.is_over or step.move in (Move.REQUEUE, Move.EVICT, Move.LEFT):
            break  # what comes next depends on how this one is received
    return _sum_up(live, after, tuple(steps), now=now) if steps else None


def _after(live: Live, step: Step, *, now: float, limits: Settings) -> Live:
    match step.move:
        case Move.PATCHED:
            return patched(live, now=now)
        case Move.LANDED:
            return replace(live, landed=now, short=step.short)
        case Move.RUNNING:
            runs = live.state.to(State.RUNNING)
            return replace(live, state=runs, running=live.running or now, first=False, failures=0)
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
            return replace(live, state=live.state.to(State.EVICTING), left=now, displaced_by=frozenset())
        case Move.TAKE_DOWN:
            assert live.placement is not None
            return replace(live, taken_down=now, placement=replace(live.placement, unconfirmed=True))
        case Move.FINISHED:
            assert step.outcome is not None
            return replace(live, state=live.state.to(step.outcome), left=live.left or now)
        case Move.VANISHED:
            ended = live.state.to(State.FAILED) if live.charged else live.state
            return replace(live, state=ended, deleted=True, left=live.left or now)
        case Move.REQUEUE:
            return requeued(live)
        case Move.RELEASE:
            return replace(live, placement=None)


def admitted(live: Live, placement: Placement) -> Live:
    """The workload once it is admitted there."""
    state = live.state.to(State.ADMITTED)
    return replace(live, state=state, placement=placement, explanation=None, rest=None, not_asked=None)


def patched(live: Live, *, now: float) -> Live:
    """The job carries the admission."""
    assert live.placement is not None
    return replace(live, state=live.state.to(State.PLACING), placement=replace(live.placement, patched=now))


def requeued(live: Live) -> Live:
    """Back in its queue with its first submit time, one attempt further, holding nothing."""
    state = State.HELD if live.workload.hold else State.QUEUED
    return replace(
        live, state=live.state.to(state), attempt=live.attempt + 1, placement=None,
        landed=None, running=None, short=None, left=None, taken_down=None,
    )  # fmt: skip


def evicting(live: Live, *, now: float) -> Live:
    """On its way out: the eviction is committed, its PATCH is still to be confirmed. Work that has ended stays so."""
    assert live.placement is not None
    state = live.state if live.state.ended else live.state.to(State.EVICTING)
    return replace(
        live, state=state, placement=replace(live.placement, unconfirmed=True),
        left=now, evictions=(*live.lately(now=now), now),
    )  # fmt: skip


def _given_up(live: Live, step: Step, *, now: float, limits: Settings) -> Live:
    live = replace(live, displaced_by=frozenset())
    if step.cause is Cause.LANDING_TIMEOUT:
        return failed(live, refused=step.refused, now=now, limits=limits)
    return live if step.cause is Cause.SUSPENDED else replace(live, first=True)


def failed(live: Live, *, refused: Collection[str] = (), now: float, limits: Settings) -> Live:
    """After a landing that failed on these nodes, if on any.

    The first time it goes to other nodes at once, first in its line. A gang that fails again, or that no node refused,
    rests for a growing time: what keeps it is most likely the same everywhere.
    """
    failures = live.failures + 1
    pause = limits.pauses.after(failures)
    avoid = {node: end for node, end in live.avoid.items() if end > now} | dict.fromkeys(refused, now + pause)
    elsewhere = failures == 1 and bool(refused)
    rest = None if elsewhere else now + pause
    return replace(live, avoid=avoid, failures=failures, first=elsewhere, rest=rest)


def _sum_up(before: Live, after: Live, steps: tuple[Step, ...], *, now: float) -> SettleResult:
    found = SettleResult(after=after, steps=steps)
    landed = before.landed is not None or Move.LANDED in found.moves
    ran = None
    if Move.FINISHED in found.moves and before.placement and before.state is not State.EVICTING:
        ran = now - (before.running or before.placement.at)
    sure = landed and not before.deleted and Move.VANISHED not in found.moves
    confirm = Move.REQUEUE in found.moves or (Move.RELEASE in found.moves and not sure)
    return replace(found, confirm=confirm, ran=ran)
