"""Pods under the admission policies, from when controllers make them until all are gone; see `test_policies`."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from queuer.local.cluster import Cluster
from tests.e2e.support import wait_until
from tests.e2e.tenancy import (
    ADMISSION,
    BREAK_GLASS,
    CONTROLLER,
    CONTROLLER_MANAGER,
    KINDS,
    MANAGED,
    Manifest,
    Place,
    admit,
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
    templates,
)

CLASS = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"}


class TestPods:
    """The owner of a pod pays for it, and nobody can forge either."""

    def test_a_bare_pod_does_not_say_that_it_is_of_a_job(self, managed: Place, kind: str) -> None:
        target = managed.create(job(kind))
        labelled = merged(pod(), _workload(target))
        with refused("queuer-guard-pods-label", "written by Queuer"):
            managed.try_create(labelled)
        claiming = merged(pod(), {"metadata": {"ownerReferences": owner(target)}})
        with refused("queuer-guard-pods-owner", "remove metadata.ownerReferences"):
            managed.try_create(claiming)
        bare = managed.create(pod())
        with refused("queuer-guard-pods-label", "written by Queuer"):
            managed.patch(bare, _workload(target))
        with refused("queuer-guard-pods-owner", "remove metadata.ownerReferences"):
            managed.patch(bare, {"metadata": {"ownerReferences": owner(target)}})

    def test_a_template_with_the_label_of_another_job_makes_no_pods(self, managed: Place) -> None:
        """The rule holds for every creator of pods: a controller does what a tenant's template says."""
        other, target = managed.create(job("job")), managed.create(job("job"))
        child = merged(pod(), _workload(other), {"metadata": {"ownerReferences": owner(target)}})
        with refused("queuer-guard-pods-label", "names the job that owns the pod"):
            managed.entered_by(CONTROLLER_MANAGER).try_create(child)
        disguised = merged(
            pod(), _workload(other), {"metadata": {"ownerReferences": owner({**other, "kind": "CronJob"})}}
        )
        with refused("queuer-guard-pods-label", "names the job that owns the pod"):
            managed.try_create(disguised)
        own = merged(child, _workload(target))
        managed.entered_by(CONTROLLER_MANAGER).try_create(own)

    def test_a_pod_stays_with_the_job_that_it_was_admitted_with(self, managed: Place, kind: str) -> None:
        target = managed.create(job(kind))
        change = {"spec": {"template": _workload(target)}} if kind == "job" else _replicas(_workload(target))
        managed.entered_by(CONTROLLER).patch(target, merged(change, suspend(kind, False)))
        wait_until(lambda: managed.running(target) == 2, timeout=20, describe="two pods")
        member = {**managed.pods(target)[0], "kind": "Pod"}
        key = "batch.kubernetes.io/controller-uid" if kind == "job" else "training.kubeflow.org/job-name"
        with refused("queuer-guard-pods-label", "as it is on an existing one"):
            managed.patch(member, {"metadata": {"labels": {"queuer.dev/workload": None}}})
        with refused("queuer-guard-pods-owner", "cannot be taken from it"):
            managed.patch(member, {"metadata": {"labels": {key: None}}})
        with refused("queuer-guard-pods-owner", "cannot be taken from it"):
            managed.patch(member, {"metadata": {"ownerReferences": None}})
        managed.patch(member, {"metadata": {"labels": {"colour": "blue"}}})
        admin = managed.entered_by("admin")
        admin.patch(target, annotation(BREAK_GLASS, "drill 8"))
        admin.delete(target, "--cascade=orphan")
        wait_until(
            lambda: "ownerReferences" not in managed.get("pod", member["metadata"]["name"])["metadata"],
            timeout=20, describe="the garbage collector orphans it",
        )  # fmt: skip
        orphan = managed.get("pod", member["metadata"]["name"])
        assert orphan["metadata"]["labels"]["queuer.dev/workload"] == target["metadata"]["uid"]

    def test_nobody_gives_a_pod_of_a_job_decades_to_end(self, managed: Place, kind: str) -> None:
        """The eviction of its job would wait for it. Other pods may be deleted as anybody likes."""
        target = managed.create(job(kind))
        change = {"spec": {"template": _workload(target)}} if kind == "job" else _replicas(_workload(target))
        managed.entered_by(CONTROLLER).patch(target, merged(change, suspend(kind, False)))
        bare = {**managed.create(pod()), "kind": "Pod"}
        wait_until(lambda: managed.running(target) == 2, timeout=20, describe="two pods")
        member = {**managed.pods(target)[0], "kind": "Pod"}
        with refused("queuer-guard-pods-grace", "a grace of 2000000000 s"):
            managed.delete(member, "--grace-period=2000000000")
        name, space = member["metadata"]["name"], member["metadata"]["namespace"]
        evict = {
            "apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": space},
            "deleteOptions": {"gracePeriodSeconds": 3601},
        }  # fmt: skip
        path = f"--raw=/api/v1/namespaces/{space}/pods/{name}/eviction"
        with refused("queuer-guard-pods-grace", "a grace of 3601 s"):
            managed.entered_by("admin").run("create", path, "--filename=-", manifest=evict)
        managed.delete(member, "--grace-period=3600")
        managed.delete(bare, "--grace-period=7200")

    def test_a_pod_beside_the_queues_pushes_nobody_out(self, managed: Place, cluster: Cluster) -> None:
        admin = managed.entered_by("admin")
        for name, policy in (("pushing", "PreemptLowerPriority"), ("patient", "Never")):
            made = {"metadata": {"name": name}, "value": 5, "preemptionPolicy": policy}
            admin.run("apply", "--filename=-", manifest={**CLASS, **made})
        patient, pushing = (merged(pod(), {"spec": {"priorityClassName": n}}) for n in ("patient", "pushing"))
        wait_until(lambda: managed.accepts(patient), timeout=20, describe="the classes are known")
        managed.try_create(pod())
        broken = merged(pushing, annotation(BREAK_GLASS, "incident 12"))
        for place, wanted in (
            (managed, pushing),
            (managed, broken),
            (managed.entered_by(CONTROLLER_MANAGER), pushing),
            (managed.entered_by(CONTROLLER_MANAGER), broken),
        ):
            with refused("queuer-priority-pods", "set priorityClassName to queuer-default"):
                place.try_create(wanted)
        admin.try_create(broken)
        with opened(cluster, labels={}) as elsewhere:
            elsewhere.try_create(pushing)


class TestDeletion:
    """A queued job goes with its pods: what outlives it could not be taken back."""

    def test_it_is_not_deleted_without_its_pods(self, managed: Place, kind: str) -> None:
        target = start(managed, kind)
        one, collection = _urls(managed, target)
        for who in (managed, managed.entered_by("admin"), managed.entered_by(CONTROLLER_MANAGER)):
            with refused("queuer-guard-deletion", "delete with --cascade=background"):
                who.delete(target, "--cascade=orphan")
            for url in (one, collection):
                with refused("queuer-guard-deletion", "delete with --cascade=background"):
                    _delete(who, url, propagationPolicy="Orphan")
                with refused("queuer-guard-deletion", "delete with --cascade=background"):
                    _delete(who, url, orphanDependents=True)
        if kind == "job":  # what batch/v1 makes of a request that does not say
            with refused("queuer-guard-deletion", "set propagationPolicy to Background"):
                _delete(managed, one)

    @pytest.mark.parametrize(
        "options",
        [
            {"propagationPolicy": "Background"},
            {"propagationPolicy": "Foreground"},
            {"orphanDependents": False},
        ],
        ids=["background", "foreground", "deprecated"],
    )
    def test_it_is_deleted_with_its_pods(self, managed: Place, kind: str, options: Manifest) -> None:
        target = start(managed, kind)
        wait_until(lambda: managed.running(target) == 2, timeout=20, describe="two pods")
        _delete(managed, _urls(managed, target)[1], **options)
        wait_until(lambda: not managed.pods(target), timeout=20, describe="the pods are gone")
        wait_until(lambda: not _exists(managed, target), timeout=20, describe="the job is gone")

    def test_no_finalizer_keeps_a_deleted_job(self, managed: Place, kind: str) -> None:
        target = start(managed, kind)
        for name in ("example.org/keep", "orphan"):
            managed.patch(target, {"metadata": {"finalizers": [name]}})
            for who in (managed, managed.entered_by(CONTROLLER_MANAGER)):
                with refused("queuer-guard-deletion", f"the finalizer {name} would keep a deleted job"):
                    who.delete(target, "--cascade=background")
        managed.patch(target, {"metadata": {"finalizers": None}})
        managed.delete(target)

    def test_other_jobs_are_deleted_as_ever(self, managed: Place, kind: str) -> None:
        managed.delete(managed.create(job(kind, queue=None)), "--cascade=orphan")

    def test_it_goes_with_its_owner(self, managed: Place, kind: str) -> None:
        metadata = {"name": f"owner-of-{kind}"}
        owning = managed.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})
        child = merged(job(kind), {"metadata": {"ownerReferences": owner(owning, controller=False)}})
        target = admit(managed, managed.create(child))
        wait_until(lambda: managed.running(target) == 2, timeout=20, describe="two pods")
        managed.delete(owning)
        wait_until(lambda: not _exists(managed, target), timeout=20, describe="the job is collected")
        wait_until(lambda: not managed.pods(target), timeout=20, describe="its pods are collected")

    def test_it_goes_when_its_time_to_live_is_over(self, managed: Place, kind: str) -> None:
        ends = {"metadata": {"annotations": {"sim/run-for": "1s"}}}
        lives: Manifest = {"ttlSecondsAfterFinished": 0}
        brief = merged(job(kind), {"spec": lives if kind == "job" else {"runPolicy": lives}})
        for template in templates(brief):
            template.update(ends)
        target = admit(managed, managed.create(brief))
        wait_until(lambda: not _exists(managed, target), timeout=40, describe="its controller deletes it")

    def test_it_goes_with_its_namespace_whatever_would_keep_it(self, cluster: Cluster) -> None:
        with opened(cluster, labels=MANAGED) as place:
            wait_until(
                lambda: is_suspended(place.try_create(job("job"))), timeout=20, describe="it has opted in"
            )
            targets = [start(place, kind) for kind in KINDS]
            for target in targets:
                place.patch(target, {"metadata": {"finalizers": ["example.org/keep"]}})
        admin = place.entered_by("admin")
        for target in targets:
            wait_until(
                partial(_is_going, admin, target), timeout=30, describe="the namespace controller deletes it"
            )
            admin.patch(target, {"metadata": {"finalizers": None}})
        wait_until(
            lambda: not admin.run("get", "namespace", place.namespace, "--ignore-not-found"),
            timeout=60, describe="the namespace is gone",
        )  # fmt: skip


def _urls(place: Place, target: Manifest) -> tuple[str, str]:
    """Where an object is, and the collection that holds nothing else."""
    name = target["metadata"]["name"]
    all_ = f"/apis/{target['apiVersion']}/namespaces/{place.namespace}/{target['kind'].lower()}s"
    return f"{all_}/{name}", f"{all_}?fieldSelector=metadata.name%3D{name}"


def _delete(place: Place, url: str, **options: Any) -> None:
    """DELETE with these options and no others; kubectl would add its own."""
    body = {"apiVersion": "v1", "kind": "DeleteOptions", **options}
    place.run("delete", f"--raw={url}", "--filename=-", manifest=body)


def _exists(place: Place, target: Manifest) -> bool:
    return bool(place.run("get", target["kind"].lower(), target["metadata"]["name"], "--ignore-not-found"))


def _is_going(place: Place, target: Manifest) -> bool:
    found = place.get(target["kind"].lower(), target["metadata"]["name"])
    return "deletionTimestamp" in found["metadata"]


def _workload(target: Manifest) -> Manifest:
    return {"metadata": {"labels": {"queuer.dev/workload": target["metadata"]["uid"]}}}


def _replicas(template: Manifest) -> Manifest:
    return {"spec": {"pytorchReplicaSpecs": {role: {"template": template} for role in ("Master", "Worker")}}}


class TestControllers:
    """The controllers of the cluster do their work under the policies."""

    def test_a_job_runs_is_evicted_runs_again_and_is_collected(self, managed: Place, kind: str) -> None:
        target = managed.create(job(kind))
        controller = managed.entered_by(CONTROLLER)
        for round_ in ("first", "second"):
            admit(managed, target)
            wait_until(
                lambda: managed.running(target) == 2, timeout=20, describe=f"two pods in the {round_} round"
            )
            assert {p["spec"]["preemptionPolicy"] for p in managed.pods(target)} == {"Never"}
            controller.patch(target, merged(suspend(kind, True), annotation(ADMISSION, None)))
            wait_until(lambda: not managed.pods(target), timeout=20, describe="no pod after the eviction")
            wait_until(
                lambda: _condition(managed, target, "Suspended"),
                timeout=20,
                describe="the status says suspended",
            )
        admit(managed, target)
        managed.delete(target, "--cascade=foreground")
        assert not managed.pods(target)


def _condition(place: Place, target: Manifest, condition: str) -> bool:
    status = place.get(target["kind"].lower(), target["metadata"]["name"]).get("status", {})
    return any(c["type"] == condition and c["status"] == "True" for c in status.get("conditions", []))
