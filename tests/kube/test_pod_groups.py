"""Pods that queue by themselves become workloads: which of them start together, what they ask for, how they end."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from queuer.controller.apply.applier import ConflictVerdict, judge
from queuer.controller.memory.live import JobView
from queuer.controller.watch.pod_groups import PodGroups
from queuer.controller.watch.views import job_view
from queuer.domain.errors import InvalidInput
from queuer.domain.workload import State, Workload
from queuer.kube.gated import ChangedError, decided_on, deleted, pod_patches
from queuer.kube.kinds import POD, queues_by_itself
from queuer.kube.kinds.pod import PodGroup, group_of, runs_of
from queuer.kube.objects import Pod
from queuer.kube.patches import AdmissionMark, admit_patch, evict_patch, own_roles
from queuer.kube.template import Pin
from queuer.kube.workloads import read_workload, workload_of
from queuer.store.tables import EntryKind
from tests.kube.manifests import FACTS
from tests.unit.make import entry_of, gang, sure

GATES = [{"name": "queuer.dev/queue"}]
MARK = AdmissionMark(id="a1", epoch=1, cycle=1)
PINS = [Pin(pod_set="main", count=2, selector={"rack": "r1"}, hosts=("n1", "n2"))]


def pod(
    name: str, *, group: str | None = "g", size: str = "2", gated: bool = True, phase: str = "Pending",
    run: str | None = None, admission: str | None = None, at: int = 0, gpus: int = 1, **more: Any,
) -> Pod:  # fmt: skip
    labels = {"queuer.dev/queue": "root.a"} | ({"queuer.dev/workload": run} if run else {})
    notes = {"queuer.dev/admission": json.dumps({"id": admission})} if admission else {}
    if group is not None:
        labels["queuer.dev/pod-group"] = group
        notes["queuer.dev/pod-group-size"] = size
    meta = {
        "name": name, "namespace": "n", "uid": f"u-{name}", "resourceVersion": "7",
        "creationTimestamp": f"2026-01-01T00:00:{at:02}Z", "labels": labels | more.pop("labels", {}),
        "annotations": notes, **more.pop("meta", {}),
    }  # fmt: skip
    resources = {"limits": {"nvidia.com/gpu": str(gpus)}}
    spec = {
        "containers": [{"name": "c", "resources": resources}],
        **({"schedulingGates": GATES} if gated else {}),
    }
    return msgspec.convert({"metadata": meta, "spec": spec | more, "status": {"phase": phase}}, Pod)


OWNER = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "o", "uid": "o", "controller": True}
BY = "system:serviceaccount:kube-system:statefulset-controller"
KNOWN: dict[str, Workload] = {"old": gang("old", namespace="n", name="g", kind="Pod", user=BY)}


def by_controller(name: str, *, user: str = BY) -> Pod:
    """A pod of the group that a StatefulSet makes."""
    notes = {"queuer.dev/pod-group-size": "2", "queuer.dev/user": user}
    return pod(name, meta={"ownerReferences": [OWNER], "annotations": notes})


STARTED = pod("a", gated=False, run="u", admission="a1")


def group(*pods: Pod) -> PodGroup:
    return group_of("u", pods)


def problem(*pods: Pod) -> str:
    with pytest.raises(InvalidInput) as error:
        workload_of(POD, group(*pods), facts=FACTS)
    return str(error.value)


def test_a_group_asks_for_all_its_pods() -> None:
    found = workload_of(POD, group(pod("a"), pod("b")), facts=FACTS)
    assert (found.name, found.queue, found.kind) == ("g", "root.a", "Pod")
    assert [(p.name, p.count, p.requests["nvidia.com/gpu"]) for p in found.pod_sets] == [("main", 2, 1)]


def test_a_pod_without_a_group_is_a_workload_by_its_own_name() -> None:
    found = workload_of(POD, group(pod("a", group=None)), facts=FACTS)
    assert (found.name, [p.count for p in found.pod_sets]) == ("a", [1])


def test_a_group_of_a_leaderworkerset_has_a_leader_and_workers() -> None:
    lws = "leaderworkerset.sigs.k8s.io"

    def member(index: int) -> Pod:
        labels = {f"{lws}/name": "llm", f"{lws}/group-index": "3", f"{lws}/worker-index": str(index)}
        meta = {"annotations": {f"{lws}/size": "3"}}
        return pod(f"p{index}", group=None, labels=labels, meta=meta, gpus=8 if index else 1)

    found = workload_of(POD, group(*map(member, range(3))), facts=FACTS)
    assert (found.name, [(p.name, p.count) for p in found.pod_sets]) == (
        "llm-3",
        [("leader", 1), ("workers", 2)],
    )


@pytest.mark.parametrize(
    ("pods", "said"),
    [
        ([pod("a")], "says 2, and the group has 1 pod"),
        ([pod("a"), pod("b"), pod("c")], "delete those that are too many"),
        ([pod("a", size="two"), pod("b", size="two")], "is no number of pods"),
        ([pod("a", size="0")], "is no number of pods"),
        ([pod("a"), pod("b", gpus=2)], "pods that ask for different things"),
        ([pod("a"), pod("b", labels={"queuer.dev/queue": "root.b"})], "is not the same on all pods"),
        ([pod("a", schedulingGates=[*GATES, {"name": "other"}]), pod("b")], "schedulingGates"),
    ],
    ids=["too few", "too many", "words", "none", "shapes", "queues", "gates of others"],
)  # fmt: skip
def test_a_group_that_cannot_start_says_what_to_mend(pods: list[Pod], said: str) -> None:
    assert said in problem(*pods)


def test_pods_that_ask_for_different_things_are_told_apart_by_a_label() -> None:
    large = pod("b", gpus=8, labels={"queuer.dev/pod-set": "large"})
    found = workload_of(POD, group(pod("a"), large), facts=FACTS)
    assert [(p.name, p.count) for p in found.pod_sets] == [("large", 1), ("main", 1)]


def test_a_start_opens_each_gate_inside_the_pins() -> None:
    own = group(pod("a"), pod("c"))
    body = admit_patch(POD, own, pins=PINS, mark=MARK)
    written = {p.metadata.name: change for p, change in pod_patches(own, body)}
    assert sorted(written) == ["a", "c"]
    change = written["a"]
    assert change["metadata"]["resourceVersion"] == "7"
    assert change["metadata"]["labels"] == {"queuer.dev/workload": "u"}
    assert change["spec"]["schedulingGates"] == []
    assert change["spec"]["nodeSelector"] == {"rack": "r1"}
    assert "kubernetes.io/hostname" in json.dumps(change["spec"]["affinity"])


def test_a_start_that_was_cut_off_goes_on_with_the_rest() -> None:
    body = admit_patch(POD, group(pod("a"), pod("b")), pins=PINS, mark=MARK)
    half = group(STARTED, pod("b"))
    assert [p.metadata.name for p, _ in pod_patches(half, body)] == ["b"]
    assert sure(POD.gates)(half) == 1


def test_a_pod_that_was_not_started_is_the_owners_word() -> None:
    started = pod("a", gated=False, run="u", admission="a1", nodeSelector={"rack": "r1"})
    assert own_roles(POD, group(started, pod("b", at=9)))[0].scheduling == {}


def test_no_pod_is_started_that_nobody_decided_on() -> None:
    """Another set, a larger one of the same set, one that came since, one that has changed."""
    extra = pod("x", gpus=8, labels={"queuer.dev/pod-set": "extra"})
    assert decided_on(group(STARTED, pod("b"), pod("c", gpus=8))) == {"u-b": "7"}
    body = {**admit_patch(POD, group(STARTED, pod("b")), pins=PINS, mark=MARK)}
    assert [p.metadata.name for p, _ in pod_patches(group(STARTED, pod("b"), extra), body)] == ["b"]
    with pytest.raises(ChangedError, match="pod d came after the decision"):
        list(pod_patches(group(STARTED, pod("d")), body))
    changed = pod("b", meta={"resourceVersion": "8"})
    (_, change), *_ = pod_patches(group(STARTED, changed), body)
    assert change["metadata"]["resourceVersion"] == "7", "the API server answers with a conflict"


@pytest.mark.parametrize(
    "other",
    [{"labels": {"queuer.dev/queue": "root.b"}}, {"meta": {"annotations": {"queuer.dev/user": "mallory"}}}],
    ids=["queue", "user"],
)
def test_nobody_joins_a_group_that_runs_on_its_account(other: dict[str, Any]) -> None:
    """Another queue or user names the group: its pod would take the place of a lost one, at the cost of the others."""
    assert decided_on(group(STARTED, pod("b"), pod("c", **other))) == {"u-b": "7"}


def _view(found: PodGroup) -> JobView:
    return job_view(POD, found)


@pytest.mark.parametrize(
    ("kind", "pods", "verdict"),
    [
        (EntryKind.ADMIT, [STARTED, pod("b")], ConflictVerdict.AGAIN),
        (EntryKind.ADMIT, [STARTED], ConflictVerdict.DONE),
        (EntryKind.EVICT, [STARTED, pod("b")], ConflictVerdict.AGAIN),
        (EntryKind.EVICT, [pod("a"), pod("b")], ConflictVerdict.AGAIN),
        (EntryKind.WITHDRAW, [STARTED, pod("b")], ConflictVerdict.AGAIN),
    ],
    ids=["half started", "all started", "half evicted", "nothing marked", "half withdrawn"],
)
def test_a_conflict_in_the_middle_of_a_group_is_not_the_end(
    kind: EntryKind, pods: list[Pod], verdict: ConflictVerdict
) -> None:
    assert judge(entry_of(kind=kind, admission_id="a1"), _view(group(*pods)), as_decided=True) is verdict


def test_a_pod_that_hangs_on_a_dead_node_says_nothing_of_the_next_admission() -> None:
    going = {"deletionTimestamp": "2026-01-01T00:01:00Z"}
    old = pod("a", gated=False, run="u", admission="a1", meta=going)
    new = [pod(name, gated=False, run="u", admission="a2", at=9) for name in "bc"]
    assert _view(group(old, *new)).admission == "a2"


def test_the_pods_of_two_users_are_no_group() -> None:
    by = [
        pod(name, meta={"annotations": {"queuer.dev/pod-group-size": "2", "queuer.dev/user": name}})
        for name in "ab"
    ]
    assert "is not the same on all pods" in problem(*by)


def test_new_pods_do_not_take_the_place_of_others_that_are_going() -> None:
    going = {"deletionTimestamp": "2026-01-01T00:01:00Z"}
    runs = runs_of([pod("a", gated=False, run="u-x", meta=going), pod("b", at=9)], waiting="u-x")
    assert [run.metadata.uid for run in runs] == ["u-x", "u-b"]


def test_an_eviction_deletes_what_was_started_and_marks_the_rest() -> None:
    """So that a PATCH of the same admission that is under way meets a conflict."""
    half = group(STARTED, pod("b"))
    body = evict_patch(POD, half, admission="a1")
    assert [p.metadata.name for p in deleted(half, body)] == ["a"]
    assert [p.metadata.name for p, _ in pod_patches(half, body)] == ["b"]
    later = group(pod("a", gated=False, run="u", admission="a2"))
    assert not list(deleted(later, body)), "a later admission is not taken back by an older word"


@pytest.mark.parametrize(
    ("phases", "outcome"),
    [
        (["Succeeded", "Succeeded"], State.SUCCEEDED),
        (["Succeeded", "Failed"], State.FAILED),
        (["Succeeded", "Running"], None),
        (["Succeeded"], None),
        (["Failed", "Succeeded", "Succeeded"], State.SUCCEEDED),
    ],
)
def test_a_group_ends_with_its_pods(phases: list[str], outcome: State | None) -> None:
    pods = [pod(str(i), gated=False, run="u", phase=phase) for i, phase in enumerate(phases)]
    assert POD.outcome(group(*pods)) is outcome


def test_a_group_that_is_over_is_followed_by_another_of_its_name() -> None:
    over = [pod(name, gated=False, run="u-a", phase="Succeeded") for name in "ab"]
    new = [pod(name, at=9) for name in "cd"]
    runs = runs_of([*over, *new], waiting=None)
    assert [(run.metadata.uid, len(run.pods)) for run in runs] == [("u-a", 2), ("u-c", 2)]


def test_pods_made_anew_belong_to_the_run_that_goes_on() -> None:
    runs = runs_of([pod("a", gated=False, run="u-x", phase="Running"), pod("b", at=9)], waiting=None)
    assert [(run.metadata.uid, len(run.pods)) for run in runs] == [("u-x", 2)]


def test_a_group_that_waits_stays_itself_when_its_oldest_pod_goes() -> None:
    assert [run.metadata.uid for run in runs_of([pod("b")], waiting="u-a")] == ["u-a"]


@pytest.mark.parametrize(
    ("owner", "alone"),
    [(None, True), (("apps/v1", "ReplicaSet"), True), (("batch/v1", "Job"), False)],
    ids=["bare", "of a Deployment", "of a Job"],
)
def test_pods_of_a_job_do_not_queue_by_themselves(owner: tuple[str, str] | None, alone: bool) -> None:
    owners = [] if owner is None else [
        {"apiVersion": owner[0], "kind": owner[1], "name": "o", "uid": "o", "controller": True}
    ]  # fmt: skip
    assert queues_by_itself(pod("a", meta={"ownerReferences": owners}).metadata) is alone


def test_a_group_that_has_lost_all_its_pods_waits_for_them() -> None:
    was = group(*(pod(name, meta={"ownerReferences": [OWNER]}) for name in "ab"))
    assert was.comes_back
    empty = msgspec.structs.replace(was, pods=[])
    assert (POD.suspended(empty), POD.outcome(empty), POD.deadline(empty)) == (True, None, None)
    _, problems = read_workload(POD, empty, facts=FACTS)
    assert "says 2, and the group has 0 pods" in " ".join(p.message for p in problems)


def test_pods_that_are_deleted_do_not_end_their_group() -> None:
    """The kubelet gives them a last phase as they go."""
    gone = {"deletionTimestamp": "2026-01-01T00:01:00Z"}
    pods = [pod(name, gated=False, run="u", phase="Succeeded", meta=gone) for name in "ab"]
    assert POD.outcome(group(*pods)) is None


class Heard:
    """Names of the pods of each run, by uid, as they are told."""

    def __init__(self) -> None:
        self.runs: dict[str, list[str]] = {}
        self.groups = PodGroups(self, listed=lambda: False)

    def came(self, run: PodGroup) -> None:
        self.runs[run.metadata.uid] = [pod.metadata.name for pod in run.pods]

    def went(self, uid: str) -> None:
        del self.runs[uid]


async def test_a_new_leader_knows_pods_that_were_made_anew_by_the_name_of_their_group() -> None:
    """Guards place, history and rest of an evicted group: the pods that carried its uid are gone."""
    heard = Heard()
    heard.groups.put(by_controller("a"))
    heard.groups.look()
    assert heard.runs == {"u-a": ["a"]}
    heard.groups.recall(KNOWN)
    assert heard.runs == {"old": ["a"]}
    heard.groups.put(by_controller("b"))
    heard.groups.look()
    assert heard.runs == {"old": ["a", "b"]}


async def test_runs_that_say_who_they_are_are_not_taken_for_others() -> None:
    heard = Heard()
    heard.groups.put(pod("a", gated=False, run="r2"))
    heard.groups.recall(KNOWN)
    assert heard.runs == {"r2": ["a"]}


@pytest.mark.parametrize(
    "other", [pod("a"), by_controller("a", user="mallory")], ids=["made by hand", "of another user"]
)
async def test_a_group_of_the_name_of_one_that_is_gone_is_another(other: Pod) -> None:
    """It would have the place, history and rest of a dead job."""
    heard = Heard()
    heard.groups.put(other)
    heard.groups.recall(KNOWN)
    assert heard.runs == {"u-a": ["a"]}


async def test_a_group_that_waits_keeps_its_name_over_a_change_of_leader() -> None:
    """Its first pod named it when it was alone; another of the same second may come before it in the order."""
    heard = Heard()
    heard.groups.put(pod("a"))
    heard.groups.put(pod("b"))
    heard.groups.recall({"u-b": gang("u-b", namespace="n", name="g", kind="Pod", user="ada")})
    assert heard.runs == {"u-b": ["a", "b"]}
