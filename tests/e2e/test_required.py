"""Namespaces labelled `queuer.dev/managed: required`: nothing starts there beside the queues."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from queuer.local.cluster import Cluster
from tests.e2e.support import wait_until
from tests.e2e.tenancy import (
    BREAK_GLASS,
    CONTROLLER_MANAGER,
    OPERATOR,
    Place,
    annotation,
    is_suspended,
    job,
    merged,
    opened,
    owner,
    pod,
    refused,
    start,
    suspend,
    workers,
)


@pytest.fixture(scope="module")
def required(cluster: Cluster) -> Iterator[Place]:
    creators = {"queuer.dev/pod-creators": "someone, bob"}
    with opened(cluster, labels={"queuer.dev/managed": "required"}, annotations=creators) as place:
        wait_until(lambda: not place.accepts(pod()), timeout=30, describe="the policies are in force")
        yield place


def test_jobs_must_be_queued(required: Place, kind: str) -> None:
    with refused("queuer-required-jobs", "set the label queuer.dev/queue"):
        required.try_create(job(kind, queue=None))
    assert is_suspended(required.try_create(job(kind)))


def test_a_job_that_its_owners_controller_creates_needs_no_queue(required: Place) -> None:
    child = job("job", queue=None)
    child["metadata"]["ownerReferences"] = owner(required.create(job("pytorchjob")))
    with refused("queuer-required-jobs", "set the label queuer.dev/queue"):
        required.try_create(child)
    required.entered_by(OPERATOR).try_create(child)


def test_bare_pods_are_refused_unless_their_creator_is_named(required: Place) -> None:
    with refused("queuer-required-pods", "set the label queuer.dev/queue, or create a Job with it"):
        required.try_create(pod())
    required.entered_by(CONTROLLER_MANAGER).try_create(pod())
    required.entered_by("bob").try_create(pod())


def test_a_queued_job_gets_its_pods_and_keeps_them(required: Place, kind: str) -> None:
    target = start(required, kind)
    wait_until(lambda: required.running(target) == 2, timeout=20, describe="two pods")
    member = required.pods(target)[0]
    key = "batch.kubernetes.io/controller-uid" if kind == "job" else "training.kubeflow.org/job-name"
    with refused("queuer-required-pods", "cannot be taken from its job"):
        required.patch({**member, "kind": "Pod"}, {"metadata": {"labels": {key: None}}})
    with refused("queuer-required-pods", "cannot be taken from its job"):
        required.patch({**member, "kind": "Pod"}, {"metadata": {"ownerReferences": None}})
    required.patch({**member, "kind": "Pod"}, {"metadata": {"labels": {"colour": "blue"}}})


def test_what_ran_before_neither_grows_nor_starts_again(required: Place, kind: str) -> None:
    admin = required.entered_by("admin")
    running = admin.create(merged(job(kind, queue=None), annotation(BREAK_GLASS, "was here before")))
    larger = {"spec": {"parallelism": 3}} if kind == "job" else workers(3)
    with refused(
        "queuer-guard-jobs" if kind == "job" else "queuer-guard-kubeflow",
        "it is in no queue, delete it and create it again",
    ):
        required.patch(running, larger)
    required.patch(running, suspend(kind, True))
    with refused("queuer-required-jobs", "set the label queuer.dev/queue on the suspended job"):
        required.patch(running, suspend(kind, False))


def test_administrators_may_create_a_bare_pod_behind_broken_glass(required: Place) -> None:
    behind = merged(pod(), annotation(BREAK_GLASS, "debugging"))
    with refused("queuer-required-pods", "takes no bare pods"):
        required.try_create(behind)
    required.entered_by("admin").try_create(behind)
