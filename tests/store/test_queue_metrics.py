"""The leader's gauges by queue and resource say what the ledger and the waiting work say, and nobody else shows any."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from prometheus_client.parser import text_string_to_metric_families
from sqlalchemy.ext.asyncio import AsyncEngine

from queuer.controller.health.metrics import Metrics
from queuer.domain.document import parse
from queuer.domain.queue import ManagedBy, QueueTree
from queuer.domain.workload import PodSet
from queuer.store import queues, workloads
from queuer.store.engine import begin
from tests.store.support import GPU, NOW, admission, commit_cycle, cycle, intake_of, waits, workload
from tests.waiting import until

Shown = dict[tuple[str, str, str], float]


def shown(metrics: Metrics) -> dict[str, Shown]:
    """Amounts by metric, then by queue, flavor and resource."""
    found: dict[str, Shown] = {}
    for family in text_string_to_metric_families(metrics.text((), QueueTree.of(())).decode()):
        if family.name.startswith("queuer_queue_"):
            rows = {
                (s.labels["queue"], s.labels["flavor"], s.labels["resource"]): s.value for s in family.samples
            }
            found[family.name.removeprefix("queuer_queue_")] = rows
    return found


async def test_a_leader_shows_what_each_queue_uses_lends_lacks_and_waits_for(
    engine: AsyncEngine, epoch: int
) -> None:
    """Cores, not millicores; nothing of a resource that only a job names; nothing once it leads no more."""
    a, b = "root.r.a", "root.r.b"
    rows = [{"flavor": "h100", "resource": GPU, "guaranteed": 16}, {"resource": "cpu", "limit": 40}]
    wanted = {"root.r": {}, a: {"quota": [{"resource": GPU, "guaranteed": 32}]}, b: {"quota": rows}}
    runs = [workload(f"w{n}", queue=b, gpus=8) for n in range(5)]
    odd = PodSet(name="main", count=1, requests={GPU: 12, "cpu": 1500, "made.up/by-a-user": 7})
    late = workload("late", queue=a, pod_sets=(odd,), submitted=NOW + 5)
    async with begin(engine) as connection:
        document = parse(
            {
                "apiVersion": "queuer.dev/v1",
                "kind": "QueueTree",
                "flavors": [{"name": "h100", "nodeLabels": {"gpu": "h100"}}],
                "queues": wanted,
            }
        )
        planned = await queues.plan(connection, document, writer=ManagedBy.API)
        await queues.apply(connection, planned, actor="a", source="test", reason="r")
        await workloads.intake(connection, epoch, [intake_of(w) for w in (*runs, late)], at=NOW)
        started = [admission(w, flavor="h100") for w in runs]
        why = {"late": waits(queue="root", live=True)}
        await commit_cycle(connection, epoch=epoch, record=cycle(1), admissions=started, explanations=why)
    metrics = Metrics()
    assert not any(shown(metrics).values())
    leads = asyncio.create_task(metrics.queues.follow(engine))
    await until(lambda: metrics.queues.view)
    found = shown(metrics)
    gpus = {name: found[name].get((a, "", GPU)) for name in found}
    assert gpus == {
        "used": 0, "guaranteed": 32, "limit": None, "borrowed": 0, "lent": 24, "pending": 12, "starved": 12,
    }  # fmt: skip
    assert (found["borrowed"][b, "", GPU], found["used"][b, "h100", GPU]) == (24, 40)
    assert (found["used"][b, "", "cpu"], found["limit"][b, "", "cpu"], found["pending"][a, "", "cpu"]) == (
        20,
        40,
        1.5,
    )
    assert found["limit"]["root", "", GPU] == 64, "the live capacity"
    assert {resource for rows in found.values() for _, _, resource in rows} == {GPU, "cpu"}
    assert {(queue, flavor) for queue, flavor, _ in found["used"] if flavor} == {(b, "h100")}
    leads.cancel()
    with suppress(asyncio.CancelledError):
        await leads
    assert not any(shown(metrics).values())
