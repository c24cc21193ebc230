"""Ray under the admission policies: nothing that KubeRay makes runs past the queues or on another's account.

The policies judge requests, so no KubeRay runs here: its token makes what it would make. The kinds have the definitions
below where the cluster lacks those of KubeRay.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from queuer.local.cluster import Cluster
from tests.e2e.ray import ray_manifest
from tests.e2e.support import kubectl_list, wait_until
from tests.e2e.tenancy import (
    MANAGED,
    QUEUE,
    Manifest,
    Place,
    is_suspended,
    label,
    merged,
    opened,
    owner,
    refused,
)

KUBERAY = "ray-operator"
PAYER = "queuer.dev/workload"
_OPEN: Manifest = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


def _definition(kind: str) -> Manifest:
    spec = {**_OPEN, "properties": {f: {"type": "boolean"} for f in ("suspend", "shutdownAfterJobFinishes")}}
    schema = {"type": "object", "properties": {"spec": spec, "status": _OPEN}}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    plural = f"{kind.lower()}s"
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.ray.io"},
        "spec": {
            "group": "ray.io",
            "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural},
            "versions": [version],
        },
    }


@pytest.fixture(scope="module")
def ray(cluster: Cluster) -> Iterator[Cluster]:
    """The cluster, which serves Ray's kinds; alice may edit them."""
    items = (
        [] if KUBERAY in cluster.state.parts else [*map(_definition, ("RayJob", "RayCluster", "RayService"))]
    )
    rule = {"apiGroups": ["ray.io"], "resources": ["*"], "verbs": ["*"]}
    named = {"name": "test-ray-edit", "labels": {"rbac.authorization.k8s.io/aggregate-to-edit": "true"}}
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": named,
        "rules": [rule],
    }
    items.append(role)
    kubectl_list(cluster, "admin", items, "apply")
    yield cluster
    kubectl_list(cluster, "admin", items, "delete")


@pytest.fixture(scope="module")
def place(ray: Cluster) -> Iterator[Place]:
    """A namespace whose jobs are queued if they say so."""
    with opened(ray, labels=MANAGED) as found:
        _in_force(found)
        yield found


def _in_force(place: Place) -> None:
    """A policy takes effect once the API server knows the kind that it names."""

    def held() -> bool:
        made = [_ray(place, kind, queue="root.test") for kind in ("RayJob", "RayCluster")]
        return all(place.accepts(each) and is_suspended(place.try_create(each)) for each in made)

    wait_until(held, timeout=60, describe="the policies know Ray's kinds")
    wait_until(
        lambda: not place.accepts(_service(place, queue="root.test")), timeout=60, describe="and its services"
    )


def _ray(place: Place, kind: str, name: str = "ray", *, payer: str | None = None, **wanted: Any) -> Manifest:
    """`payer`: the label on the pods of its workers."""
    found = ray_manifest(kind, name, namespace=place.namespace, **wanted)
    if payer is not None:
        spec = found["spec"].get("rayClusterSpec", found["spec"])
        spec["workerGroupSpecs"][0]["template"]["metadata"] = {"labels": {PAYER: payer}}
    return found


def _service(place: Place, *, queue: str | None = None) -> Manifest:
    cluster = _ray(place, "RayCluster", "serve", queue=queue)
    return {**cluster, "kind": "RayService", "spec": {"rayClusterConfig": cluster["spec"]}}


def _made_for(owning: Manifest, cluster: Manifest) -> Manifest:
    return merged(cluster, {"metadata": {"ownerReferences": owner(owning)}})


class TestRayService:
    """KubeRay makes its RayClusters larger whenever its owner says so."""

    def test_it_cannot_be_queued(self, place: Place) -> None:
        with refused(
            "queuer-guard-rayservices", "take the label queuer.dev/queue off, or queue a RayCluster"
        ):
            place.try_create(_service(place, queue="root.test"))
        target = place.create(_service(place))
        with refused("queuer-guard-rayservices", "take the label queuer.dev/queue off"):
            place.patch(target, label("root.test"))
        place.patch(target, {"metadata": {"labels": {"colour": "blue"}}})
        place.delete(target)

    @pytest.mark.parametrize(
        "labels",
        [{**MANAGED, "queuer.dev/default-queue": "root.default"}, {"queuer.dev/managed": "required"}],
        ids=["default-queue", "required"],
    )
    def test_nothing_of_it_runs_where_all_is_queued(self, ray: Cluster, labels: dict[str, str]) -> None:
        """Neither a new one, nor what KubeRay makes of one that was there before."""
        with opened(ray, labels=labels) as place:
            with refused("queuer-guard-rayservices", "what runs in this namespace is queued"):
                place.try_create(_service(place))
            before = {
                **_service(place),
                "metadata": {"name": "serve", "uid": "6b1d7c0e-0000-4000-8000-000000000000"},
            }
            child, kuberay = _made_for(before, _ray(place, "RayCluster")), place.entered_by(KUBERAY)
            queued = "queuer.dev/default-queue" in labels
            policy, said = (
                ("queuer-guard", "queue a RayCluster of your own")
                if queued
                else ("queuer-required-jobs", "queued jobs only")
            )
            with refused(policy, said):
                kuberay.try_create(child)
            with refused(policy, said):
                place.try_create(child)

    def test_what_kuberay_makes_of_one_cannot_be_queued_either(self, place: Place) -> None:
        """KubeRay copies the labels of a RayService that had them before its namespace opted in."""
        service = place.create(_service(place))
        child = _made_for(service, _ray(place, "RayCluster", queue="root.test"))
        with refused("queuer-guard", "it cannot be queued: queue a RayCluster of your own"):
            place.entered_by(KUBERAY).try_create(child)
        with refused("queuer-guard", "it cannot be queued"):
            plain = place.create(_made_for(service, _ray(place, "RayCluster", "old", suspend=True)))
            place.patch(plain, label("root.test"))
        place.delete(service)


def test_another_manager_of_the_raycluster_of_a_rayjob_is_refused(place: Place) -> None:
    elsewhere = _ray(place, "RayJob", queue="root.test", cluster={"managedBy": "kueue.x-k8s.io/multikueue"})
    with refused(
        "queuer-guard", "leave it out of spec.replicatedJobs[].template.spec or spec.rayClusterSpec"
    ):
        place.try_create(elsewhere)


class TestPayers:
    """The label of a pod template says who pays: what KubeRay makes has that of its own RayJob alone."""

    @pytest.fixture
    def victim(self, place: Place) -> Iterator[str]:
        """The uid of a queued job that is to pay."""
        target = place.create(_ray(place, "RayJob", "victim", queue="root.test"))
        yield target["metadata"]["uid"]
        place.delete(target)

    @pytest.mark.parametrize("queue", ["root.test", None], ids=["queued", "beside the queues"])
    def test_a_raycluster_is_not_made_on_anothers_account(
        self, place: Place, victim: str, queue: str | None
    ) -> None:
        forged = _ray(place, "RayCluster", queue=queue, payer=victim)
        with refused("queuer-guard-made", "take it out of the labels of pod templates"):
            place.try_create(forged)
        target = place.create(_ray(place, "RayCluster", "plain", queue=queue))
        with refused("queuer-guard-made", "take it out of the labels of pod templates"):
            place.patch(target, {"spec": forged["spec"]})
        place.delete(target)

    def test_kuberay_makes_none_on_anothers_account(self, place: Place, victim: str) -> None:
        """A RayJob beside the queues says in its templates what it likes, and KubeRay does what it says."""
        beside = place.create(_ray(place, "RayJob", "beside", payer=victim))
        kuberay = place.entered_by(KUBERAY)
        with refused("queuer-guard-made", "written by Queuer"):
            kuberay.try_create(_made_for(beside, _ray(place, "RayCluster", payer=victim)))
        kuberay.try_create(_made_for(beside, _ray(place, "RayCluster")))
        own = _ray(place, "RayCluster", queue="root.test", payer=beside["metadata"]["uid"])
        kuberay.try_create(_made_for(beside, own))
        place.delete(beside)

    def test_only_kuberay_deletes_the_raycluster_of_a_rayjob_that_was_started(self, place: Place) -> None:
        """It would be made anew while the pods of the first still run."""
        job = place.create(_ray(place, "RayJob", "whole", queue="root.test"))
        kuberay = place.entered_by(KUBERAY)
        started = _ray(place, "RayCluster", "part", queue="root.test", payer=job["metadata"]["uid"])
        part = kuberay.create(_made_for(job, started))
        for who in (place, place.entered_by("admin")):
            with refused("queuer-guard-deletion", "delete or suspend that job"):
                who.delete(part)
        kuberay.delete(part)
        place.delete(job)

    def test_no_raycluster_is_given_to_a_rayjob_later(self, place: Place, victim: str) -> None:
        target = place.create(_ray(place, "RayCluster", "plain"))
        claimed = place.get("rayjob", "victim")
        with refused("queuer-guard-made", "remove metadata.ownerReferences"):
            place.patch(target, {"metadata": {"ownerReferences": owner(claimed)}})
        assert claimed["metadata"]["uid"] == victim
        assert claimed["metadata"]["labels"][QUEUE] == "root.test"
        place.delete(target)
