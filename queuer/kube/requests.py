"""Effective requests: the amounts that kube-scheduler will count for a pod, from a template before admission.

Kubernetes sums containers and sidecars, takes the maximum with the init phase, lets pod-level requests win, and adds
the RuntimeClass overhead (k8s.io/component-helpers resource.PodRequests, KEP-753, KEP-2837). Before that, missing
requests become limits, else the defaults of the namespace's LimitRanges. Limits are summed alike, for ResourceQuotas.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from queuer.domain.quantity import Resources, parse_resources
from queuer.kube.objects import Amounts, Container, LimitRange, PodSpec, ResourceRequirements

_POD_LEVEL = ("cpu", "memory")
_SIDECAR = "Always"
LIMITS = "limits."
"""Before the resource, in the key of a ResourceQuota."""
_LIMITED = ("cpu", "memory", "ephemeral-storage")


def effective_requests(
    spec: PodSpec,
    *,
    limit_ranges: Iterable[LimitRange] = (),
    overheads: Mapping[str, Amounts] | None = None,
    field: str = "spec",
) -> dict[str, int]:
    """Requests of one pod in base units, `pods: 1` included; zero amounts are left out.

    `limit_ranges`: those of the namespace; `overheads`: pod overhead by RuntimeClass name, for templates, which do not
    carry it yet. For a pod that exists give neither: the API server has written both into it. Raises InvalidInput
    naming the container and resource.
    """
    defaults = container_defaults(limit_ranges)
    total = _phases(spec, lambda c: _container(c, defaults=defaults, field=field))
    if spec.resources is not None:
        total |= _pod_level(spec.resources, below=total, field=f"{field}.resources")
    _add(total, _overhead(spec, overheads, field=field))
    total["pods"] = 1
    return {resource: amount for resource, amount in total.items() if amount}


def effective_limits(
    spec: PodSpec,
    *,
    limit_ranges: Iterable[LimitRange] = (),
    overheads: Mapping[str, Amounts] | None = None,
    field: str = "spec",
) -> dict[str, int]:
    """Limits of one pod in base units by key of a ResourceQuota (`limits.cpu`), as Kubernetes adds them up for it.

    A container without a limit adds nothing. Arguments and errors: see `effective_requests`.
    """
    defaults = container_defaults(limit_ranges, limits=True)

    def limits_of(container: Container) -> dict[str, int]:
        where = f"{field}.containers[{container.name}].resources.limits"
        return {**defaults, **parse_resources(container.resources.limits, field=where)}

    total = _phases(spec, limits_of)
    if spec.resources is not None:
        stated = parse_resources(spec.resources.limits, field=f"{field}.resources.limits")
        total |= {resource: amount for resource, amount in stated.items() if resource in _POD_LEVEL}
    for resource, amount in _overhead(spec, overheads, field=field).items():
        if total.get(resource):
            total[resource] += amount
    return {f"{LIMITS}{resource}": total[resource] for resource in _LIMITED if total.get(resource)}


def unstated(spec: PodSpec, *, limit_ranges: Iterable[LimitRange] = ()) -> tuple[str, ...]:
    """Amounts that a ResourceQuota on them demands of each container, and that some container does not state.

    `cpu` and `memory` are requests, `limits.cpu` and `limits.memory` limits. With pod-level resources nothing is
    demanded (Kubernetes pkg/quota/v1/evaluator/core).
    """
    if spec.resources is not None and (spec.resources.requests or spec.resources.limits):
        return ()
    ranges = tuple(limit_ranges)
    limits = container_defaults(ranges, limits=True).keys()
    requests = container_defaults(ranges).keys()
    stated = set.intersection(
        {*_POD_LEVEL, *(f"{LIMITS}{r}" for r in _POD_LEVEL)},
        *(
            {*requests, *c.resources.requests, *c.resources.limits}
            | {f"{LIMITS}{r}" for r in (*limits, *c.resources.limits)}
            for c in (*spec.containers, *spec.init_containers)
        ),
    )
    return tuple(key for r in _POD_LEVEL for key in (r, f"{LIMITS}{r}") if key not in stated)


def container_defaults(limit_ranges: Iterable[LimitRange], *, limits: bool = False) -> dict[str, int]:
    """Default requests, or limits, of a container in a namespace; the first LimitRange (by name) that gives one
    wins.
    """
    found: dict[str, int] = {}
    for limit_range in sorted(limit_ranges, key=lambda r: r.metadata.name):
        for item in limit_range.spec.limits:
            if item.type == "Container":
                given = item.default if limits else {**item.default, **item.default_request}
                found = parse_resources(given, field=f"LimitRange {limit_range.metadata.name}") | found
    return found


def _overhead(spec: PodSpec, overheads: Mapping[str, Amounts] | None, *, field: str) -> dict[str, int]:
    amounts = spec.overhead or (overheads or {}).get(spec.runtime_class_name or "", {})
    return parse_resources(amounts, field=f"{field}.overhead")


def _phases(spec: PodSpec, amounts_of: Callable[[Container], Resources]) -> dict[str, int]:
    """Maximum of the running phase and of every step of the init phase."""
    running: dict[str, int] = {}
    for container in spec.containers:
        _add(running, amounts_of(container))
    sidecars: dict[str, int] = {}
    peak: dict[str, int] = {}
    for container in spec.init_containers:
        own = amounts_of(container)
        if container.restart_policy == _SIDECAR:
            _add(running, own)
            _add(sidecars, own)
            step = dict(sidecars)
        else:
            step = dict(sidecars)
            _add(step, own)
        for resource, amount in step.items():
            peak[resource] = max(peak.get(resource, 0), amount)
    return {r: max(running.get(r, 0), peak.get(r, 0)) for r in {*running, *peak}}


def _container(container: Container, *, defaults: Resources, field: str) -> dict[str, int]:
    where = f"{field}.containers[{container.name}].resources"
    limits = parse_resources(container.resources.limits, field=f"{where}.limits")
    requests = parse_resources(container.resources.requests, field=f"{where}.requests")
    return {**defaults, **limits, **requests}


def _pod_level(stated: ResourceRequirements, *, below: Resources, field: str) -> dict[str, int]:
    """Pod-level amounts, which replace the sum of the containers for the resources that may be given there."""
    requests = parse_resources(stated.requests, field=f"{field}.requests")
    limits = parse_resources(stated.limits, field=f"{field}.limits")
    defaulted = {resource: below.get(resource, amount) for resource, amount in limits.items()}
    return {
        resource: amount
        for resource, amount in {**defaulted, **requests}.items()
        if resource in _POD_LEVEL or resource.startswith("hugepages-")
    }


def _add(total: dict[str, int], more: Resources) -> None:
    for resource, amount in more.items():
        total[resource] = total.get(resource, 0) + amount
