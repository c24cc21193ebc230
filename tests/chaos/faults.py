"""Faults of the cluster beside a crash."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from enum import StrEnum
from random import Random

from queuer.local.controlplane import API_SERVER
from tests.chaos import clock
from tests.chaos.outages import disk_full, failover, read_only
from tests.chaos.world import TEAM_B, Manifest, Undo, World
from tests.e2e.support import crash, wait_until

STEP = 300.0
"""Seconds by which the controller's clock is put forward or back."""
GUARD = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings/queuer-guard"
RIGHTS = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/queuer-controller"


class Fault(StrEnum):
    """One happens in each round."""

    DATABASE = "database-stopped"
    API_PAUSED = "api-paused"
    STREAMS = "streams-cut"
    FROZEN = "controller-frozen"  # instead of killed; a second one leads before it wakes
    POD = "pod-terminating"
    NODE = "node-lost"
    NAMESPACE = "namespace-deleted"
    READ_ONLY = "database-read-only"
    DISK_FULL = "disk-full"
    FAILOVER = "older-replica"
    CLOCK = "clock-stepped"
    GUARD = "guard-deleted"
    FORBIDDEN = "rights-taken"


def database(world: World, random: Random) -> Undo:
    """PostgreSQL is stopped."""
    world.stop_database()
    return world.start_database


def api_paused(world: World, random: Random) -> Undo:
    """The API server answers nobody; connections stay open."""
    pid = world.cluster.pid(API_SERVER)
    assert pid is not None, "the API server runs"
    os.kill(pid, signal.SIGSTOP)
    return lambda: os.kill(pid, signal.SIGCONT)


def streams_cut(world: World, random: Random) -> Undo:
    """The API server is killed and started: every watch ends, and its cache of events is empty."""
    crash(world.cluster, API_SERVER)
    return lambda: world.cluster.start([API_SERVER])


def pod_terminating(world: World, random: Random) -> Undo:
    """A running job is deleted; one of its pods takes a while to go."""
    ours = {"short", "train", "owner"}
    jobs = {j["metadata"]["uid"]: j for j in world.jobs() if j["metadata"]["name"].split("-")[0] in ours}
    running = [p for p in world.every("Pod") if _owner(p) in jobs and p["status"]["phase"] == "Running"]
    if running:
        pod = random.choice(running)
        world.excuse(jobs[_owner(pod)])
        world.patch(pod, {"metadata": {"annotations": {"sim/terminate-after": "4s"}}}, admin=True)
        world.delete(jobs[_owner(pod)])
    return lambda: None


def node_lost(world: World, random: Random) -> Undo:
    """A node is deleted with the pods on it, and comes back."""
    pods = [p for p in world.every("Pod") if p["spec"].get("nodeName") and p["status"]["phase"] == "Running"]
    fleet = world.cluster.state.fleet.manifests()
    names = sorted({p["spec"]["nodeName"] for p in pods}) or [fleet[0]["metadata"]["name"]]
    lost = random.choice(names)
    for pod in pods:
        if pod["spec"]["nodeName"] == lost:
            world.excused.add(_owner(pod))
    world.admin.delete(f"/api/v1/nodes/{lost}").raise_for_status()
    for pod in pods:
        if pod["spec"]["nodeName"] == lost:
            world.delete(pod, grace=0)
    [manifest] = [node for node in fleet if node["metadata"]["name"] == lost]
    return lambda: _join(world, manifest)


def _join(world: World, manifest: Manifest) -> None:
    world.admin.post("/api/v1/nodes", json=manifest).raise_for_status()
    path = f"/api/v1/nodes/{manifest['metadata']['name']}"
    wait_until(
        lambda: any(
            condition["type"] == "Ready" and condition["status"] == "True"
            for condition in world.admin.get(path).json()["status"].get("conditions", ())
        ),
        timeout=30, describe=f"{path} is ready",
    )  # fmt: skip


def namespace_deleted(world: World, random: Random) -> Undo:
    """A namespace goes with a job in it, and is made again."""
    world.job("doomed", queue=TEAM_B, namespace=world.doomed)
    world.close_namespace(world.doomed)
    return lambda: world.open_namespace(world.doomed)


def clock_stepped(world: World, random: Random) -> Undo:
    """The controller's wall clock is put five minutes forward or back, and right again."""
    clock.put(world.clock, random.choice((STEP, -STEP)))
    return lambda: clock.put(world.clock, 0.0)


def guard_deleted(world: World, random: Random) -> Undo:
    """Somebody deletes the binding of the policy that protects what Queuer writes."""
    return _taken(world, GUARD)


def rights_taken(world: World, random: Random) -> Undo:
    """The API server answers 403 to the controller, whatever it asks."""
    return _taken(world, RIGHTS)


def _taken(world: World, path: str) -> Undo:
    """Delete an object; it is made anew at the end."""
    found = world.admin.get(path).raise_for_status().json()
    made = {key: found[key] for key in found if key != "metadata"} | {
        "metadata": {key: found["metadata"][key] for key in ("name", "labels") if key in found["metadata"]}
    }
    world.admin.delete(path).raise_for_status()

    def restore() -> None:
        world.admin.post(path.rpartition("/")[0], json=made).raise_for_status()

    return restore


def _owner(pod: Manifest) -> str:
    return next(
        (str(o["uid"]) for o in pod["metadata"].get("ownerReferences", ()) if o.get("controller")), ""
    )


DEEDS: dict[Fault, Callable[[World, Random], Undo]] = {
    Fault.DATABASE: database,
    Fault.API_PAUSED: api_paused,
    Fault.STREAMS: streams_cut,
    Fault.POD: pod_terminating,
    Fault.NODE: node_lost,
    Fault.NAMESPACE: namespace_deleted,
    Fault.READ_ONLY: read_only,
    Fault.DISK_FULL: disk_full,
    Fault.FAILOVER: failover,
    Fault.CLOCK: clock_stepped,
    Fault.GUARD: guard_deleted,
    Fault.FORBIDDEN: rights_taken,
}
"""`Fault.FROZEN` is the round's own doing."""
