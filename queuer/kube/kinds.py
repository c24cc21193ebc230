"""The job kinds that Queuer manages, one row each: where things are in the object, and what its controller says.

Everything else about jobs (`workloads.py`, `patches.py`) is written against these rows, so that a further kind costs a
row. Facts per kind: Kubernetes Job API (KEP-2232, KEP-5440), training-operator 1.9 PyTorchJob.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from queuer.domain.keys import WORKLOAD
from queuer.domain.workload import State
from queuer.kube.objects import (
    JOBS,
    PYTORCHJOBS,
    Container,
    Job,
    Meta,
    Pod,
    PodTemplate,
    PyTorchJob,
    Resource,
    ResourceRequirements,
    holds,
)

JobObject = Job | PyTorchJob
_LONGEST_LABEL = 63
MAIN = "main"
"""The one pod set of a kind that has a single template."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Role:
    """One pod set as the object has it.

    `declared`: pods that run at once, from the field at `count_path`; None = not said, which means one. `most`: the
    most pods that are left to run, None = no bound. `template_path`: from the object to the pod template.
    """

    name: str
    declared: int | None
    template: PodTemplate
    count_path: tuple[str, ...]
    template_path: tuple[str, ...]
    most: int | None = None

    @property
    def size(self) -> int:
        """Pods that it is declared to run at once."""
        return 1 if self.declared is None else self.declared

    @property
    def count(self) -> int:
        """Pods that will run at once."""
        return self.size if self.most is None else min(self.size, self.most)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobKind:
    """One row. The functions take the decoded object.

    `quiet`: the job's controller confirms that it is suspended without an active pod. One PATCH may then change its
    template and start it. `fixed`: below Kubernetes 1.36.2 it may not, until the status has no startTime. `outcome`:
    Succeeded, Failed or None. `left`: pods that it still owes, where their number falls as they succeed. `restarts`:
    whether it runs on from where it was once it is suspended and started again: a Job without completions is Complete
    instead, once a pod has succeeded. `lingers`: whether its controller leaves running pods alone after its end, as its
    owner wrote; `clean`: the field and the value that change that. `pods`: label selector by which its controller knows
    the pods of a job, from uid and name. `pod_label`: label of the job's pods that tells the pod set, None = one set.
    """

    name: str
    api_version: str
    resource: Resource
    type: type[Any]
    suspend_path: tuple[str, ...]
    suspended: Callable[[Any], bool]
    quiet: Callable[[Any], bool]
    fixed: Callable[[Any], bool]
    outcome: Callable[[Any], State | None]
    left: Callable[[Any], int | None]
    restarts: Callable[[Any], bool]
    lingers: Callable[[Any], bool]
    roles: Callable[[Any], tuple[Role, ...]]
    deadline: Callable[[Any], int | None]
    deadline_path: tuple[str, ...]
    pods: Callable[[str, str], str]
    pod_label: str | None = None
    clean: tuple[tuple[str, ...], str] | None = None


def _job_roles(job: Job) -> tuple[Role, ...]:
    return (
        Role(
            name=MAIN,
            declared=job.spec.parallelism,
            most=_job_left(job),
            template=job.spec.template,
            count_path=("spec", "parallelism"),
            template_path=("spec", "template"),
        ),
    )


def _job_left(job: Job) -> int | None:
    if job.spec.completions is None:
        # A work queue: after the first success its controller makes no pod any more, whatever happens to the others.
        return job.status.active if job.status.succeeded else None
    return max(job.spec.completions - job.status.succeeded - _indexes(job.status.failed_indexes), 0)


def _indexes(text: str) -> int:
    """How many indexes `1,3-5` names: with a back-off limit of their own, those that failed are not run again."""
    ranges = (part.partition("-") for part in text.split(",") if part)
    return sum(int(last or first) - int(first) + 1 for first, _, last in ranges)


def _job_quiet(job: Job) -> bool:
    # The condition under which kube-apiserver lets the template of a suspended job change (1.36.2 and later; before,
    # `loosen_patch` precedes).
    told = holds(job.status.conditions, "Suspended") and job.status.active == 0
    return job.spec.suspend and (job.status.start_time is None or told)


def _job_outcome(job: Job) -> State | None:
    if holds(job.status.conditions, "Complete"):
        return State.SUCCEEDED
    return State.FAILED if holds(job.status.conditions, "Failed") else None


def _pytorch_roles(job: PyTorchJob) -> tuple[Role, ...]:
    base = ("spec", "pytorchReplicaSpecs")
    has_master = "Master" in job.spec.pytorch_replica_specs
    # Master first, as the operator starts it.
    specs = sorted(job.spec.pytorch_replica_specs.items(), key=lambda item: (item[0] != "Master", item[0]))
    return tuple(
        Role(
            name=role.lower(),
            declared=spec.replicas,
            template=_with_waiting(spec.template) if role == "Worker" and has_master else spec.template,
            count_path=(*base, role, "replicas"),
            template_path=(*base, role, "template"),
        )
        for role, spec in specs
    )


_WAITING = Container(
    name="init-pytorch", resources=ResourceRequirements(requests={"cpu": "50m", "memory": "10Mi"})
)
"""The init container in which each worker waits for the master (pkg/controller.v1/pytorch/initcontainer.go, 1.9.4)."""


def _with_waiting(template: PodTemplate) -> PodTemplate:
    spec = template.spec
    with_it = msgspec.structs.replace(spec, init_containers=[*spec.init_containers, _WAITING])
    return msgspec.structs.replace(template, spec=with_it)


def _pytorch_quiet(job: PyTorchJob) -> bool:
    active = any(status.active for status in job.status.replica_statuses.values())
    fresh = job.status.start_time is None and not holds(job.status.conditions, "Running")
    return job.spec.run_policy.suspend and not active and (fresh or holds(job.status.conditions, "Suspended"))


def _pytorch_outcome(job: PyTorchJob) -> State | None:
    if holds(job.status.conditions, "Succeeded"):
        return State.SUCCEEDED
    return State.FAILED if holds(job.status.conditions, "Failed") else None


JOB = JobKind(
    name="Job",
    api_version="batch/v1",
    resource=JOBS,
    type=Job,
    suspend_path=("spec", "suspend"),
    suspended=lambda job: job.spec.suspend,
    quiet=_job_quiet,
    fixed=lambda job: job.status.start_time is not None,
    outcome=_job_outcome,
    left=_job_left,
    restarts=lambda job: job.spec.completions is not None or not job.status.succeeded,
    lingers=lambda job: False,
    roles=_job_roles,
    deadline=lambda job: job.spec.active_deadline_seconds,
    deadline_path=("spec", "activeDeadlineSeconds"),
    pods=lambda uid, name: f"batch.kubernetes.io/controller-uid={uid}",
)
PYTORCHJOB = JobKind(
    name="PyTorchJob",
    api_version="kubeflow.org/v1",
    resource=PYTORCHJOBS,
    type=PyTorchJob,
    suspend_path=("spec", "runPolicy", "suspend"),
    suspended=lambda job: job.spec.run_policy.suspend,
    quiet=_pytorch_quiet,
    fixed=lambda job: False,
    outcome=_pytorch_outcome,
    left=lambda job: None,
    restarts=lambda job: True,
    lingers=lambda job: job.spec.run_policy.clean_pod_policy in (None, "None"),
    roles=_pytorch_roles,
    deadline=lambda job: job.spec.run_policy.active_deadline_seconds,
    deadline_path=("spec", "runPolicy", "activeDeadlineSeconds"),
    pods=lambda uid, name: f"training.kubeflow.org/job-name={name}",
    pod_label="training.kubeflow.org/replica-type",
    clean=(("spec", "runPolicy", "cleanPodPolicy"), "Running"),
)
KINDS: tuple[JobKind, ...] = (JOB, PYTORCHJOB)
BY_NAME: Mapping[str, JobKind] = {kind.name: kind for kind in KINDS}
_BY_OWNER = {(kind.api_version, kind.name): kind for kind in KINDS}


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """That a pod belongs to a job of a kind that we manage: the job's uid and the pod set."""

    owner: str
    pod_set: str


def member_of(pod: Pod) -> Member | None:
    """The job and pod set of a pod, None for pods of nobody that we know.

    The controlling owner decides. An orphaned pod, whose job was deleted, is known by the label that every admission
    puts on the pod templates. Neither can be forged or taken off where a namespace has opted in
    (policies/guard-pods.yaml), and neither counts across namespaces (`PodIndex.of`).
    """
    owner = pod.metadata.controller
    if owner is not None:
        kind = _BY_OWNER.get((owner.api_version, owner.kind))
        return None if kind is None else Member(owner=owner.uid, pod_set=_pod_set(kind, pod.metadata))
    uid = pod.metadata.labels.get(WORKLOAD)
    if not uid:
        return None
    kind = next((k for k in KINDS if k.pod_label is not None and k.pod_label in pod.metadata.labels), JOB)
    return Member(owner=uid, pod_set=_pod_set(kind, pod.metadata))


def _pod_set(kind: JobKind, meta: Meta) -> str:
    return MAIN if kind.pod_label is None else meta.labels.get(kind.pod_label, "").lower()


def pod_selectors(kind: JobKind, *, uid: str, name: str) -> tuple[str, ...]:
    """Label selectors that find every pod of a job: by our label, and as its controller does where it was started
    beside the queue.
    """
    # A name too long for a label is that of a job that never got a pod; the API server would refuse the selector.
    by_controller = (kind.pods(uid, name),) if len(name) <= _LONGEST_LABEL else ()
    return (f"{WORKLOAD}={uid}", *by_controller)


def object_path(kind: JobKind, meta: Meta) -> str:
    """API path of a job object."""
    return kind.resource.path(meta.name, namespace=meta.namespace)
