"""The part of a plan that is committed when the world moved on meanwhile."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from msgspec import convert

from queuer.controller.cycle.build import FEW, Builder
from queuer.controller.cycle.judge import DecisionRequest, judge
from queuer.controller.cycle.namespace_quota import Reckoning
from queuer.controller.ledger.round import Round
from queuer.controller.memory.live import JobView, Live
from queuer.controller.memory.state import ClusterState
from queuer.domain.assignments import (
    Admission,
    Bond,
    Eviction,
    EvictionRule,
    LostWork,
    Placement,
    SolveStatus,
)
from queuer.domain.queue import Queue, QueueTree
from queuer.domain.reasons import Explanation, Reason, Token
from queuer.domain.rules import Rules
from queuer.domain.workload import State
from queuer.kube.objects import Meta, ResourceQuota, ResourceQuotaStatus
from queuer.kube.workloads import NamespaceFacts
from queuer.solver.records import CycleStats, Pending, Plan, Snapshot
from queuer.store.tables import NotAsked
from tests.solver.make import plan_of
from tests.unit.make import assigned, gang, job_view, keep, placed, pod_view, sure

PLACE = assigned({"n1": 1})
STATS = CycleStats(status=SolveStatus.GREEDY)


class Patches:
    """Stands in for `jobs.ClusterJobs`; `edited`: jobs that ask for something else by now."""

    def __init__(
        self,
        state: ClusterState,
        edited: frozenset[str] = frozenset(),
        quotas: tuple[ResourceQuota, ...] = (),
    ) -> None:
        self._state, self._edited, self._quotas = state, edited, quotas

    def admit(self, live: Live, placement: Placement, *, domains: tuple[str, ...]) -> Mapping[str, Any]:
        return {"for": self._state.jobs[live.uid].resource_version}

    def evict(self, live: Live) -> Mapping[str, Any]:
        return {"for": self._state.jobs[live.uid].resource_version}

    def as_decided(self, job: JobView) -> bool:
        return job.uid not in self._edited

    def facts(self, job: JobView) -> NamespaceFacts:
        return NamespaceFacts()

    def resource_quotas(self) -> tuple[ResourceQuota, ...]:
        return self._quotas


LOST = LostWork(resource="nvidia.com/gpu", amount=162, all=200, next=201, proved=True)


def world() -> tuple[ClusterState, DecisionRequest, Plan]:
    """`a` is admitted, `b` is bound to the place of `v`, which is evicted for it."""
    state = ClusterState()
    state.configure(
        Rules(tree=QueueTree.of([Queue(path=gang("a").queue, namespaces=(gang("a").namespace,))]))
    )
    pending = [gang("a"), gang("b")]
    for one in pending:
        state.put(Live(workload=one, state=State.QUEUED))
    placement = placed({"n1": 1}, patched=1.0)
    state.put(Live(workload=gang("v"), state=State.RUNNING, placement=placement, landed=2.0))
    for uid in ("a", "b", "v"):
        state.job_changed(job_view(uid))
    state.take_unread(99)
    snapshot = Snapshot(nodes=(), tree=state.rules.tree, pending=tuple(Pending(workload=w) for w in pending))
    plan = plan_of(
        admissions=(Admission(uid="a", assignments=(PLACE,)),),
        evictions=(Eviction(uid="v", beneficiary="b", rule=EvictionRule.RECLAIM, lost=LOST),),
        bonds=(Bond(uid="b", assignments=(PLACE,), victims=("v",), deadline=900.0),),
        order=("a", "b"),
    )
    return state, DecisionRequest(snapshot=snapshot, cycle=2, at=10.0, trigger="change"), plan


def committed(
    state: ClusterState, asked: DecisionRequest, plan: Plan, *,
    edited: frozenset[str] = frozenset(), quotas: tuple[ResourceQuota, ...] = (), now: float = 11.0,
) -> Round:  # fmt: skip
    """The round that carries out what of a plan still holds."""
    patches = Patches(state, edited, quotas)
    builder = Builder(state=state, patches=patches, epoch=1, new_id=lambda: "new", retell=30.0)
    return builder.build(asked, plan, judge(asked, plan, state, jobs=patches, now=now), now=now)


def uids(found: Round) -> tuple[list[str], list[str], list[str]]:
    return (
        [uid for uid, change in found.items() if change.admits],
        [uid for uid, change in found.items() if change.evicts],
        [b.uid for b in found.bonds or ()],
    )


def reasons(found: Round) -> dict[str, Explanation]:
    """The new reasons, to be written now or later."""
    return {
        uid: change.after.explanation
        for uid, change in found.items()
        if change.after is not None and change.after.explanation is not None
    }


def test_a_plan_that_still_holds_is_committed_whole() -> None:
    """An evicted gang remembers its one beneficiary, and is told; a gang that starts remembers it, too."""
    state, asked, plan = world()
    for uid in ("a", "b", "v"):
        state.put(replace(state.live[uid], displaced_by=frozenset({f"earlier {uid}"})))
    state.take_unread(99)
    found = committed(state, asked, plan)
    assert uids(found) == (["a"], ["v"], ["b"])
    after = {uid: change.after for uid, change in found.items()}
    told = {uid: sorted(live.displaced_by) for uid, live in after.items() if live is not None}
    assert told == {"a": ["earlier a"], "v": ["b"]}
    victim = sure(after["v"])
    assert victim.state is State.EVICTING
    assert sure(victim.placement).unconfirmed
    assert found["v"].note == (
        "evicted for ns/b in root.a, which asks 1 pod and takes back what root.a is guaranteed (reclaim at root.a); "
        "it loses 162 gpu-seconds of work, all evictions for that job 200 gpu-seconds: the least lost work that makes "
        "room (proved on the nodes looked at); the next best set looked at would lose 201 gpu-seconds"
    )
    assert reasons(found)["v"].primary.text.startswith(found["v"].note)


def test_a_job_that_was_edited_meanwhile_is_not_started_as_it_was() -> None:
    """Its newest resourceVersion is known already, so the API server would not object."""
    state, asked, plan = world()
    state.job_changed(replace(job_view("a"), resource_version="6"))
    assert uids(committed(state, asked, plan, edited=frozenset("a")))[0] == []
    assert uids(committed(state, asked, plan))[0] == ["a"], "a write that changes nothing it asks for"


def test_a_job_that_was_deleted_meanwhile_is_not_started() -> None:
    state, asked, plan = world()
    state.job_gone("a")
    assert uids(committed(state, asked, plan))[0] == []


def test_nobody_is_evicted_for_a_job_that_does_not_wait_for_the_place_any_more() -> None:
    """An eviction is made only with the proof of where its beneficiary goes."""
    state, asked, plan = world()
    state.job_gone("b")
    assert uids(committed(state, asked, plan)) == (["a"], [], [])
    state, asked, plan = world()
    state.put(replace(state.live["b"], state=State.HELD))
    assert uids(committed(state, asked, plan)) == (["a"], [], [])


def test_an_estimate_learned_meanwhile_makes_no_other_job() -> None:
    """The first run of a queue that ends tells all that wait there how long they may take."""
    state, asked, plan = world()
    state.learn(gang("ended"), 100.0)
    assert state.live["a"].workload.estimate is not None
    found = committed(state, asked, plan)
    assert uids(found) == (["a"], ["v"], ["b"])
    assert sure(found["a"].after).workload == state.live["a"].workload, "as it is known now"


def pods(hard: int, *, used: int) -> tuple[ResourceQuota, ...]:
    """The ResourceQuota of the namespace."""
    amounts = {"hard": {"pods": str(hard)}, "used": {"pods": str(used)}}
    return (
        ResourceQuota(metadata=Meta(name="rq", namespace="ns"), status=convert(amounts, ResourceQuotaStatus)),
    )


def test_the_pods_of_ended_work_are_evicted_and_its_state_and_reason_stay() -> None:
    state, asked, plan = world()
    ended = replace(state.live["v"], state=State.SUCCEEDED)
    state.put(ended)
    for stays in (False, True):
        state.job_changed(replace(state.jobs["v"], outcome=State.SUCCEEDED, lingers=stays))
        assert uids(committed(state, asked, plan))[1:] == ((["v"], ["b"]) if stays else ([], ["b"]))
    change = committed(state, asked, plan)["v"]
    after = sure(change.after)
    assert (after.state, after.explanation) == (State.SUCCEEDED, ended.explanation)
    assert change.transition(at=11.0) is None


def test_nobody_is_evicted_for_a_gang_that_its_namespace_does_not_bear() -> None:
    """The started job takes the last of the ResourceQuota; the next cycle would bar the other."""
    state, asked, plan = world()
    late = {"b": full(1, token=Token.WAITING_FOR_PREEMPTED_WORKLOADS)}
    found = committed(state, asked, replace(plan, explanations=late), quotas=pods(2, used=1))
    assert uids(found) == (["a"], [], [])
    assert reasons(found)["b"].primary.params["resourceQuota"] == "rq"
    assert uids(committed(state, asked, plan, quotas=pods(3, used=1))) == (["a"], ["v"], ["b"])


def test_a_bound_gang_takes_what_its_victim_leaves_of_a_namespace_once() -> None:
    state, asked, plan = world()
    state.pod_changed(pod_view(owner="v"))
    assert uids(committed(state, asked, plan, quotas=pods(2, used=1))) == (["a"], ["v"], ["b"])
    both = replace(plan, admissions=(), bonds=(*plan.bonds, replace(plan.bonds[0], uid="a")))
    assert uids(committed(state, asked, both, quotas=pods(1, used=1))) == ([], ["v"], ["b"])
    assert uids(committed(state, asked, both, quotas=pods(2, used=1))) == ([], ["v"], ["b", "a"])


def test_a_gang_is_not_bound_to_the_room_of_who_stays() -> None:
    """Another gang's victim need not be one of its own."""
    state, asked, plan = world()
    state.put(replace(state.live["b"], workload=replace(gang("b"), namespace="elsewhere")))
    pending = tuple(Pending(workload=state.live[uid].workload) for uid in ("a", "b"))
    asked = replace(asked, snapshot=replace(asked.snapshot, pending=pending))
    late = {uid: full(1, token=Token.WAITING_FOR_PREEMPTED_WORKLOADS) for uid in ("a", "b")}
    plan = replace(
        plan, admissions=(), explanations=late, bonds=(*plan.bonds, replace(plan.bonds[0], uid="a")),
        evictions=(replace(plan.evictions[0], beneficiary="a"),),
    )  # fmt: skip
    assert uids(committed(state, asked, plan, quotas=pods(2, used=1))) == ([], ["v"], ["b", "a"])
    found = committed(state, asked, plan, quotas=pods(1, used=1))
    assert uids(found) == ([], [], [])
    assert {uid: told.primary.token for uid, told in reasons(found).items()} == {
        "a": Token.WAITING_FOR_QUOTA, "b": Token.PENDING_EVALUATION,
    }  # fmt: skip


def test_a_bond_stands_though_the_namespace_does_not_bear_its_gang_for_now() -> None:
    """Work was lost for it. It is offered, its part of the ResourceQuota is kept, and so is its place."""
    state, asked, plan = world()
    state.bonds = plan.bonds
    state.put(replace(state.live["v"], state=State.EVICTING))
    assert list(Reckoning(state, pods(2, used=1)).over_quota(state.live.values())) == ["a", "v"]
    asked = replace(asked, snapshot=replace(asked.snapshot, bonds=plan.bonds))
    there = replace(plan, evictions=())
    assert uids(committed(state, asked, there, quotas=pods(2, used=1))) == ([], [], ["b"])
    elsewhere = replace(PLACE, nodes={"n2": 1})
    starts = replace(there, admissions=(Admission(uid="b", assignments=(elsewhere,)),), bonds=())
    assert uids(committed(state, asked, starts, quotas=pods(2, used=1))) == (["b"], [], [])
    found = committed(state, asked, starts, quotas=pods(1, used=1))
    assert found.bonds
    assert (uids(found), found.bonds[0].assignments) == (([], [], ["b"]), (elsewhere,))
    late = plan.bonds[0].deadline
    assert uids(committed(state, asked, starts, quotas=pods(1, used=1), now=late)) == ([], [], [])


def waiting(count: int) -> tuple[ClusterState, DecisionRequest, Plan]:
    """So many workloads that wait, and a plan that admits none."""
    state, asked, plan = world()
    pending = [Pending(workload=gang(f"w{n}")) for n in range(count)]
    for one in pending:
        state.put(Live(workload=one.workload, state=State.QUEUED))
    snapshot = replace(asked.snapshot, pending=(*asked.snapshot.pending, *pending))
    return state, replace(asked, snapshot=snapshot), replace(plan, admissions=(), evictions=(), bonds=())


def full(used: int, *, token: Token = Token.WAITING_FOR_QUOTA, queue: str = "root.a") -> Explanation:
    """A reason with a figure in it."""
    params = {"queue": queue, "used": str(used)}
    return Explanation(primary=Reason(token=token, said=f"{queue} uses {used} of 9.", params=params))


def told(
    state: ClusterState, asked: DecisionRequest, plan: Plan, explanation: Explanation, *, now: float
) -> int:
    """How many reasons are written when all are told this; memory is as the commit leaves it."""
    explanations = {uid: explanation for uid in state.live if uid.startswith("w")}
    found = committed(state, asked, replace(plan, explanations=explanations), now=now)
    assert all(sure(change.after).explanation == explanation for change in found.values())
    keep(state, found)
    return len(found)


def test_where_many_wait_figures_alone_are_written_now_and_then() -> None:
    """A new reason is written at once, and the newest figures come, if nothing else does."""
    state, asked, plan = waiting(FEW + 1)
    assert told(state, asked, plan, full(1), now=100.0) == FEW + 1
    assert told(state, asked, plan, full(2), now=110.0) == 0, "a figure"
    assert told(state, asked, plan, full(2), now=130.0) == FEW, "the figure, in time"
    assert told(state, asked, plan, full(2), now=131.0) == 1, "not all at once"
    assert told(state, asked, plan, full(2), now=190.0) == 0, "nothing new"
    assert told(state, asked, plan, full(2, token=Token.SOLVER_DEFERRED), now=191.0) == FEW + 1, "a token"
    assert told(state, asked, plan, full(2, token=Token.SOLVER_DEFERRED, queue="root"), now=192.0) == FEW + 1
    with_range = replace(full(3, token=Token.SOLVER_DEFERRED, queue="root"), detail={"estimate": {}})
    assert told(state, asked, plan, with_range, now=193.0) == FEW + 1, "a part that was not there"


@pytest.mark.parametrize("not_asked", [False, True])
def test_what_was_found_wrong_meanwhile_is_not_told_otherwise(not_asked: bool) -> None:
    """Nor is a job started whose queue is not there any more."""
    state, asked, plan = world()
    state.put(replace(state.live["a"], not_asked=NotAsked.MISCONFIGURED))
    late = {"a": full(1)}
    if not_asked:
        pending = tuple(p for p in asked.snapshot.pending if p.workload.uid != "a")
        asked = replace(asked, snapshot=replace(asked.snapshot, pending=pending), not_asked=late)
        plan = replace(plan, admissions=())
    found = committed(state, asked, replace(plan, explanations={} if not_asked else late))
    assert "a" not in found


def test_what_is_held_or_edited_meanwhile_keeps_what_it_was_told_then() -> None:
    state, asked, plan = world()
    state.put(replace(state.live["a"], state=State.HELD, explanation=full(0, token=Token.ON_HOLD)))
    state.put(replace(state.live["b"], workload=replace(gang("b"), priority=1)))
    late = {uid: full(1) for uid in ("a", "b")}
    assert committed(state, asked, replace(plan, explanations=late)) == {}


def test_where_few_wait_every_figure_is_written() -> None:
    state, asked, plan = waiting(FEW)
    assert [told(state, asked, plan, full(used), now=100.0) for used in (1, 2, 3)] == [FEW, FEW, FEW]
