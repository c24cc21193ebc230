"""The main path.

An ordinary job is held, admitted whole by one PATCH, lands in its domain, runs, finishes, is paid back.
"""

from __future__ import annotations

import json

import pytest

from tests.e2e.controller import tree
from tests.e2e.scene import KINDS, TEAM_A, Scene, required
from tests.e2e.support import kubectl, wait_until


@pytest.mark.parametrize("kind", ["Job", "PyTorchJob"])
def test_a_job_is_held_admitted_by_one_patch_lands_in_its_domain_and_is_paid_back(
    scene: Scene, kind: str
) -> None:
    scene.database.apply(tree(scene.namespace))
    stored = scene.of_kind(kind, "train", pods=4, gpus=8, annotations=required("rack"))
    suspended = stored["spec"] if kind == "Job" else stored["spec"]["runPolicy"]
    assert suspended["suspend"] is True, "the API server itself holds it; no controller runs yet"
    assert not scene.pods("train")

    before = scene.writes(KINDS[kind].split(".")[0])
    scene.start()
    scene.wait_state("train", "Running")
    pods = scene.pods("train")
    assert len(pods) == 4
    assert len(scene.racks("train")) == 1
    assert scene.database.used() == 32
    admission = json.loads(scene.read("train", kind)["metadata"]["annotations"]["queuer.dev/admission"])
    assert {scene.rack_of(p["spec"]["nodeName"]) for p in pods} == {admission["domains"][0].split("/")[-1]}

    scene.end_all("train")
    scene.wait_state("train", "Succeeded")
    scene.wait_empty()
    after = scene.writes(KINDS[kind].split(".")[0])
    assert after.get("200", 0) - before.get("200", 0) == 1, "exactly one PATCH reached the job"
    row = scene.database.workload("train", scene.namespace)
    assert (row["attempt"], row["queue"], row["finished_at"] is not None) == (1, TEAM_A, True)


def test_a_waiting_job_that_is_edited_is_read_again_and_one_that_is_deleted_is_forgotten(
    scene: Scene,
) -> None:
    scene.database.apply(
        tree(scene.namespace, team_a={"quota": [{"resource": "nvidia.com/gpu", "limit": 8}]})
    )
    scene.start()
    scene.job("wide", pods=2, gpus=8)
    scene.wait_reason("wide", "ExceedsMaxQuota")
    scene.job("gone", pods=2, gpus=8)
    scene.wait_state("gone", "Queued")
    scene.delete("gone")
    wait_until(
        lambda: scene.database.workload("gone", scene.namespace)["deleted_at"] is not None, timeout=15,
        describe="the deleted job is forgotten, its history kept",
    )  # fmt: skip
    kubectl(
        scene.cluster, "alice", "label", "job", "wide", "-n", scene.namespace, "--overwrite",
        "queuer.dev/queue=root.research.team-b",
    )  # fmt: skip
    scene.wait_state("wide", "Running")
    assert scene.database.workload("wide", scene.namespace)["queue"] == "root.research.team-b"
