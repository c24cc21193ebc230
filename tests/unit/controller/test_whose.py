"""Ownership of jobs and pods: nobody is charged for another's claims."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from queuer.controller.cycle.snapshot import take
from queuer.controller.health.metrics import Metrics
from queuer.controller.intake.adoption import Found, adopt
from queuer.controller.intake.read import take_in
from queuer.controller.landing.settle import requeued
from queuer.controller.landing.writes import settle_touched
from queuer.controller.ledger.round import Round
from queuer.controller.memory.live import Live
from queuer.controller.memory.pods import PodView
from queuer.controller.memory.state import ClusterState
from queuer.controller.watch.views import Facts
from queuer.controller.watch.watches import Watches
from queuer.domain.keys import ADMISSION, MANAGED, WORKLOAD
from queuer.domain.nodes import HOSTNAME, Node
from queuer.domain.queue import Queue, QueueTree
from queuer.domain.reasons import Verdict, malformed
from queuer.domain.rules import Rules
from queuer.domain.workload import State
from queuer.kube.client import Client
from queuer.kube.kinds import JOB
from queuer.kube.objects import Job, JobSpec, Meta, Namespace, OwnerReference, Pod, PodSpec, PodTemplate
from queuer.kube.reflector import Change, ChangeKind
from tests.unit.landed import LIMITS
from tests.unit.make import gang, job_view, keep, placed, sure

GPU = {"gpu": 4, "pods": 1}
ASKS = gang(requests=GPU, name="job")
PLACE = placed({"n1": 1}, at=50.0, patched=50.0)
RUNS = Live(workload=ASKS, state=State.RUNNING, placement=PLACE, landed=51.0)
RULES = Rules(
    tree=QueueTree.of([Queue(path="root.a", namespaces=("ns",)), Queue(path="root.b", namespaces=("other",))])
)
FORGED = Job(
    metadata=Meta(
        uid="u", name="job", namespace="ns", resource_version="1", labels={"queuer.dev/queue": "root.a"},
        annotations={ADMISSION: json.dumps({"id": "forged"})},
    ),
    spec=JobSpec(template=PodTemplate()),
)  # fmt: skip


def replace_spec(job: Job, **changed: Any) -> Job:
    return msgspec.structs.replace(job, spec=msgspec.structs.replace(job.spec, **changed))


SUSPENDED = replace_spec(FORGED, suspend=True)


def watched() -> tuple[ClusterState, Watches, Facts]:
    state, facts = ClusterState(), Facts()
    return state, Watches(cast(Client, None), state, facts, kinds=()), facts


def hear(watches: Watches, found: Job) -> None:
    watches._job(JOB)(Change(kind=ChangeKind.ADDED, object=found))


def opt(watches: Watches, name: str, value: str | None) -> None:
    labels = {} if value is None else {MANAGED: value}
    namespace = Namespace(metadata=Meta(uid=f"uid of {name}", name=name, labels=labels))
    watches._namespace(Change(kind=ChangeKind.MODIFIED, object=namespace))


# -- jobs


def test_a_forged_admission_in_a_namespace_that_did_not_opt_in_is_not_read() -> None:
    state, watches, _ = watched()
    hear(watches, FORGED)
    assert (dict(state.jobs), state.take_unread(99)) == ({}, [])
    state.restore([], rules=RULES)
    assert dict(state.jobs) == {}, "nor when a term begins"


@pytest.mark.parametrize("leads", [False, True], ids=["before the term", "while it leads"])
def test_what_was_admitted_is_followed_though_its_namespace_opted_out(leads: bool) -> None:
    """To the end of that admission: back in its queue it would be ours no more than any other job there."""
    state, watches, _ = watched()
    if leads:
        state.restore([RUNS], rules=RULES)
        hear(watches, FORGED)
    else:
        hear(watches, FORGED)
        state.restore([RUNS], rules=RULES)
    assert list(state.jobs) == ["u"]
    state.take_touched(99)
    state.put(requeued(RUNS))
    assert dict(state.jobs) == {}
    assert state.take_touched(99) == ("u",), "it is looked at, and seen to be gone"


def test_a_namespace_that_opts_out_and_in_again_has_its_jobs_back() -> None:
    state, watches, _ = watched()
    opt(watches, "ns", "true")
    watches._jobs["Job"] = (JOB, cast(Any, SimpleNamespace(items={"u": FORGED})))
    hear(watches, FORGED)
    for value, there in ((None, []), ("required", ["u"])):
        opt(watches, "ns", value)
        assert list(state.jobs) == there


def test_jobs_that_wait_keep_their_place_while_their_namespace_takes_no_part() -> None:
    """Guards against jobs that are called deleted and hang for ever: they are told, and back with their submit time."""
    state, watches, facts = watched()
    state.configure(RULES)
    opt(watches, "ns", "true")
    watches._jobs["Job"] = (JOB, cast(Any, SimpleNamespace(items={"u": SUSPENDED})))
    hear(watches, SUSPENDED)
    state.put(Live(workload=replace(ASKS, submitted=7.0), state=State.QUEUED))
    opt(watches, "ns", None)

    def settled(now: float) -> Live:
        changes = Round(state.live, now=now)
        jobs: Any = None
        settle_touched(changes, state.take_touched(99), state=state, jobs=jobs, confirmer=jobs, limits=LIMITS)
        assert all(change.reread for change in changes.values()), (
            "the row has the reason, and no place in line"
        )
        keep(state, changes)
        return state.live["u"]

    told = settled(1764430380.0)
    assert told.state is State.QUEUED
    assert not told.in_line
    why = sure(told.explanation)
    assert why.verdict is Verdict.HELD
    assert why.primary.text == (
        "not queued any more since 2025-11-29 15:33:00 UTC: namespace ns lost queuer.dev/managed; "
        "the job stays suspended."
    )
    assert settled(1764430400.0) is told, "nothing is written twice"
    hear(watches, replace_spec(SUSPENDED, suspend=False))
    runs = sure(settled(1764430500.0).explanation)
    assert runs.primary.text.endswith("the job runs, and no queue pays for it.")
    assert "since 2025-11-29 15:33" in runs.primary.text

    opt(watches, "ns", "true")
    reader: Any = SimpleNamespace(
        reading=lambda job: (replace(ASKS, submitted=99.0), ()), facts=lambda job: facts.of("ns")
    )
    changes = Round(state.live, now=1764430600.0)
    take_in(changes, state.take_unread(99), state=state, jobs=reader)
    back = sure(changes["u"].after)
    assert (back.in_line, back.explanation, back.workload.submitted) == (True, None, 7.0)


def test_a_job_that_is_deleted_while_its_namespace_takes_no_part_is_forgotten() -> None:
    state, watches, _ = watched()
    hear(watches, SUSPENDED)
    state.put(Live(workload=ASKS, state=State.QUEUED))
    state.take_touched(99)
    watches._job(JOB)(Change(kind=ChangeKind.DELETED, object=SUSPENDED))
    assert (state.take_touched(99), dict(state.elsewhere)) == (("u",), {})


@pytest.mark.parametrize(
    ("change", "charged"),
    [
        ({}, True),
        ({"queue": "root.b"}, False),
        ({"queue": "root.nowhere"}, False),
        ({"queue": "root"}, False),
        ({"pod_sets": ()}, False),
        ({"required": "no such level"}, True),
    ],
    ids=["its queue", "another's queue", "no queue", "no leaf", "unreadable", "only its place is wrong"],
)
@pytest.mark.parametrize("before", [State.QUEUED, State.HELD])
def test_a_job_that_was_started_beside_the_queues_is_charged_where_it_could_have_waited(
    before: State, change: dict[str, Any], charged: bool
) -> None:
    """A pod that is charged to nobody counts on its node, and is reported once."""
    state, metrics = ClusterState(), Metrics()
    state.configure(RULES)
    asks = replace(ASKS, **change)
    state.put(Live(workload=asks, state=before, explanation=malformed([]) if not asks.pod_sets else None))
    state.job_changed(job_view(name="job", suspended=False))
    found = Found(state, metrics)
    lives = found.among(["u"])
    assert found.among(["u"]) == lives
    assert [live.uid for live in lives] == (["u"] if charged else [])
    reported = "queuer_adoptions_refused_total 1.0" in metrics.text((), RULES.tree).decode()
    assert reported is not charged
    if charged:
        jobs: Any = SimpleNamespace(adopt=lambda live, placement: {})
        adopted = adopt(lives, state=state, jobs=jobs, epoch=1, cycle=2, now=11.0, new_id=lambda: "new")
        [made] = adopted.values()
        assert (made.uid, sure(made.admission).before, len(made.charges)) == ("u", before, 1)
        assert sure(made.after).state is State.ADMITTED


# -- pods


def heard_pod(
    watches: Watches, namespace: str, *, owner: str | None = None, label: str | None = None
) -> None:
    reference = OwnerReference(
        api_version="batch/v1", kind="Job", name="job", uid=owner or "", controller=True
    )
    meta = Meta(
        uid=f"{namespace} {owner} {label}", name="p", namespace=namespace,
        labels={} if label is None else {WORKLOAD: label}, owner_references=[] if owner is None else [reference],
    )  # fmt: skip
    pod = Pod(metadata=meta, spec=PodSpec(node_name="n1"))
    watches._pod(Change(kind=ChangeKind.ADDED, object=pod))


@pytest.mark.parametrize("says", [{"label": "u"}, {"owner": "u"}], ids=["label", "owner"])
@pytest.mark.parametrize("leads", [False, True], ids=["before the term", "while it leads"])
def test_a_pod_of_another_namespace_is_not_of_the_job_that_it_names(
    says: dict[str, str], leads: bool
) -> None:
    state, watches, _ = watched()
    state.node_changed(Node(name="n1", labels={HOSTNAME: "n1"}, allocatable={"gpu": 8, "pods": 10}))
    for step in ("restore", "pod") if leads else ("pod", "restore"):
        if step == "restore":
            state.restore([RUNS], rules=RULES)
            state.take_touched(99), state.take_stale()
        else:
            heard_pod(watches, "attacker", **says)
    if leads:
        assert (state.take_touched(99), state.take_stale()) == ((), True), "its room is gone, no more"
    assert state.holding(ASKS, now=60.0, lost_after=300.0) == ()
    [admitted] = take(state, now=60.0).admitted
    assert admitted.bound == {}
    assert state.pods.used("n1") == {"pods": 1}
    heard_pod(watches, "ns", **says)
    assert len(state.pods.of(ASKS)) == 1


def test_a_pod_keeps_the_job_that_it_was_seen_with() -> None:
    """Somebody takes the reference and the label off it."""
    state, watches, _ = watched()
    state.restore([RUNS], rules=RULES)
    heard_pod(watches, "ns", owner="u", label="u")
    bare = Pod(metadata=Meta(uid="ns u u", name="p", namespace="ns"), spec=PodSpec(node_name="n1"))
    watches._pod(Change(kind=ChangeKind.MODIFIED, object=bare))
    [pod] = state.pods.of(ASKS)
    assert isinstance(pod, PodView)
    assert (pod.owner, pod.pod_set) == ("u", "main")
