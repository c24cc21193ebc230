"""One term of office.

Read everything, finish or take back what earlier leaders left, go round until it is lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import TypeVar

from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from queuer.controller.apply.jobs import ClusterJobs
from queuer.controller.clock import SteadyClock
from queuer.controller.commands import take_up
from queuer.controller.config import follow_objects, follow_revision
from queuer.controller.cycle import past_use
from queuer.controller.cycle.decisions import Decider
from queuer.controller.cycle.snapshot import hosts_in_pin
from queuer.controller.failpoints import Point
from queuer.controller.health.metrics import Metrics
from queuer.controller.health.probes import Health, Phase, write_heartbeat
from queuer.controller.landing.settle import patched
from queuer.controller.ledger import commit
from queuer.controller.ledger.auditor import Auditor, prune, record_use, set_apart
from queuer.controller.ledger.round import Round, effect
from queuer.controller.logs import logger
from queuer.controller.loop import Loop
from queuer.controller.memory.live import HOUR, JobView, Live, live_of
from queuer.controller.memory.state import ClusterState
from queuer.controller.settings import Settings
from queuer.controller.term import Term
from queuer.domain.assignments import Bond, Reservation
from queuer.domain.errors import InvalidInput
from queuer.domain.rules import Rules
from queuer.domain.workload import State
from queuer.kube.client import Client
from queuer.kube.config import Access
from queuer.solver.faults import faults_of_workload
from queuer.store import inherited, ledger, lookup, outbox, workloads
from queuer.store.config import ConfigUnreadable, load_config
from queuer.store.engine import begin
from queuer.store.leader import Leadership, LeadershipLost
from queuer.store.outbox import Entry, Result
from queuer.store.tables import EntryKind, EntryOutcome

T = TypeVar("T", Bond, Reservation)
log = logger("leadership")

_RUNS = 5_000
"""Runs that ended, from which run times are learned at start."""
_AT_ONCE = 500
"""Rows that are taken into memory at a time."""
_AGAIN = 5.0
"""Seconds before a task that failed beside the decisions is started again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The parts that live as long as the process."""

    settings: Settings
    access: Access
    client: Client
    solver: Decider
    metrics: Metrics
    health: Health


async def serve_term(
    leadership: Leadership,
    parts: Parts,
    *,
    state: ClusterState,
    jobs: ClusterJobs,
    engine: AsyncEngine,
    wake: asyncio.Event,
    recall: Callable[[Iterable[Live]], None],
) -> None:
    """Lead until the lock is lost or the task is cancelled. `recall`: tells the watches which workloads are known.

    Raises LeadershipLost or DatabaseUnavailable.
    """
    engine = leadership.engine_of(engine)
    epoch, settings, metrics, health = leadership.epoch, parts.settings, parts.metrics, parts.health
    health.enter(Phase.LISTING)
    await settings.failpoints.at(Point.LEADING)
    async with begin(engine) as connection:
        clock = SteadyClock(await lookup.now(connection))
        left = await load(connection, state, now=clock(), longest=settings.avoid_limit)
        loop = Loop(
            state=state, jobs=jobs, engine=engine, decider=parts.solver, settings=settings, metrics=metrics,
            health=health, epoch=epoch, last_cycle=await inherited.last_cycle(connection), wake=wake,
            clock=clock,
        )  # fmt: skip
    recall([live for live in state.live.values() if not live.state.ended and not live.deleted])
    await loop.recognise()
    async with begin(engine) as connection:
        undone = await inherit(connection, left, loop.term)
    await settings.failpoints.at(Point.INHERITED)
    log.info("leading", epoch=epoch, workloads=len(state.live), undone=len(undone))
    health.enter(Phase.LEADING)
    metrics.leader.set(1)
    metrics.epoch.set(epoch)
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(loop.run(undone), name="loop")
            group.create_task(follow_revision(engine, state), name="rules")
            group.create_task(take_up.follow(engine, state, ordered=loop.term.notes.ordered), name="commands")
            group.create_task(_watch_lock(leadership), name="lock")
            for name, task in _beside(loop, parts, clock=clock, holder=leadership.holder).items():
                group.create_task(_steadily(name, task, metrics), name=name)
    finally:
        metrics.leader.set(0)
        health.enter(Phase.STANDBY)


def _beside(
    loop: Loop, parts: Parts, *, clock: SteadyClock, holder: str
) -> Mapping[str, Callable[[], Awaitable[None]]]:
    """The tasks beside the decisions, by name."""
    term, settings = loop.term, parts.settings
    engine, epoch, state = term.engine, term.epoch, term.state
    auditor = Auditor(
        engine, state, parts.metrics, epoch=epoch, actor=holder, lost_node=settings.lost_node,
        every=settings.audit, failpoints=settings.failpoints, quarantine=term.quarantine,
        clock=term.clock,
    )  # fmt: skip
    beside = {
        "auditor": auditor.run,
        "heartbeat": lambda: write_heartbeat(engine, parts.health, epoch=epoch, holder=holder, clock=clock),
        "queue metrics": lambda: parts.metrics.queues.follow(engine),
        "rollup": lambda: record_use(engine, epoch=epoch, clock=term.clock),
        "retention": lambda: prune(engine, parts.metrics, epoch=epoch, clock=term.clock),
        "former namespaces": lambda: set_apart(engine, term.jobs.known().made, epoch=epoch),
        "past use": lambda: past_use.follow(engine, state, clock=term.clock),
        "recorder": loop.decisions.recorder.write_rows,
        "cycle files": loop.decisions.recorder.write_files,
        "notes": term.notes.run,
        "refusals": term.refusals.run,
    }
    if settings.forecast:
        beside["forecaster"] = loop.decisions.forecaster.run
    if settings.config_crs:
        beside["configuration"] = lambda: follow_objects(
            parts.client, parts.access, engine, epoch=epoch, actor=settings.identity
        )
    return beside


async def _steadily(name: str, task: Callable[[], Awaitable[None]], metrics: Metrics) -> None:
    """Run what goes beside the decisions again and again: its failure must not end the leadership."""
    while True:
        try:
            await task()
        except LeadershipLost:
            raise
        except Exception:
            log.exception("failed, tried again", task=name, after=_AGAIN)
            metrics.failed_tasks.labels(name).inc()
        await asyncio.sleep(_AGAIN)


async def _watch_lock(leadership: Leadership) -> None:
    await leadership.lost.wait()
    raise LeadershipLost(
        "the connection that held the leader lock is gone, or the loop stood still for too long"
    )


def _understood(kind: str, held: Sequence[T]) -> tuple[T, ...]:
    for each in held:
        if not each.assignments:
            log.error(f"{kind} not understood", workload=each.uid)
    return tuple(each for each in held if each.assignments)


async def load(
    connection: AsyncConnection, state: ClusterState, *, now: float, longest: float = inf
) -> list[Entry]:
    """Memory as the database has it; returns the effects whose end is not known. A workload whose row cannot be read is
    quarantined: a waiting one is mended when its job is read again. `longest`: seconds of a rest.
    """
    admissions = await inherited.load_admissions(connection)
    for uid in (uid for uid, placement in admissions.items() if not placement.assignments):
        log.error("admission not understood", workload=uid)
    unread = dict[str, Exception]()
    rows = await workloads.load_live(connection, unread=unread)
    uids = [row.workload.uid for row in rows]
    displacers = await inherited.load_displacers(connection, uids)
    evictions = await inherited.load_evictions(connection, since=now - HOUR)
    held = await ledger.load_held(connection)
    lives = list[Live]()
    for number, (uid, row) in enumerate(zip(uids, rows, strict=True)):
        live = live_of(
            row, admissions.get(uid), displacer=displacers.get(uid), evictions=evictions.get(uid, ()),
            held=held.get(uid, {}),
        )  # fmt: skip
        if live.charged and (wrong := list(faults_of_workload(live.workload))):
            unread[uid] = InvalidInput(*wrong)
            continue
        if row.explanation is not None and live.explanation is None:
            log.error("reason not understood", workload=uid)
        lives.append(live)
        if number % _AT_ONCE == 0:
            await asyncio.sleep(0)  # others have the loop in between
    undone = await outbox.undone(connection)
    leaving = {entry.admission_id for entry in undone if entry.kind is EntryKind.EVICT}
    state.restore(
        [_resumed(_rested(live, latest=now + longest), now=now, leaving=leaving) for live in lives],
        rules=await _rules(connection, state),
        bonds=_understood("bond", await inherited.load_bonds(connection)),
        reservations=_understood("reservation", await inherited.load_reservations(connection)),
    )
    for uid, error in unread.items():
        log.error("workload not understood", workload=uid, said=str(error))
        state.quarantine_one(uid, error, now=now)
    for workload, seconds in await workloads.load_runs(connection, count=_RUNS):
        state.estimates.learn(workload, seconds)
    state.estimate()
    return undone


async def _rules(connection: AsyncConnection, state: ClusterState) -> Rules:
    """The configuration; that of the last term where it cannot be read. Raises ConfigUnreadable if there was none."""
    try:
        return await load_config(connection)
    except ConfigUnreadable as error:
        if state.rules.revision < 0:
            raise
        log.error("configuration not understood", in_force=state.rules.revision, said=str(error))
        return state.rules


def _rested(live: Live, *, latest: float) -> Live:
    """No rest ends later than one that begins now: the clock of an earlier leader may have been ahead."""
    rest = None if live.rest is None else min(live.rest, latest)
    return replace(live, rest=rest, avoid={node: min(end, latest) for node, end in live.avoid.items()})


def _resumed(live: Live, *, now: float, leaving: Container[str]) -> Live:
    """A landing that was under way gets its deadline anew; when it began is not known. An eviction goes on since it was
    made. `leaving`: admissions whose eviction is not confirmed.
    """
    if live.placement is None or live.state is State.ADMITTED:
        return live
    unconfirmed = live.placement.id in leaving
    evicted = [at for at in live.evictions if at >= live.placement.at]
    left = max(evicted, default=now) if live.state is State.EVICTING else live.left
    return replace(live, left=left, placement=replace(live.placement, patched=now, unconfirmed=unconfirmed))


async def inherit(
    connection: AsyncConnection,
    undone: Sequence[Entry],
    term: Term,
) -> tuple[Entry, ...]:
    """The effects of earlier leaders that are still to be sent.

    An admission is sent again while it holds: the job asks for the same and the planned nodes still take it.
    Else it is taken back by a write that makes an earlier leader's late PATCH fail.
    """
    changes, send = Round(term.state.live, now=term.clock()), list[Entry]()
    for entry in undone:
        live, job = term.state.live.get(entry.uid), term.state.jobs.get(entry.uid)
        if live is None or live.placement is None or live.placement.id != entry.admission_id:
            _end(changes, entry, EntryOutcome.WITHDRAWN)
        elif job is None:
            _end(changes, entry, EntryOutcome.GONE)
        elif entry.kind is EntryKind.ADMIT and job.admission == entry.admission_id and not job.gated:
            _end(changes, entry, EntryOutcome.APPLIED, resource_version=job.resource_version)
            if live.state is State.ADMITTED:
                changes.put(live.uid, after=patched(live, now=changes.now))
        elif entry.kind is EntryKind.ADMIT and not _stands(live, job, term):
            _end(changes, entry, EntryOutcome.WITHDRAWN)
            changes.put(live.uid, effects=[effect(EntryKind.WITHDRAW, live, term.jobs.withdraw(live))])
        else:
            send.append(entry)
    entries = await commit.write(connection, changes, term.epoch)
    term.remember(changes)
    return (*send, *entries)


def _end(changes: Round, entry: Entry, outcome: EntryOutcome, *, resource_version: str | None = None) -> None:
    result = Result(entry=entry, outcome=outcome, resource_version=resource_version)
    changes.put(entry.uid, results=[result])


def _stands(live: Live, job: JobView, term: Term) -> bool:
    """Whether an admission may still be sent. Where that cannot be said it may not, and its workload is quarantined."""
    try:
        return term.jobs.as_decided(job) and _holds(live, term.state)
    except Exception as error:  # noqa: BLE001 -- whatever it is, it is told
        term.quarantine({live.uid: error})
        return False


def _holds(live: Live, state: ClusterState) -> bool:
    """Whether every node of the plan still takes the pods that were planned for it."""
    assert live.placement is not None
    terms = {p.name: p.terms for p in live.workload.pod_sets}
    return terms.keys() == live.placement.counts.keys() and all(
        a.nodes.keys()
        <= set(hosts_in_pin(a, terms[a.pod_set], nodes=state.nodes, flavors=state.rules.flavors))
        for a in live.placement.assignments
    )
