"""Edits that the admission policies allow on a waiting or running job; see `test_policies`."""

from __future__ import annotations

import pytest

from queuer.local.kubectl import KubectlError
from tests.e2e.tenancy import (
    ADMISSION,
    BREAK_GLASS,
    CONTROLLER,
    CONTROLLER_MANAGER,
    QUEUE,
    Manifest,
    Place,
    annotation,
    is_suspended,
    job,
    label,
    merged,
    refused,
    replica,
    start,
    suspend,
    workers,
)


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
        with refused("queuer-guard-jobs" if kind == "job" else "queuer-guard-kubeflow", "cannot grow"):
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
        with refused("queuer-guard-jobs", "cannot grow in parallelism"):
            managed.patch(target, {"spec": {"parallelism": 3}})
        way = f"job/{target['metadata']['name']} -n {managed.namespace}"
        with refused("queuer-guard-jobs", f"`queuer hold {way}`, set suspend to true, edit it"):
            managed.patch(target, {"spec": {"parallelism": 3}})
        with refused("queuer-guard-jobs", "cannot grow in parallelism"):
            managed.patch(target, merged({"spec": {"parallelism": 3}}, suspend("job", True)))
        assert managed.patch(target, {"spec": {"parallelism": 1}})["spec"]["parallelism"] == 1
        with refused("queuer-guard-jobs", "cannot grow in parallelism"):
            managed.patch(target, {"spec": {"parallelism": 2}})

    def test_an_indexed_job_does_not_grow_by_completions(self, managed: Place) -> None:
        # Two pods: completions bound them. Within its parallelism it may still double them.
        target = start(managed, "job", completionMode="Indexed", parallelism=4, completions=2)
        with refused("queuer-guard-jobs", "cannot grow in completions"):
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
            (workers(2), "cannot grow in replicas"),
            ({"spec": {"elasticPolicy": {"minReplicas": 1}}}, "cannot grow in elasticPolicy"),
            ({"spec": {"elasticPolicy": {"maxReplicas": 8}}}, "cannot grow in elasticPolicy"),
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
        with refused("queuer-guard-kubeflow", sentence):
            managed.patch(target, change)

    def test_a_pytorchjob_gets_no_further_replica_type(self, managed: Place) -> None:
        target = start(managed, "pytorchjob", pytorchReplicaSpecs={"Worker": replica(2)})
        with refused("queuer-guard-kubeflow", "gets no further replica type"):
            managed.patch(target, {"spec": {"pytorchReplicaSpecs": {"Master": replica(1)}}})

    def test_a_pytorchjob_shrinks_but_does_not_grow_through_scale(self, managed: Place) -> None:
        target = start(managed, "pytorchjob")
        name = target["metadata"]["name"]
        with refused("queuer-guard-kubeflow-scale", "cannot be scaled up here"):
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
