"""The parts of a pod template of which no pod could be made, or none that lands and leaves as others may count on.

The API server checks the template of a Job when it is created, that of a PyTorchJob never: there the first pod is
refused, and the hosts that were kept for it have been kept in vain. The rules for amounts are those of Kubernetes
(pkg/apis/core/validation, 1.36), for every kind.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from queuer.domain.errors import FieldProblem, InvalidInput
from queuer.domain.nodes import HOSTNAME
from queuer.domain.quantity import NOTHING, Resources, format_quantity, parse_resources
from queuer.kube.kinds import Role
from queuer.kube.objects import LimitRange, PodSpec, ResourceRequirements
from queuer.kube.requests import container_defaults

LONGEST_GRACE = 3600
"""Seconds. The owner of a guarantee waits for as long; a checkpoint needs less."""
_HUGE = "hugepages-"
_PLAIN = ("cpu", "memory", "ephemeral-storage")


def wrong_parts(role: Role, *, schedulers: frozenset[str], field: str) -> Iterator[FieldProblem]:
    """Everything of a pod set but its amounts. `schedulers`: those that place pods here; `field`: of its pod spec."""
    if role.count < 0:
        hint = "write the number of pods, 0 for none"
        yield _wrong(".".join(role.count_path), f"{role.count} is less than 0", hint)
    spec = role.template.spec
    if not spec.containers:
        yield _wrong(f"{field}.containers", "is empty", "write what the pods run")
    if spec.node_name:
        problem = "brings the pods onto a node past the scheduler, whoever has the room there"
        yield _wrong(f"{field}.nodeName", problem, f"write nodeSelector {HOSTNAME} instead")
    if spec.scheduler_name and spec.scheduler_name not in schedulers:
        problem = (
            f"{spec.scheduler_name!r} is no scheduler that Queuer was told of, its hosts would wait in vain"
        )
        hint = f"leave it out, or write {' or '.join(sorted(schedulers))}; QUEUER_SCHEDULERS names more"
        yield _wrong(f"{field}.schedulerName", problem, hint)
    if spec.scheduling_gates:
        problem = "keep started pods from being placed while their hosts are kept for them"
        hint = "take the gates out: a queued job waits as a whole before it has pods"
        yield _wrong(f"{field}.schedulingGates", problem, hint)
    if spec.resource_claims:
        problem = f"asks for devices through {len(spec.resource_claims)} claims, which no quota counts"
        hint = "ask in resources.limits instead, e.g. nvidia.com/gpu: 1"
        yield _wrong(f"{field}.resourceClaims", problem, hint)
    if (spec.termination_grace_period_seconds or 0) > LONGEST_GRACE:
        problem = (
            f"is {spec.termination_grace_period_seconds}: whoever takes back what is theirs would wait for it"
        )
        yield _wrong(f"{field}.terminationGracePeriodSeconds", problem, f"write {LONGEST_GRACE} at most")


def check_amounts(spec: PodSpec, *, limit_ranges: Iterable[LimitRange], field: str) -> None:
    """Refuse requests and limits that the API server would refuse in a pod. Raises InvalidInput with all of them."""
    defaults = container_defaults(limit_ranges, limits=True)
    problems: list[FieldProblem] = []
    for container in (*spec.containers, *spec.init_containers):
        where = f"{field}.containers[{container.name}].resources"
        problems += _wrong_amounts(container.resources, defaults=defaults, where=where)
    if spec.resources is not None:
        problems += _wrong_amounts(spec.resources, defaults=NOTHING, where=f"{field}.resources")
    if problems:
        raise InvalidInput(*problems)


def _wrong_amounts(
    stated: ResourceRequirements, *, defaults: Resources, where: str
) -> Iterator[FieldProblem]:
    requests = parse_resources(stated.requests, field=f"{where}.requests", whole=True)
    own = parse_resources(stated.limits, field=f"{where}.limits", whole=True)
    limits = {**defaults, **own}
    for resource in {**requests, **own}:
        at = f"{where}.{'requests' if resource in requests else 'limits'}.{resource}"
        if "/" not in resource and resource not in _PLAIN and not resource.startswith(_HUGE):
            yield _wrong(at, "is no resource of Kubernetes", "write its full name, e.g. nvidia.com/gpu")
            continue
        request, limit = requests.get(resource), limits.get(resource)
        if request is None or request == limit:
            continue
        said = format_quantity(request, resource=resource)
        if limit is None:
            if _is_exact(resource):
                yield _wrong(at, f"{said} has no limit", f"write {said} in limits, too")
            continue
        most = format_quantity(limit, resource=resource)
        whose = "the limit" if resource in own else "the limit that a LimitRange of the namespace gives"
        if request > limit:
            yield _wrong(at, f"{said} is above {whose}, {most}", f"write {most} at most, or raise the limit")
        elif _is_exact(resource):
            yield _wrong(at, f"{said} is not {whose}, {most}", "write the same in both")


def _is_exact(resource: str) -> bool:
    """Whether Kubernetes never hands out more of it than there is: its limit is its request."""
    return resource.startswith(_HUGE) or ("/" in resource and "kubernetes.io/" not in resource)


def _wrong(field: str, message: str, hint: str) -> FieldProblem:
    return FieldProblem(field=field, message=message, hint=hint)
