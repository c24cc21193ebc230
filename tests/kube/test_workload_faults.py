"""Manifests that the API server accepts and no decision could be made on: the field and the fix, told to the owner."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from queuer.domain.errors import InvalidInput
from queuer.kube.kinds import JOB, KINDS, PYTORCHJOB, JobKind
from queuer.kube.objects import LimitRange
from queuer.kube.workloads import NamespaceFacts, read_workload
from tests.kube.manifests import faults, job, pytorchjob, read


def replicas(**changes: Any) -> dict[str, Any]:
    """A PyTorchJob whose CRD bounds none of this."""
    found = pytorchjob()
    specs = found["spec"]["pytorchReplicaSpecs"]
    for role, change in changes.items():
        specs[role] = {**specs["Worker"], **change}
    return found


def asking(**requests: str) -> dict[str, Any]:
    return {"template": {"spec": {"containers": [{"name": "c", "resources": {"requests": requests}}]}}}


SPECS = "spec.pytorchReplicaSpecs"


@pytest.mark.parametrize(
    ("manifest", "field", "said"),
    [
        (replicas(Worker={"replicas": -1}), f"{SPECS}.Worker.replicas", "-1 is less than 0 (write the number"),
        (replicas(worker={}), f"{SPECS}.worker", f"the same pod set as {SPECS}.Worker (keep one"),
        (replicas(Worker={"template": {}}), f"{SPECS}.Worker.template.spec.containers", "is empty"),
        (replicas(Worker={"template": {"spec": {"containers": [{"name": "c"}], "nodeName": "n1"}}}),
         f"{SPECS}.Worker.template.spec.nodeName", "(write nodeSelector kubernetes.io/hostname instead)"),
        (replicas(Worker={"template": {"spec": {"containers": [{"name": "c"}], "schedulerName": "nobody"}}}),
         f"{SPECS}.Worker.template.spec.schedulerName", "'nobody' is no scheduler that Queuer was told of"),
        (replicas(Worker={"template": {"spec": {"containers": [{"name": "c"}], "schedulingGates": [{"name": "g"}]}}}),
         f"{SPECS}.Worker.template.spec.schedulingGates", "take the gates out"),
        (replicas(Worker={"template": {"spec": {"containers": [{"name": "c"}], "resourceClaims": [
            {"name": "gpu", "resourceClaimTemplateName": "eight"}]}}}),
         f"{SPECS}.Worker.template.spec.resourceClaims", "through claims, which no quota counts (ask in resources"),
        (replicas(Worker={"template": {"spec": {"containers": [{"name": "c"}],
                                                "terminationGracePeriodSeconds": 315360000}}}),
         f"{SPECS}.Worker.template.spec.terminationGracePeriodSeconds", "write 3600 at most"),
        (replicas(Worker={"replicas": 0}, Master={"replicas": 0}), "spec", "asks for no pod"),
        (replicas(Master=asking(memory="-1")), f"{SPECS}.Master.template.spec.containers[c].resources.requests.memory",
         "is negative"),
        (replicas(Worker={"replicas": 2**31 - 1, **asking(memory="1Gi")}), f"{SPECS}.Worker.template.spec",
         "2147483647 pods ask for more than 2^60 memory"),
        (replicas(**{role: {"replicas": 1, **asking(memory="1Ei")} for role in "abcdefgh"}), "spec",
         "12 pods ask for more than 2^60 memory"),
    ],
)  # fmt: skip
def test_counts_and_roles_that_the_api_server_accepts(
    manifest: dict[str, Any], field: str, said: str
) -> None:
    """A job on which no decision could be made is told to its owner instead."""
    (problem,) = faults(manifest, kind=PYTORCHJOB)
    assert problem.field == field
    assert said in str(problem)
    assert problem.hint or "negative" in said


@pytest.mark.parametrize(
    ("requests", "limits", "resource", "said"),
    [
        ({}, {"nvidia.com/gpu": "0.5"}, "limits.nvidia.com/gpu", "is no whole number"),
        ({"cpu": "4"}, {"cpu": "2"}, "requests.cpu", "4 is above the limit, 2 (write 2 at most"),
        ({"memory": "600Mi"}, {}, "requests.memory", "that a LimitRange of the namespace gives, 512Mi"),
        ({"nvidia.com/gpu": 8}, {}, "requests.nvidia.com/gpu", "8 has no limit (write 8 in limits, too)"),
        ({"nvidia.com/gpu": 1}, {"nvidia.com/gpu": 2}, "requests.nvidia.com/gpu", "1 is not the limit, 2"),
        ({"hugepages-2Mi": "4Mi"}, {}, "requests.hugepages-2Mi", "4Mi has no limit"),
        ({}, {"gpu": 1}, "limits.gpu", "is no resource of Kubernetes (write its full name, e.g. nvidia.com/gpu)"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("kind", [JOB, PYTORCHJOB])
def test_amounts_that_the_api_server_would_refuse_in_a_pod(
    kind: JobKind, requests: dict[str, Any], limits: dict[str, Any], resource: str, said: str
) -> None:
    """Guards what a PyTorchJob would hold in vain: its templates are checked by nobody else."""
    limit = {"limits": [{"type": "Container", "default": {"memory": "512Mi"}}]}
    limited = msgspec.convert({"metadata": {"name": "l"}, "spec": limit}, LimitRange)
    spec = {"containers": [{"name": "c", "resources": {"requests": requests, "limits": limits}}]}
    manifest = job(spec) if kind is JOB else pytorchjob(spec)
    facts = NamespaceFacts(limit_ranges=(limited,))
    _, problems = read_workload(kind, msgspec.convert(manifest, kind.type), facts=facts)
    assert any(p.field.endswith(f".spec.containers[c].resources.{resource}") for p in problems)
    assert said in str(problems[0])


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.gates is None], ids=lambda kind: kind.name)
def test_a_job_that_another_controller_manages_is_refused_with_the_field(kind: JobKind) -> None:
    """It waited before its namespace opted in, where no policy refused it: nobody here would start it."""
    path = (*kind.suspend_path[:-1], "managedBy")

    def managed(by: str) -> Any:
        found: dict[str, Any] = {"metadata": {"name": "j", "namespace": "n", "uid": "u"}, "spec": {}}
        if kind is JOB:
            found["spec"]["template"] = {}
        at = found
        for key in path[:-1]:
            at = at.setdefault(key, {})
        at["managedBy"] = by
        return msgspec.convert(found, kind.type)

    def told(by: str) -> list[str]:
        _, problems = read_workload(kind, managed(by), facts=NamespaceFacts())
        return [p.message for p in problems if p.field == ".".join(path)]

    assert told("kueue.x-k8s.io/multikueue") == ["'kueue.x-k8s.io/multikueue' would not start it here"]
    assert told(kind.manager) == []


def test_amounts_of_which_pods_are_made_are_no_fault() -> None:
    """A device whose limit is its request, or has a limit alone; a limit above the request; burst without a limit."""
    amounts = {
        "requests": {"cpu": "500m", "memory": "1Gi", "nvidia.com/gpu": "2"},
        "limits": {"cpu": 2, "nvidia.com/gpu": 2, "example.com/nic": 1},
    }
    read(pytorchjob({"containers": [{"name": "c", "resources": amounts}]}), kind=PYTORCHJOB)


def test_a_size_range_of_no_pods_is_refused_with_a_fix() -> None:
    """There is no number to write."""
    found = replicas(Worker={"replicas": 0})
    found["metadata"]["annotations"] = {"queuer.dev/min-count.worker": "1"}
    with pytest.raises(InvalidInput, match="remove it"):
        read(found, kind=PYTORCHJOB)


@pytest.mark.parametrize("kind", [JOB, PYTORCHJOB])
@pytest.mark.parametrize(("seconds", "lasts"), [(None, None), (60, 60.0), (2**63 - 1, 10 * 365 * 86400.0)])
def test_the_deadline_of_a_job_bounds_its_run(
    kind: JobKind, seconds: int | None, lasts: float | None
) -> None:
    """No end is expected at a time that is none."""
    assert read(timed(kind, seconds), kind=kind).max_runtime == lasts


@pytest.mark.parametrize(
    ("kind", "field"),
    [(JOB, "spec.activeDeadlineSeconds"), (PYTORCHJOB, "spec.runPolicy.activeDeadlineSeconds")],
)
@pytest.mark.parametrize("seconds", [0, -1])
def test_a_deadline_that_no_run_can_keep_is_refused(kind: JobKind, field: str, seconds: int) -> None:
    """Even where an annotation says how long it lasts."""
    found = timed(kind, seconds)
    found["metadata"]["annotations"] = {"queuer.dev/max-runtime": "1h"}
    [problem] = faults(found, kind=kind)
    assert problem.field == field
    assert "ends the job as soon as it starts" in problem.message


def timed(kind: JobKind, seconds: int | None) -> dict[str, Any]:
    found = job() if kind is JOB else pytorchjob()
    (found["spec"] if kind is JOB else found["spec"]["runPolicy"])["activeDeadlineSeconds"] = seconds
    return found
