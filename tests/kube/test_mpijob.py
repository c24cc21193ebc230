"""MPIJobs: workers pinned in the job's template, the launcher on its Job."""

from __future__ import annotations

from typing import Any

import pytest

from queuer.domain.keys import WORKLOAD
from queuer.domain.workload import State
from queuer.kube.kinds import MPIJOB
from queuer.kube.made import OPERATIONS, PINS
from queuer.kube.patches import AdmissionMark, admit_patch, evict_patch, free_patch, own_roles
from tests.kube.manifests import Manifest, decoded, meta, pins_of, read
from tests.kube.merge_patch import merged
from tests.kube.test_jobset import SUSPENDED

MARK = AdmissionMark(id="a", epoch=1, cycle=1)
OWNER = {"apiVersion": "kubeflow.org/v2beta1", "kind": "MPIJob", "name": "m", "uid": "u", "controller": True}


def mpijob(*, workers: int | None = 3, **policy: Any) -> Manifest:
    template = {"spec": {"containers": [{"name": "c"}], "nodeSelector": {"zone": "a"}}}
    said = {} if workers is None else {"replicas": workers}
    roles = {"Worker": {**said, "template": template}, "Launcher": {"template": template}}
    return {
        "metadata": meta("m"),
        "spec": {"runPolicy": {"suspend": True, **policy}, "mpiReplicaSpecs": roles},
        "status": {"conditions": [SUSPENDED]},
    }


@pytest.mark.parametrize(("workers", "read_as"), [(3, {"launcher": 1, "worker": 3}), (None, {"launcher": 1})])
def test_workers_that_nobody_counts_are_none(workers: int | None, read_as: dict[str, int]) -> None:
    """Unlike the other kinds of Kubeflow, where it is one."""
    assert {p.name: p.count for p in read(mpijob(workers=workers), kind=MPIJOB).pod_sets} == read_as


def test_hosts_of_the_launcher_go_to_its_job_and_come_off_the_workers() -> None:
    found = mpijob()
    pins = pins_of({"launcher": 1, "worker": 3}, selector={"rack": "r1"}, hosts=("h1",))
    patch = admit_patch(MPIJOB, decoded(MPIJOB, found), pins=pins, mark=MARK)
    assert OPERATIONS not in patch
    assert set(patch[PINS]) == {"launcher"}
    assert "affinity" in patch[PINS]["launcher"]
    started = merged(found, {key: value for key, value in patch.items() if key != PINS})
    roles = started["spec"]["mpiReplicaSpecs"]
    templates = {name: role["template"] for name, role in roles.items()}
    assert "affinity" not in templates["Launcher"]["spec"], "its controller ignores it there"
    assert "affinity" in templates["Worker"]["spec"]
    assert {t["spec"]["nodeSelector"]["rack"] for t in templates.values()} == {"r1"}
    assert {t["metadata"]["labels"][WORKLOAD] for t in templates.values()} == {"u"}
    assert started["spec"]["runPolicy"]["suspend"] is False

    evicted = merged(started, evict_patch(MPIJOB, decoded(MPIJOB, started), admission="a"))
    again = [own.scheduling for own in own_roles(MPIJOB, decoded(MPIJOB, evicted))]
    assert again == [{"nodeSelector": {"zone": "a"}}] * 2
    free = free_patch(MPIJOB, decoded(MPIJOB, evicted))
    assert free[PINS] == {"launcher": {"nodeSelector": {"zone": "a"}}}
    after = merged(evicted, {key: value for key, value in free.items() if key != PINS})
    assert after["spec"]["mpiReplicaSpecs"]["Worker"]["template"]["spec"]["nodeSelector"] == {"zone": "a"}


def test_it_is_quiet_once_its_launcher_is() -> None:
    meta = {"name": "m-launcher", "namespace": "n", "uid": "l", "ownerReferences": [OWNER]}
    template: Manifest = {"spec": {"containers": []}}
    launcher = {"metadata": meta, "spec": {"suspend": True, "template": template}}
    assert MPIJOB.quiet(decoded(MPIJOB, {**mpijob(), "made": [launcher]}))
    active = {**launcher, "status": {"active": 1, "startTime": "2026-01-01T00:00:00Z"}}
    assert not MPIJOB.quiet(decoded(MPIJOB, {**mpijob(), "made": [active]}))


@pytest.mark.parametrize(
    ("status", "outcome"),
    [
        ({"conditions": [{"type": "Succeeded", "status": "True"}]}, State.SUCCEEDED),
        ({"conditions": [{"type": "Failed", "status": "True"}], "completionTime": "x"}, State.FAILED),
        ({"conditions": [{"type": "Failed", "status": "True"}]}, None),
    ],
)
def test_a_worker_that_the_kubelet_evicts_does_not_end_it(status: Manifest, outcome: State | None) -> None:
    assert MPIJOB.outcome(decoded(MPIJOB, {**mpijob(), "status": status})) is outcome
