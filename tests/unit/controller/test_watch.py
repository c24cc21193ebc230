"""Later kinds are followed without a restart; a server that is out is told; a fact has read again whom it touches."""

from __future__ import annotations

from typing import Any, cast

import msgspec
import pytest
from aiohttp import web

from queuer.controller.health.metrics import Metrics
from queuer.controller.health.probes import Health
from queuer.controller.memory.state import ClusterState
from queuer.controller.watch.views import OPTED_IN, Facts, job_view
from queuer.controller.watch.watches import Watches, served
from queuer.domain.keys import MANAGED
from queuer.domain.queue import Access, Queue, QueueTree
from queuer.domain.rules import Rules
from queuer.kube.kinds import JOB as JOB_KIND
from queuer.kube.kinds import JOBSET, PYTORCHJOB
from queuer.kube.objects import (
    LIMIT_RANGES,
    NAMESPACES,
    NODES,
    PRIORITY_CLASSES,
    RESOURCE_QUOTAS,
    RUNTIME_CLASSES,
    LimitRange,
    LimitRangeItem,
    LimitRangeSpec,
    Meta,
    Namespace,
    NodeObject,
    Overhead,
    PriorityClass,
    ResourceQuota,
    ResourceQuotaStatus,
    RuntimeClass,
)
from queuer.kube.reflector import Change, ChangeKind
from tests.kube.manifests import job
from tests.kube.stub import Stub, serving
from tests.waiting import beside, until

JOB = {"metadata": {"name": "late", "namespace": "ns", "uid": "u", "resourceVersion": "1"}}
NAMESPACE = {"metadata": {"name": "ns", "uid": "n", "labels": {MANAGED: next(iter(OPTED_IN))}}}


class Server:
    """Knows PyTorchJobs from when it is told to; first it is out of order for once."""

    def __init__(self) -> None:
        self.installed, self.out = False, False
        self.asked = 0

    async def handle(self, request: web.Request) -> web.StreamResponse:
        items: list[dict[str, Any]] = []
        if self.out:
            return web.Response(status=503)
        if request.path == PYTORCHJOB.resource.collection:
            self.asked += 1
            if not self.installed:
                return web.Response(status=500 if self.asked == 2 else 404, text="404 page not found")
            items = [JOB]
        elif request.path == NAMESPACES.collection:
            items = [NAMESPACE]
        if "watch" in request.query:
            return web.Response()
        return web.json_response({"metadata": {"resourceVersion": "1"}, "items": items})


async def test_a_kind_that_comes_later_is_followed() -> None:
    server, state = Server(), ClusterState()
    async with serving(cast(Stub, server)) as client:
        kinds = await served(client)
        assert "PyTorchJob" not in {kind.name for kind in kinds}
        watches = Watches(client, state, Facts(), kinds=kinds, look=0.01)
        health = Health(stalled=30.0)
        async with beside(watches.run(Metrics(), health)):
            await watches.synced()
            await until(lambda: server.asked > 3)
            assert not state.jobs
            server.installed = True
            await until(lambda: "u" in state.jobs)
            server.out = True
            await until(lambda: health.away_since is not None, within=4.0)


async def test_a_kind_is_followed_only_with_what_carries_its_templates() -> None:
    """A list that never comes would keep the controller from its first decision."""

    class WithoutJobSets(Server):
        async def handle(self, request: web.Request) -> web.StreamResponse:
            if request.path == JOBSET.resource.collection:
                return web.Response(status=404, text="404 page not found")
            return await super().handle(request)

    async with serving(cast(Stub, WithoutJobSets())) as client:
        assert not {"JobSet", "TrainJob"} & {kind.name for kind in await served(client)}


def change(new: Any, old: Any = None) -> Change[Any]:
    return Change(kind=ChangeKind.MODIFIED if old is not None else ChangeKind.ADDED, object=new, old=old)


def gone(old: Any) -> Change[Any]:
    return Change(kind=ChangeKind.DELETED, object=old, old=old)


RESOURCES: dict[Any, Any] = {
    LimitRange: LIMIT_RANGES, ResourceQuota: RESOURCE_QUOTAS, PriorityClass: PRIORITY_CLASSES, Namespace: NAMESPACES,
    RuntimeClass: RUNTIME_CLASSES,
}  # fmt: skip
HERE = Meta(name="x", namespace="here", uid="x")
LIMITS = LimitRange(
    metadata=HERE, spec=LimitRangeSpec(limits=[LimitRangeItem(type="Container", default={"cpu": "1"})])
)
QUOTA = ResourceQuota(metadata=HERE)
FULL = ResourceQuota(metadata=HERE, status=ResourceQuotaStatus(used={"pods": "1"}))
HIGH = PriorityClass(metadata=Meta(name="high", uid="p"), value=5)
USUAL = msgspec.structs.replace(HIGH, global_default=True)
MOST = PriorityClass(metadata=Meta(name="most", uid="p"), value=9)
SLOW = RuntimeClass(metadata=Meta(name="vm", uid="r"), overhead=Overhead(pod_fixed={"cpu": "1"}))
TOUCHED: dict[str, tuple[Change[Any], list[str], bool]] = {
    "limits": (change(LIMITS), ["a"], True),
    "labels of a LimitRange": (change(LIMITS, LIMITS), [], False),
    "a ResourceQuota": (change(QUOTA), [], True),
    "use of a ResourceQuota": (change(FULL, QUOTA), [], True),
    "nothing of a ResourceQuota": (change(FULL, FULL), [], False),
    "a PriorityClass": (change(HIGH), ["b"], True),
    "a PriorityClass that is gone": (gone(HIGH), ["b"], True),
    "the default PriorityClass": (change(USUAL, HIGH), ["a", "b"], True),
    "the default PriorityClass that was": (change(HIGH, USUAL), ["a", "b"], True),
    "the highest PriorityClass of a queue": (change(MOST), ["a", "b"], True),
    "a label of a PriorityClass": (change(HIGH, HIGH), [], False),
    "a RuntimeClass": (change(SLOW), ["a"], True),
    "a namespace": (change(Namespace(metadata=Meta(name="other", uid="n"))), [], False),
}


@pytest.mark.parametrize("fact", TOUCHED)
def test_only_what_a_fact_touches_is_read_again(fact: str) -> None:
    """With thousands of jobs that wait, the use of one ResourceQuota moves all the time."""
    state = ClusterState()
    queues = QueueTree.of([Queue(path="root.a", access=Access(max_priority="most"))])
    state.configure(Rules(tree=queues, revision=1))
    for uid, namespace, names in (
        ("a", "here", {"runtimeClassName": "vm"}),
        ("b", "there", {"priorityClassName": "high"}),
    ):
        found = job(names)
        found["metadata"] |= {"uid": uid, "namespace": namespace}
        state.job_changed(job_view(JOB_KIND, msgspec.convert(found, JOB_KIND.type)))
    state.take_unread(9), state.take_stale()
    watches = Watches(cast(Any, None), state, Facts(), kinds=())
    heard, read, decided = TOUCHED[fact]
    of = next(r for r in watches.reflectors if r.resource is RESOURCES[type(heard.object)])
    of._on_change(heard)
    assert (sorted(state.take_unread(9)), state.take_stale()) == (read, decided)


def test_a_node_that_came_back_under_its_name_outlives_the_news_that_it_went() -> None:
    """The deletion was missed; the list that finds it tells of the new node first."""
    state = ClusterState()
    watches = Watches(cast(Any, None), state, Facts(), kinds=())
    nodes = next(r for r in watches.reflectors if r.resource is NODES)
    old, new = (NodeObject(metadata=Meta(name="n", uid=uid)) for uid in ("old", "new"))
    for kind, node in ((ChangeKind.ADDED, old), (ChangeKind.ADDED, new), (ChangeKind.DELETED, old)):
        nodes._on_change(Change(kind=kind, object=node, old=None))
    assert state.nodes.keys() == {"n"}
    nodes._on_change(Change(kind=ChangeKind.DELETED, object=new, old=new))
    assert not state.nodes
