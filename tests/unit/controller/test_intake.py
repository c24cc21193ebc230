"""From a job as it was heard to the snapshot: who cannot be decided on is told so, and the others are decided on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from queuer.controller.apply.jobs import ClusterJobs
from queuer.controller.cycle.snapshot import is_candidate, take
from queuer.controller.intake.read import take_in
from queuer.controller.ledger.round import Round
from queuer.controller.memory.live import JobView
from queuer.controller.memory.state import ClusterState
from queuer.controller.watch.views import Facts, job_view
from queuer.domain.assignments import Bond
from queuer.domain.nodes import HOSTNAME, Node
from queuer.domain.override import Override, Setting
from queuer.domain.queue import Access, PerUser, Queue, QueueTree
from queuer.domain.reasons import Token, Verdict, simple
from queuer.domain.routing import RoutingRule
from queuer.domain.rules import Rules
from queuer.domain.workload import State
from queuer.kube.kinds import PYTORCHJOB
from queuer.kube.workloads import NamespaceFacts
from queuer.solver.decide import decide
from queuer.solver.records import Budget
from tests.unit.make import keep, sure

SPECS = "spec.pytorchReplicaSpecs"
ROLE = {"replicas": 1, "template": {"spec": {"containers": [{"name": "pytorch"}]}}}


def manifest(uid: str, **roles: dict[str, Any]) -> dict[str, Any]:
    meta = {"name": uid, "namespace": "ns", "uid": uid, "labels": {"queuer.dev/queue": "root.a"}}
    return {
        "metadata": meta,
        "spec": {"runPolicy": {"suspend": True}, "pytorchReplicaSpecs": {"Worker": ROLE, **roles}},
    }


def heard(
    *manifests: dict[str, Any],
    most: int | None = None,
    per_user: PerUser | None = None,
    max_runtime: float | None = None,
) -> ClusterState:
    """A node, a queue, and these jobs taken in."""
    state = ClusterState()
    access = Access(max_pending=most, per_user=per_user, max_runtime=max_runtime)
    queue = Queue(path="root.a", namespaces=("ns",), access=access)
    state.configure(Rules(tree=QueueTree.of([queue]), revision=1))
    state.node_changed(host("n0"))
    for found in manifests:
        hear(state, found)
    keep(state, read(state))
    return state


def host(name: str) -> Node:
    return Node(name=name, labels={HOSTNAME: name}, allocatable={"cpu": 8000, "pods": 9})


def hear(state: ClusterState, found: dict[str, Any]) -> None:
    """A job comes or changes."""
    state.job_changed(job_view(PYTORCHJOB, msgspec.convert(found, PYTORCHJOB.type)))


def read(state: ClusterState, changes: Round | None = None, *, now: float = 0.0) -> Round:
    """The round that takes in what is to be read."""
    changes = Round(state.live, now=now) if changes is None else changes
    jobs = ClusterJobs(None, state, Facts())  # type: ignore[arg-type]
    take_in(changes, [*changes, *state.take_unread(99)], state=state, jobs=jobs)
    return changes


def worker(pods: int, cpu: int = 1) -> dict[str, Any]:
    """A role of so many pods."""
    spec = {"containers": [{"name": "pytorch", "resources": {"requests": {"cpu": str(cpu)}}}]}
    return {"replicas": pods, "template": {"spec": spec}}


def told(state: ClusterState, uid: str) -> tuple[Verdict, Token] | None:
    why = state.live[uid].explanation
    return None if why is None else (why.verdict, why.primary.token)


@pytest.mark.parametrize(
    ("roles", "field"),
    [
        ({"Worker": {**ROLE, "replicas": -1}}, f"{SPECS}.Worker.replicas"),
        ({"worker": ROLE}, f"{SPECS}.worker"),
        ({"Worker": {"replicas": 1}}, f"{SPECS}.Worker.template.spec.containers"),
    ],
)
def test_a_job_that_cannot_be_decided_on_is_told_and_stops_nobody(roles: dict[str, Any], field: str) -> None:
    state = heard(manifest("bad", **roles), manifest("good"))
    reason = sure(state.live["bad"].explanation)
    assert reason.primary.token is Token.MISCONFIGURED
    assert reason.primary.params["fields"] == [field]
    plan = decide(take(state, now=0.0), now=0.0, seed=0, budget=Budget(deterministic=0.0))
    assert [a.uid for a in plan.admissions] == ["good"]


def test_a_job_that_runs_without_its_queue_is_told_as_running_until_the_tree_is_back() -> None:
    """After the loss of the database, before the tree is applied again."""
    job = manifest("lost")
    job["metadata"]["labels"]["queuer.dev/queue"] = "root.zz"
    assert "runs" not in _params(heard(job))
    job["spec"]["runPolicy"]["suspend"] = False
    state = heard(job)
    assert _params(state)["runs"]
    tree = QueueTree.of([Queue(path="root.zz", namespaces=("ns",))])
    state.configure(Rules(tree=tree, revision=2))
    keep(state, read(state))
    assert state.live["lost"].explanation is None


def _params(state: ClusterState) -> Mapping[str, Any]:
    """Of the reason of the job `lost`."""
    reason = sure(state.live["lost"].explanation)
    assert "queue root.zz does not exist" in reason.primary.text
    return reason.primary.params


def test_all_faults_of_a_job_are_told_at_once() -> None:
    """An owner who mends one of them need not come back for the next."""
    queue = {"queuer.dev/queue": "root.zz"}
    levels = {"queuer.dev/topology-required": "zone", "queuer.dev/topology-preferred": "pod"}
    odd = worker(1)
    odd["template"]["spec"] |= {"schedulerName": "mine", "nodeName": "n0"}
    for notes, said in (
        (levels, ("queue root.zz does not exist", "level 'zone'", "level 'pod'")),
        ({"queuer.dev/hold": "maybe"}, ("queue root.zz does not exist", "annotation queuer.dev/hold")),
        (
            {"queuer.dev/topology-required": "zone", "queuer.dev/hold": "maybe"},
            ("level 'zone'", "annotation queuer.dev/hold", "there is no PriorityClass 'urgent'", "schedulerName",
             "nodeName"),
        ),
    ):  # fmt: skip
        job = manifest("bad", Worker=odd)
        job["metadata"]["labels"]["queuer.dev/priority-class"] = "urgent"
        job["metadata"]["labels"] |= queue
        job["metadata"]["annotations"] = dict(notes)
        reason = sure(heard(job).live["bad"].explanation)
        for part in said:
            assert part in reason.primary.text


def test_what_could_not_be_read_is_not_told_twice() -> None:
    """Of a runtime that is none nobody says that it is missing, nor of a queue that is no path that it is not there."""
    job = manifest("bad")
    job["metadata"]["annotations"] = {"queuer.dev/max-runtime": "soon"}
    for queue in ("root.a", "Root"):
        job["metadata"]["labels"]["queuer.dev/queue"] = queue
        reason = sure(heard(job, max_runtime=60.0).live["bad"].explanation)
        assert reason.primary.params.keys() == {"fields", "values"}


def test_what_is_beyond_the_limit_waits_for_its_turn_and_moves_up() -> None:
    """By submit time; it is told the limit, is put before no decision, and costs none anything."""
    names = [f"j{n}" for n in range(4)]
    state = heard(*(manifest(name) for name in names), most=2)
    beyond = {uid for uid, live in state.live.items() if live.explanation is not None}
    behind = {uid for uid, live in state.live.items() if not is_candidate(live, state, now=0.0)}
    assert beyond == behind == {"j2", "j3"}
    told = sure(state.live["j3"].explanation)
    assert told.primary.token is Token.BEHIND_IN_QUEUE
    assert "2 jobs of namespace ns wait in root.a" in told.primary.text
    state.drop("j0")
    assert is_candidate(state.live["j2"], state, now=0.0)
    [(uid, change)] = read(state).items()
    assert (uid, change.reread, change.after and change.after.explanation) == ("j2", True, None)


def test_the_victim_of_a_bound_gang_does_not_put_it_out_of_its_line() -> None:
    """The victim comes back with its older submit time. The gang would lose its bond, and evict the victim again."""
    state = heard(manifest("j1"), most=1)
    bond = Bond(uid="j1", assignments=(), victims=("j0",), deadline=9.0)
    state.hold((bond,), ())
    hear(state, manifest("j0"))
    for _ in range(2):
        keep(state, read(state))
    assert take(state, now=0.0).bonds == (bond,)
    assert told(state, "j1") is None
    state.hold((), ())
    keep(state, read(state))
    assert told(state, "j1") == (Verdict.WAIT, Token.BEHIND_IN_QUEUE)
    assert not is_candidate(state.live["j1"], state, now=0.0)


def test_jobs_that_can_never_start_take_no_place_of_a_job_that_can() -> None:
    """Three jobs with a wrong number kept their namespace out. A node that holds them puts them before it again."""
    state = heard(*(manifest(f"j{n}", Worker=worker(1, 9)) for n in range(3)), manifest("k0"), most=2)
    for _ in range(2):
        keep(state, read(state))
    too_large = (Verdict.CHANGE, Token.EXCEEDS_MAX_QUOTA)
    assert [told(state, f"j{n}") for n in range(3)] == [too_large] * 3
    assert {p.workload.uid for p in take(state, now=0.0).pending} == {"k0", "j0"}
    state.node_changed(Node(name="n1", labels={HOSTNAME: "n1"}, allocatable={"cpu": 9000, "pods": 9}))
    for _ in range(3):
        keep(state, read(state))
    assert {p.workload.uid for p in take(state, now=0.0).pending} == {"j0", "j1"}
    assert told(state, "k0") == (Verdict.WAIT, Token.BEHIND_IN_QUEUE)


def test_a_decision_about_one_flavor_costs_a_job_no_place_in_line() -> None:
    """A job that could start elsewhere would leave its place, be read, and come back, from cycle to cycle."""
    state = heard(manifest("j0"), manifest("j1"), most=1)
    word = simple(Token.EXCEEDS_MAX_QUOTA, "the first flavor is too small")
    state.put(replace(state.live["j0"], explanation=word))
    assert [p.workload.uid for p in take(state, now=0.0).pending] == ["j0"]


def test_what_can_never_start_is_told_so_wherever_it_is_in_line() -> None:
    """More than there is, no room for a pod on any node, more than one user may have. Nodes that come are looked at."""
    small, large = manifest("j0"), manifest("j1", Worker=worker(9))
    rigid, greedy = manifest("j2", Worker=worker(1, 9)), manifest("j3", Worker=worker(7))
    rest, mine = manifest("j4"), PerUser(limits={"cpu": 6000})
    too_large = (Verdict.CHANGE, Token.EXCEEDS_MAX_QUOTA)
    behind = (Verdict.WAIT, Token.BEHIND_IN_QUEUE)
    for most, others in ((1, behind), (9, None)):
        state = heard(small, large, rigid, greedy, rest, most=most, per_user=mine)
        found = [told(state, f"j{n}") for n in range(5)]
        assert found == [None, too_large, too_large, too_large if most == 1 else None, others]
        state.node_changed(host("n1"))
        keep(state, read(state))
        no_place = (Verdict.CHANGE, Token.TOPOLOGY_PLACEMENT_FAILED)
        assert [told(state, "j1"), told(state, "j2")] == [too_large if most == 1 else None, no_place]


def test_a_job_that_names_an_inner_queue_is_placed_by_who_queued_it() -> None:
    """By the stamped user; where no rule is for it, it is told so. A change of the rules takes it elsewhere."""
    state = heard()

    def rules(*placement: RoutingRule) -> Rules:
        leaves = (Queue(path=f"root.a.{name}") for name in ("one", "two"))
        return Rules(
            tree=QueueTree.of([Queue(path="root.a", namespaces=("ns",), placement=placement), *leaves]),
            revision=len(placement) + 2,
        )

    def now() -> dict[str, str]:
        keep(state, read(state))
        return {uid: live.workload.queue for uid, live in state.live.items()}

    state.configure(rules(RoutingRule(user="bob", queue="root.a.one")))
    for uid, user in (("b", "bob"), ("c", "carol")):
        found = manifest(uid)
        found["metadata"]["annotations"] = {"queuer.dev/user": user}
        hear(state, found)
    assert now() == {"b": "root.a.one", "c": "root.a"}
    assert (
        "none of its placement rules is for namespace ns and user carol; choose root.a.one"
        in sure(state.live["c"].explanation).primary.text
    )
    state.configure(rules(RoutingRule(user="carol", queue="root.a.one"), RoutingRule(queue="root.a.two")))
    assert now() == {"b": "root.a.two", "c": "root.a.one"}
    assert [live.explanation for live in state.live.values()] == [None, None]
    labelled = RoutingRule(labels={"app": "b"}, queue="root.a.one")
    state.configure(rules(labelled, RoutingRule(queue="root.a.two"), RoutingRule(queue="root.a.one")))
    found = manifest("b")
    found["metadata"]["labels"]["app"] = "b"
    hear(state, found)
    assert now() == {"b": "root.a.one", "c": "root.a.two"}


def test_a_job_that_cannot_be_handled_is_the_only_one_that_is_not_taken_in(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def facts(self: ClusterJobs, job: JobView) -> NamespaceFacts:
        return NamespaceFacts(default_priority=0 if job.uid == "good" else 1 // 0)

    monkeypatch.setattr(ClusterJobs, "facts", facts)
    state = heard(manifest("bad"), manifest("good"))
    assert state.live.keys() == {"good"}


def test_a_job_under_deletion_is_not_taken_in() -> None:
    """Nobody would make pods of it, however long finalizers keep its object."""
    gone = manifest("gone")
    gone["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert set(heard(gone, manifest("here")).live) == {"here"}


def test_nobody_grows_old_on_hold() -> None:
    """M11: a job waits from the end of its owner's hold on. Other edits, and an administrator's hold, cost nothing."""
    made = manifest("a")
    made["metadata"] |= {"creationTimestamp": "1970-01-01T00:00:10Z"}
    held = {**made, "metadata": {**made["metadata"], "annotations": {"queuer.dev/hold": "true"}}}
    state = heard(made)

    def submitted(found: dict[str, Any], *, now: float) -> float:
        hear(state, found)
        keep(state, read(state, now=now))
        return state.live["a"].workload.submitted

    larger = {**made, "spec": {**made["spec"], "pytorchReplicaSpecs": {"Worker": worker(2)}}}
    assert [submitted(made, now=50.0), submitted(larger, now=60.0), submitted(held, now=70.0)] == [10.0] * 3
    assert submitted(larger, now=80.0) == 80.0
    by = Override(hold=Setting(value=True, by="lead", at=90.0, administered=True))
    state.put(replace(state.live["a"], override=by))
    assert submitted(made, now=90.0) == 80.0
    assert state.live["a"].state is State.HELD
    changes = Round(state.live, now=100.0)
    changes.put("a", after=replace(state.live["a"], override=None))
    after = sure(read(state, changes)["a"].after)
    assert (after.state, after.workload.submitted) == (State.QUEUED, 80.0)
