"""Effective requests of a pod as kube-scheduler counts them: a table of cases."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from queuer.domain.errors import InvalidInput
from queuer.kube.objects import LimitRange, PodSpec
from queuer.kube.requests import effective_limits, effective_requests, unstated


def _c(
    name: str = "c", *, limits: dict[str, Any] | None = None, sidecar: bool = False, **requests: Any
) -> Any:
    resources = {"requests": requests, "limits": limits or {}}
    return {"name": name, "resources": resources} | ({"restartPolicy": "Always"} if sidecar else {})


def _limits(
    default: dict[str, str], request: dict[str, str], *, kind: str = "Container", name: str = "l"
) -> Any:
    item = {"type": kind, "default": default, "defaultRequest": request}
    return {"metadata": {"name": name}, "spec": {"limits": [item]}}


GPU = {"name": "c", "resources": {"requests": {"nvidia.com/gpu": 1}}}
CASES: dict[str, tuple[dict[str, Any], list[Any], dict[str, int]]] = {
    "containers are summed": ({"containers": [_c(cpu="1"), _c(cpu="500m", memory="1Ki")]}, [],
                              {"cpu": 1500, "memory": 1024}),
    "a pod without requests is still a pod": ({"containers": [_c()]}, [], {}),
    "the largest init container counts where it is larger": (
        {"containers": [_c(cpu="1", memory="8")], "initContainers": [_c(cpu="3"), _c(cpu="2", memory="9")]}, [],
        {"cpu": 3000, "memory": 9}),
    "an init container below the sum adds nothing": (
        {"containers": [_c(cpu="2")], "initContainers": [_c(cpu="1")]}, [], {"cpu": 2000}),
    "a sidecar is added to the containers": (
        {"containers": [_c(cpu="2")], "initContainers": [_c(cpu="1", sidecar=True)]}, [], {"cpu": 3000}),
    "an init container runs beside the sidecars before it": (
        {"containers": [_c(cpu="1")], "initContainers": [_c(cpu="1", sidecar=True), _c(cpu="5")]}, [],
        {"cpu": 6000}),
    "and not beside those after it": (
        {"containers": [_c(cpu="1")], "initContainers": [_c(cpu="5"), _c(cpu="1", sidecar=True)]}, [],
        {"cpu": 5000}),
    "a limit alone is the request": ({"containers": [_c(limits={"nvidia.com/gpu": 8})]}, [],
                                     {"nvidia.com/gpu": 8}),
    "a request beats its limit": ({"containers": [_c(cpu="1", limits={"cpu": "4"})]}, [], {"cpu": 1000}),
    "the namespace's default request fills a gap": (
        {"containers": [_c(), _c(cpu="2")]}, [_limits({"cpu": "4"}, {"cpu": "250m"})], {"cpu": 2250}),
    "the default limit is the default request where that is missing": (
        {"containers": [_c()]}, [_limits({"cpu": "4"}, {})], {"cpu": 4000}),
    "a limit of its own beats the namespace's default": (
        {"containers": [_c(limits={"cpu": "3"})]}, [_limits({}, {"cpu": "250m"})], {"cpu": 3000}),
    "defaults reach init containers too": (
        {"containers": [_c(cpu="1")], "initContainers": [_c()]}, [_limits({}, {"cpu": "2"})], {"cpu": 2000}),
    "limits on whole pods are no defaults": (
        {"containers": [_c()]}, [_limits({"cpu": "4"}, {}, kind="Pod")], {}),
    "overhead is added": ({"containers": [_c(cpu="1")], "overhead": {"cpu": "100m"}}, [], {"cpu": 1100}),
    "overhead of the runtime class, for a template": (
        {"containers": [_c(cpu="1")], "runtimeClassName": "kata"}, [], {"cpu": 1250, "memory": 64}),
    "pod-level requests replace the sum": (
        {"containers": [_c(cpu="1", memory="8")], "resources": {"requests": {"cpu": "4"}}}, [],
        {"cpu": 4000, "memory": 8}),
    "pod-level limits are the request only where no container asks": (
        {"containers": [_c(cpu="1")], "resources": {"limits": {"cpu": "4", "memory": "16"}}}, [],
        {"cpu": 1000, "memory": 16}),
    "pod-level and overhead add up": (
        {"containers": [_c(cpu="1")], "resources": {"requests": {"cpu": "4"}}, "overhead": {"cpu": "1"}}, [],
        {"cpu": 5000}),
    "devices are not taken from the pod level": (
        {"containers": [GPU], "resources": {"requests": {"nvidia.com/gpu": 4}}}, [],
        {"nvidia.com/gpu": 1}),
    "finer than the base unit is rounded up": ({"containers": [_c(memory="1500m")]}, [], {"memory": 2}),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_effective_requests(name: str) -> None:
    """Charged as scheduled: or a gang is admitted that cannot be bound, or capacity stays empty."""
    spec, ranges, expected = CASES[name]
    found = effective_requests(
        msgspec.convert(spec, PodSpec),
        limit_ranges=msgspec.convert(ranges, list[LimitRange]),
        overheads={"kata": {"cpu": "250m", "memory": "64"}},
    )
    assert found == {**expected, "pods": 1}


def test_a_wrong_quantity_is_named() -> None:
    """The PyTorchJob CRD takes any text as a quantity."""
    spec = msgspec.convert({"containers": [_c("trainer", cpu="two")]}, PodSpec)
    with pytest.raises(InvalidInput, match=r"containers\[trainer\].*requests\.cpu.*'two' is not a quantity"):
        effective_requests(spec)


def test_limits_are_summed_as_a_resource_quota_sums_them() -> None:
    """Defaults of a LimitRange included; a container without a limit adds nothing, nor does overhead then."""
    half = {
        "containers": [_c(cpu="1", limits={"cpu": "4"}), _c(cpu="1")],
        "overhead": {"cpu": "1", "memory": "1Ki"},
    }
    assert _of(half) == {"limits.cpu": 5000}
    assert _of(half, _limits({"cpu": "2", "memory": "1Ki"}, {})) == {
        "limits.cpu": 7000,
        "limits.memory": 3072,
    }
    whole = {"containers": [_c(limits={"nvidia.com/gpu": 8})], "resources": {"limits": {"memory": "1Ki"}}}
    assert _of(whole) == {"limits.memory": 1024}


def test_amounts_that_a_container_does_not_state_are_named() -> None:
    """An init container counts too; pod-level resources free all containers."""
    some = {"containers": [_c(cpu="1", limits={"memory": "1"})], "initContainers": [_c(limits={"cpu": "2"})]}
    assert _silent(some) == ("limits.cpu", "memory", "limits.memory")
    assert _silent(some, _limits({}, {"memory": "1"})) == ("limits.cpu", "limits.memory")
    assert _silent(some, _limits({"cpu": "1", "memory": "1"}, {})) == ()
    assert _silent({"containers": [_c()], "resources": {"limits": {"cpu": "2"}}}) == ()


def _of(spec: dict[str, Any], *ranges: Any) -> dict[str, int]:
    return effective_limits(
        msgspec.convert(spec, PodSpec), limit_ranges=msgspec.convert(ranges, list[LimitRange])
    )


def _silent(spec: dict[str, Any], *ranges: Any) -> tuple[str, ...]:
    return unstated(msgspec.convert(spec, PodSpec), limit_ranges=msgspec.convert(ranges, list[LimitRange]))
