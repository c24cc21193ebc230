"""Pods that queue by themselves: single ones, groups, and those that a controller makes anew."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from tests.e2e.controller import GPU, tree
from tests.e2e.scene import TEAM_A, TEAM_B, Scene, required
from tests.e2e.support import (
    Refused,
    create,
    deployment_manifest,
    kubectl,
    lws_manifest,
    pod_manifest,
    read,
    wait_until,
)
from tests.e2e.test_commands import command

GATE = [{"name": "queuer.dev/queue"}]
PODS = 3


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test a controller that makes pods anew."""
    if "maker" in metafunc.fixturenames:
        said = metafunc.config.getoption("--kinds")
        lws = [name for name in ("LeaderWorkerSet",) if said == "all" or name in said.split(",")]
        metafunc.parametrize("maker", ["Deployment", *lws])


def _create_group(
    scene: Scene, name: str, *, pods: int = PODS, size: int = PODS, first: int = 0, **wanted: Any
) -> None:
    for i in range(first, first + pods):
        wanted = {"queue": TEAM_A, **wanted}
        pod = pod_manifest(f"{name}-{i}", namespace=scene.namespace, group=name, size=size, **wanted)
        create(scene.cluster, pod)


def _deploy(
    scene: Scene, name: str, *, pods: int = PODS, queue: str = TEAM_A, group: bool = True, **wanted: Any
) -> None:
    """A Deployment whose pods are one group, or queue one by one."""
    named: dict[str, Any] = {"group": name, "size": pods} if group else {}
    pod = pod_manifest(name, namespace=scene.namespace, queue=queue, **named, **wanted)
    create(scene.cluster, deployment_manifest(name, pod, pods=pods), identity="admin")


def _make(scene: Scene, maker: str, name: str, *, pods: int = PODS, **wanted: Any) -> str:
    """A controller whose pods are one group; returns the name of their job."""
    if maker == "Deployment":
        _deploy(scene, name, pods=pods, **wanted)
        return name
    pod = pod_manifest(name, namespace=scene.namespace, queue=TEAM_A, **wanted)
    create(scene.cluster, lws_manifest(name, pod, pods=pods), identity="admin")
    return f"{name}-0"


def _of_app(scene: Scene, name: str) -> list[dict[str, Any]]:
    return [p for p in scene.pods() if p["metadata"]["labels"].get("app") == name]


def _gates(pods: list[dict[str, Any]]) -> list[Any]:
    return [p["spec"].get("schedulingGates") for p in pods]


def _open(scene: Scene, rack: str) -> None:
    """Leave the nodes of one rack open."""
    nodes = scene.nodes()
    scene.uncordon(sorted(n for n, r in nodes.items() if r == rack))
    scene.cordon(sorted(n for n, r in nodes.items() if r != rack))


def test_a_group_starts_together_by_one_write_a_pod(scene: Scene) -> None:
    """A cordoned host in each rack: the place is pinned by hosts, whatever else is on the nodes."""
    scene.database.apply(tree(scene.namespace))
    scene.cordon(sorted({rack: node for node, rack in scene.nodes().items()}.values()))
    _create_group(scene, "gang", pods=2, gpus=8, annotations=required("rack"))
    assert _gates(scene.pods("gang")) == [GATE, GATE], "a policy holds them while no controller is there"
    scene.start()
    told = scene.wait_reason("gang", "Misconfigured")
    assert "says 3, and the group has 2 pods" in told["text"]
    before = scene.writes("pods").get("200", 0)
    _create_group(scene, "gang", pods=1, first=2, gpus=8, annotations=required("rack"))
    scene.wait_state("gang", "Running")
    assert scene.writes("pods").get("200", 0) - before == PODS
    assert len(scene.racks("gang")) == 1
    assert scene.database.used() == 8 * PODS
    assert all("kubernetes.io/hostname" in json.dumps(p["spec"]["affinity"]) for p in scene.pods("gang"))
    scene.delete("gang-0", "Pod")
    wait_until(
        lambda: scene.database.used() == 8 * (PODS - 1), timeout=30, describe=lambda: scene.story("gang")
    )
    scene.delete("gang-1", "Pod")
    scene.delete("gang-2", "Pod")
    scene.wait_empty()


def test_a_group_ends_with_its_pods(scene: Scene) -> None:
    scene.database.apply(tree(scene.namespace))
    scene.start()
    _create_group(scene, "short", gpus=1, run_for="1s")
    scene.wait_state("short", "Succeeded", timeout=60)
    scene.wait_empty()


def test_a_group_that_is_made_anew_is_admitted_to_another_rack(scene: Scene, maker: str) -> None:
    """A whole rack is pinned by its label, so only hosts or racks of the second admission are on the pods."""
    scene.database.apply(tree(scene.namespace))
    _open(scene, "r01")
    scene.start()
    job = _make(scene, maker, "web", gpus=8, annotations=required("rack"))
    scene.wait_state(job, "Running")
    assert {scene.rack_of(p["spec"]["nodeName"]) for p in _of_app(scene, "web")} == {"r01"}
    first = {p["metadata"]["uid"] for p in _of_app(scene, "web")}
    submitted = scene.database.workload(job, scene.namespace)["submitted"]
    _open(scene, "r02")
    kubectl(scene.cluster, "admin", "delete", "pods", "-l", "app=web", "-n", scene.namespace, "--wait=false")
    wait_until(
        lambda: scene.database.workload(job, scene.namespace)["attempt"] == 2, timeout=60,
        describe=lambda: scene.story(job),
    )  # fmt: skip
    scene.wait_state(job, "Running")
    pods = _of_app(scene, "web")
    assert {scene.rack_of(p["spec"]["nodeName"]) for p in pods} == {"r02"}
    assert not first & {p["metadata"]["uid"] for p in pods}
    assert scene.database.used() == 8 * PODS
    assert scene.database.workload(job, scene.namespace)["submitted"] == submitted
    kubectl(scene.cluster, "admin", "delete", maker, "web", "-n", scene.namespace)
    scene.wait_empty()


def test_a_group_that_waits_is_deleted(scene: Scene, maker: str) -> None:
    scene.database.apply(tree(scene.namespace))
    _open(scene, "r01")
    scene.start()
    job = _make(scene, maker, "large", pods=5, gpus=8)
    scene.wait_reason(job, "TopologyPlacementFailed")
    kubectl(scene.cluster, "admin", "delete", maker, "large", "-n", scene.namespace)
    wait_until(
        lambda: scene.database.workload(job, scene.namespace)["deleted_at"], timeout=30,
        describe=lambda: scene.story(job),
    )  # fmt: skip
    assert not scene.database.open_rows()


def test_a_pod_that_is_made_anew_follows_the_others_of_its_group(scene: Scene) -> None:
    scene.database.apply(tree(scene.namespace))
    scene.start()
    _deploy(scene, "web", gpus=8, annotations=required("rack"))
    scene.wait_state("web", "Running")
    racks = scene.racks("web")
    lost = scene.pods("web")[0]["metadata"]
    scene.delete(lost["name"], "Pod", "--wait=false")

    def whole() -> bool:
        pods = scene.pods("web")
        running = [p for p in pods if p["status"]["phase"] == "Running"]
        return len(running) == PODS and lost["uid"] not in {p["metadata"]["uid"] for p in pods}

    wait_until(whole, timeout=60, describe=lambda: scene.story("web"))
    assert scene.racks("web") == racks
    assert scene.database.workload("web", scene.namespace)["attempt"] == 1
    wait_until(lambda: scene.database.used() == 8 * PODS, timeout=30, describe=lambda: scene.story("web"))


def test_reclaimed_pods_are_deleted_and_wait_gated_where_a_controller_makes_them_anew(scene: Scene) -> None:
    nodes = scene.nodes()
    scene.cordon(sorted(node for node, rack in nodes.items() if rack != "r01"))
    scene.database.apply(tree(scene.namespace, team_a={"quota": [{"resource": GPU, "guaranteed": 32}]}))
    scene.start()
    _deploy(scene, "borrower", pods=4, gpus=8, queue=TEAM_B)
    scene.wait_state("borrower", "Running")
    _create_group(scene, "owner", pods=4, size=4, gpus=8)
    scene.wait_state("owner", "Running")
    scene.wait_state("borrower", "Queued")
    assert _gates(scene.pods("borrower")) == [GATE] * 4
    assert scene.database.used() == 32


def _gated_anew(scene: Scene, app: str, before: set[str]) -> None:
    """Wait until the controller of its pods has made all anew."""

    def made() -> bool:
        pods = _of_app(scene, app)
        return _gates(pods) == [GATE] * PODS and not before & {p["metadata"]["uid"] for p in pods}

    wait_until(made, timeout=60, describe=lambda: f"pods of {app} are made anew: {_of_app(scene, app)}")


def test_the_rest_that_an_eviction_promises_is_kept_while_pods_are_made_anew(scene: Scene) -> None:
    """The group says a wrong number until its last pod is back, which is no edit of its owner."""
    scene.database.apply(tree(scene.namespace))
    scene.start()
    _deploy(scene, "web", gpus=8)
    scene.wait_state("web", "Running")
    first = {p["metadata"]["uid"] for p in _of_app(scene, "web")}
    promised = command(scene, "web", ":evict")["message"]
    assert "considered again from" in promised
    _gated_anew(scene, "web", first)
    scene.wait_state("web", "Queued")
    scene.job("other", gpus=1)
    scene.wait_state("other", "Running")
    assert scene.state("web") == "Queued", "a cycle has passed that it could have started in"
    assert promised.rpartition("; ")[2] in scene.reason("web")["text"]


def test_a_group_keeps_its_place_if_its_leader_dies_while_its_pods_are_made_anew(
    scene: Scene, maker: str
) -> None:
    """The next process hears of pods alone that no leader has labelled yet."""
    scene.database.apply(tree(scene.namespace, team_a={"quota": [{"resource": GPU, "limit": 8 * PODS}]}))
    dies = scene.another().start_without_waiting(QUEUER_FAILPOINTS="suspended=kill")
    job = _make(scene, maker, "web", gpus=8)
    scene.wait_state(job, "Running")
    row = scene.database.workload(job, scene.namespace)
    first = {p["metadata"]["uid"] for p in _of_app(scene, "web")}
    _create_group(scene, "high", gpus=8, labels={"queuer.dev/priority-class": "queuer-high"})
    dies.wait_gone()
    _gated_anew(scene, "web", first)
    scene.start()
    scene.wait_state("high", "Running", timeout=60)
    scene.wait_state(job, "Queued")
    again = scene.database.workload(job, scene.namespace)
    assert (again["uid"], again["submitted"], again["attempt"]) == (row["uid"], row["submitted"], 2)
    rows = scene.database.rows("SELECT 1 FROM workload WHERE namespace = %s", scene.namespace)
    assert len(rows) == 2
    assert scene.database.used() == 8 * PODS


def test_a_group_that_was_made_anew_while_nobody_led_goes_back_to_its_queue(scene: Scene, maker: str) -> None:
    scene.database.apply(tree(scene.namespace))
    first = scene.start()
    job = _make(scene, maker, "web", gpus=8)
    scene.wait_state(job, "Running")
    row = scene.database.workload(job, scene.namespace)
    before = {p["metadata"]["uid"] for p in _of_app(scene, "web")}
    first.kill()
    kubectl(scene.cluster, "admin", "delete", "pods", "-l", "app=web", "-n", scene.namespace)
    _gated_anew(scene, "web", before)
    scene.start()
    wait_until(
        lambda: scene.database.workload(job, scene.namespace)["attempt"] == 2, timeout=60,
        describe=lambda: scene.story(job),
    )  # fmt: skip
    scene.wait_state(job, "Running")
    again = scene.database.workload(job, scene.namespace)
    assert (again["uid"], again["submitted"]) == (row["uid"], row["submitted"])
    assert scene.database.used() == 8 * PODS


def _scale(scene: Scene, name: str, pods: int) -> None:
    kubectl(scene.cluster, "admin", "scale", "deployment", name, f"--replicas={pods}", "-n", scene.namespace)


def test_pods_without_a_group_queue_one_by_one_and_are_returned_one_by_one(scene: Scene) -> None:
    scene.database.apply(tree(scene.namespace))
    scene.start()
    _deploy(scene, "web", gpus=2, group=False)
    wait_until(lambda: scene.database.used() == 2 * PODS, timeout=60, describe="all are charged")

    def states() -> list[tuple[str, str]]:
        query = "SELECT kind, state FROM workload WHERE namespace = %s"
        return [(row["kind"], row["state"]) for row in scene.database.rows(query, scene.namespace)]

    wait_until(lambda: states() == [("Pod", "Running")] * PODS, timeout=30, describe=lambda: str(states()))
    for left in (PODS - 1, 0):
        _scale(scene, "web", left)
        wait_until(lambda: scene.database.used() == 2 * left, timeout=60, describe=f"{left} are charged")  # noqa: B023
    scene.wait_empty()


def test_a_group_that_its_controller_makes_smaller_is_evicted_and_told_its_size(scene: Scene) -> None:
    """It waits for the pod that is lost; then those that are made anew are fewer than the group says."""
    scene.database.apply(tree(scene.namespace))
    scene.start(QUEUER_LOST_PODS="3")
    _deploy(scene, "web", gpus=2)
    scene.wait_state("web", "Running", timeout=60)
    _scale(scene, "web", PODS - 1)
    told = scene.wait_reason("web", "Misconfigured", timeout=90)
    assert "says 3, and the group has 2 pods" in told["text"]
    scene.wait_empty()


def test_pods_of_a_job_are_never_gated(scene: Scene) -> None:
    """The label in a job's template queues nothing twice."""
    scene.database.apply(tree(scene.namespace))
    scene.start()
    scene.job("train", pods=2, gpus=1, spec={"template": _labelled(scene)})
    scene.wait_state("train", "Running")
    rows = scene.database.rows("SELECT name FROM workload WHERE namespace = %s", scene.namespace)
    assert [row["name"] for row in rows] == ["train"]


def _labelled(scene: Scene) -> Mapping[str, Any]:
    pod = pod_manifest("p", namespace=scene.namespace, queue=TEAM_A)
    return {"metadata": {"labels": pod["metadata"]["labels"]}, "spec": pod["spec"]}


def test_nobody_else_opens_a_gate_or_writes_what_queuer_writes(scene: Scene) -> None:
    """Gate, queue, group, payer, admission and user."""
    _create_group(scene, "held", pods=1, size=1)
    for change, said in (
        ({"spec": {"schedulingGates": None}}, "only Queuer starts a queued pod"),
        ({"metadata": {"labels": {"queuer.dev/queue": None}}}, "stay as it was created with"),
        ({"metadata": {"labels": {"queuer.dev/pod-group": "another"}}}, "stay as it was created with"),
        ({"metadata": {"labels": {"queuer.dev/workload": "another"}}}, "written by Queuer"),
        ({"metadata": {"annotations": {"queuer.dev/admission": '{"id":"x"}'}}}, "stay as they are"),
        ({"metadata": {"annotations": {"queuer.dev/user": "bob"}}}, "stay as they are"),
    ):
        with pytest.raises(Refused, match=said):
            _patch(scene, "pod/held-0", change)
    held = read(scene.cluster, f"/api/v1/namespaces/{scene.namespace}/pods/held-0")
    assert held["spec"]["schedulingGates"] == GATE
    assert held["metadata"]["annotations"]["queuer.dev/user"] == "alice"


def _patch(scene: Scene, target: str, change: dict[str, Any], *, by: str = "alice") -> None:
    where = ("-n", scene.namespace, "--type=merge", f"-p={json.dumps(change)}")
    kubectl(scene.cluster, by, "patch", target, *where)


def test_a_pod_that_says_another_pod_owns_it_queues_all_the_same(scene: Scene) -> None:
    """As executors of Spark do. An owner of a kind that makes no pods says nothing of who pays."""
    scene.database.apply(tree(scene.namespace))
    scene.start()
    driver = pod_manifest("driver", namespace=scene.namespace, queue=TEAM_A, gpus=1)
    meta = create(scene.cluster, driver)["metadata"]
    reference = {"apiVersion": "v1", "kind": "Pod", "name": "driver", "uid": meta["uid"], "controller": True}
    executor = pod_manifest("executor", namespace=scene.namespace, queue=TEAM_B, gpus=2)
    executor["metadata"]["ownerReferences"] = [reference]
    create(scene.cluster, executor)
    scene.wait_state("driver", "Running")
    scene.wait_state("executor", "Running")
    found = {name: scene.database.workload(name, scene.namespace) for name in ("driver", "executor")}
    assert found["driver"]["uid"] != found["executor"]["uid"]
    assert scene.database.used() == 3


def test_only_its_controller_says_of_which_group_of_a_leaderworkerset_a_pod_is(scene: Scene) -> None:
    """Else a pod would start in the place, and on the account, of a lost one of somebody else's group."""
    lws = "leaderworkerset.sigs.k8s.io"
    labels = {f"{lws}/name": "llm", f"{lws}/group-index": "0", f"{lws}/worker-index": "1"}
    forged = pod_manifest("forged", namespace=scene.namespace, queue=TEAM_A, labels=labels)
    by_controllers = deployment_manifest("d", forged, pods=0)
    by_controllers["kind"], by_controllers["spec"]["serviceName"] = "StatefulSet", "d"
    said = "name a group with queuer.dev/pod-group"
    for manifest in (forged, by_controllers):
        with pytest.raises(Refused, match=said):
            create(scene.cluster, manifest, identity="admin")
    owned = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "u", "controller": True}
    of_another = {**forged, "metadata": {**forged["metadata"], "ownerReferences": [owned]}}
    with pytest.raises(Refused, match=said):
        create(scene.cluster, of_another, identity="kube-controller-manager")
    made = {
        **forged,
        "metadata": {**forged["metadata"], "ownerReferences": [{**owned, "kind": "StatefulSet"}]},
    }
    create(scene.cluster, made, identity="kube-controller-manager")
    create(scene.cluster, by_controllers, identity="lws")
    _create_group(scene, "held", pods=1, size=1)
    for target, change in (
        ("pod/held-0", {"metadata": {"labels": labels}}),
        ("statefulset/d", {"spec": {"template": {"metadata": {"labels": {f"{lws}/group-index": "1"}}}}}),
    ):
        with pytest.raises(Refused, match=said):
            _patch(scene, target, change)


def test_a_pod_that_is_let_in_past_the_queue_is_charged(scene: Scene) -> None:
    """An administrator's break-glass; its status moves on while memory does not follow."""
    scene.database.apply(tree(scene.namespace, team_a={"quota": [{"resource": GPU, "limit": 0}]}))
    scene.start()
    _create_group(scene, "forced", pods=1, size=1, gpus=2)
    scene.wait_reason("forced", "ExceedsMaxQuota")
    change = {
        "metadata": {"annotations": {"queuer.dev/break-glass": "incident"}},
        "spec": {"schedulingGates": None},
    }
    _patch(scene, "pod/forced-0", change, by="admin")
    scene.wait_state("forced", "Running")
    assert scene.database.used() == 2
    scene.delete("forced-0", "Pod")
    scene.wait_empty()
