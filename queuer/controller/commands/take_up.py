"""Commands from the database into a round of the loop: each is carried out and answered in the round's transaction.

A task beside the loop only says that some wait. The round reads them itself, after what the last one committed, so none
is carried out twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from functools import cache, partial

from sqlalchemy.ext.asyncio import AsyncEngine

from queuer.controller.apply.jobs import ClusterJobs
from queuer.controller.commands.limits import Use
from queuer.controller.commands.verbs import Case, Done, refuse, run
from queuer.controller.health.metrics import Metrics, queue_label
from queuer.controller.ledger.batch import Batch
from queuer.controller.logs import logger
from queuer.controller.memory.live import Live
from queuer.controller.memory.state import ClusterState
from queuer.controller.term import Term
from queuer.domain.workload import Cause
from queuer.store import commands
from queuer.store.commands import Answer, Command, NewOverride
from queuer.store.engine import begin

log = logger("commands")

EVERY = 0.25
"""Seconds between looks for commands, one indexed read."""
AT_ONCE = 250
"""Commands that one round carries out at most."""


async def follow(engine: AsyncEngine, state: ClusterState, *, every: float = EVERY) -> None:
    """Say when commands wait. Ends by DatabaseUnavailable, which ends the leadership too."""
    while True:
        async with begin(engine) as connection:
            waiting = await commands.waiting(connection)
        if waiting:
            state.command()
        await asyncio.sleep(every)


async def take_up(term: Term) -> list[Command]:
    """The commands that wait, oldest first; none unless some were announced."""
    if not term.state.commanded:
        return []
    term.state.commanded = False
    async with begin(term.engine) as connection:
        return await commands.undone(connection, count=AT_ONCE)


def carry_out(
    batch: Batch, found: Iterable[Command], *, state: ClusterState, jobs: ClusterJobs, metrics: Metrics
) -> list[str]:
    """Do what is asked, into the batch; returns the workloads whose jobs are to be read again by that.

    Who is set aside is left alone: its commands wait, or expire. Those of a changeset wait until memory has its tree.
    """
    changed: list[str] = []
    use = cache(partial(Use, state))
    for command in found:
        uid = command.uid
        if command.expired:
            text = f"no controller took it up within {commands.EXPIRES / 60:.0f} minutes"
            _answer(batch, command, refuse(text))
        elif uid not in state.quarantine and command.arguments.get("revision", 0) <= state.rules.revision:
            with batch.apart(uid):
                before = batch.view(uid, state.live)
                case = Case(
                    command=command, live=before, job=state.jobs.get(uid), rules=state.rules, jobs=jobs,
                    now=batch.now,
                )  # fmt: skip
                needless = before is not None and "revision" in command.arguments and not use().over(before)
                done = refuse("it stays: the limits hold without its eviction") if needless else run(case)
                if done.eviction is not None and before is not None:
                    use().goes(before)
                    metrics.evictions.labels(
                        queue_label(before.workload.queue, state.rules.tree), Cause.COMMAND
                    ).inc()
                changed += _write_down(batch, before, done)
                _answer(batch, command, done)
    return changed


def _write_down(batch: Batch, before: Live | None, done: Done) -> list[str]:
    after = done.live
    if after is None or before is None:
        return []
    batch.after[after.uid] = after
    if done.eviction is not None:
        batch.evictions.append(done.eviction)
        batch.explanations[after.uid] = after.explanation
    if after.override == before.override:
        return []
    row = NewOverride(uid=after.uid, override=after.override, priority=after.workload.priority)
    batch.overrides = [*(other for other in batch.overrides if other.uid != after.uid), row]
    return [after.uid]


def _answer(batch: Batch, command: Command, done: Done) -> None:
    batch.answers.append(Answer(id=command.id, uid=command.uid, outcome=done.outcome, message=done.message))
    log.info(
        "command", id=command.id, verb=command.verb, workload=command.uid, by=command.actor,
        outcome=done.outcome, said=done.message,
    )  # fmt: skip
