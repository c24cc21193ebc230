"""Below Kubernetes 1.36 a manifest says what a mutating policy would write: the refusal of one that does not is what to
merge into it.

The policy of the reduced form is tried here on any version, in namespaces that no mutating policy looks at.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

import pytest

from queuer.kube.resources import POLICIES, objects
from queuer.kube.versions import Form
from queuer.local.cluster import Cluster
from queuer.local.kubectl import KubectlError, asked_of
from tests.e2e.conftest import PARTS_OF, optional
from tests.e2e.ray import ray_manifest
from tests.e2e.scene import OPTIONAL_ROLES, ROLES
from tests.e2e.support import (
    create,
    jobset_manifest,
    kubectl_list,
    runtime_manifest,
    training_manifest,
    trainjob_manifest,
    wait_until,
)
from tests.e2e.tenancy import (
    CONTROLLER_MANAGER,
    QUEUE,
    Manifest,
    Place,
    annotation,
    is_suspended,
    job,
    label,
    merged,
    opened,
    owner,
    pod_spec,
    refused,
    suspend,
    templates,
)

POLICY = "reduced-entry"
HERE = {"test": POLICY}
USER, GROUPS = "queuer.dev/user", "queuer.dev/groups"
OF_KIND = {
    "plain": ("TFJob", "TrainJob", "MPIJob"),
    "listed": ("JobSet", "RayJob", "RayCluster"),
}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test a kind that the cluster has: `make conformance` has all."""
    for name, kinds in OF_KIND.items():
        if name in metafunc.fixturenames:
            there = {None, *optional(metafunc.config.getoption("--kinds"))}
            metafunc.parametrize(name, [kind for kind in kinds if PARTS_OF.get(kind) in there])


@pytest.fixture(scope="module")
def policy(cluster: Cluster) -> Iterator[Cluster]:
    """The cluster, with the policy of the reduced form for the namespaces labelled `HERE`."""
    found = [
        d for _, d in objects(POLICIES[Form.REDUCED][1]) if d["metadata"]["name"] == "queuer-guard-entry"
    ]
    items = json.loads(json.dumps(found).replace("queuer-guard-entry", POLICY))
    items[1]["spec"]["matchResources"] = {"namespaceSelector": {"matchLabels": HERE}}
    kubectl_list(cluster, "admin", items, "apply")
    yield cluster
    kubectl_list(cluster, "admin", items, "delete")


@pytest.fixture(scope="module")
def asking(policy: Cluster) -> Iterator[Place]:
    """A namespace in which the policy asks; it is in force."""
    with place(policy) as found:
        wait_until(lambda: not found.accepts(job("job")), timeout=30, describe="the policy is in force")
        yield found


def place(cluster: Cluster, **labels: str) -> AbstractContextManager[Place]:
    return opened(cluster, labels={**HERE, **labels})


def asked(place: Place, manifest: Manifest) -> Manifest:
    """The lines that the refusal of a manifest asks to be merged into it."""
    with refused(POLICY, "merge into it: {") as said:
        place.try_create(manifest)
    return dict(asked_of(str(said.value)))


def test_a_job_of_any_kind_is_asked_alike(asking: Place, plain: str) -> None:
    """The templates of a TrainJob are an administrator's: nothing is asked of its owner for them."""
    where: dict[str, Any] = {"name": "fit", "namespace": asking.namespace, "queue": "root.test"}
    key, *roles = (ROLES | OPTIONAL_ROLES).get(plain, ("",))
    if plain == "TrainJob":
        create(asking.cluster, runtime_manifest("fit", namespace=asking.namespace), identity="admin")
        manifest = trainjob_manifest(**where)
    else:
        manifest = training_manifest(plain, key, dict.fromkeys(roles, 1), **where)
    wanted = asked(asking, manifest)
    if plain == "TrainJob":
        assert wanted["spec"] == {"suspend": True}
    else:
        assert wanted["spec"]["runPolicy"] == {"suspend": True, "cleanPodPolicy": "Running"}
        assert set(wanted["spec"][key]) == set(roles)
    waiting = merged(manifest, wanted)
    wait_until(lambda: asking.accepts(waiting), timeout=10, describe="its controller knows what it names")
    assert is_suspended(asking.try_create(waiting))


def test_templates_in_a_list_are_asked_for_in_words(asking: Place, listed: str) -> None:
    """A merge patch could only replace the list whole. A RayJob is asked to give its cluster up, too."""
    if listed == "JobSet":
        manifest = jobset_manifest("tune", namespace=asking.namespace, queue="root.test", priority_class="")
        words = "template.spec.template.spec of driver, workers in spec.replicatedJobs"
    else:
        manifest = ray_manifest(listed, "tune", namespace=asking.namespace, queue="root.test")
        words = "under template.spec of head and worker groups"
    wanted = asked(asking, manifest)
    gives_up = {"shutdownAfterJobFinishes": True} if listed == "RayJob" else {}
    assert wanted["spec"] == {"suspend": True, **gives_up}
    waiting = merged(manifest, wanted)
    with refused(POLICY, words):
        asking.try_create(waiting)
    spec = waiting["spec"].get("rayClusterSpec", waiting["spec"])
    pods = [role["template"]["spec"] for role in spec.get("replicatedJobs", ())]
    pods += [spec["headGroupSpec"], *spec["workerGroupSpecs"]] if listed != "JobSet" else []
    for each in pods:
        each["template"]["spec"]["priorityClassName"] = "queuer-default"
    assert is_suspended(asking.try_create(waiting))


def test_what_a_refusal_asks_for_is_all_that_a_mutating_policy_would_write(asking: Place, kind: str) -> None:
    plain = job(kind)
    created = asking.try_create(merged(plain, asked(asking, plain)))
    assert is_suspended(created)
    assert created["metadata"]["annotations"] == {USER: "alice", GROUPS: "system:authenticated"}
    assert {t["spec"]["priorityClassName"] for t in templates(created)} == {"queuer-default"}
    if kind == "pytorchjob":
        assert created["spec"]["runPolicy"]["cleanPodPolicy"] == "Running"


def test_what_its_owner_wrote_is_kept(asking: Place) -> None:
    urgent = job("job", template={"spec": {**pod_spec("main"), "priorityClassName": "queuer-urgent"}})
    assert asked(asking, urgent)["spec"] == {"suspend": True}
    lingers = job("pytorchjob", runPolicy={"cleanPodPolicy": "None"})
    assert asked(asking, lingers)["spec"]["runPolicy"] == {"suspend": True}


def test_nobody_queues_a_job_in_anothers_name(asking: Place, kind: str) -> None:
    mine = merged(job(kind), asked(asking, job(kind)))
    for forged in (annotation(USER, "bob"), annotation(GROUPS, "system:authenticated\nbosses")):
        assert asked(asking, merged(mine, forged))["metadata"]["annotations"][USER] == "alice"
    assert asked(asking.entered_by("bob"), mine)["metadata"]["annotations"][USER] == "bob"


def test_the_default_queue_of_the_namespace_is_asked_for(policy: Cluster, asking: Place, kind: str) -> None:
    asking.try_create(job(kind, queue=None))
    with place(policy, **{"queuer.dev/default-queue": "root.default"}) as given:
        plain = job(kind, queue=None)
        wanted = asked(given, plain)
        assert wanted["metadata"]["labels"] == {QUEUE: "root.default"}
        given.try_create(merged(plain, wanted))


def test_a_suspended_job_that_is_queued_later_is_asked_for_who_queues_it(asking: Place, kind: str) -> None:
    plain = asking.create(merged(job(kind, queue=None), suspend(kind, True)))
    with refused(POLICY, "merge into it: {") as said:
        asking.patch(plain, label("root.test"))
    wanted = asked_of(str(said.value))
    assert set(wanted) == {"metadata"}
    queued = asking.patch(plain, wanted)
    assert (queued["metadata"]["labels"][QUEUE], queued["metadata"]["annotations"][USER]) == (
        "root.test",
        "alice",
    )


def test_a_cron_jobs_template_names_its_controller(asking: Place) -> None:
    """Its lines are in the Event of the refusal; who may edit the template can queue in no other name."""
    template = {"metadata": {"labels": {QUEUE: "root.test"}}, "spec": job("job")["spec"]}
    spec = {"schedule": "0 0 1 1 *", "jobTemplate": template}
    cron = {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "nightly"}, "spec": spec}
    child = job("job")
    child["metadata"]["ownerReferences"] = owner(asking.create(cron))
    controller = asking.entered_by(CONTROLLER_MANAGER)
    wanted = asked(controller, child)
    assert wanted["metadata"]["annotations"][USER] == "system:kube-controller-manager"
    assert is_suspended(controller.try_create(merged(child, wanted)))


def test_groups_are_a_set_whatever_their_order(asking: Place) -> None:
    admin, plain = asking.entered_by("admin"), job("job")
    options = [
        "--as=alice",
        *(f"--as-group={name}" for name in ("system:masters", "one", "two")),
        "--dry-run=server",
    ]
    with refused(POLICY, "merge into it: {") as said:
        admin.create(plain, *options)
    wanted = asked_of(str(said.value))
    groups = wanted["metadata"]["annotations"][GROUPS].split("\n")
    stored = merged(plain, wanted)
    admin.create(merged(stored, annotation(GROUPS, "\n".join(reversed(groups)))), *options)
    for other in (groups[1:], [*groups, "three"]):
        with refused(POLICY, "merge into it: {"):
            admin.create(merged(stored, annotation(GROUPS, "\n".join(other))), *options)


def test_any_name_is_told_so_that_it_can_be_pasted(asking: Place) -> None:
    """As JSON it has no line break, which no message may have; more groups than fit are told how to be found."""
    admin, plain = asking.entered_by("admin"), job("job")

    def create(manifest: Manifest, *groups: str) -> Any:
        named = ("system:masters", *groups)
        options = ['--as=o"d\\d é', *(f"--as-group={name}" for name in named), "--dry-run=server"]
        return admin.create(manifest, *options)

    with refused(POLICY, "merge into it: {") as said:
        create(plain, 'one "two"')
    wanted = asked_of(str(said.value))
    assert wanted["metadata"]["annotations"][USER] == 'o"d\\d é'
    assert 'one "two"' in wanted["metadata"]["annotations"][GROUPS].split("\n")
    create(merged(plain, wanted), 'one "two"')
    many = [f"group-{number:03}-{'x' * 50}" for number in range(120)]
    with pytest.raises(KubectlError, match="as `kubectl auth whoami` lists them"):
        create(plain, *many)
