"""Commands from the database into a round of the loop: each is carried out and answered in the round's transaction.

A task beside the loop only says that some wait. The round reads them itself, after what the last one committed, so none
is carried out twice.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from functools import cache, partial

from sqlalchemy.ext.asyncio import AsyncEngine

from queuer.controller.apply.jobs import ClusterJobs
from queuer.controller.commands.verbs import CommandCase, Done, refuse, run
from queuer.controller.ledger.round import Round, effect
from queuer.controller.logs import logger
from queuer.controller.memory.live import Live
from queuer.controller.memory.state import ClusterState
from queuer.controller.term import Term
from queuer.domain.quota import Charge, QuotaBook, charge_for
from queuer.domain.usage import Usage
from queuer.domain.workload import Cause
from queuer.store import commands
from queuer.store.commands import Command, CommandAnswer, EvictionOrder
from queuer.store.engine import begin
from queuer.store.tables import EntryKind

log = logger("commands")

EVERY = 0.25
"""Seconds between looks for commands, one indexed read."""
AT_ONCE = 250
"""Commands that one round carries out at most."""


async def follow(
    engine: AsyncEngine,
    state: ClusterState,
    *,
    ordered: Callable[[EvictionOrder], None],
    every: float = EVERY,
) -> None:
    """Say when commands wait, and once which evictions are ordered for later. Ends by DatabaseUnavailable, which ends
    the leadership too. An order is answered before its command expires, and is known for so long.
    """
    known = dict[int, float]()
    while True:
        async with begin(engine) as connection:
            waiting = await commands.waiting(connection)
            orders = await commands.orders(connection, known=known)
        for order in orders:
            known[order.id] = order.at
            ordered(order)
        known = {id: at for id, at in known.items() if at + 2 * commands.EXPIRES > time.time()}
        if waiting:
            state.command()
        await asyncio.sleep(every)


async def take_up(term: Term) -> list[Command]:
    """The commands that wait, in turns of their namespaces; none unless some were announced."""
    if not term.state.commanded:
        return []
    term.state.commanded = False
    async with begin(term.engine) as connection:
        return await commands.undone(connection, count=AT_ONCE, but=term.state.quarantine.uids())


def carry_out(
    changes: Round, found: Iterable[Command], *, state: ClusterState, jobs: ClusterJobs
) -> list[str]:
    """Do what is asked, into the round; returns the workloads whose jobs are to be read again by that.

    Commands of quarantined workloads wait, or expire. Those of a changeset wait until memory has its tree.
    """
    changed: list[str] = []
    limits = cache(partial(CutLimits, state))
    for command in found:
        uid = command.uid
        if command.expired:
            text = f"no controller took it up within {commands.EXPIRES / 60:.0f} minutes"
            _answer(changes, command, refuse(text))
        elif uid not in state.quarantine and command.arguments.get("revision", 0) <= state.rules.revision:
            with changes.isolate(uid):
                before = changes.live(uid)
                case = CommandCase(
                    command=command, live=before, job=state.jobs.get(uid), rules=state.rules, jobs=jobs,
                    now=changes.now,
                )  # fmt: skip
                needless = (
                    before is not None
                    and "revision" in command.arguments
                    and not limits().exceeded_by(before)
                )
                done = refuse("it stays: the limits hold without its eviction") if needless else run(case)
                if done.patch is not None and before is not None:
                    limits().release(before)
                changed += _write_down(changes, before, done)
                _answer(changes, command, done)
    return changed


def _write_down(changes: Round, before: Live | None, done: Done) -> list[str]:
    if done.live is None or before is None:
        return []
    changes.put(before.uid, after=done.live)
    if done.patch is not None:
        evict = effect(EntryKind.EVICT, before, done.patch)
        changes.put(before.uid, effects=[evict], cause=Cause.COMMAND, note=done.note)
    return [] if done.live.override == before.override else [before.uid]


def _answer(changes: Round, command: Command, done: Done) -> None:
    answer = CommandAnswer(id=command.id, uid=command.uid, outcome=done.outcome, message=done.message)
    changes.put(command.uid, answers=[answer])
    log.info(
        "command", id=command.id, verb=command.verb, workload=command.uid, by=command.actor,
        outcome=done.outcome, said=done.message,
    )  # fmt: skip


class CutLimits:
    """Whether a limit that was cut still needs work to go: evictions by a changeset end when the limits hold.

    Work on its way out does not count as use, nor does work whose queue is gone.
    """

    def __init__(self, state: ClusterState) -> None:
        self._book = QuotaBook(state.rules.tree, {})
        self._usage = Usage(self._book)
        for live in (state.live[uid] for uid in state.holds):
            if live.state.evictable and live.workload.queue in state.rules.tree:
                self._usage.add(live.workload.queue, _charge(live))

    def exceeded_by(self, live: Live) -> bool:
        """Whether something that it holds is above a stated limit of its queue or of one above it."""
        return live.workload.queue in self._book.tree and any(
            (limit := self._book.limit(path, account, live=False)) is not None
            and self._usage.used(path, account) > limit
            for path in self._book.lineage(live.workload.queue)
            for account in _charge(live)
        )

    def release(self, live: Live) -> None:
        """It is evicted."""
        self._usage.add(live.workload.queue, _charge(live), times=-1)


def _charge(live: Live) -> Charge:
    if live.placement is None:
        return {}
    flavors = {a.pod_set: a.flavor for a in live.placement.assignments}
    return charge_for(live.workload, flavors, live.placement.held)
