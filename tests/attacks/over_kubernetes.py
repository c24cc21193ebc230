"""Alice's attempts over the Kubernetes API, with the built-in `edit` rights in her namespaces."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tests.attacks.field import CUT, MINE, THEIRS, Field
from tests.e2e.support import job_manifest, pytorchjob_manifest
from tests.e2e.tenancy import (
    ADMISSION,
    BREAK_GLASS,
    Manifest,
    Place,
    annotation,
    label,
    merged,
    owner,
    pod,
    suspend,
)

RUNS, WAITS = "mine-runs-known", "mine-waits-known"
FORBIDDEN = "forbidden"
WORKLOAD = "queuer.dev/workload"


@dataclass(frozen=True, slots=True)
class Attack:
    """`act` is refused with this sentence, and nothing has changed."""

    name: str
    act: Callable[[Field], object]
    sentence: str


@dataclass(frozen=True, slots=True)
class Contained:
    """A job that the API server takes. It is told what is wrong with it, and never starts."""

    name: str
    labels: Mapping[str, str]
    sentence: str
    annotations: Mapping[str, str] | None = None


def job(at: Field, **wanted: Any) -> Manifest:
    """A small job for her queue."""
    return job_manifest("attack", **{"namespace": at.mine, "queue": MINE, **wanted})


def _patch(name: str, change: Manifest) -> Callable[[Field], object]:
    return lambda at: at.alice.patch(at.jobs[name], change)


def _create(change: Manifest) -> Callable[[Field], object]:
    return lambda at: at.alice.create(merged(job(at), change))


def _theirs(at: Field) -> Place:
    return Place(cluster=at.cluster, namespace=at.theirs, user="alice")


def _strict(at: Field) -> Place:
    return Place(cluster=at.cluster, namespace=at.strict, user="alice")


def _on_theirs(change: Manifest) -> Callable[[Field], object]:
    return lambda at: _theirs(at).patch(at.jobs["secret-runs-known"], change)


def _owned(kind: str, name: str) -> Callable[[Field], object]:
    """A job of hers that claims to be another's child."""

    def claim(at: Field) -> object:
        owning = {"apiVersion": "kubeflow.org/v1", "kind": kind, "metadata": at.jobs[name]["metadata"]}
        return at.alice.create(merged(job(at), {"metadata": {"ownerReferences": owner(owning)}}))

    return claim


def _pod(change: Callable[[Field], Manifest]) -> Callable[[Field], object]:
    return lambda at: at.alice.create(merged(pod(), change(at)))


def _managed_by(manager: str) -> Manifest:
    return {"spec": {"managedBy": manager}}


def _queue(at: Field) -> object:
    spec = {"path": MINE, "weight": 1000}
    made = {"apiVersion": "queuer.dev/v1", "kind": "Queue", "metadata": {"name": MINE}, "spec": spec}
    return at.alice.create(made)


def _deleted(at: Field) -> None:
    at.alice.delete(at.jobs[RUNS], "--cascade=orphan")


# Starting, leaving, moving

SENT_FIRST = "only Queuer starts a queued job"
QUEUE = [
    Attack("to start her job herself", _patch(WAITS, suspend("job", False)), SENT_FIRST),
    Attack("to leave the queue while she waits", _patch(WAITS, label(None)), "cannot be removed"),
    Attack("to leave the queue while she runs", _patch(RUNS, label(None)), "cannot be removed"),
    Attack(
        "to leave the queue and start at once",
        _patch(WAITS, merged(label(None), suspend("job", False))),
        SENT_FIRST,
    ),
    Attack(
        "to run at another's expense", _patch(RUNS, label(THEIRS)), "queue of a started job cannot change"
    ),
    Attack("to grow while she runs", _patch(RUNS, {"spec": {"parallelism": 9}}), "cannot grow"),
    Attack("to keep pods that her job does not have", _deleted, "delete with --cascade=background"),
    Attack(
        "a job without a queue where that is required",
        lambda at: _strict(at).create(job_manifest("attack", namespace=at.strict)),
        "queuer.dev/queue",
    ),
    Attack("a bare pod where a queue is required", lambda at: _strict(at).create(pod()), FORBIDDEN),
    Attack(
        "to opt out", lambda at: at.alice.run("label", "namespace", at.mine, "queuer.dev/managed-"), FORBIDDEN
    ),
]

# Fields that Queuer alone writes

FORGERY = [
    Attack(
        "an admission, on create", _create(annotation(ADMISSION, '{"id": "x"}')), "written by Queuer only"
    ),
    Attack(
        "an admission, later", _patch(WAITS, annotation(ADMISSION, '{"id": "x"}')), "written by Queuer only"
    ),
    Attack("another admission", _patch(RUNS, annotation(ADMISSION, '{"id": "x"}')), "written by Queuer only"),
    Attack("a status", _create(annotation("queuer.dev/status", "Admitted")), "written by Queuer only"),
    Attack("another user", _patch(WAITS, annotation("queuer.dev/user", "bob")), "says who queued the job"),
    Attack(
        "break-glass",
        _patch(WAITS, merged(annotation(BREAK_GLASS, "urgent"), suspend("job", False))),
        SENT_FIRST,
    ),
    Attack(
        "break-glass, by itself", _patch(WAITS, annotation(BREAK_GLASS, "urgent")), "is for administrators"
    ),
    Attack("another manager", _create(_managed_by("kueue.x-k8s.io/multikueue")), "leave managedBy out"),
    Attack("an owner of hers", _owned("PyTorchJob", RUNS), "remove metadata.ownerReferences"),
    Attack(
        "an owner of another's", _owned("PyTorchJob", "secret-runs-known"), "remove metadata.ownerReferences"
    ),
    Attack(
        "a class that preempts",
        _create({"spec": {"template": {"spec": {"priorityClassName": "system-node-critical"}}}}),
        "leave priorityClassName out",
    ),
    Attack(
        "a pod that another's job pays for",
        _pod(lambda at: {"metadata": {"labels": {WORKLOAD: at.uid("secret-runs-known")}}}),
        "written by Queuer",
    ),
    Attack(
        "a pod that another's job owns",
        _pod(lambda at: {"metadata": {"ownerReferences": owner(at.jobs["secret-runs-known"])}}),
        "remove metadata.ownerReferences",
    ),
    Attack(
        "a pod that pushes others out",
        _pod(lambda at: {"spec": {"priorityClassName": "system-cluster-critical"}}),
        FORBIDDEN,
    ),
]

# Objects of Bob, and of the cluster

OTHERS = [
    Attack("to list another's jobs", lambda at: _theirs(at).run("get", "jobs.batch,pods,events"), FORBIDDEN),
    Attack("to evict another's job", _on_theirs(suspend("job", True)), FORBIDDEN),
    Attack("to write another's admission", _on_theirs(annotation(ADMISSION, '{"id": "x"}')), FORBIDDEN),
    Attack("a pod in another namespace", lambda at: _theirs(at).create(pod()), FORBIDDEN),
    Attack(
        "a job in another namespace",
        lambda at: _theirs(at).create(job(at, namespace=at.theirs, queue=CUT)),
        FORBIDDEN,
    ),
    Attack("a queue as an object", _queue, FORBIDDEN),
    Attack("to be somebody else", lambda at: at.alice.run("get", "jobs.batch", "--as=bob"), FORBIDDEN),
    Attack(
        "to be Queuer",
        lambda at: at.alice.run(
            "get", "jobs.batch", "--as=system:serviceaccount:queuer-system:queuer-controller"
        ),
        FORBIDDEN,
    ),
    Attack(
        "a token of Queuer's",
        lambda at: at.cluster.kubectl("alice").run(
            "create", "token", "queuer-controller", "-n", "queuer-system"
        ),
        FORBIDDEN,
    ),
    Attack(
        "a PyTorchJob of another's queue that is started",
        lambda at: at.alice.create(
            merged(pytorchjob_manifest("attack", namespace=at.mine, queue=THEIRS), annotation(ADMISSION, "x"))
        ),
        "written by Queuer only",
    ),
]

ATTACKS = [*QUEUE, *FORGERY, *OTHERS]

PRIORITY = "queuer.dev/priority-class"
LABEL = "queuer.dev/queue"
CONTAINED = [
    Contained("another's queue", {LABEL: THEIRS}, "may not use queue root.theirs"),
    Contained("a queue with queues below it", {LABEL: "root"}, "has queues below it"),
    Contained("a queue that is none", {LABEL: "root..mine"}, "queuer.dev/queue"),
    Contained("a priority above the queue's", {PRIORITY: "queuer-high"}, "maxPriority queuer-default"),
    Contained(
        "the priority of the cluster's own", {PRIORITY: "system-node-critical"}, "for the cluster's own pods"
    ),
    Contained("an annotation that is none", {}, "no such annotation", {"queuer.dev/admissions": "x"}),
    Contained("a run of no time", {}, "max-runtime", {"queuer.dev/max-runtime": "-1h"}),
]
