"""RayJob and RayCluster of KubeRay (1.6).

A RayJob has its controller make a RayCluster, of a new name at each start. Once that is ready, it makes a Job that
submits the work. Pods hang RayJob → RayCluster → Pod and RayJob → Job → Pod. A RayCluster that a RayJob made is never
queued by itself, though it has all labels and annotations of the RayJob.

- `suspend` counts from Initializing and Running alone. Every other state leads to one of these or to the end, so the
  field has only to stay as it is.
- A template that the owner left out cannot be pinned: an admission writes that of the Job, and it stays.
- A retry makes a new RayCluster of the same templates, inside the same pins, once the old one is deleted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import msgspec

from queuer.domain.errors import FieldProblem
from queuer.domain.workload import State
from queuer.kube.kinds.row import JobKind, Role
from queuer.kube.objects import (
    Condition,
    Container,
    Meta,
    PodTemplate,
    Resource,
    ResourceRequirements,
    Struct,
    holds,
)
from queuer.kube.operators import USUAL

RAY_MANAGER = "ray.io/kuberay-operator"
_GROUP = "ray.io/group"
HEAD, SUBMITTER = "headgroup", "submitter"
"""Names of pod sets, as KubeRay has them in the label of the group. No worker group may share one."""
_OF_HEAD, _OF_JOB = {HEAD: "of the head"}, {HEAD: "of the head", SUBMITTER: "that submit the work"}
_MODES = ("K8sJobMode", "SidecarMode", "HTTPMode")
"""Modes of submission that can be queued: by a pod of its own, by a container of the head, by KubeRay itself."""
_FAULT_TOLERANT = "ray.io/ft-enabled"
_API_VERSION = "ray.io/v1"
_UNLIMITED = 2**31 - 1


class HeadGroup(Struct, frozen=True):
    template: PodTemplate = PodTemplate()


class WorkerGroup(Struct, frozen=True):
    group_name: str
    template: PodTemplate = PodTemplate()
    replicas: int | None = None
    min_replicas: int | None = None
    max_replicas: int | None = None
    num_of_hosts: int = 1
    suspend: bool | None = None


class RayClusterSpec(Struct, frozen=True):
    head_group_spec: HeadGroup = HeadGroup()
    worker_group_specs: list[WorkerGroup] = msgspec.field(default_factory=list)
    enable_in_tree_autoscaling: bool | None = None
    gcs_fault_tolerance_options: dict[str, Any] | None = None
    managed_by: str | None = None
    suspend: bool | None = None


class RayClusterStatus(Struct, frozen=True):
    conditions: list[Condition] = msgspec.field(default_factory=list)
    state: str = ""


class RayCluster(Struct, frozen=True):
    """ray.io/v1 RayCluster."""

    metadata: Meta
    spec: RayClusterSpec = RayClusterSpec()
    status: RayClusterStatus = RayClusterStatus()


class RayJobSpec(Struct, frozen=True):
    ray_cluster_spec: RayClusterSpec | None = None
    submitter_pod_template: PodTemplate | None = None
    cluster_selector: dict[str, str] | None = None
    deletion_strategy: dict[str, Any] | None = None
    submission_mode: str = "K8sJobMode"
    active_deadline_seconds: int | None = None
    ttl_seconds_after_finished: int = 0
    shutdown_after_job_finishes: bool | None = None
    suspend: bool = False
    managed_by: str | None = None


class RayJobStatus(Struct, frozen=True):
    job_deployment_status: str = ""
    job_status: str = ""


class RayJob(Struct, frozen=True):
    """ray.io/v1 RayJob."""

    metadata: Meta
    spec: RayJobSpec = RayJobSpec()
    status: RayJobStatus = RayJobStatus()


def _container(name: str, cpu: str, memory: str, *, limits: tuple[str, str] | None = None) -> Container:
    most = limits or (cpu, memory)
    return Container(
        name=name,
        resources=ResourceRequirements(
            requests={"cpu": cpu, "memory": memory}, limits={"cpu": most[0], "memory": most[1]}
        ),
    )


_WAITING = _container("wait-gcs-ready", "200m", "256Mi")
"""The init container in which each worker waits for the head (common/pod.go, DefaultWorkerPodTemplate)."""
_SUBMITTING = _container("ray-job-submitter", "500m", "200Mi", limits=("1", "1Gi"))
"""The container that submits, of a pod of its own or beside the head (common/job.go, GetDefaultSubmitterContainer)."""


def _cluster_roles(spec: RayClusterSpec, at: tuple[str, ...]) -> Iterator[Role]:
    head = (*at, "headGroupSpec")
    yield Role(
        name=HEAD,
        declared=1,
        template=spec.head_group_spec.template,
        count_path=head,
        template_path=(*head, "template"),
        resizable=False,
    )
    for place, group in enumerate(spec.worker_group_specs):
        where = (*at, "workerGroupSpecs", str(place))
        yield Role(
            name=group.group_name.lower(),
            declared=_workers(group),
            template=_with(group.template, first=_WAITING),
            count_path=(*where, "replicas"),
            template_path=(*where, "template"),
            resizable=False,
        )


def _workers(group: WorkerGroup) -> int:
    """As GetWorkerGroupDesiredReplicas (utils/util.go)."""
    if group.suspend:
        return 0
    least = group.min_replicas or 0
    most = _UNLIMITED if group.max_replicas is None else group.max_replicas
    replicas = least if group.replicas is None else min(max(group.replicas, least), most)
    return replicas * max(1, group.num_of_hosts)


def _with(
    template: PodTemplate, *, first: Container | None = None, beside: Container | None = None
) -> PodTemplate:
    """The template with what KubeRay adds: an init container, a container."""
    spec = template.spec
    spec = msgspec.structs.replace(
        spec,
        init_containers=[*spec.init_containers, *([first] if first else [])],
        containers=[*spec.containers, *([beside] if beside else [])],
    )
    return msgspec.structs.replace(template, spec=spec)


def _job_roles(job: RayJob) -> tuple[Role, ...]:
    spec = job.spec
    if spec.ray_cluster_spec is None:
        return ()
    head, *workers = _cluster_roles(spec.ray_cluster_spec, ("spec", "rayClusterSpec"))
    if spec.submission_mode == "SidecarMode":
        return (replace(head, template=_with(head.template, beside=_SUBMITTING)), *workers)
    submitter = (_submitter(spec),) if spec.submission_mode == "K8sJobMode" else ()
    return (head, *workers, *submitter)


def _submitter(spec: RayJobSpec) -> Role:
    path = ("spec", "submitterPodTemplate")
    own, absent = spec.submitter_pod_template, None
    if own is None:
        absent = _default_submitter(spec)
        own = msgspec.convert(absent, PodTemplate)
    return Role(
        name=SUBMITTER,
        declared=1,
        template=own,
        count_path=path,
        template_path=path,
        resizable=False,
        late=True,
        absent=absent,
        labels={_GROUP: SUBMITTER},
    )


def _default_submitter(spec: RayJobSpec) -> dict[str, Any]:
    """As GetSubmitterTemplate (common/job.go) fills it in."""
    cluster = spec.ray_cluster_spec or RayClusterSpec()
    containers = cluster.head_group_spec.template.spec.containers
    container = {**msgspec.to_builtins(_SUBMITTING), "image": containers[0].image if containers else ""}
    del container["restartPolicy"]
    pods = {"containers": [container], "restartPolicy": "Never", "priorityClassName": "queuer-default"}
    return {"spec": pods}


def _job_quiet(job: RayJob) -> bool:
    """An empty state is that of a job that its controller has not seen, or is about to start anew without a pod."""
    return job.spec.suspend and job.status.job_deployment_status in ("", "Suspended")


def _job_outcome(job: RayJob) -> State | None:
    match job.status.job_deployment_status:
        case "Complete":
            return State.SUCCEEDED if job.status.job_status == "SUCCEEDED" else State.FAILED
        case "Failed" | "ValidationFailed":
            return State.FAILED
        case _:
            return None


def _cluster_quiet(cluster: RayCluster) -> bool:
    conditions = cluster.status.conditions
    told = holds(conditions, "RayClusterSuspended") and not holds(conditions, "RayClusterSuspending")
    return bool(cluster.spec.suspend) and (told or not (conditions or cluster.status.state))


def _cluster_refused(
    spec: RayClusterSpec, meta: Meta, at: str, *, taken: Mapping[str, str] = _OF_HEAD
) -> Iterator[FieldProblem]:
    """`taken`: names of pod sets beside the workers, with what pods those are."""
    for place, group in enumerate(spec.worker_group_specs):
        if whose := taken.get(group.group_name.lower()):
            yield FieldProblem(
                field=f"{at}.workerGroupSpecs[{place}].groupName",
                message=f"is the name of the pods {whose}",
                hint="give the worker group another name",
            )
    if spec.enable_in_tree_autoscaling:
        yield FieldProblem(
            field=f"{at}.enableInTreeAutoscaling",
            message="would have Ray change how many workers there are, past what was admitted",
            hint="leave it out, and write the replicas of each worker group",
        )
    if meta.controller is not None and meta.controller.kind == "RayService":
        yield FieldProblem(
            field="metadata.ownerReferences",
            message="says that a RayService made it, which would change its size at any time",
            hint="take the label queuer.dev/queue off the RayService",
        )
    tolerant = meta.annotations.get(_FAULT_TOLERANT, "").lower() == "true"
    if spec.gcs_fault_tolerance_options is not None or tolerant:
        yield FieldProblem(
            field=f"annotation {_FAULT_TOLERANT}" if tolerant else f"{at}.gcsFaultToleranceOptions",
            message="keeps a deleted cluster until a Job beside the queue has cleaned up",
            hint="leave it out",
        )


def _job_refused(job: RayJob) -> Iterator[FieldProblem]:
    spec = job.spec
    if spec.cluster_selector:
        yield FieldProblem(
            field="spec.clusterSelector",
            message="runs it on a RayCluster that is not its own, which KubeRay cannot suspend with it",
            hint="queue the RayCluster, or write spec.rayClusterSpec",
        )
    elif spec.ray_cluster_spec is None:
        yield FieldProblem(field="spec.rayClusterSpec", message="is missing", hint="write it")
    if spec.shutdown_after_job_finishes is False:
        yield FieldProblem(
            field="spec.shutdownAfterJobFinishes",
            message="keeps its RayCluster after its end, and KubeRay fails such a job once it is suspended",
            hint="write true",
        )
    if spec.deletion_strategy is not None:
        yield FieldProblem(
            field="spec.deletionStrategy",
            message="may keep its pods after its end",
            hint="leave it out, and write shutdownAfterJobFinishes: true",
        )
    if spec.submission_mode == "InteractiveMode":
        yield FieldProblem(
            field="spec.submissionMode",
            message="waits for work from outside, and KubeRay does not suspend it meanwhile",
            hint=f"write {', '.join(_MODES)}, or queue a RayCluster",
        )
    elif spec.submission_mode not in _MODES:
        yield FieldProblem(
            field="spec.submissionMode",
            message=f"{spec.submission_mode[:40]!r} is no mode of KubeRay 1.6",
            hint=f"write {', '.join(_MODES[:-1])} or {_MODES[-1]}",
        )
    if spec.ray_cluster_spec is not None:
        if spec.ray_cluster_spec.managed_by not in (None, RAY_MANAGER):
            yield FieldProblem(
                field="spec.rayClusterSpec.managedBy",
                message="names a controller that would not start its RayCluster",
                hint="leave it out",
            )
        if spec.ray_cluster_spec.suspend:
            yield FieldProblem(
                field="spec.rayClusterSpec.suspend",
                message="keeps its RayCluster from starting",
                hint="leave it out",
            )
        taken = _OF_JOB if spec.submission_mode == "K8sJobMode" else _OF_HEAD
        yield from _cluster_refused(spec.ray_cluster_spec, job.metadata, "spec.rayClusterSpec", taken=taken)


_POD_LABELS = ("ray.io/cluster", "ray.io/node-type", _GROUP, "ray.io/is-ray-node")
_EXAMPLE = {
    "headGroupSpec": {"template": {"spec": {"containers": []}}},
    "workerGroupSpecs": [
        {"groupName": "gpu", "replicas": 2, "maxReplicas": 2, "template": {"spec": {"containers": []}}}
    ],
}

RAYCLUSTER = JobKind(
    name="RayCluster",
    api_version=_API_VERSION,
    resource=Resource(group="ray.io", version="v1", plural="rayclusters"),
    type=RayCluster,
    operators=USUAL["kuberay"],
    manager=RAY_MANAGER,
    quiet=_cluster_quiet,
    outcome=lambda cluster: None,
    roles=lambda cluster: tuple(_cluster_roles(cluster.spec, ("spec",))),
    deadline_path=(),
    pods=lambda uid, name: f"ray.io/cluster={name}",
    pod_labels=_POD_LABELS,
    pod_label=_GROUP,
    refusals=("FailedToCreate",),
    refused=lambda cluster: _cluster_refused(cluster.spec, cluster.metadata, "spec"),
    listed=True,
    example=_EXAMPLE,
)
RAYJOB = JobKind(
    name="RayJob",
    api_version=_API_VERSION,
    resource=Resource(group="ray.io", version="v1", plural="rayjobs"),
    type=RayJob,
    operators=USUAL["kuberay"],
    manager=RAY_MANAGER,
    quiet=_job_quiet,
    outcome=_job_outcome,
    lingers=lambda job: job.spec.ttl_seconds_after_finished > 0,
    roles=_job_roles,
    deadline=lambda job: job.spec.active_deadline_seconds,
    pods=lambda uid, name: "ray.io/cluster",  # of any name: that of its RayCluster is in its status alone
    pod_labels=_POD_LABELS,
    pod_label=_GROUP,
    refusals=("FailedToCreate",),
    refused=_job_refused,
    listed=True,
    children=("RayCluster", "Job"),
    finalizers=("ray.io/rayjob-finalizer",),
    clean=(("spec", "ttlSecondsAfterFinished"), 0),
    example={"rayClusterSpec": _EXAMPLE},
)
