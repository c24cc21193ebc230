"""The controller's memory counts what kube-scheduler counts, and hands the solver a snapshot that does not
change.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from queuer.controller.cycle.snapshot import take
from queuer.controller.failpoints import Deed, Failpoints, Point
from queuer.controller.landing.settle import evicting, requeued
from queuer.controller.memory.live import SLACK, Live
from queuer.controller.memory.pods import Maker, PodIndex, PodView
from queuer.controller.memory.state import ClusterState
from queuer.controller.settings import Settings
from queuer.domain.assignments import Assignment, Placement
from queuer.domain.errors import InvalidInput
from queuer.domain.nodes import HOSTNAME, Node, Topology
from queuer.domain.queue import Queue, QueueTree
from queuer.domain.rules import Rules
from queuer.domain.workload import State
from tests.unit.make import gang, job_view, sure

RACK = "topology.kubernetes.io/rack"
GPU = {"gpu": 4, "pods": 1}
RULES = Rules(
    tree=QueueTree.of(
        [Queue(path="root.a.one", namespaces=("ns",)), Queue(path="root.a"), Queue(path="root.b")]
    ),
    topology=Topology(keys=(RACK,)),
    revision=1,
)
WORKLOAD = gang(pods=3, requests=GPU, name="job", queue="root.a.one")


JOB = job_view(name="job")


def node(name: str, rack: str = "r1", **facts: object) -> Node:
    return Node(name=name, labels={HOSTNAME: name, RACK: rack}, allocatable={"gpu": 8, "pods": 10}, **facts)  # type: ignore[arg-type]


def pod(uid: str, at: str | None = None, **facts: object) -> PodView:
    return PodView(uid=uid, namespace="ns", name=uid, node=at, requests=GPU, **facts)  # type: ignore[arg-type]


def placed(live: Live) -> Live:
    assignment = Assignment(pod_set="main", flavor="default", nodes={"n1": 2, "n2": 1}, selector={RACK: "r1"})
    placement = Placement(id="adm", epoch=1, cycle=1, at=50.0, assignments=(assignment,), patched=50.0)
    return replace(live, state=State.PLACING, placement=placement)


PLACING = placed(Live(workload=WORKLOAD, state=State.QUEUED))


def cluster(*nodes: Node) -> ClusterState:
    """These nodes under the rules."""
    state = ClusterState()
    for each in nodes:
        state.node_changed(each)
    state.configure(RULES)
    return state


def test_a_pod_counts_on_its_node_until_it_ends_or_is_gone() -> None:
    pods = PodIndex()
    pods.put(pod("a", "n1"))
    pods.put(pod("b", "n1", deleted=100.0))
    pods.put(pod("c"))
    assert pods.used("n1") == {"gpu": 8, "pods": 2}
    pods.put(pod("a", "n1", succeeded=True))
    assert pods.used("n1") == GPU
    pods.remove("b")
    assert pods.used("n1") == {}
    pods.remove("b")
    assert len(pods) == 2


def test_pods_go_over_to_the_job_at_the_end_of_a_chain() -> None:
    """Whichever of a TrainJob's JobSet and its Job is heard of first."""
    for order in (("job", "set"), ("set", "job")):
        pods = PodIndex()
        pods.put(pod("a", "n1", owner="job"))
        makers = {"job": Maker(uid="set", pod_set="node"), "set": Maker(uid="train")}
        for name in order:
            pods.made(name, makers[name], namespace=pod("a").namespace)
        known = sure(pods.get("a"))
        assert (known.owner, known.pod_set) == ("train", "node")
        assert pods.payer("job", "main") == ("train", "node")


def test_owners_that_name_each_other_end_the_chain() -> None:
    """A reference is a claim, which anybody may have written before the namespace opted in."""
    pods = PodIndex()
    pods.made("a", Maker(uid="b", pod_set="x"), namespace="ns")
    pods.made("b", Maker(uid="a"), namespace="ns")
    assert pods.payer("a", "main")[1] == "x"


def test_pods_are_given_up_only_with_their_node() -> None:
    """A pod that is long overdue on a node that answers may still run.

    One whose node is gone never comes back.
    """
    state = ClusterState()
    state.node_changed(node("alive"))
    state.node_changed(node("silent", ready=False))
    for name in ("alive", "silent", "removed"):
        state.pod_changed(pod(name, name, owner="u", deleted=100.0))
    held = {p.name for p in state.holding(WORKLOAD, now=399.0, lost_after=300.0)}
    assert held == {"alive", "silent", "removed"}
    assert {p.name for p in state.holding(WORKLOAD, now=400.0, lost_after=300.0)} == {"alive"}


def test_snapshot_holds_bound_pods_where_they_are_and_the_rest_wherever_they_may_land() -> None:
    state = cluster(node("n1"), node("n2"), node("n3", unschedulable=True), node("n4", "r2"))
    went = Live(workload=WORKLOAD, state=State.QUEUED, displaced_by=frozenset({"w"}))
    state.put(placed(went))
    state.pod_changed(pod("a", "n2", owner="u", pod_set="main"))
    state.pod_changed(pod("other", "n4"))
    snapshot = take(state, now=60.0)
    [admitted] = snapshot.admitted
    assert admitted.displaced_by == {"w"}, "who runs again still spares whom it went for"
    assert admitted.bound == {"n2": GPU}
    [unbound] = admitted.unbound
    # n3 is cordoned, n4 is outside the pinned rack; n2 is planned for one pod but kube-scheduler may choose
    # it again.
    assert (unbound.count, unbound.hosts) == (2, ("n1", "n2"))
    assert {n.node.name: dict(n.used) for n in snapshot.nodes} == {"n1": {}, "n2": GPU, "n3": {}, "n4": GPU}
    state.pod_changed(pod("b", "n1", owner="u", pod_set="main"))
    assert snapshot.nodes[0].used == {}, "a snapshot does not change under the solver"


def test_a_decision_sees_the_charge_that_followed_the_pods() -> None:
    state = cluster()
    live = PLACING
    state.put(replace(live, landed=60.0, placement=replace(sure(live.placement), reduced={"main": 1})))
    [admitted] = take(state, now=70.0).admitted
    assert admitted.counts == {"main": 1}


def test_snapshot_says_how_often_a_gang_was_evicted_in_the_last_hour() -> None:
    """Of two victims that cost the same the one that was spared goes; after an hour both are equal again."""
    state = cluster()
    live = PLACING
    for now in (100.0, 200.0):
        live = placed(requeued(evicting(live, now=now)))
    state.put(live)
    seen = [a.evicted for now in (300.0, 3700.0, 3800.0) for a in take(state, now=now).admitted]
    assert seen == [2, 1, 0]
    assert evicting(live, now=3700.0).evictions == (200.0, 3700.0), "older ones are forgotten"


def test_pods_that_keep_off_each_other_do_not_land_where_one_lies() -> None:
    """Else others that start beside them were thought to leave one host too many, and could take the last."""
    state = cluster(*map(node, ("n1", "n2", "n3")))
    [asked] = WORKLOAD.pod_sets
    apart = replace(WORKLOAD, pod_sets=(replace(asked, exclusive_host=True),))
    state.put(placed(Live(workload=apart, state=State.QUEUED)))
    state.pod_changed(pod("a", "n2", owner="u", pod_set="main"))
    state.pod_changed(pod("b", "n1", owner="u", pod_set="main", deleted=50.0))
    [admitted] = take(state, now=60.0).admitted
    [unbound] = admitted.unbound
    assert unbound.hosts == ("n1", "n3"), "n1 is free again once its pod has gone"


def test_a_job_that_could_not_run_again_is_nobodys_victim() -> None:
    """Suspended after its first success, a work queue is Complete: its running pods and their work would be lost."""
    state = cluster()
    state.put(PLACING)
    for restarts in (True, False):
        state.job_changed(job_view(suspended=False, restarts=restarts))
        [admitted] = take(state, now=60.0).admitted
        assert admitted.workload == replace(WORKLOAD, preemptible=restarts)


def test_pods_that_outlive_their_job_can_be_evicted_once() -> None:
    """Their owner had its controller leave them alone. Their work is done, so that they go before all others."""
    state = cluster()
    ended = replace(PLACING, state=State.SUCCEEDED, left=50.0)
    told = replace(ended, placement=replace(sure(ended.placement), unconfirmed=True))
    for live, stays in ((ended, True), (ended, False), (told, True)):
        state.put(live)
        state.job_changed(job_view(suspended=False, outcome=State.SUCCEEDED, lingers=stays))
        [admitted] = take(state, now=60.0).admitted
        victim = stays and live is ended
        assert (admitted.releasing, admitted.checkpoint) == (not victim, 60.0 if victim else None)
        assert (admitted.unbound, admitted.expected_end) == ((), None)


def test_releasing_work_is_counted_in_full_and_waits_for_nothing() -> None:
    state = cluster()
    state.put(replace(PLACING, state=State.SUCCEEDED))
    [admitted] = take(state, now=60.0).admitted
    assert admitted.releasing
    assert admitted.counts == {"main": 3}
    assert not admitted.unbound
    assert admitted.gone_by is None, "it ended before this process led, and no pod says when it goes"


@pytest.mark.parametrize(
    ("left", "pods", "gone_by"),
    [
        (None, {"a": {"deleted": 80.0}, "b": {"deleted": 95.0}}, 95.0),
        (None, {"a": {"deleted": 80.0}, "b": {}}, None),
        (None, {"a": {"deleted": 80.0}, "b": {"succeeded": True}}, 80.0),
        (50.0, {"a": {"deleted": 80.0}, "b": {"grace": 10.0}}, 80.0),
        (50.0, {"a": {"deleted": 60.0}, "b": {"grace": 45.0}}, 95.0),
        (50.0, {"a": {"failed": True}}, 50.0),
    ],
)
def test_pods_say_until_when_releasing_work_holds_what_it_has(
    left: float | None, pods: dict[str, dict[str, object]], gone_by: float | None
) -> None:
    """Kubernetes tells when the grace of a deleted pod ends. Of one that is not deleted yet it is known how long it may
    take once its job has ended, if that was seen.
    """
    state = cluster(node("n1"))
    state.put(replace(PLACING, state=State.EVICTING, left=left))
    for name, facts in pods.items():
        state.pod_changed(pod(name, "n1", owner="u", pod_set="main", **facts))
    [admitted] = take(state, now=60.0).admitted
    assert admitted.gone_by == (None if gone_by is None else gone_by + SLACK)


def test_own_pods_that_bind_do_not_call_for_a_decision_but_all_else_does() -> None:
    state = ClusterState()
    state.put(PLACING)
    assert state.take_stale(), "nothing was decided yet"
    state.pod_changed(pod("a", owner="u", pod_set="main"))
    state.pod_changed(pod("a", "n1", owner="u", pod_set="main"))
    assert not state.take_stale()
    state.pod_gone("a")
    assert state.take_stale()
    state.pod_changed(pod("other", "n1"))
    assert state.take_stale()
    state.node_changed(node("n1"))
    assert state.take_stale()
    state.node_changed(node("n1"))
    assert not state.take_stale(), "a heartbeat changes nothing"


def test_new_rules_have_every_waiting_job_read_again() -> None:
    state = ClusterState()
    state.put(Live(workload=WORKLOAD, state=State.QUEUED))
    state.job_changed(JOB)
    state.take_unread(99)
    state.configure(RULES)
    assert state.take_unread(9) == ["u"]
    assert state.take_unread(9) == []


def test_jobs_are_read_when_they_change_and_looked_at_when_they_go() -> None:
    state = ClusterState()
    state.job_changed(JOB)
    assert (state.take_unread(9), state.take_touched(9)) == (["u"], ("u",))
    state.job_gone("u")
    assert (state.take_unread(9), state.take_touched(9)) == ([], ("u",))


def test_settings_come_from_the_environment_and_name_what_is_wrong() -> None:
    environ = {"QUEUER_LANDING_DEADLINE": "5", "QUEUER_CONTROLLER_PORT": "80"}
    settings = Settings.from_env({"QUEUER_DATABASE_URL": "postgresql://x", **environ})
    assert (settings.landing_deadline, settings.port, settings.kubeconfig) == (5.0, 80, None)
    with pytest.raises(InvalidInput) as caught:
        Settings.from_env({"QUEUER_PATCHES": "0", "QUEUER_BOND": "0", "QUEUER_FAILPOINTS": "nowhere=kill"})
    wrong = {problem.field.removeprefix("QUEUER_") for problem in caught.value.problems}
    assert wrong == {"PATCHES", "BOND", "FAILPOINTS", "DATABASE_URL"}


def test_failpoints_are_parsed_with_their_passage() -> None:
    armed = Failpoints.parse("committed=kill, admitted=stop@3").armed
    assert (armed[Point.COMMITTED].deed, armed[Point.ADMITTED].passages) == (Deed.KILL, 3)


def test_the_first_run_of_a_queue_gives_an_estimate_to_who_waits_or_runs_there() -> None:
    """Those of other queues keep none; one estimated by what a former term knew is estimated anew."""
    state = ClusterState()
    mine, told = Live(workload=WORKLOAD, state=State.QUEUED), replace(WORKLOAD, uid="t", estimate=5.0)
    state.put(placed(mine))
    state.put(Live(workload=told, state=State.QUEUED))
    state.put(Live(workload=replace(WORKLOAD, uid="o", queue="root.b"), state=State.QUEUED))
    state.learn(WORKLOAD, 300.0)
    estimates = {uid: live.workload.estimate for uid, live in state.live.items()}
    assert estimates == {"u": 300.0, "t": 300.0, "o": None}
    state.configure(RULES)
    (running,) = take(state, now=100.0).admitted
    assert running.expected_end == 350.0
