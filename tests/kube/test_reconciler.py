"""Configuration objects take effect whatever becomes of what is written on them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any

import msgspec
from structlog.testing import capture_logs

from queuer.domain.errors import FieldProblem
from queuer.kube.client import Page
from queuer.kube.config_crs import Apply, ConfigOutcome, Reconciler
from queuer.kube.config_set import ConfigSet
from queuer.kube.config_status import accepted
from tests.waiting import until

REFUSED = ConfigOutcome(problems=(FieldProblem(field="queues.root.a.weight", message="too much"),))


class Cluster:
    """Queue objects by path; PATCHes of a status wait while `answers` is not set."""

    def __init__(self) -> None:
        self.weights: dict[str, int] = {}
        self.applied: list[dict[str, float]] = []
        self.patches: list[tuple[str, str]] = []
        self.answers = asyncio.Event()

    async def pages(self, path: str) -> AsyncIterator[Page]:
        paths = sorted(self.weights) if path.endswith("/queues") else []
        found = [
            {"metadata": {"name": name, "uid": name, "generation": n}, "spec": {"path": name, "weight": n}}
            for name, n in ((name, self.weights[name]) for name in paths)
        ]
        yield msgspec.convert(
            {"metadata": {}, "items": [msgspec.Raw(msgspec.json.encode(f)) for f in found]}, Page
        )

    async def merge_patch(self, path: str, body: Mapping[str, Any], *, resource: str) -> str:
        self.patches.append((body["metadata"]["uid"], accepted(body["status"])["reason"]))
        await self.answers.wait()
        return "1"

    async def apply(self, wanted: ConfigSet) -> ConfigOutcome:
        self.applied.append({queue.path: queue.weight for queue in wanted.document.queues})
        return ConfigOutcome()

    def reconciler(self, apply: Apply | None = None) -> Reconciler:
        """One whose clock moves on at each look."""
        client: Any = self
        clock = iter(range(0, 10_000, 100))
        return Reconciler(
            client=client, apply=apply or self.apply, figures=self.figures, clock=lambda: float(next(clock))
        )

    async def figures(self) -> Mapping[str, Mapping[str, Any]]:
        return {}


async def test_a_change_is_applied_while_statuses_are_written() -> None:
    """A status that hangs, or thousands of them, must not keep a queue's new limit from being in force."""
    cluster = Cluster()
    reconciler = cluster.reconciler()
    cluster.weights = {"root.a": 1, "root.b": 1}
    first = asyncio.create_task(reconciler.heard("root.a", 1))
    await until(lambda: cluster.patches == [("root.a", "InForce")])
    cluster.weights = {"root.a": 2, "root.b": 1}
    second = asyncio.create_task(reconciler.heard("root.a", 2))
    await until(lambda: len(cluster.applied) == 2)
    assert cluster.applied[-1] == {"root.a": 2.0, "root.b": 1.0}
    assert len(cluster.patches) == 1, "one after the other, in order"
    cluster.answers.set()
    await asyncio.gather(first, second)
    assert [uid for uid, _ in cluster.patches] == ["root.a", "root.a", "root.b"]
    assert accepted(reconciler.statuses.known["root.a"])["observedGeneration"] == 2


async def test_a_set_that_is_refused_is_logged_once() -> None:
    cluster = Cluster()
    cluster.weights = {"root.a": 1}
    outcomes = [REFUSED, REFUSED, ConfigOutcome()]

    async def apply(_: ConfigSet) -> ConfigOutcome:
        return outcomes.pop(0)

    reconciler = cluster.reconciler(apply)
    with capture_logs() as logged:
        while outcomes:
            await reconciler.reconcile()
    assert [line["log_level"] for line in logged] == ["warning", "info"]
    assert logged[0]["faults"] == ("queues/root.a: queues.root.a.weight: too much",)


async def test_a_status_that_a_listing_missed_stays_known() -> None:
    """It was written while the list was under way: else it would be written, and told as an Event, once more."""
    cluster = Cluster()
    cluster.answers.set()
    cluster.weights = {"root.a": 1}

    async def apply(wanted: ConfigSet) -> ConfigOutcome:
        if cluster.applied:
            await reconciler._report()
        return await cluster.apply(wanted)

    reconciler = cluster.reconciler(apply)
    await reconciler.reconcile()
    await reconciler.reconcile()
    await reconciler._report()
    assert cluster.patches == [("root.a", "InForce")]
