"""Queue, Flavor and Topology objects on a real API server: applied together, answered in their status."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from datetime import datetime
from functools import partial
from typing import Any
from uuid import uuid4

import pytest

from queuer.domain.errors import FieldProblem
from queuer.kube import config_crs, config_status
from queuer.kube.client import Client
from queuer.kube.config import load_access
from queuer.kube.config_crs import ConfigOutcome
from queuer.kube.config_set import PLURALS, ConfigSet
from queuer.local.cluster import Cluster
from tests import waiting
from tests.e2e.support import create, get, kubectl


class Controller:
    """The controller's use of a set: here it notes the set, and finds the faults that a test names."""

    def __init__(self) -> None:
        self.sets: list[ConfigSet] = []
        self.problems: tuple[FieldProblem, ...] = ()
        self.figures: Mapping[str, Mapping[str, Any]] = {}
        self.asked = 0

    async def apply(self, wanted: ConfigSet) -> ConfigOutcome:
        self.sets.append(wanted)
        return ConfigOutcome(problems=self.problems)

    async def report(self) -> Mapping[str, Mapping[str, Any]]:
        self.asked += 1
        return self.figures

    @property
    def paths(self) -> set[str]:
        return {queue.path for queue in self.sets[-1].document.queues} if self.sets else set()


@asynccontextmanager
async def running(cluster: Cluster, controller: Controller) -> AsyncIterator[Client]:
    access = await load_access(cluster.kubeconfig("queuer-controller"))
    async with Client(access) as client:
        others = asyncio.all_tasks()
        task = asyncio.create_task(
            config_crs.run(client, access=access, apply=controller.apply, figures=controller.report)
        )
        try:
            yield client
            assert not task.done(), task
            others.add(bystander := asyncio.create_task(asyncio.Event().wait()))
        finally:
            task.cancel()
            await asyncio.wait([task])
        with suppress(TimeoutError):
            await waiting.until(lambda: asyncio.all_tasks() == others)
        assert asyncio.all_tasks() == others, "kopf leaves its own tasks, or ends those of others"
        bystander.cancel()


async def until(condition: Callable[[], Any]) -> Any:
    """Ask in a thread: kubectl would hold the loop up."""
    return await waiting.until(partial(asyncio.to_thread, condition), every=0.1)


@pytest.fixture
def path(cluster: Cluster) -> Any:
    """Path of a queue of this test alone; its object goes with the test."""
    name = f"t{uuid4().hex[:8]}"
    yield f"root.{name}"
    kubectl(cluster, "admin", "delete", "queues.queuer.dev", name, "--ignore-not-found")


def _queue(path: str, **spec: Any) -> dict[str, Any]:
    name = path.rsplit(".", 1)[-1]
    return {
        "apiVersion": "queuer.dev/v1",
        "kind": "Queue",
        "metadata": {"name": name},
        "spec": {"path": path, **spec},
    }


def _condition(cluster: Cluster, path: str) -> dict[str, Any]:
    status = get(cluster, "queues.queuer.dev", path.rsplit(".", 1)[-1]).get("status", {})
    found: dict[str, Any] = next(iter(status.get("conditions", [])), {})
    return found


def _events(cluster: Cluster, path: str) -> list[tuple[str, str, str]]:
    """The Events of a queue, as `kubectl describe` shows them."""
    name = path.rsplit(".", 1)[-1]
    found = get(cluster, "events", "-n", "default", f"--field-selector=involvedObject.name={name}")["items"]
    assert {e["reportingComponent"] for e in found} <= {"queuer-controller"}
    return [(e["type"], e["reason"], e["message"]) for e in found]


async def test_an_object_is_applied_answered_and_taken_back(cluster: Cluster, path: str) -> None:
    """Created, changed and deleted while we watch; nothing but its status is written on it."""
    controller, handler = Controller(), signal.getsignal(signal.SIGTERM)
    async with running(cluster, controller) as client:
        await until(lambda: controller.sets)
        assert (
            not controller.asked or controller.paths
        )  # amounts are asked for where there are queues to show them
        created = await asyncio.to_thread(create, cluster, _queue(path), identity="admin")
        await until(lambda: path in controller.paths)
        said = await until(lambda: _condition(cluster, path))
        assert (said["type"], said["status"], said["reason"]) == ("Accepted", "True", "InForce")
        assert abs(datetime.fromisoformat(said["lastTransitionTime"]).timestamp() - time.time()) < 60
        assert await until(lambda: _events(cluster, path)) == [("Normal", "InForce", "taken over")]
        stored = get(cluster, "queues.queuer.dev", created["metadata"]["name"])
        assert stored["metadata"].get("annotations") is None
        assert stored["metadata"].get("finalizers") is None
        rounds = len(controller.sets)
        await asyncio.to_thread(kubectl, cluster, "admin", "delete", "queues.queuer.dev", path[5:])
        await until(lambda: path not in controller.paths)
        assert len(controller.sets) == rounds + 1  # our status write rang nobody
        assert set(client.writes) <= {("patch", f"{kind}/status") for kind in PLURALS}
    assert signal.getsignal(signal.SIGTERM) is handler


async def test_objects_deleted_while_nobody_watched_are_missed_at_start(cluster: Cluster, path: str) -> None:
    """The set says that it is complete, so the comparison finds what is gone."""
    await asyncio.to_thread(create, cluster, _queue(path), identity="admin")
    first = Controller()
    async with running(cluster, first):
        await until(lambda: path in first.paths)
    await asyncio.to_thread(kubectl, cluster, "admin", "delete", "queues.queuer.dev", path[5:])
    second = Controller()
    async with running(cluster, second):
        await until(lambda: second.sets)
        assert path not in second.paths
        assert second.sets[-1].document.prune


async def test_a_refused_set_is_told_with_its_numbers(cluster: Cluster, path: str) -> None:
    """Accepted=False on the object that is wrong."""
    controller = Controller()
    text = "children guarantee 24 nvidia.com/gpu, it has 16"
    controller.problems = (FieldProblem(field=f"queues.{path}.quota[0].guaranteed", message=text),)
    await asyncio.to_thread(create, cluster, _queue(path), identity="admin")
    async with running(cluster, controller):
        said = await until(lambda: _condition(cluster, path))
        assert (said["status"], said["reason"]) == ("False", "Invalid")
        assert text in said["message"]
        ((kind, reason, message),) = await until(lambda: _events(cluster, path))
        assert (kind, reason, text in message) == ("Warning", "Invalid", True)


async def test_the_guilty_object_is_marked_and_the_others_lose_their_complaint_with_it(
    cluster: Cluster, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At once. The sum is stated on a queue of another writer. An Event tells who breaks it."""
    monkeypatch.setattr(config_status, "PERIOD", 10 * waiting.PATIENCE)
    controller, right = Controller(), f"{path}-right"
    controller.problems = (
        FieldProblem(field="queues.root.quota[0].guaranteed", message="24 is more than 16"),
    )
    await asyncio.to_thread(create, cluster, _queue(path), identity="admin")
    async with running(cluster, controller):
        said = await until(lambda: _condition(cluster, path))
        assert (said["reason"], "24 is more than 16" in said["message"]) == ("Invalid", True)
        events = await until(lambda: _events(cluster, path))
        assert [(kind, reason) for kind, reason, _ in events] == [("Warning", "Invalid")]
        controller.problems = (FieldProblem(field=f"queues.{path}.weight", message="0 is not above 0"),)
        try:
            await asyncio.to_thread(create, cluster, _queue(right), identity="admin")
            said = await until(lambda: _condition(cluster, right))
            assert (said["status"], path.rpartition(".")[2] in said["message"]) == ("Unknown", True)
            controller.problems = ()
            await asyncio.to_thread(kubectl, cluster, "admin", "delete", "queues.queuer.dev", path[5:])
            await until(lambda: _condition(cluster, right)["status"] == "True")
        finally:
            await asyncio.to_thread(kubectl, cluster, "admin", "delete", "queues.queuer.dev", right[5:])


async def test_what_a_queue_holds_is_shown_at_most_once_in_ten_seconds(cluster: Cluster, path: str) -> None:
    """Amounts move with every job; the API server must not."""
    controller = Controller()
    await asyncio.to_thread(create, cluster, _queue(path), identity="admin")
    controller.figures = {path: {"used": {"nvidia.com/gpu": "8"}, "borrowed": {}, "pending": {}}}
    started = time.monotonic()
    async with running(cluster, controller) as client:
        await until(lambda: _condition(cluster, path))
        name = path[5:]
        assert get(cluster, "queues.queuer.dev", name)["status"]["used"] == {"nvidia.com/gpu": "8"}
        written = client.writes["patch", "queues/status"]
        controller.figures = {path: {"used": {"cpu": "1"}, "borrowed": {}, "pending": {}}}
        await until(lambda: get(cluster, "queues.queuer.dev", name)["status"]["used"] == {"cpu": "1"})
        assert time.monotonic() - started > config_status.PERIOD
        assert client.writes["patch", "queues/status"] == written + 1
