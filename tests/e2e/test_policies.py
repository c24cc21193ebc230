"""The admission policies of `deploy/`, tried on a real API server with the tokens they bind.

A tenant holds the built-in `edit` rights in the namespace. Each refusal must name the policy and carry its
sentence; each thing that stays allowed is tried too, for a policy that refuses everything passes the rest.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from queuer.local.cluster import Cluster
from queuer.local.kubectl import KubectlError
from tests.e2e.support import wait_until
from tests.e2e.tenancy import (
    ADMISSION,
    BREAK_GLASS,
    CONTROLLER,
    CONTROLLER_MANAGER,
    KINDS,
    OPERATOR,
    QUEUE,
    Manifest,
    Place,
    admit,
    annotation,
    is_suspended,
    job,
    label,
    merged,
    opened,
    owner,
    pod,
    pod_spec,
    refused,
    replica,
    start,
    suspend,
    templates,
    warned,
    workers,
)

USER = "queuer.dev/user"
GROUPS = "queuer.dev/groups"
WARNINGS = "--warnings-as-errors"
MANAGED = {"queuer.dev/managed": "true"}
CLASS = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"}


@pytest.fixture(scope="module")
def managed(cluster: Cluster) -> Iterator[Place]:
    with opened(cluster, labels=MANAGED) as place:
        forged = merged(job("job"), annotation(ADMISSION, "forged"))
        wait_until(lambda: not place.accepts(forged), timeout=30, describe="the policies are in force")
        yield place


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


class TestCreate:
    """What happens to a job when it is created."""

    def test_a_queued_job_is_suspended_whatever_it_says(self, managed: Place, kind: str) -> None:
        created = managed.try_create(merged(job(kind), suspend(kind, False)))
        assert is_suspended(created)
        assert created["metadata"]["labels"][QUEUE] == "root.test"
        assert [t["spec"]["priorityClassName"] for t in templates(created)] == ["queuer-default"] * len(
            templates(created)
        )

    def test_a_job_without_our_label_is_left_alone(self, managed: Place, kind: str) -> None:
        created = managed.try_create(job(kind, queue=None))
        assert not is_suspended(created)
        assert not any("priorityClassName" in template["spec"] for template in templates(created))

    def test_a_namespace_that_did_not_opt_in_is_left_alone(self, cluster: Cluster) -> None:
        with opened(cluster, labels={}) as place:
            for kind in KINDS:
                created = place.create(merged(job(kind), annotation(ADMISSION, "anything")))
                assert not is_suspended(created)
                place.patch(created, label(None))

    def test_the_namespace_gives_a_queue_to_jobs_that_name_none(self, cluster: Cluster) -> None:
        with opened(cluster, labels={**MANAGED, "queuer.dev/default-queue": "root.default"}) as place:
            for kind in KINDS:
                created = place.try_create(job(kind, queue=None))
                assert created["metadata"]["labels"][QUEUE] == "root.default"
                assert is_suspended(created)
                assert place.try_create(job(kind))["metadata"]["labels"][QUEUE] == "root.test"

    @pytest.mark.parametrize("key", [ADMISSION, "queuer.dev/status"])
    def test_our_annotations_cannot_be_forged(self, managed: Place, kind: str, key: str) -> None:
        with refused("queuer-guard", "written by Queuer only"):
            managed.try_create(merged(job(kind), annotation(key, "forged")))

    def test_who_queued_it_is_written_on_it_whatever_it_says(self, managed: Place, kind: str) -> None:
        created = managed.create(merged(job(kind), annotation(USER, "boss")))
        assert created["metadata"]["annotations"][USER] == managed.user
        for value in ("boss", "", None):
            with refused("queuer-guard", "says who queued the job"):
                managed.patch(created, annotation(USER, value))
            with refused("queuer-guard", "says who queued the job"):
                managed.entered_by("bob").patch(created, annotation(USER, value))

    def test_the_groups_of_who_queued_it_are_written_on_it_too(self, managed: Place, kind: str) -> None:
        """A line each: whoever names a group with a line break in it is in no other by that."""
        created = managed.create(merged(job(kind), annotation(GROUPS, "bosses")))
        told = created["metadata"]["annotations"][GROUPS].split("\n")
        assert "system:authenticated" in told
        assert "bosses" not in told
        for value in ("bosses", None):
            with refused("queuer-guard", "in which groups who queued the job is"):
                managed.patch(created, annotation(GROUPS, value))
        plain = merged(job(kind, queue=None), suspend(kind, True), annotation(GROUPS, "bosses"))
        later = managed.patch(managed.create(plain), merged(label("root.test"), annotation(GROUPS, "bosses")))
        assert later["metadata"]["annotations"][GROUPS].split("\n") == told

    def test_who_queues_a_suspended_job_later_is_written_on_it(self, managed: Place, kind: str) -> None:
        plain = merged(job(kind, queue=None), suspend(kind, True), annotation(USER, "boss"))
        target = managed.create(plain)
        queued = managed.entered_by("bob").patch(target, merged(label("root.test"), annotation(USER, "boss")))
        assert queued["metadata"]["annotations"][USER] == "bob"

    def test_another_manager_is_refused(self, managed: Place, kind: str) -> None:
        elsewhere = {"managedBy": "kueue.x-k8s.io/multikueue"}
        spec = elsewhere if kind == "job" else {"runPolicy": elsewhere}
        with refused("queuer-guard", "leave managedBy out"):
            managed.try_create(job(kind, **spec))

    def test_a_pytorchjob_without_pods_is_told_what_is_missing(self, managed: Place) -> None:
        for empty in ({"replicas": 1}, {"replicas": 1, "template": {}}):
            with refused("queuer-guard", "set template.spec under each entry"):
                managed.try_create(
                    job("pytorchjob", pytorchReplicaSpecs={"Master": replica(1), "Worker": empty})
                )

    def test_pods_may_not_name_a_class_that_preempts(self, managed: Place, kind: str) -> None:
        preempting: Any = {"priorityClassName": "system-node-critical"}
        spec = (
            {"template": {"spec": {**pod_spec("main"), **preempting}}}
            if kind == "job"
            else {"pytorchReplicaSpecs": {"Master": replica(1), "Worker": replica(1, **preempting)}}
        )
        with refused("queuer-guard", "leave priorityClassName out"):
            managed.try_create(job(kind, **spec))

    def test_without_the_policy_that_suspends_a_queued_job_is_refused(
        self, managed: Place, kind: str
    ) -> None:
        admin = managed.entered_by("admin")
        binding = admin.get("mutatingadmissionpolicybinding", f"queuer-queue-{kind}s")
        admin.delete(binding)
        try:
            wait_until(lambda: not managed.accepts(job(kind)), timeout=20, describe="the policy is gone")
            with refused("queuer-guard", "must be created suspended"):
                managed.try_create(job(kind))
        finally:
            del binding["metadata"]["resourceVersion"], binding["metadata"]["uid"]
            admin.create(binding)
            wait_until(lambda: managed.accepts(job(kind)), timeout=20, describe="the policy is back")

    def test_every_class_for_queued_jobs_is_held_to_never_preempt(self, cluster: Cluster) -> None:
        admin = Place(cluster=cluster, namespace="default", user="admin")
        wanted = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "value": 5}
        with refused("queuer-priority-classes", "set preemptionPolicy to Never"):
            admin.try_create({**wanted, "metadata": {"name": "queuer-urgent"}})
        admin.try_create({**wanted, "metadata": {"name": "queuer-urgent"}, "preemptionPolicy": "Never"})
        with refused("queuer-priority-classes", "set value to 0 or more"):
            below = {**wanted, "metadata": {"name": "queuer-below"}, "value": -1}
            admin.try_create({**below, "preemptionPolicy": "Never"})
        admin.try_create({**wanted, "metadata": {"name": "urgent"}})


class TestWarnings:
    """What is allowed and probably not meant: kubectl prints why, and does it all the same."""

    @pytest.mark.parametrize(
        ("labels", "sentence"),
        [
            ({}, 'does not have the label queuer.dev/managed: "true"'),
            ({"queuer.dev/managed": "True"}, 'queuer.dev/managed: "True", which is neither'),
        ],
        ids=["none", "misspelled"],
    )
    def test_a_queue_in_a_namespace_that_did_not_opt_in(
        self, cluster: Cluster, labels: dict[str, str], sentence: str
    ) -> None:
        with opened(cluster, labels=labels) as place:
            for kind in KINDS:
                with warned("this job is not queued", sentence):
                    place.create(job(kind), WARNINGS)
                target = place.create(job(kind, queue=None), WARNINGS)
                with warned("this job is not queued", sentence):
                    place.patch(target, label("root.test"), WARNINGS)
                place.patch(target, annotation("some", "thing"), WARNINGS)

    def test_a_hold_on_a_job_that_runs(self, managed: Place, kind: str) -> None:
        held = annotation("queuer.dev/hold", "true")
        managed.patch(managed.create(job(kind), WARNINGS), held, WARNINGS)
        with warned("the job runs on"):
            managed.patch(start(managed, kind), held, WARNINGS)


class TestOwners:
    """An owner reference is a claim; only the identity behind a request proves it."""

    @pytest.mark.parametrize("owning", KINDS)
    def test_a_forged_owner_is_refused(self, managed: Place, owning: str) -> None:
        claimed = managed.create(job(owning))
        child = job("job")
        child["metadata"]["ownerReferences"] = owner(claimed)
        with refused("queuer-guard", "remove metadata.ownerReferences"):
            managed.try_create(child)

    def test_an_owner_cannot_be_forged_later(self, managed: Place, kind: str) -> None:
        claimed, target = managed.create(job("pytorchjob")), managed.create(job(kind))
        with refused("queuer-guard", "remove metadata.ownerReferences"):
            managed.patch(target, {"metadata": {"ownerReferences": owner(claimed)}})

    def test_other_owners_do_not_exempt(self, managed: Place) -> None:
        claimed = managed.create(job("pytorchjob"))
        workflow = {**claimed, "apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow"}
        for references in (owner(claimed, controller=False), owner(workflow)):
            child = job("job")
            child["metadata"]["ownerReferences"] = references
            assert is_suspended(managed.try_create(child))

    def test_jobs_of_a_cron_job_are_queued(self, managed: Place) -> None:
        template = {"metadata": {"labels": {QUEUE: "root.test"}}, "spec": job("job")["spec"]}
        spec = {"schedule": "0 0 1 1 *", "jobTemplate": template}
        metadata = {"name": "nightly"}
        cron = managed.create(
            {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": metadata, "spec": spec}
        )
        assert is_suspended(managed.start_from_cron_job("nightly"))
        child = job("job")
        child["metadata"]["ownerReferences"] = owner(cron)
        created = managed.entered_by(CONTROLLER_MANAGER).try_create(child)
        assert is_suspended(created)
        assert created["metadata"]["annotations"][USER] == "system:kube-controller-manager"

    def test_a_job_that_its_owners_controller_creates_is_driven_by_its_owner(self, managed: Place) -> None:
        parent = managed.create(job("pytorchjob"))
        child = job("job")
        child["metadata"]["ownerReferences"] = owner(parent)
        assert not is_suspended(managed.entered_by(OPERATOR).try_create(child))


class TestWaiting:
    """A queued job that Queuer has not started."""

    def test_the_user_cannot_start_it(self, managed: Place, kind: str) -> None:
        target = managed.create(job(kind))
        with refused("queuer-guard", "only Queuer starts a queued job"):
            managed.patch(target, suspend(kind, False))
        with refused("queuer-guard", "only Queuer starts a queued job"):
            managed.patch(target, merged(label("root.other"), suspend(kind, False)))
        with refused("queuer-guard", "only Queuer starts a queued job"):
            managed.patch(target, merged(label(None), suspend(kind, False)))
        assert is_suspended(managed.get(kind, target["metadata"]["name"]))

    def test_the_label_cannot_be_removed_to_start_it_next(self, managed: Place, kind: str) -> None:
        target = managed.create(job(kind))
        with refused("queuer-guard", "cannot be removed"):
            managed.patch(target, label(None))

    def test_a_put_of_the_manifest_cannot_start_it(self, managed: Place) -> None:
        manifest = job("pytorchjob")
        managed.create(manifest)
        with refused("queuer-guard", "leave suspend out"):
            managed.replace(manifest)

    def test_the_user_may_move_and_resize_it(self, managed: Place, kind: str) -> None:
        target = managed.create(job(kind))
        size = {"spec": {"parallelism": 5}} if kind == "job" else workers(5)
        moved = managed.patch(
            target,
            merged(
                label("root.other"), size, {"metadata": {"labels": {"queuer.dev/priority-class": "high"}}}
            ),
        )
        assert moved["metadata"]["labels"][QUEUE] == "root.other"
        assert is_suspended(moved)

    @pytest.mark.parametrize("value", ["forged", None], ids=["changed", "removed"])
    def test_our_annotations_stay_as_they_are(self, managed: Place, kind: str, value: str | None) -> None:
        target = managed.create(job(kind))
        managed.entered_by(CONTROLLER).patch(target, annotation("queuer.dev/status", "Pending"))
        with refused("queuer-guard", "written by Queuer only"):
            managed.patch(target, annotation("queuer.dev/status", value))
        with refused("queuer-guard", "written by Queuer only"):
            managed.patch(target, annotation(ADMISSION, "forged"))

    def test_a_suspended_job_may_be_queued_later_but_brings_no_annotation(
        self, managed: Place, kind: str
    ) -> None:
        plain = merged(job(kind, queue=None), suspend(kind, True))
        target = managed.create(merged(plain, annotation(ADMISSION, "forged")))
        with refused("queuer-guard", "written by Queuer only"):
            managed.patch(target, label("root.test"))
        managed.patch(target, merged(label("root.test"), annotation(ADMISSION, None)))
        with refused("queuer-guard", "only Queuer starts a queued job"):
            managed.patch(target, suspend(kind, False))

    def test_administrators_are_bound_until_they_break_the_glass(self, managed: Place, kind: str) -> None:
        target = managed.create(job(kind))
        admin = managed.entered_by("admin")
        with refused("queuer-guard", "only Queuer starts a queued job"):
            admin.patch(target, suspend(kind, False))
        with refused("queuer-guard", "only Queuer starts a queued job"):
            managed.patch(target, merged(annotation(BREAK_GLASS, "urgent"), suspend(kind, False)))
        with refused("queuer-guard", "is for administrators"):
            managed.patch(target, annotation(BREAK_GLASS, "urgent"))
        assert not is_suspended(
            admin.patch(target, merged(annotation(BREAK_GLASS, "drill 7"), suspend(kind, False)))
        )
        larger = {"spec": {"parallelism": 3}} if kind == "job" else workers(3)
        with refused(f"queuer-guard-{kind}s", "cannot grow"):
            managed.patch(target, larger)
        admin.patch(target, larger)

    def test_a_template_cannot_break_the_glass_through_its_controller(
        self, managed: Place, kind: str
    ) -> None:
        elsewhere = {"managedBy": "kueue.x-k8s.io/multikueue"}
        spec = elsewhere if kind == "job" else {"runPolicy": elsewhere}
        broken = merged(job(kind, **spec), annotation(BREAK_GLASS, "from a template"))
        assert not managed.entered_by(CONTROLLER_MANAGER).accepts(broken)
        with refused("queuer-guard", "is for administrators"):
            managed.entered_by(CONTROLLER_MANAGER).try_create(
                merged(job(kind), annotation(BREAK_GLASS, "from a template"))
            )


class TestStarted:
    """A queued job that Queuer has started."""

    def test_its_queue_is_fixed(self, managed: Place, kind: str) -> None:
        target = start(managed, kind)
        with refused("queuer-guard", "the queue of a started job cannot change"):
            managed.patch(target, label("root.other"))
        with refused("queuer-guard", "the queue of a started job cannot change"):
            managed.patch(target, merged(label("root.other"), suspend(kind, True)))
        with refused("queuer-guard", "cannot be removed"):
            managed.patch(target, label(None))
        managed.patch(target, {"metadata": {"labels": {"queuer.dev/priority-class": "high"}}})

    def test_a_running_job_cannot_be_put_into_a_queue(self, managed: Place, kind: str) -> None:
        target = managed.create(job(kind, queue=None))
        with refused("queuer-guard", "a started job cannot be put into a queue"):
            managed.patch(target, label("root.test"))

    def test_the_label_cannot_be_removed_through_the_status(self, managed: Place) -> None:
        target = start(managed, "job")
        with refused("queuer-guard", "cannot be removed"):
            managed.entered_by(CONTROLLER_MANAGER).patch(target, label(None), "--subresource=status")

    def test_a_job_shrinks_but_does_not_grow(self, managed: Place) -> None:
        target = start(managed, "job")
        with refused("queuer-guard-jobs", "raise parallelism"):
            managed.patch(target, {"spec": {"parallelism": 3}})
        with refused("queuer-guard-jobs", "raise parallelism"):
            managed.patch(target, merged({"spec": {"parallelism": 3}}, suspend("job", True)))
        assert managed.patch(target, {"spec": {"parallelism": 1}})["spec"]["parallelism"] == 1
        with refused("queuer-guard-jobs", "raise parallelism"):
            managed.patch(target, {"spec": {"parallelism": 2}})

    def test_an_indexed_job_does_not_grow_by_completions(self, managed: Place) -> None:
        # Two pods: completions bound them. Within its parallelism it may still double them.
        target = start(managed, "job", completionMode="Indexed", parallelism=4, completions=2)
        with refused("queuer-guard-jobs", "raise completions"):
            managed.patch(target, {"spec": {"parallelism": 4, "completions": 4}})
        smaller = managed.patch(target, {"spec": {"parallelism": 1, "completions": 1}})
        assert smaller["spec"]["completions"] == 1

    def test_the_api_server_itself_fixes_the_template_of_a_job(self, managed: Place) -> None:
        target = start(managed, "job")
        with pytest.raises(KubectlError, match=r"spec\.template.*field is immutable"):
            managed.patch(target, {"spec": {"template": {"spec": {"nodeSelector": {"rack": "r1"}}}}})

    @pytest.mark.parametrize(
        ("change", "sentence"),
        [
            (workers(2), "raise replicas"),
            ({"spec": {"elasticPolicy": {"minReplicas": 1}}}, "raise elasticPolicy"),
            ({"spec": {"elasticPolicy": {"maxReplicas": 8}}}, "raise elasticPolicy"),
            (
                {
                    "spec": {
                        "pytorchReplicaSpecs": {
                            "Worker": {"template": {"spec": {"nodeSelector": {"rack": "r1"}}}}
                        }
                    }
                },
                "pod templates of a started job cannot change",
            ),
        ],
        ids=["replicas", "minReplicas", "maxReplicas", "template"],
    )
    def test_a_pytorchjob_does_not_change_shape(
        self, managed: Place, change: Manifest, sentence: str
    ) -> None:
        target = start(managed, "pytorchjob")
        with refused("queuer-guard-pytorchjobs", sentence):
            managed.patch(target, change)

    def test_a_pytorchjob_gets_no_further_replica_type(self, managed: Place) -> None:
        target = start(managed, "pytorchjob", pytorchReplicaSpecs={"Worker": replica(2)})
        with refused("queuer-guard-pytorchjobs", "add a replica type"):
            managed.patch(target, {"spec": {"pytorchReplicaSpecs": {"Master": replica(1)}}})

    def test_a_pytorchjob_shrinks_but_does_not_grow_through_scale(self, managed: Place) -> None:
        target = start(managed, "pytorchjob")
        name = target["metadata"]["name"]
        with refused("queuer-guard-pytorchjobs-scale", "cannot be scaled up here"):
            managed.run("scale", "pytorchjob", name, "--replicas=2")
        managed.run("scale", "pytorchjob", name, "--replicas=0")
        assert managed.get("pytorchjob", name)["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"] == 0

    def test_a_pytorchjob_cannot_be_given_to_another_manager(self, managed: Place) -> None:
        target = start(managed, "pytorchjob")
        with refused("queuer-guard", "leave managedBy out"):
            managed.patch(target, {"spec": {"runPolicy": {"managedBy": "kueue.x-k8s.io/multikueue"}}})

    def test_queuer_itself_may_resize_and_move_it(self, managed: Place, kind: str) -> None:
        target = start(managed, kind)
        larger = {"spec": {"parallelism": 3}} if kind == "job" else workers(3)
        managed.entered_by(CONTROLLER).patch(target, merged(larger, label("root.other")))

    def test_the_user_may_give_up_what_runs_but_not_take_it_back(self, managed: Place, kind: str) -> None:
        target = start(managed, kind)
        managed.patch(target, suspend(kind, True))
        with refused("queuer-guard", "only Queuer starts a queued job"):
            managed.patch(target, suspend(kind, False))
        managed.patch(target, {"spec": {"parallelism": 3}} if kind == "job" else workers(3))


class TestPods:
    """Whose a pod is decides who pays for it: neither side of that can be forged."""

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
        """Whoever creates the pods: a controller does what a tenant's template says."""
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
