"""Kubernetes objects as the controller's memory holds them."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from queuer.controller.memory.live import JobView
from queuer.controller.memory.pods import MOST_ON_NODE, PodView
from queuer.domain.errors import FieldProblem, InvalidInput
from queuer.domain.keys import MANAGED, STATUS
from queuer.domain.nodes import Node, Taint, TaintEffect
from queuer.domain.quantity import NOTHING, Resources, parse_quantity
from queuer.domain.reasons.run_sentences import MESSAGE, pod_failed
from queuer.domain.workload import GRACE, State
from queuer.kube.kinds import JobKind
from queuer.kube.objects import (
    Amounts,
    Condition,
    LimitRange,
    Namespace,
    NodeObject,
    Pod,
    PriorityClass,
    ResourceQuota,
    RuntimeClass,
    holds,
)
from queuer.kube.patches import admission_of
from queuer.kube.requests import effective_limits, effective_requests
from queuer.kube.workloads import DEFAULT_SCHEDULERS, NamespaceFacts, created_at, groups_of

_EFFECTS = frozenset(TaintEffect)
_TEMPLATE = "pod-template-hash"
OPTED_IN = frozenset({"true", "required"})


def node_of(found: NodeObject) -> tuple[Node, tuple[FieldProblem, ...]]:
    """A node as kube-scheduler sees it without the amounts that are out of all reason, and what is wrong with these."""
    allocatable, problems = _readable(found.status.allocatable)
    node = Node(
        name=found.metadata.name,
        labels=found.metadata.labels,
        allocatable=allocatable,
        taints=tuple(
            Taint(key=t.key, value=t.value, effect=TaintEffect(t.effect))
            for t in found.spec.taints
            if t.effect in _EFFECTS
        ),
        unschedulable=found.spec.unschedulable,
        ready=holds(found.status.conditions, "Ready"),
    )
    return node, problems


def _readable(amounts: Amounts) -> tuple[Resources, tuple[FieldProblem, ...]]:
    read: dict[str, int] = {}
    problems: list[FieldProblem] = []
    for resource, value in amounts.items():
        at = f"status.allocatable.{resource}"
        try:
            amount = parse_quantity(value, resource=resource, field=at)
        except InvalidInput as error:
            problems += error.problems
            continue
        if amount > MOST_ON_NODE:
            hint = "mend what reports it: a kubelet or a device plugin"
            problems.append(FieldProblem(field=at, message=f"{value!r} is more than 2^48", hint=hint))
        else:
            read[resource] = amount
    return read, tuple(problems)


def pod_of(found: Pod, *, known: PodView | None, owner: str | None, pod_set: str | None) -> PodView:
    """A pod; its requests are summed again where its spec has changed, as by a resize. Its owner is the first that
    was known. The reference may be taken off, and the Job between a pod and its job may go first.
    """
    phase, generation = found.status.phase, found.metadata.generation
    same = known if known is not None and known.generation == generation else None
    scheduled = next((c for c in found.status.conditions if c.type == "PodScheduled"), None)
    return PodView(
        uid=found.metadata.uid,
        namespace=found.metadata.namespace,
        name=found.metadata.name,
        owner=known.owner if known is not None and known.owner is not None else owner,
        pod_set=known.pod_set if known is not None and known.owner is not None else pod_set,
        controller=_controller(found) or (None if known is None else known.controller),
        node=found.spec.node_name or None,
        requests=_requests(found) if same is None else same.requests,
        generation=generation,
        limits=_limits(found) if same is None else same.limits,
        running=phase == "Running",
        succeeded=phase == "Succeeded",
        failed=phase == "Failed",
        deleted=seconds_of(found.metadata.deletion_timestamp),
        grace=GRACE if (grace := found.spec.termination_grace_period_seconds) is None else float(grace),
        problem=scheduled.message if scheduled is not None and scheduled.status == "False" else "",
        failure=_failure(found) if phase == "Failed" else "",
    )


def _failure(found: Pod) -> str:
    """Why a pod failed: a container's exit, else a disruption, as by a node that is gone, else what its status says."""
    status, name, node = found.status, found.metadata.name, found.spec.node_name or None
    ends = (each.state.terminated for each in (*status.init_container_statuses, *status.container_statuses))
    ended = next((end for end in ends if end is not None and end.exit_code), None)
    disrupted = next(
        (c for c in status.conditions if c.type == "DisruptionTarget" and c.status == "True"), None
    )
    if disrupted is not None:
        return pod_failed(name, node, exit_code=None, reason=disrupted.reason, message=disrupted.message)
    if ended is not None:
        return pod_failed(name, node, exit_code=ended.exit_code, reason=ended.reason, message=ended.message)
    return pod_failed(name, node, exit_code=None, reason=status.reason, message=status.message)


def job_view(kind: JobKind, found: Any, *, unfinished: bool = False) -> JobView:
    """A job object as memory holds it."""
    meta, roles = found.metadata, kind.roles(found)
    sized = roles if kind.sized(found) else ()
    return JobView(
        uid=meta.uid,
        kind=kind.name,
        namespace=meta.namespace,
        name=meta.name,
        resource_version=meta.resource_version,
        suspended=kind.suspended(found),
        quiet=kind.quiet(found),
        outcome=(outcome := kind.outcome(found)),
        failure=_condition(found) if outcome is State.FAILED else "",
        admission=admission_of(found),
        status=meta.annotations.get(STATUS),
        left=kind.left(found),
        restarts=kind.restarts(found),
        repeats=kind.repeats(found),
        lingers=kind.lingers(found),
        sizes={role.name: max(0, role.count) for role in sized},
        declared={role.name: role.size for role in sized},
        comes_back=kind.comes_back(found),
        late=frozenset(role.name for role in roles if role.late),
        groups=groups_of(meta),
        deleting=meta.deletion_timestamp is not None,
        gated=0 if kind.gates is None else kind.gates(found),
        unfinished=unfinished,
        makes_jobs=kind.makes_jobs,
        object=found,
    )


def _condition(found: Any) -> str:
    """The words of the object's condition of failure, where its kind has conditions."""
    conditions: list[Condition] = getattr(getattr(found, "status", None), "conditions", [])
    failed = next((c for c in conditions if c.type == "Failed" and c.status == "True"), None)
    return "" if failed is None else ": ".join(filter(None, (failed.reason, failed.message[:MESSAGE])))


def seconds_of(timestamp: str | None) -> float | None:
    """An RFC 3339 time in seconds since the epoch."""
    return datetime.fromisoformat(timestamp).timestamp() if timestamp else None


def _controller(found: Pod) -> tuple[str, str] | None:
    """Kind and name of what drives a pod; a ReplicaSet of a Deployment is told as that."""
    owner = found.metadata.controller
    if owner is None:
        return None
    template = found.metadata.labels.get(_TEMPLATE)
    if owner.kind == "ReplicaSet" and template and owner.name.endswith(f"-{template}"):
        return "Deployment", owner.name.removesuffix(f"-{template}")
    return owner.kind, owner.name


def _requests(found: Pod) -> dict[str, int]:
    try:
        return effective_requests(found.spec)
    except InvalidInput:
        # The API server has checked every quantity: some amount is beyond 64 bits, and whatever else it asks for, its
        # node is full.
        stated = [c.resources for c in (*found.spec.containers, *found.spec.init_containers)]
        stated += [] if found.spec.resources is None else [found.spec.resources]
        named = {r for amounts in stated for r in (*amounts.requests, *amounts.limits)}.union(
            found.spec.overhead or ()
        )
        return {**dict.fromkeys(named, MOST_ON_NODE), "pods": 1}


def _limits(found: Pod) -> Resources:
    try:
        return effective_limits(found.spec) or NOTHING
    except InvalidInput:
        return NOTHING  # its requests are beyond all reason too


@dataclass(slots=True)
class Facts:
    """Objects that bear on the meaning of jobs, by uid: namespaces, defaults, classes; and the schedulers in use."""

    namespaces: dict[str, Namespace] = field(default_factory=dict)
    limit_ranges: dict[str, LimitRange] = field(default_factory=dict)
    resource_quotas: dict[str, ResourceQuota] = field(default_factory=dict)
    runtime_classes: dict[str, RuntimeClass] = field(default_factory=dict)
    priority_classes: dict[str, PriorityClass] = field(default_factory=dict)
    schedulers: frozenset[str] = DEFAULT_SCHEDULERS

    def of(self, namespace: str) -> NamespaceFacts:
        """The facts of one namespace."""
        classes = self.priority_classes.values()
        return NamespaceFacts(
            limit_ranges=tuple(r for r in self.limit_ranges.values() if r.metadata.namespace == namespace),
            overheads={c.metadata.name: c.overhead.pod_fixed for c in self.runtime_classes.values()},
            priorities={c.metadata.name: c.value for c in classes},
            default_priority=next((c.value for c in classes if c.global_default), 0),
            schedulers=self.schedulers,
        )

    def values(self) -> dict[str, int]:
        """See `NamespaceFacts.values`."""
        return self.of("").values

    def unseen(self) -> dict[str, tuple[str, ...]]:
        """By namespace the kinds of its objects that bear on its jobs, beside the queues."""
        limits = {r.metadata.namespace for r in self.limit_ranges.values()}
        quotas = {r.metadata.namespace for r in self.resource_quotas.values()}
        return {
            name: (
                *(["LimitRange"] if name in limits else ()),
                *(["ResourceQuota"] if name in quotas else ()),
            )
            for name in sorted(limits | quotas)
        }

    def made(self) -> dict[str, float]:
        """When each namespace was made, in seconds."""
        return {n.metadata.name: created_at(n.metadata) for n in self.namespaces.values()}

    def opted_in(self) -> frozenset[str]:
        """Names of the namespaces whose labelled jobs are ours to touch."""
        return frozenset(
            n.metadata.name for n in self.namespaces.values() if n.metadata.labels.get(MANAGED) in OPTED_IN
        )
