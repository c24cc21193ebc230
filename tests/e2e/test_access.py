"""The stamped user, not the manifest, decides who may use a queue, for how long, and how much at a time."""

from __future__ import annotations

import json
from typing import Any

from tests.e2e.controller import tree
from tests.e2e.scene import Scene
from tests.e2e.support import job_manifest, kubectl, wait_until

CAROL = ("--as=carol", "--as-group=ml, east", "--as-group=system:authenticated")
DAN = ("--as=dan", "--as-group=system:authenticated")
FORGED = {"queuer.dev/user": "carol", "queuer.dev/groups": "ml, east"}
SHORT = {"queuer.dev/max-runtime": "30m"}


def rules(scene: Scene, **access: Any) -> dict[str, Any]:
    """team-a by this access, team-b for dan alone, who is placed there."""
    return tree(
        scene.namespace, root={"placement": [{"user": "dan", "queue": "root.research.team-b"}]},
        team_a={"access": access}, team_b={"access": {"users": ["dan"]}},
    )  # fmt: skip


def test_two_users_of_one_namespace(scene: Scene) -> None:
    def submit(who: tuple[str, ...], name: str, queue: str = "root.research.team-a", **notes: str) -> None:
        manifest = job_manifest(name, namespace=scene.namespace, queue=queue, annotations=notes)
        kubectl(scene.cluster, "admin", "create", "-f", "-", *who, input=json.dumps(manifest))

    users = ("--user=carol", "--user=dan")
    kubectl(
        scene.cluster, "admin", "create", "rolebinding", "more", "-n", scene.namespace, "--clusterrole=edit",
        *users,
    )  # fmt: skip
    narrow = {"groups": ["ml, east"], "maxRuntime": "1h", "perUser": {"maxRunning": 1}}
    scene.database.apply(rules(scene, **narrow))
    scene.start()
    submit(CAROL, "first", **SHORT)
    scene.wait_state("first", "Running")
    submit(CAROL, "second", **SHORT)
    submit(CAROL, "endless")
    submit(DAN, "forged", **SHORT, **FORGED)
    submit(DAN, "placed", queue="root")
    scene.wait_state("placed", "Running")
    assert scene.database.workload("placed", scene.namespace)["queue"] == "root.research.team-b"

    waits = scene.wait_reason("second", "WaitingForQuota")
    assert waits["text"] == "user carol has 1 of 1 jobs in root.research.team-a (perUser)."
    assert "this one promises no end" in scene.wait_reason("endless", "Misconfigured")["text"]
    refused = scene.wait_reason("forged", "Misconfigured")
    assert "user dan may not use queue root.research.team-a: it is for group ml, east" in refused["text"]
    assert refused["params"]["nearest"] == ["root.research.team-b"]

    kubectl(
        scene.cluster, "admin", "annotate", "job", "endless", "-n", scene.namespace, *CAROL,
        "queuer.dev/max-runtime=1h",
    )  # fmt: skip
    scene.wait_reason("endless", "WaitingForQuota")
    scene.database.apply(rules(scene, **narrow, users=["dan"]))
    scene.wait_state("forged", "Running")
    scene.database.apply(rules(scene, **{**narrow, "users": ["dan"], "perUser": {"maxRunning": 2}}))
    both = ("second", "endless")  # created in the same second, so either is first
    wait_until(
        lambda: "Running" in map(scene.state, both), timeout=30,
        describe=lambda: f"one of them runs: {scene.story('second')} {scene.story('endless')}",
    )  # fmt: skip
    [left] = [name for name in both if scene.state(name) != "Running"]
    assert scene.wait_reason(left, "WaitingForQuota")["params"]["used"] == "2"
