"""Writes a round in one transaction. Where that fails, the workload at fault is found, so that it costs nobody else.

The decision, landing, intake, commands and adoption all end here. `Term.commit` calls it and tells memory afterwards.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from queuer.controller.ledger.round import Change, Isolated, Round
from queuer.domain.errors import Conflict
from queuer.store import commands, cycles, events, ledger, outbox, transitions, workloads
from queuer.store.config import RulesMoved, check_revision
from queuer.store.engine import DatabaseUnavailable, begin, sqlstate
from queuer.store.leader import LeadershipLost
from queuer.store.outbox import Entry
from queuer.store.workloads import Intake

_OF_VALUES = ("22", "23", "54")
"""Classes of SQLSTATE about a value: wrong data, a broken constraint, too long."""


class _RolledBack(Exception):
    """Ends a transaction that was only tried."""


async def commit(engine: AsyncEngine, changes: Round, *, epoch: int) -> tuple[Entry, ...]:
    """Write all of a round in one transaction, or nothing. Returns the effects to send now.

    Raises Isolated naming the workloads at fault; LeadershipLost, DatabaseUnavailable, RulesMoved; and what is nobody's
    fault.
    """
    try:
        async with begin(engine) as connection:
            return await write(connection, changes, epoch)
    except Exception as error:
        raise Isolated(await _at_fault(engine, error, changes, epoch)) from error


async def _at_fault(
    engine: AsyncEngine, error: Exception, changes: Round, epoch: int
) -> dict[str, Exception]:
    """The workloads that `error` names, else those whose change fails alone; each is tried and rolled back.

    Raises `error` where it is nobody's fault: the leadership or the database is lost, or no change fails alone. Also
    where each of several fails with one SQLSTATE that no value causes.
    """
    if isinstance(error, LeadershipLost | DatabaseUnavailable | RulesMoved):
        raise error
    if isinstance(error, Conflict) and (named := error.uids & changes.uids):
        return dict.fromkeys(sorted(named), error)
    found = dict[str, Exception]()
    uids = changes.uids
    for uid in sorted(uids):
        try:
            async with begin(engine) as connection:
                await write(connection, changes.only(uid), epoch)
                raise _RolledBack
        except _RolledBack:
            continue
        except (LeadershipLost, DatabaseUnavailable):
            raise
        except Exception as alone:  # noqa: BLE001 -- whatever it is, it is told
            found[uid] = alone
    states = {sqlstate(alone) for alone in found.values()}
    if not found or (1 < len(uids) == len(found) and _of_the_database(states)):
        raise error
    return found


def _of_the_database(states: Collection[str | None]) -> bool:
    """Whether it is one SQLSTATE, of a class that no job's value can cause: two odd jobs must end no term."""
    state, *others = states
    return not others and state is not None and not state.startswith(_OF_VALUES)


async def write(connection: AsyncConnection, changes: Round, epoch: int) -> tuple[Entry, ...]:
    """Write a round, and take over the attempts of jobs that came back. Returns the effects to send once it is
    committed, evictions first.
    """
    at, all_, cycle = changes.now, [c for c in changes.values() if not c.later], changes.cycle
    number = None if cycle is None else cycle.id
    lost = [(c.uid, c.after.workload.queue, c.lost) for c in all_ if (c.lost or c.whole) and c.after]
    await transitions.tell_lost(connection, epoch, lost, at=at)
    await outbox.done(connection, epoch, [result for c in all_ for result in c.results], at=at)
    steps = [step for c in all_ if (step := c.transition(at=at)) is not None]
    await transitions.take(connection, epoch, steps, cycle=number)
    if cycle is not None:
        await _decide(connection, changes, epoch)
    await ledger.recharge(connection, epoch, [row for c in all_ for row in c.recharges(at=at)])
    await ledger.close(connection, epoch, [c.uid for c in all_ if c.ends], at)
    await workloads.forget(connection, epoch, [c.uid for c in all_ if c.gone], at)
    overrides = {
        c.uid: (c.after.override, c.after.workload.priority) for c in all_ if c.after and c.overrides
    }
    await commands.put_overrides(connection, epoch, overrides)
    await commands.answer(connection, epoch, [answer for c in all_ for answer in c.answers], at=at)
    # After the steps: a job that goes back to its queue may have been edited while it was not there.
    await _read(connection, changes, epoch)
    await workloads.set_back(connection, epoch, [left for c in all_ if (left := c.setback) is not None])
    reasons = {c.uid: c.reason for c in all_ if c.reason is not None or c.unexplains}
    await workloads.explain(connection, epoch, reasons, at=at, cycle=number)
    effects = [effect for c in sorted(all_, key=_sent_later) for effect in c.effects]
    entries = await outbox.put(connection, epoch, effects, at=at, cycle=number)
    if changes.revision is not None:
        await events.put(connection)
        await check_revision(connection, changes.revision)
    return entries


def _sent_later(change: Change) -> bool:
    return not change.evicts


async def _decide(connection: AsyncConnection, changes: Round, epoch: int) -> None:
    """The record of a cycle, what it starts and what it holds."""
    assert changes.cycle is not None
    at, cycle = changes.now, changes.cycle
    admissions = [new for c in changes.values() if (new := c.admission) is not None]
    evicted = sum(c.evicts for c in changes.values())
    await cycles.record(connection, epoch, cycle, admitted=len(admissions), evicted=evicted)
    await transitions.admit(connection, epoch, admissions, at=at, cycle=cycle.id)
    if changes.bonds is not None:
        await cycles.write_held(connection, epoch, changes.bonds, changes.reservations or ())


async def _read(connection: AsyncConnection, changes: Round, epoch: int) -> None:
    """The rows of jobs that were read. Raises Conflict naming those that the database does not have waiting."""
    lives = [(c, c.after) for c in changes.values() if c.reread and c.after is not None]
    rows = [
        Intake(
            workload=live.workload,
            state=live.state,
            not_asked=live.not_asked,
            explanation=live.explanation,
            edited=change.edits,
        )
        for change, live in lives
    ]
    taken = await workloads.intake(connection, epoch, rows, at=changes.now)
    if lost := [change.uid for change, _ in lives if change.uid not in taken]:
        raise Conflict("the database does not have it waiting", uids=lost)
    for change, live in lives:
        if live.attempt != taken[change.uid]:
            changes[change.uid] = replace(change, after=replace(live, attempt=taken[change.uid]))
