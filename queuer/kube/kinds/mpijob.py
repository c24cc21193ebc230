"""MPIJob of the mpi-operator (0.8): workers are pods of its own, the launcher is one Job `NAME-launcher`.

Its controller makes the launcher suspended while the job is, whatever `launcherCreationPolicy` says. When it starts the
launcher it replaces selector and tolerations by those of the job's template, and merges labels. Affinity of that Job
it never touches (syncLauncherSchedulingDirectives), so hosts are pinned there.
"""

from __future__ import annotations

import msgspec

from queuer.domain.workload import State
from queuer.kube.kinds.job import JOB
from queuer.kube.kinds.kubeflow import RUN_POLICY, ReplicaSpec, RunPolicy
from queuer.kube.kinds.row import JobKind, Made, Role
from queuer.kube.objects import Condition, Job, Meta, Resource, Struct, holds
from queuer.kube.operators import USUAL

_ROLES = "mpiReplicaSpecs"
_PREFIX = "training.kubeflow.org"
_LAUNCHER = "launcher"


class MPIJobSpec(Struct, frozen=True):
    mpi_replica_specs: dict[str, ReplicaSpec] = msgspec.field(default_factory=dict)
    run_policy: RunPolicy = RunPolicy()


class MPIJobStatus(Struct, frozen=True):
    conditions: list[Condition] = msgspec.field(default_factory=list)
    completion_time: str | None = None


class MPIJob(Struct, frozen=True):
    """kubeflow.org/v2beta1 MPIJob. `made`: its launcher as far as it is known, no field of the object."""

    metadata: Meta
    spec: MPIJobSpec = MPIJobSpec()
    status: MPIJobStatus = MPIJobStatus()
    made: list[Job] = msgspec.field(default_factory=list)


def _roles(job: MPIJob) -> tuple[Role, ...]:
    """Launcher, Worker. Workers that are not counted are none (setDefaultsTypeWorker)."""
    return tuple(
        Role(
            name=name.lower(),
            declared=0 if spec.replicas is None and name == "Worker" else spec.replicas,
            template=spec.template,
            count_path=("spec", _ROLES, name, "replicas"),
            template_path=("spec", _ROLES, name, "template"),
            resizable=name.lower() != _LAUNCHER,
        )
        for name, spec in sorted(job.spec.mpi_replica_specs.items())
    )


def _quiet(job: MPIJob) -> bool:
    """It calls itself suspended at once, and counts no pending pods: whoever asks has to look for pods, too."""
    launchers = all(JOB.quiet(each) for each in job.made if JOB.outcome(each) is None)
    return job.spec.run_policy.suspend and holds(job.status.conditions, "Suspended") and launchers


def _outcome(job: MPIJob) -> State | None:
    """It also calls itself failed, and runs on, where the kubelet evicts a worker: it has not completed then."""
    if holds(job.status.conditions, "Succeeded"):
        return State.SUCCEEDED
    ended = holds(job.status.conditions, "Failed") and job.status.completion_time is not None
    return State.FAILED if ended else None


MPIJOB = JobKind(
    name="MPIJob",
    api_version="kubeflow.org/v2beta1",
    resource=Resource(group="kubeflow.org", version="v2beta1", plural="mpijobs"),
    type=MPIJob,
    operators=USUAL["mpi-operator"],
    manager="kubeflow.org/mpi-operator",
    quiet=_quiet,
    outcome=_outcome,
    roles=_roles,
    roles_key=_ROLES,
    pods=lambda uid, name: f"{_PREFIX}/job-name={name},{_PREFIX}/operator-name=mpi-operator",
    pod_labels=tuple(
        f"{_PREFIX}/{label}" for label in ("job-name", "job-role", "replica-index", "operator-name")
    ),
    pod_label=f"{_PREFIX}/job-role",
    refusals=("MPIJobFailed",),
    made=Made(mark="app", by_name=True, only=_LAUNCHER, expected=lambda job: 1),
    example={_ROLES: {name: {"template": {"spec": {"containers": []}}} for name in ("Launcher", "Worker")}},
    **RUN_POLICY,
)
