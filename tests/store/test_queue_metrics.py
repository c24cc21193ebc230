"""The leader's gauges by queue and resource say what the ledger and the waiting work say, and nobody else shows any."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from queuer.controller.health import queue_metrics
from queuer.controller.health.metrics import Metrics
from queuer.domain.queue import QueueTree
from queuer.domain.usage import subtree_sums
from queuer.domain.workload import PodSet
from queuer.store import usage
from queuer.store.config import Config, load_config, revision
from queuer.store.engine import begin
from tests.store.support import (
    GPU,
    NOW,
    admission,
    come,
    commit_cycle,
    cycle,
    document,
    waits,
    wish,
    workload,
)
from tests.waiting import beside, until

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
        flavors = [{"name": "h100", "nodeLabels": {"gpu": "h100"}}]
        await wish(connection, document(wanted, flavors=flavors))
        await come(connection, epoch, *runs, late)
        started = [admission(w, flavor="h100") for w in runs]
        why = {"late": waits(queue="root", live=True)}
        await commit_cycle(connection, epoch=epoch, record=cycle(1), admissions=started, explanations=why)
    metrics = Metrics()
    assert not any(shown(metrics).values())
    async with beside(metrics.queues.follow(engine)):
        await until(lambda: shown(metrics)["used"])
        found = shown(metrics)
    gpus = {name: found[name].get((a, "", GPU)) for name in found}
    assert gpus == {
        "used": 0, "guaranteed": 32, "limit": None, "borrowed": None, "lent": 24, "pending": 12, "starved": 12,
    }  # fmt: skip
    for name in ("borrowed", "lent", "pending", "starved"):
        assert all(found[name].values()), f"{name} has a series where it is 0"
        assert found[name].keys() <= found["used"].keys(), "a query can fall back to 0 of what is used"
    assert (found["borrowed"][b, "", GPU], found["used"][b, "h100", GPU]) == (24, 40)
    assert (found["used"][b, "", "cpu"], found["limit"][b, "", "cpu"]) == (20, 40)
    assert found["pending"][a, "", "cpu"] == 1.5
    assert found["limit"]["root", "", GPU] == 64, "the live capacity"
    assert {resource for rows in found.values() for _, _, resource in rows} == {GPU, "cpu"}
    assert {(queue, flavor) for queue, flavor, _ in found["used"] if flavor} == {(b, "h100")}
    assert not any(shown(metrics).values())


async def test_a_reading_is_computed_beside_the_loop_and_knows_the_configuration(
    engine: AsyncEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The configuration is read again where its revision has changed, and no scrape computes anything."""
    threads, loads = dict[str, list[threading.Thread]](), list[int]()

    def traced(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: object) -> Any:
            threads.setdefault(name, []).append(threading.current_thread())
            return call(*args)

        return run

    async def load(connection: AsyncConnection) -> Config:
        loads.append(await revision(connection))
        return await load_config(connection)

    monkeypatch.setattr(queue_metrics, "EVERY", 0.0)
    monkeypatch.setattr(queue_metrics, "load_config", load, raising=False)
    monkeypatch.setattr(usage, "load_config", load)
    monkeypatch.setattr(usage, "subtree_sums", traced("sums", subtree_sums))
    monkeypatch.setattr(queue_metrics, "amounts_of", traced("amounts", usage.amounts_of))
    metrics = Metrics()
    async with asyncio.TaskGroup() as group:
        leads = group.create_task(metrics.queues.follow(engine))
        async with begin(engine) as connection:
            await wish(connection, document({"root.a": {"quota": [{"resource": GPU, "guaranteed": 8}]}}))
        await until(lambda: ("root.a", "", GPU) in shown(metrics)["used"])
        readings = len(threads["sums"])
        await until(lambda: len(threads["sums"]) > readings + 6)
        read = len(threads["amounts"])
        shown(metrics)
        assert len(threads["amounts"]) == read
        leads.cancel()
    assert len(loads) == len(set(loads)) <= 2
    assert threading.main_thread() not in {*threads["sums"], *threads["amounts"]}
