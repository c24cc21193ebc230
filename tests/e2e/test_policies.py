"""The admission policies of `deploy/`, tried on a real API server with the tokens they bind.

A tenant holds the built-in `edit` rights in the namespace. Each refusal must name the policy and carry its
sentence. Allowed writes are tried too, since a policy that refuses everything would pass the rest.
"""

from __future__ import annotations

from typing import Any

import pytest

from queuer.local.cluster import Cluster
from tests.e2e.scene import ROLES
from tests.e2e.support import jobset_manifest, training_manifest, wait_until
from tests.e2e.tenancy import (
    ADMISSION,
    CONTROLLER_MANAGER,
    KINDS,
    MANAGED,
    OPERATOR,
    QUEUE,
    Place,
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
)

USER = "queuer.dev/user"
GROUPS = "queuer.dev/groups"
WARNINGS = "--warnings-as-errors"
QUEUED_BY = {"job": "queuer-queue-jobs", "pytorchjob": "queuer-queue-kubeflow"}


class TestCreate:
    """The policies' changes to a job on create."""

    def test_a_queued_job_is_suspended_whatever_it_says(self, managed: Place, kind: str) -> None:
        created = managed.try_create(merged(job(kind), suspend(kind, False)))
        assert is_suspended(created)
        assert created["metadata"]["labels"][QUEUE] == "root.test"
        assert [t["spec"]["priorityClassName"] for t in templates(created)] == ["queuer-default"] * len(
            templates(created)
        )

    @pytest.mark.parametrize("of", sorted(ROLES))
    def test_a_job_of_another_of_the_operators_kinds_is_held_alike(self, managed: Place, of: str) -> None:
        key, *roles = ROLES[of]
        counts = dict.fromkeys(roles, 1)
        wanted: Any = {"name": "held", "namespace": managed.namespace, "queue": "root.test"}
        created = managed.try_create(training_manifest(of, key, counts, **wanted))
        assert created["spec"]["runPolicy"] == {"suspend": True, "cleanPodPolicy": "Running"}
        specs = [role["template"]["spec"] for role in created["spec"][key].values()]
        assert [spec["priorityClassName"] for spec in specs] == ["queuer-default"] * len(roles)

    def test_a_jobset_is_held_with_all_its_roles(self, managed: Place) -> None:
        plain = jobset_manifest("held", namespace=managed.namespace, queue="root.test", priority_class="")
        created = managed.try_create(plain)
        assert created["spec"]["suspend"] is True
        roles = [role["template"]["spec"]["template"]["spec"] for role in created["spec"]["replicatedJobs"]]
        assert [role["priorityClassName"] for role in roles] == ["queuer-default"] * 2
        plain["spec"]["replicatedJobs"][0]["template"]["metadata"] = {"labels": {QUEUE: "root.test"}}
        with refused("queuer-guard", "take the label queuer.dev/queue out of spec.replicatedJobs"):
            managed.try_create(plain)

    def test_workers_end_with_their_job_unless_their_owner_says_otherwise(self, managed: Place) -> None:
        """The operator's own default lets them run on after the end, where nobody waits for them."""
        silent, said = job("pytorchjob"), job("pytorchjob")
        silent["spec"].pop("runPolicy", None)
        said["spec"]["runPolicy"] = {"cleanPodPolicy": "None"}
        kept = [managed.try_create(found)["spec"]["runPolicy"]["cleanPodPolicy"] for found in (silent, said)]
        assert kept == ["Running", "None"]

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
        of_another_kind = {"managedBy": "jobset.sigs.k8s.io/jobset-controller"}
        if kind == "job":
            with refused("queuer-guard", "leave managedBy out"):
                managed.try_create(job(kind, **of_another_kind))

    def test_another_manager_of_the_jobs_of_a_jobset_is_refused(self, managed: Place) -> None:
        """Nobody would start them here."""
        found = jobset_manifest("held", namespace=managed.namespace, queue="root.test")
        spec = found["spec"]["replicatedJobs"][0]["template"]["spec"]
        spec["managedBy"] = "kueue.x-k8s.io/multikueue"
        with refused("queuer-guard", "leave it out of spec.replicatedJobs[].template.spec"):
            managed.try_create(found)
        spec["managedBy"] = "kubernetes.io/job-controller"
        managed.try_create(found)

    def test_devices_of_resource_claims_are_refused(self, managed: Place, kind: str) -> None:
        """No quota counts them."""
        claims: Any = {"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "eight"}]}
        spec = (
            {"template": {"spec": {**pod_spec("main"), **claims}}}
            if kind == "job"
            else {"pytorchReplicaSpecs": {"Worker": replica(1, **claims)}}
        )
        with refused("queuer-guard", "ask in resources.limits"):
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
        binding = admin.get("mutatingadmissionpolicybinding", QUEUED_BY[kind])
        admin.delete(binding)
        try:
            wait_until(lambda: not managed.accepts(job(kind)), timeout=20, describe="the policy is gone")
            with refused("queuer-guard-entry", "must be created suspended"):
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
    """Writes that are allowed and probably not meant: kubectl prints why, and writes all the same."""

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

    def test_a_name_of_ours_that_does_not_exist(self, managed: Place, kind: str) -> None:
        """Guards against a typo that lets a job run past all queues; what is legal is not warned of."""
        typo = {"metadata": {"labels": {"queuer.dev/queu": "root.test"}}}
        with warned("Queuer has no label or annotation queuer.dev/queu, so it does nothing", "labels.md"):
            managed.create(merged(job(kind, queue=None), typo), WARNINGS)
        legal = annotation("queuer.dev/max-runtime", "2h"), annotation("queuer.dev/min-count.main", "1")
        target = managed.create(merged(job(kind), *legal), WARNINGS)
        with warned("no label or annotation queuer.dev/topology-requried, and the job does not start until"):
            managed.patch(target, annotation("queuer.dev/topology-requried", "rack"), WARNINGS)
        managed.patch(target, annotation("some", "thing"), WARNINGS)  # once, when it comes
        with warned("no label or annotation queuer.dev/queu"):
            managed.create(merged(pod(), typo), WARNINGS)

    def test_devices_without_a_queue(self, managed: Place, kind: str) -> None:
        """Guards against a forgotten label; a job in a queue and one without devices are none of it."""

        def asking(wanted: dict[str, Any], resource: str) -> dict[str, Any]:
            limits = {"resources": {"limits": {resource: "1"}}}
            for each in templates(wanted) if wanted["kind"] != "Pod" else [wanted]:
                each["spec"]["containers"][0] |= limits
            return wanted

        with warned("asks for nvidia.com/gpu and has no label queuer.dev/queue: it runs past all queues"):
            managed.create(asking(job(kind, queue=None), "nvidia.com/gpu"), WARNINGS)
        with warned("this Pod asks for example.com/nic"):
            managed.create(asking(pod(), "example.com/nic"), WARNINGS)
        managed.create(asking(job(kind), "nvidia.com/gpu"), WARNINGS)
        managed.create(asking(job(kind, queue=None), "cpu"), WARNINGS)

    def test_a_key_of_ours_that_stands_in_the_wrong_place(self, managed: Place, kind: str) -> None:
        for wrong, said in (
            (
                {"annotations": {QUEUE: "root.test"}},
                f"the annotation {QUEUE} holds the job back: it is a label",
            ),
            ({"annotations": {"queuer.dev/priority-class": "x"}}, "holds the job back: it is a label"),
            ({"labels": {"queuer.dev/topology-required": "rack"}}, "has no effect: it is an annotation"),
            ({"labels": {"queuer.dev/min-count.main": "1"}}, "has no effect: it is an annotation"),
        ):
            with warned(said):
                managed.create(merged(job(kind), {"metadata": wrong}), WARNINGS)

    def test_what_kueue_would_read(self, managed: Place, kind: str) -> None:
        """Of a job with a queue of ours the label of Kueue's may be read, by rules of placement."""
        kueues, topology = "kueue.x-k8s.io/queue-name", "kueue.x-k8s.io/podset-required-topology"
        named: Any = {"metadata": {"labels": {kueues: "user-queue"}}}
        with warned(f"Queuer does not read {kueues}", "write the labels queuer.dev/queue"):
            managed.create(merged(job(kind, queue=None), named), WARNINGS)
        managed.create(merged(job(kind), named), WARNINGS)
        pinned = job(kind)
        templates(pinned)[-1]["metadata"] = {"annotations": {topology: "rack"}}
        with warned(f"Queuer does not read {topology}", "queuer.dev/topology-required"):
            managed.create(pinned, WARNINGS)

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
