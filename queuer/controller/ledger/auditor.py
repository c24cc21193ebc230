"""The leader's bookkeeping: the ledger is compared with the cluster and put right, use is recorded, old history pruned.

A difference is repaired when two looks find the same one. Between a step in the database and the same in memory, or
while pods are on their way, a difference is no fault. Landing corrects a charge below what the pods request; the
auditor shows it and has the workload looked at again. A workload that cannot be compared is quarantined.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping

from sqlalchemy.ext.asyncio import AsyncEngine

from queuer.controller.failpoints import Failpoints, Point
from queuer.controller.health.metrics import Metrics
from queuer.controller.ledger.drift import Difference, Key, by_queue, differences
from queuer.controller.logs import logger
from queuer.controller.memory.state import ClusterState
from queuer.store import ledger, repairs, retention, rollup
from queuer.store.engine import begin
from queuer.store.rollup import Period

log = logger("auditor")

AGAIN = 0.25
"""The second look at what differs comes after this part of the time between two looks."""
PRUNE_EVERY = 600.0
SET_APART_EVERY = 15.0
PAUSE = 0.5
"""Seconds between two batches while there is more to delete."""


class Auditor:
    """Compares amounts, pod set by pod set, each `every` seconds. `actor`: who repairs, for the audit; `lost_node`: see
    `Settings`.
    """

    def __init__(
        self,
        engine: AsyncEngine,
        state: ClusterState,
        metrics: Metrics,
        *,
        epoch: int,
        actor: str,
        lost_node: float,
        every: float,
        failpoints: Failpoints,
        quarantine: Callable[[Mapping[str, Exception]], None],
        clock: Callable[[], float],
    ) -> None:
        self._engine, self._state, self._metrics = engine, state, metrics
        self._epoch, self._actor, self._lost_node, self._clock = epoch, actor, lost_node, clock
        self._every, self._failpoints, self._quarantine = every, failpoints, quarantine
        self._seen: Mapping[Key, Difference] = {}

    async def run(self) -> None:
        """Look for ever. Once it does not, no drift is shown: what it saw last may be long over."""
        try:
            while True:
                await self.look()
                await asyncio.sleep(self._every * AGAIN if self._seen else self._every)
        finally:
            self._metrics.show_drift({})

    async def look(self) -> None:
        """Compare once; show and repair what differed in the same way the last time."""
        async with begin(self._engine) as connection:
            book = await ledger.load_open(connection)
        found = self._differences(book)
        sure = {key: d for key, d in found.items() if self._seen.get(key) == d}
        self._seen = found
        self._metrics.show_drift(by_queue(self._state.rules.tree, sure.values()))
        if wrong := [difference for difference in sure.values() if difference.misbooked]:
            await self._repair(wrong)
        for uid, pod_set in (key for key, d in sure.items() if d.over):
            log.warning("pods request more than is charged", workload=uid, pod_set=pod_set)
            self._state.touch(uid)

    def _differences(self, book: list[ledger.LedgerRow]) -> dict[Key, Difference]:
        """All but those of quarantined workloads."""
        state, now = self._state, self._clock()
        book = [row for row in book if row.uid not in state.quarantine]
        lives = {live.uid: live for live in state.live.values() if live.uid not in state.quarantine}
        pods = {
            live.uid: state.holding(live.workload, now=now, lost_after=self._lost_node)
            for live in lives.values()
        }
        found, failed = differences(book, lives, pods)
        self._quarantine(failed)
        return found

    async def _repair(self, wrong: list[Difference]) -> None:
        async with begin(self._engine) as connection:
            done = await repairs.repair(connection, self._epoch, wrong, at=self._clock(), actor=self._actor)
        await self._failpoints.at(Point.REPAIRED)
        for repair in done:
            uid, pod_set = repair.key
            log.warning("ledger repaired", workload=uid, pod_set=pod_set, said=repair.reason)


async def prune(
    engine: AsyncEngine,
    metrics: Metrics,
    *,
    epoch: int,
    clock: Callable[[], float],
    every: float = PRUNE_EVERY,
) -> None:
    """Delete what the retention rules say, a batch of one rule in each transaction.

    The sizes of tables are shown first, so that they are seen where nothing can be deleted.
    """
    while True:
        async with begin(engine) as connection:
            metrics.show_sizes(await retention.sizes(connection))
        gone: Counter[str] = Counter()
        for rule in retention.RULES:
            async with begin(engine) as connection:
                gone[rule.table] += await retention.prune(connection, epoch, rule, now=clock())
        if gone.total():
            log.info("history pruned", rows=dict(gone))  # as keywords, the table `event` would be the message
        await asyncio.sleep(PAUSE if max(gone.values()) >= retention.BATCH else every)


async def set_apart(
    engine: AsyncEngine,
    made: Callable[[], Mapping[str, float]],
    *,
    epoch: int,
    every: float = SET_APART_EVERY,
) -> None:
    """Keep the history of a namespace that is gone from the next owner of its name. `made`: see `Facts`."""
    while True:
        async with begin(engine) as connection:
            count = await retention.set_apart(connection, epoch, made())
        if count:
            log.info("history of former namespaces set apart", workloads=count)
        await asyncio.sleep(every)


async def record_use(engine: AsyncEngine, *, epoch: int, clock: Callable[[], float]) -> None:
    """Write once a minute what each queue uses and waits for, so that its history can be shown."""
    while True:
        async with begin(engine) as connection:
            await rollup.record(connection, epoch, at=clock())
        async with begin(engine) as connection:
            await rollup.sum_up(connection, epoch, at=clock())
        await asyncio.sleep(Period.MINUTE - clock() % Period.MINUTE)
