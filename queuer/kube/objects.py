"""The fields of Kubernetes objects that Queuer reads, as msgspec structs; everything else is skipped while decoding.

Names follow the API (camelCase on the wire). Amounts are left as written: `queuer.domain.quantity` parses them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

Amounts = dict[str, str | int | float]


class Struct(msgspec.Struct, frozen=True, kw_only=True, rename="camel", gc=False):
    """Base of all: immutable, camelCase, no reference cycles."""


class OwnerReference(Struct, frozen=True):
    api_version: str
    kind: str
    name: str
    uid: str
    controller: bool = False


class Meta(Struct, frozen=True):
    """metav1.ObjectMeta. Times are RFC 3339."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    creation_timestamp: str = ""
    deletion_timestamp: str | None = None
    owner_references: list[OwnerReference] = []

    @property
    def controller(self) -> OwnerReference | None:
        """The owner that drives the object, if any."""
        return next((owner for owner in self.owner_references if owner.controller), None)

    def is_controlled_by(self, uid: str) -> bool:
        """Whether that object drives this one."""
        owner = self.controller
        return owner is not None and owner.uid == uid


class Named(Struct, frozen=True):
    """Any object, by its metadata alone."""

    metadata: Meta


class Condition(Struct, frozen=True):
    type: str
    status: str = "Unknown"
    reason: str = ""
    message: str = ""


def holds(conditions: list[Condition], kind: str) -> bool:
    """Whether the condition `kind` is there with status True."""
    return any(c.type == kind and c.status == "True" for c in conditions)


class ResourceRequirements(Struct, frozen=True):
    requests: Amounts = {}
    limits: Amounts = {}


class Container(Struct, frozen=True):
    name: str = ""
    image: str = ""
    resources: ResourceRequirements = ResourceRequirements()
    restart_policy: str | None = None


REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
"""Of affinities: the terms that bind."""


class PodSpec(Struct, frozen=True):
    """The scheduling part of a pod or pod template. `affinity` and `tolerations` are kept as written."""

    containers: list[Container] = []
    init_containers: list[Container] = []
    resources: ResourceRequirements | None = None
    overhead: Amounts = {}
    runtime_class_name: str | None = None
    node_name: str = ""
    node_selector: dict[str, str] | None = None
    tolerations: list[dict[str, Any]] | None = None
    affinity: dict[str, Any] | None = None
    priority_class_name: str = ""
    scheduler_name: str = ""
    termination_grace_period_seconds: int | None = None
    active_deadline_seconds: int | None = None
    scheduling_gates: list[dict[str, Any]] = []
    resource_claims: list[dict[str, Any]] = []


class TemplateMeta(Struct, frozen=True):
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class PodTemplate(Struct, frozen=True):
    metadata: TemplateMeta = TemplateMeta()
    spec: PodSpec = PodSpec()


class JobSpec(Struct, frozen=True):
    template: PodTemplate
    suspend: bool = False
    parallelism: int | None = None
    completions: int | None = None
    completion_mode: str = ""
    active_deadline_seconds: int | None = None
    managed_by: str | None = None


class JobStatus(Struct, frozen=True):
    conditions: list[Condition] = []
    active: int = 0
    succeeded: int = 0
    failed_indexes: str = ""
    start_time: str | None = None


class Job(Struct, frozen=True):
    """batch/v1 Job."""

    metadata: Meta
    spec: JobSpec
    status: JobStatus = JobStatus()


class Terminated(Struct, frozen=True):
    exit_code: int = 0
    reason: str = ""
    message: str = ""


class ContainerState(Struct, frozen=True):
    terminated: Terminated | None = None


class ContainerStatus(Struct, frozen=True):
    state: ContainerState = ContainerState()


class PodStatus(Struct, frozen=True):
    phase: str = "Pending"
    reason: str = ""
    message: str = ""
    conditions: list[Condition] = []
    init_container_statuses: list[ContainerStatus] = []
    container_statuses: list[ContainerStatus] = []


class Pod(Struct, frozen=True):
    """v1 Pod."""

    metadata: Meta
    spec: PodSpec
    status: PodStatus = PodStatus()

    @property
    def ended(self) -> bool:
        """Terminal phase: it holds nothing of its node any more."""
        return self.status.phase in ("Succeeded", "Failed")


class NodeTaint(Struct, frozen=True):
    key: str
    effect: str
    value: str = ""


class NodeSpec(Struct, frozen=True):
    taints: list[NodeTaint] = []
    unschedulable: bool = False


class NodeStatus(Struct, frozen=True):
    allocatable: Amounts = {}
    conditions: list[Condition] = []


class NodeObject(Struct, frozen=True):
    """v1 Node."""

    metadata: Meta
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class Namespace(Struct, frozen=True):
    """v1 Namespace."""

    metadata: Meta


class LimitRangeItem(Struct, frozen=True):
    type: str
    default: Amounts = {}
    default_request: Amounts = {}


class LimitRangeSpec(Struct, frozen=True):
    limits: list[LimitRangeItem] = []


class LimitRange(Struct, frozen=True):
    """v1 LimitRange."""

    metadata: Meta
    spec: LimitRangeSpec = LimitRangeSpec()


class ResourceQuotaSpec(Struct, frozen=True):
    hard: Amounts = {}
    scopes: list[str] = []
    scope_selector: dict[str, Any] | None = None


class ResourceQuotaStatus(Struct, frozen=True):
    hard: Amounts = {}
    used: Amounts = {}


class ResourceQuota(Struct, frozen=True):
    """v1 ResourceQuota."""

    metadata: Meta
    spec: ResourceQuotaSpec = ResourceQuotaSpec()
    status: ResourceQuotaStatus = ResourceQuotaStatus()


class Overhead(Struct, frozen=True):
    pod_fixed: Amounts = {}


class RuntimeClass(Struct, frozen=True):
    """node.k8s.io/v1 RuntimeClass."""

    metadata: Meta
    overhead: Overhead = Overhead()


class PriorityClass(Struct, frozen=True):
    """scheduling.k8s.io/v1 PriorityClass."""

    metadata: Meta
    value: int = 0
    global_default: bool = False
    preemption_policy: str = ""


class Resource(Struct, frozen=True):
    """A kind as the API serves it: `batch`, `v1`, `jobs`."""

    group: str
    version: str
    plural: str

    @property
    def full_name(self) -> str:
        """As kubectl names it: `jobs.batch`, `pods`."""
        return f"{self.plural}.{self.group}".rstrip(".")

    @property
    def collection(self) -> str:
        """Path of the objects of all namespaces."""
        base = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        return f"{base}/{self.plural}"

    def inside(self, namespace: str) -> str:
        """Path of the objects of one namespace."""
        base, _, plural = self.collection.rpartition("/")
        return f"{base}/namespaces/{namespace}/{plural}"

    def path(self, name: str, *, namespace: str = "") -> str:
        """Path of one object."""
        return f"{self.inside(namespace) if namespace else self.collection}/{name}"


JOBS = Resource(group="batch", version="v1", plural="jobs")
PODS = Resource(group="", version="v1", plural="pods")
NODES = Resource(group="", version="v1", plural="nodes")
NAMESPACES = Resource(group="", version="v1", plural="namespaces")
LIMIT_RANGES = Resource(group="", version="v1", plural="limitranges")
RESOURCE_QUOTAS = Resource(group="", version="v1", plural="resourcequotas")
RUNTIME_CLASSES = Resource(group="node.k8s.io", version="v1", plural="runtimeclasses")
PRIORITY_CLASSES = Resource(group="scheduling.k8s.io", version="v1", plural="priorityclasses")


Labels = Mapping[str, str]
