"""The reason of a job that its namespace's ResourceQuota keeps waiting: amounts, holders, help."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any, cast

from msgspec import convert

from queuer.controller.cycle.namespace_quota import Reckoning
from queuer.controller.memory.live import Live
from queuer.controller.memory.pods import PodView
from queuer.controller.memory.state import ClusterState
from queuer.domain.assignments import Bond
from queuer.domain.nodes import Node
from queuer.domain.queue import Queue, QueueTree
from queuer.domain.reasons import Explanation, Token, Verdict
from queuer.domain.rules import Rules
from queuer.domain.workload import PodSet, State, Workload
from queuer.kube.objects import Meta, ResourceQuota, ResourceQuotaSpec, ResourceQuotaStatus
from tests.unit import make
from tests.unit.controller.test_loop import Deciding, looping, started, uncommitted

GPU = "example.com/gpu"


def gang(uid: str, pods: int, *, priority: int = 0, min_count: int | None = None) -> Workload:
    """Pods of one GPU."""
    only = PodSet(name="main", count=pods, min_count=min_count, requests={GPU: 1, "pods": 1})
    return make.gang(uid, priority=priority, pod_sets=(only,))


def quota(used: int, *, gpus: int, pods: int = 99) -> ResourceQuota:
    """Of GPUs and pods; of both as many are used."""
    hard = {f"requests.{GPU}": str(gpus), "pods": str(pods), "count/pods": str(pods)}
    amounts = {"hard": hard, "used": dict.fromkeys(hard, str(used))}
    return ResourceQuota(
        metadata=Meta(name="rq", namespace="ns"), status=convert(amounts, ResourceQuotaStatus)
    )


def over_quota(waits: Workload, quota: ResourceQuota) -> dict[str, Explanation]:
    """`low` runs with 4, `high` with 2, `new` is to start with 1."""
    state = ClusterState()
    for uid, pods, priority, at in (
        ("low", 4, 0, State.RUNNING), ("high", 2, 9, State.EVICTING), ("new", 1, 9, State.ADMITTED),
    ):  # fmt: skip
        placement = make.placed({"n1": pods}, id=uid)
        state.put(Live(workload=gang(uid, pods, priority=priority), state=at, placement=placement))
        for number in range(0 if at is State.ADMITTED else pods):
            name = f"{uid}-{number}"
            requests = {GPU: 1, "pods": 1}
            state.pod_changed(PodView(uid=name, namespace="ns", name=name, owner=uid, requests=requests))
    live = Live(workload=waits, state=State.QUEUED)
    return Reckoning(state, [quota]).over_quota([live])


def test_a_full_namespace_says_what_is_used_by_whom_and_what_would_help() -> None:
    """7 used, one of these by a pod that no job of ours owns, and 1 comes: 2 of 10 are left."""
    found = over_quota(gang("g", 5, priority=5), quota(7, gpus=10))["g"]
    assert (found.primary.token, found.verdict, found.others) == (Token.WAITING_FOR_QUOTA, Verdict.WAIT, ())
    assert found.primary.text == (
        f"ResourceQuota rq of namespace ns allows 10 {GPU}; 7 are used, 1 more are kept for jobs that start, most by "
        "low (4), high (2), new (1); this job asks 5. There is room for it when 3 are given back (work of lower "
        "priority uses 4; nobody is evicted for a ResourceQuota), or if it asks 2 at most, or if 13 are allowed."
    )
    figures = {"limit": "10", "used": "7", "coming": "1", "asks": "5", "missing": "3", "lower": "4"}
    assert {name: found.primary.shown[name] for name in figures} == figures
    rows = {h["name"]: (h["amount"], h.get("leaving"), h.get("starting")) for h in found.detail["holders"]}
    assert rows == {"low": ("4", None, None), "high": ("2", True, None), "new": ("1", None, True)}
    assert over_quota(gang("g", 2), quota(7, gpus=10)) == over_quota(gang("g", 5), quota(7, gpus=13)) == {}


def test_what_pods_request_counts_before_kubernetes_has_added_it_up() -> None:
    """6 are seen and 1 comes, whatever the quota says of itself."""
    assert "6 are used, 1 more" in over_quota(gang("g", 4), quota(0, gpus=10))["g"].primary.text
    assert over_quota(gang("g", 3), quota(0, gpus=10)) == {}


def test_an_elastic_gang_is_offered_with_no_more_pods_than_its_namespace_bears() -> None:
    """One pod set after the other takes the most. A bound gang keeps the size of its bond, for which work was lost."""
    sets = [
        PodSet(name=name, count=9, min_count=2, requests={GPU: 1, "pods": 1}) for name in ("main", "more")
    ]
    state = ClusterState()
    lives = [
        Live(workload=make.gang(uid, pod_sets=rows), state=State.QUEUED)
        for uid, rows in (
            ("two", tuple(sets)), ("one", (sets[0],)), ("bound", (sets[0],)),
            ("whole", (replace(sets[0], min_count=None),)),
        )
    ]  # fmt: skip
    for live in lives:
        state.put(live)
    state.bonds = (Bond(uid="bound", assignments=(make.assigned({"n1": 7}),), victims=(), deadline=9.0),)

    def offered(gpus: int) -> dict[str, list[int]]:
        found = Reckoning(state, [quota(0, gpus=gpus)]).smaller(lives)
        return {uid: [p.count for p in live.workload.pod_sets] for uid, live in found.items()}

    assert offered(99) == {}
    assert offered(7 + 8) == {"two": [6, 2], "one": [8]}
    assert offered(7 + 3) == {"two": [2, 2], "one": [3]}
    assert offered(8) == {"two": [2, 2], "one": [2], "bound": [8]}
    assert offered(3)["bound"] == [7]


def test_what_is_too_much_by_itself_comes_first_and_all_others_follow() -> None:
    """No end of others' work would help with the GPUs, however full of pods it is."""
    found = over_quota(gang("g", 6, min_count=5), quota(7, gpus=4, pods=12))["g"]
    assert (found.primary.token, found.verdict) == (Token.EXCEEDS_MAX_QUOTA, Verdict.CHANGE)
    assert found.primary.text == (
        f"ResourceQuota rq of namespace ns allows 4 {GPU}; this job asks at least 5. There is room for it if it asks 4 "
        "at most, or if 5 are allowed."
    )
    assert [reason.params["resource"] for reason in found.others] == ["pods"]


def test_limits_of_pods_that_are_seen_and_that_are_asked_for_count_by_their_own_key() -> None:
    """2 x 4 of 6 cpu of limits: the job never starts by half. Of 12, 5 are seen before Kubernetes has added them up."""
    job = make.gang(
        "g", pod_sets=(PodSet(name="main", count=2, requests={"cpu": 1000}, limits={"limits.cpu": 4000}),)
    )
    state = ClusterState()
    live = Live(workload=job, state=State.QUEUED)
    small, large = (limits_quota({"limits.cpu": amount}) for amount in ("6", "12"))
    found = Reckoning(state, [small]).over_quota([live])["g"].primary
    assert (found.token, found.text) == (
        Token.EXCEEDS_MAX_QUOTA,
        "ResourceQuota rq of namespace ns allows 6 limits.cpu; this job asks 8. There is room for it if it asks 6 at "
        "most, or if 8 are allowed.",
    )
    assert Reckoning(state, [large]).over_quota([live]) == {}
    state.pod_changed(PodView(uid="p", namespace="ns", name="p", limits={"limits.cpu": 5000}))
    found = Reckoning(state, [large]).over_quota([live])["g"].primary
    assert (found.token, found.shown["missing"]) == (Token.WAITING_FOR_QUOTA, "1")


def test_a_job_that_is_silent_on_what_a_quota_demands_of_each_container_waits() -> None:
    only = PodSet(name="main", count=1, requests={GPU: 1}, unstated=("cpu", "limits.cpu", "limits.memory"))
    live = Live(workload=make.gang("g", pod_sets=(only,)), state=State.QUEUED)
    demands = limits_quota({"limits.cpu": "6", "requests.cpu": "6", "pods": "9"})
    found = Reckoning(ClusterState(), [demands]).over_quota([live])["g"].primary
    assert (found.token, found.params["fields"]) == (Token.MISCONFIGURED, ["limits.cpu", "requests.cpu"])
    assert found.text == (
        "ResourceQuota rq of namespace ns demands of every container: requests.cpu, limits.cpu in main. Write it in "
        "the template, or have a LimitRange give a default"
    )
    assert (
        Reckoning(ClusterState(), [limits_quota({"pods": "9", f"requests.{GPU}": "9"})]).over_quota([live])
        == {}
    )


def limits_quota(hard: dict[str, str | int | float]) -> ResourceQuota:
    """A quota that Kubernetes has not taken up yet."""
    return ResourceQuota(metadata=Meta(name="rq", namespace="ns"), spec=ResourceQuotaSpec(hard=hard))


async def test_an_elastic_gang_starts_as_large_as_its_namespace_bears() -> None:
    """The API server would refuse the other pods: a start would be rolled back, and tried again, without end."""
    clock, loop = [100.0], looping(Deciding(), clock=lambda: clock[0])
    committed, state = uncommitted(loop, kept=True), loop.term.state
    state.configure(Rules(tree=QueueTree.of([Queue(path="root.a", namespaces=("ns",))])))
    state.node_changed(Node(name="n1", labels={}, allocatable={"pods": 99}))
    for uid, pods in (("a", 6), ("b", 16), ("c", 16)):
        sets = (PodSet(name="main", count=pods, min_count=4, requests={"pods": 1}),)
        state.put(Live(workload=make.gang(uid, pod_sets=sets), state=State.QUEUED))
        state.job_changed(make.job_view(uid))
    state.take_unread(99)
    cast(Any, loop.term.jobs).resource_quotas = lambda: [limits_quota({"pods": "10"})]
    for _ in range(3):
        async with asyncio.TaskGroup() as group:
            await loop.decisions.follow(group)
        clock[0] += 10.0
    assert [started(changes) for changes in committed] == [["a"], ["b"]], "each would take all the room"
    assert [make.sure(state.live[uid].placement).counts["main"] for uid in ("a", "b")] == [6, 4]
    told = [make.sure(make.sure(changes["c"].after).explanation).primary for changes in committed]
    assert [reason.token for reason in told] == [Token.PENDING_EVALUATION, Token.WAITING_FOR_QUOTA]
