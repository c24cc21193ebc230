"""Two looks after any difference between ledger and holdings the ledger is right again, and the audit says
so.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from queuer.controller.health.metrics import Metrics
from queuer.controller.leadership import load
from queuer.controller.ledger.auditor import AGAIN
from queuer.controller.memory.state import ClusterState
from queuer.controller.settings import Settings
from queuer.domain.queue import Queue, QueueTree
from queuer.domain.rules import Rules
from queuer.domain.workload import State
from queuer.store import ledger
from queuer.store.engine import begin
from queuer.store.events import read
from tests.store.support import GPU, NOW, start, take_step, workload
from tests.store.terms import auditing
from tests.unit.make import pod_view

FAULTS = {
    "lost": ("DELETE FROM ledger WHERE uid = 'w1'", "held, but not charged"),
    "closed": ("UPDATE ledger SET closed = opened WHERE uid = 'w1'", "held, but not charged"),
    "too much": (
        "UPDATE ledger SET amounts = amounts || '{\"nvidia.com/gpu\": 99}' WHERE uid = 'w1'",
        "charged otherwise than held",
    ),
    "another queue": ("UPDATE ledger SET queue = 'root.b' WHERE uid = 'w1'", "charged otherwise than held"),
    "left over": (
        """INSERT INTO ledger (uid, attempt, queue, pod_set, flavor, count, amounts, opened)
        VALUES ('gone', 1, 'root.deleted', 'main', 'default', 1, '{"nvidia.com/gpu": 8}', now())""",
        "charged, but nobody holds it",
    ),
}
TREE = QueueTree.of([Queue(path="root"), Queue(path="root.a"), Queue(path="root.b")])


class Cluster:
    """One gang of two pods that runs, and who audits it."""

    def __init__(self, engine: AsyncEngine, epoch: int) -> None:
        self.engine, self.epoch, self.state, self.metrics = engine, epoch, ClusterState(), Metrics()
        self.aside = dict[str, Exception]()
        self.auditor = auditing(engine, self.state, self.metrics, epoch=epoch, quarantine=self.aside.update)

    async def start(self) -> None:
        async with begin(self.engine) as connection:
            await start(connection, self.epoch, workload("w1", pods=2))
            await take_step(connection, self.epoch, "w1", State.RUNNING)
            await load(connection, self.state, now=NOW)
        self.state.rules = Rules(tree=TREE)
        for number in range(2):
            self.pod(number)

    def pod(self, number: int, **fields: Any) -> None:
        given: dict[str, Any] = {"requests": {GPU: 1, "cpu": 4000, "pods": 1}, "running": True, **fields}
        self.state.pod_changed(pod_view(f"p{number}", "n1", namespace="team-a", owner="w1", **given))

    async def execute(self, statement: str) -> list[Any]:
        async with begin(self.engine) as connection:
            found = await connection.execute(text(statement))
            return list(found) if found.returns_rows else []

    async def used(self) -> dict[str, dict[str, dict[str, int]]]:
        async with begin(self.engine) as connection:
            return await ledger.usage(connection)

    def drift(self) -> dict[tuple[str, str], float]:
        (family,) = self.metrics.drift.collect()
        return {(s.labels["queue"], s.labels["resource"]): s.value for s in family.samples}


@pytest.fixture
async def cluster(engine: AsyncEngine, epoch: int) -> Cluster:
    made = Cluster(engine, epoch)
    await made.start()
    return made


@pytest.mark.parametrize("name", sorted(FAULTS))
async def test_injected_drift_is_repaired_at_the_second_look(cluster: Cluster, name: str) -> None:
    """Within the time to the next look and one again: shown by amount, audited, told as an event."""
    assert Settings(database_url="").audit * (1 + AGAIN) <= 120
    fault, reason = FAULTS[name]
    right = await cluster.used()
    await cluster.auditor.look()
    await cluster.execute(fault)
    wrong = await cluster.used()
    assert wrong != right
    await cluster.auditor.look()
    assert await cluster.used() == wrong
    assert cluster.drift() == {}
    await cluster.auditor.look()
    assert await cluster.used() == right
    queue = "root" if name == "left over" else "root.b" if name == "another queue" else "root.a"
    assert {where for where, _ in cluster.drift()} == {queue}
    ((actor, said, detail),) = await cluster.execute("SELECT actor, reason, detail FROM audit")
    assert (actor, said) == ("me", reason)
    assert detail["podSet"] == "main"
    async with begin(cluster.engine) as connection:
        told = [
            e.data["reason"] for _, e in await read(connection, after=0) if e.type == "workload.recharged"
        ]
    assert told == [reason]
    await cluster.auditor.look()
    assert cluster.drift() == {}


async def test_drift_is_shown_in_amounts_by_queue_of_the_tree(cluster: Cluster) -> None:
    """A queue that is gone counts at the nearest that is there: no label is free text."""
    await cluster.execute(FAULTS["left over"][0])
    await cluster.execute(FAULTS["too much"][0])
    await cluster.auditor.look()
    await cluster.auditor.look()
    assert cluster.drift() == {("root", GPU): 8, ("root.a", GPU): 97}


async def test_what_changes_between_two_looks_is_no_fault(cluster: Cluster) -> None:
    """A workload that was released, and one that started again meanwhile, are left alone."""
    await cluster.execute("UPDATE ledger SET closed = opened WHERE uid = 'w1'")
    await cluster.auditor.look()
    cluster.state.put(replace(cluster.state.live["w1"], attempt=2))
    await cluster.auditor.look()
    assert await cluster.used() == {}
    cluster.state.drop("w1")
    await cluster.auditor.look()
    await cluster.auditor.look()
    assert await cluster.execute("SELECT 1 FROM audit") == []


async def test_a_step_that_was_quicker_than_the_repair_wins(cluster: Cluster) -> None:
    """The job went back to its queue in the database, and memory does not know yet: nothing is opened for it."""
    await cluster.auditor.look()
    await cluster.execute("UPDATE ledger SET closed = opened WHERE uid = 'w1'")
    await cluster.execute("UPDATE workload SET state = 'Queued', attempt = 2, admission_id = NULL")
    await cluster.auditor.look()
    await cluster.auditor.look()
    assert await cluster.used() == {}
    assert await cluster.execute("SELECT 1 FROM audit") == []


async def test_pods_that_request_more_than_is_charged_are_drift(cluster: Cluster) -> None:
    """Landing corrects the charge, so the workload is looked at again; pods that have ended hold nothing."""
    cluster.pod(2)
    cluster.pod(3, succeeded=True)
    await cluster.auditor.look()
    cluster.state.take_touched(99)
    await cluster.auditor.look()
    assert cluster.drift() == {("root.a", GPU): 1, ("root.a", "cpu"): 4000, ("root.a", "pods"): 1}
    assert cluster.state.take_touched(99) == ("w1",)


async def test_an_auditor_that_fails_shows_no_drift_of_long_ago(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.metrics.show_drift({("root.a", GPU): 97})

    async def look() -> None:
        raise OSError("no more connections")

    monkeypatch.setattr(cluster.auditor, "look", look)
    with pytest.raises(OSError, match="no more connections"):
        await cluster.auditor.run()
    assert cluster.drift() == {}
