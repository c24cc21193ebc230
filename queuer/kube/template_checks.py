"""The parts of a pod template of which no pod could be made, or none that lands and leaves as others may count on.

The API server checks the template of a Job when it is created, those of other kinds never. There the first pod is
refused, and hosts have been kept for it in vain. The rules for amounts are those of Kubernetes
(pkg/apis/core/validation, 1.36), for every kind.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from queuer.domain.errors import FieldProblem, InvalidInput
from queuer.domain.nodes import HOSTNAME
from queuer.domain.quantity import NOTHING, Resources, format_quantity, parse_resources
from queuer.domain.shape_text import MOST_RESOURCES
from queuer.kube.kinds.row import Role, field_of, wrong
from queuer.kube.objects import REQUIRED, LimitRange, PodSpec, ResourceRequirements
from queuer.kube.requests import container_defaults

LONGEST_GRACE = 3600
"""Seconds. The owner of a guarantee waits for as long; a checkpoint needs less."""
MOST_CONTAINERS, MOST_TOLERATIONS, MOST_SELECTED, MOST_TERMS, MOST_OF_AFFINITY = 64, 64, 64, 16, 4_000
"""Parts of a pod template that are read: each is compared with all nodes."""
_HUGE = "hugepages-"
_PLAIN = ("cpu", "memory", "ephemeral-storage")


def wrong_parts(role: Role, *, schedulers: frozenset[str], field: str) -> Iterator[FieldProblem]:
    """Everything of a pod set but its amounts. `schedulers`: those that place pods here; `field`: of its pod spec."""
    if role.count < 0:
        hint = "write the number of pods, 0 for none"
        yield wrong(field_of(role.count_path), f"{role.count} is less than 0", hint)
    spec = role.template.spec
    if not spec.containers:
        yield wrong(f"{field}.containers", "is empty", "write what the pods run")
    if spec.node_name:
        problem = "brings the pods onto a node past the scheduler, whoever has the room there"
        yield wrong(f"{field}.nodeName", problem, f"write nodeSelector {HOSTNAME} instead")
    if spec.scheduler_name and spec.scheduler_name not in schedulers:
        problem = (
            f"{spec.scheduler_name!r} is no scheduler that Queuer was told of, its hosts would wait in vain"
        )
        hint = f"leave it out, or write {' or '.join(sorted(schedulers))}; QUEUER_SCHEDULERS names more"
        yield wrong(f"{field}.schedulerName", problem, hint)
    if spec.scheduling_gates:
        problem = "keep started pods from being placed while their hosts are kept for them"
        hint = "take the gates out: a queued job waits as a whole before it has pods"
        yield wrong(f"{field}.schedulingGates", problem, hint)
    if spec.resource_claims:
        problem = "asks for devices through claims, which no quota counts"
        hint = "ask in resources.limits instead, e.g. nvidia.com/gpu: 1"
        yield wrong(f"{field}.resourceClaims", problem, hint)
    if (spec.termination_grace_period_seconds or 0) > LONGEST_GRACE:
        problem = (
            f"is {spec.termination_grace_period_seconds}: whoever takes back what is theirs would wait for it"
        )
        yield wrong(f"{field}.terminationGracePeriodSeconds", problem, f"write {LONGEST_GRACE} at most")


def too_many(spec: PodSpec, *, field: str) -> Iterator[FieldProblem]:
    """Parts of which there are more than any job needs: a decision with them would last for minutes."""
    containers, affinity = (*spec.containers, *spec.init_containers), spec.affinity or {}
    stated = [container.resources for container in containers] + [spec.resources or ResourceRequirements()]
    resources = {name for each in stated for name in (*each.requests, *each.limits)}
    counts = {
        "containers": (len(containers), MOST_CONTAINERS, "containers"),
        "containers.resources": (len(resources), MOST_RESOURCES, "resources"),
        "tolerations": (len(spec.tolerations or ()), MOST_TOLERATIONS, "tolerations"),
        "nodeSelector": (len(spec.node_selector or ()), MOST_SELECTED, "labels"),
        "affinity.nodeAffinity": (_required_terms(affinity), MOST_TERMS, "required terms"),
        "affinity": (sum(1 for _ in parts(affinity)), MOST_OF_AFFINITY, "parts"),
    }
    for name, (count, most, what) in counts.items():
        if count > most:
            yield wrong(f"{field}.{name}", f"has {count} {what}", f"write {most} at most")


def parts(data: object) -> Iterator[object]:
    """All values in JSON data, and the keys of its objects."""
    left = [data]
    while left:
        part = left.pop()
        match part:
            case dict():
                left += [*part, *part.values()]
            case list():
                left += part
            case _:
                yield part


def _required_terms(affinity: Mapping[str, Any]) -> int:
    required = (affinity.get("nodeAffinity") or {}).get(REQUIRED) or {}
    return len(required.get("nodeSelectorTerms") or ())


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
            yield wrong(at, "is no resource of Kubernetes", "write its full name, e.g. nvidia.com/gpu")
            continue
        request, limit = requests.get(resource), limits.get(resource)
        if request is None or request == limit:
            continue
        said = format_quantity(request, resource=resource)
        if limit is None:
            if _is_exact(resource):
                yield wrong(at, f"{said} has no limit", f"write {said} in limits, too")
            continue
        most = format_quantity(limit, resource=resource)
        whose = "the limit" if resource in own else "the limit that a LimitRange of the namespace gives"
        if request > limit:
            yield wrong(at, f"{said} is above {whose}, {most}", f"write {most} at most, or raise the limit")
        elif _is_exact(resource):
            yield wrong(at, f"{said} is not {whose}, {most}", "write the same in both")


def _is_exact(resource: str) -> bool:
    """Whether Kubernetes never hands out more of it than there is: its limit is its request."""
    return resource.startswith(_HUGE) or ("/" in resource and "kubernetes.io/" not in resource)
