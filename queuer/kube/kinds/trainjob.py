"""TrainJob of the Kubeflow Trainer (2.3): its controller makes one JobSet of the same name from an admin's runtime.

The JobSet is there while the job is suspended, and its templates say what will run. Its controller writes the JobSet
anew as long as it is suspended. So a start changes the TrainJob alone: one entry of `spec.runtimePatches` has the pins.

- Each start names a new manager and the time of its entry. Its webhook would write the time otherwise, and with it all
  quantities as texts, in fields that must not change (pkg/webhooks/trainjob_webhook.go).
- Affinity in an entry is refused by the JobSet alone: the TrainJob would say that it is resumed and never run.
- While a Job of the JobSet is active the entry stays, so an eviction leaves it until the next start.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import msgspec

from queuer.domain.errors import FieldProblem
from queuer.domain.keys import PREFIX, QUEUE
from queuer.kube.kinds.jobset import JOBSET, JobSet
from queuer.kube.kinds.row import Carrier, JobKind, Made, Role, ending
from queuer.kube.objects import Condition, Job, Meta, Resource, Struct
from queuer.kube.operators import USUAL

_PATCHES = ("spec", "runtimePatches")


class RuntimeRef(Struct, frozen=True):
    name: str = ""


class TrainJobSpec(Struct, frozen=True):
    runtime_ref: RuntimeRef = RuntimeRef()
    runtime_patches: list[dict[str, Any]] = msgspec.field(default_factory=list)
    active_deadline_seconds: int = 0
    suspend: bool = False
    managed_by: str | None = None


class TrainJobStatus(Struct, frozen=True):
    conditions: list[Condition] = msgspec.field(default_factory=list)


class TrainJob(Struct, frozen=True):
    """trainer.kubeflow.org/v1alpha1 TrainJob. `carrier`: its JobSet as far as it is known, no field of the object."""

    metadata: Meta
    spec: TrainJobSpec = TrainJobSpec()
    status: TrainJobStatus = TrainJobStatus()
    carrier: JobSet | None = None

    @property
    def made(self) -> list[Job]:
        """The Jobs of its JobSet."""
        return [] if self.carrier is None else self.carrier.made


def _roles(job: TrainJob) -> tuple[Role, ...]:
    if job.carrier is None:
        return ()
    return tuple(
        replace(role, count_path=("JobSet", *role.count_path), template_path=("JobSet", *role.template_path))
        for role in JOBSET.roles(job.carrier)
    )


def _quiet(job: TrainJob) -> bool:
    """It calls itself suspended at once: its JobSet tells."""
    return job.spec.suspend and job.carrier is not None and JOBSET.quiet(job.carrier)


def _refused(job: TrainJob) -> Iterator[FieldProblem]:
    for place, each in enumerate(job.spec.runtime_patches):
        template = (each.get("trainingRuntimeSpec") or {}).get("template") or {}
        if QUEUE in ((template.get("metadata") or {}).get("labels") or {}):
            yield FieldProblem(
                field=f"spec.runtimePatches[{place}].trainingRuntimeSpec.template.metadata.labels",
                message="would queue its JobSet beside it",
                hint=f"leave {QUEUE} out of them",
            )
    if job.carrier is None:
        yield FieldProblem(
            field="spec.runtimeRef",
            message=f"the Trainer has made no JobSet of {job.spec.runtime_ref.name}",
            hint=f"`kubectl describe trainjob {job.metadata.name}` says why",
        )
        return
    for problem in JOBSET.refused(job.carrier):
        message = f"its runtime has {problem.field}, which {problem.message}"
        yield FieldProblem(field="spec.runtimeRef", message=message, hint=problem.hint)


def _entries(job: TrainJob, parts: Mapping[str, Any], id: str, at: float) -> list[dict[str, Any]]:
    """`spec.runtimePatches` with these parts of pod templates by role, and without those of an earlier start."""
    found = [each for each in job.spec.runtime_patches if not str(each.get("manager", "")).startswith(PREFIX)]
    if not parts:
        return found
    roles = [{"name": name, "template": {"spec": {"template": part}}} for name, part in parts.items()]
    own = {
        "manager": f"{PREFIX}{id}",
        "time": datetime.fromtimestamp(int(at), UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": roles}}},
    }
    return [*found, own]


def _expected(job: TrainJob) -> int:
    assert JOBSET.made is not None
    return 1 if job.carrier is None else JOBSET.made.expected(job.carrier)


assert JOBSET.made is not None
TRAINJOB = JobKind(
    name="TrainJob",
    api_version="trainer.kubeflow.org/v1alpha1",
    resource=Resource(group="trainer.kubeflow.org", version="v1alpha1", plural="trainjobs"),
    type=TrainJob,
    operators=USUAL["trainer"],
    manager="trainer.kubeflow.org/trainjob-controller",
    quiet=_quiet,
    outcome=lambda job: ending(job.status.conditions, "Complete"),
    left=lambda job: None if job.carrier is None else JOBSET.left(job.carrier),
    restarts=lambda job: job.carrier is None or JOBSET.restarts(job.carrier),
    repeats=lambda job: job.carrier is not None and JOBSET.repeats(job.carrier),
    roles=_roles,
    deadline=lambda job: job.spec.active_deadline_seconds or None,
    pods=lambda uid, name: f"jobset.sigs.k8s.io/jobset-name={name}",
    pod_labels=JOBSET.pod_labels,
    pod_label=JOBSET.pod_label,
    refused=_refused,
    listed=True,
    made=Made(
        mark=JOBSET.made.mark,
        role=JOBSET.made.role,
        expected=_expected,
        carrier=Carrier(kind=JOBSET, path=_PATCHES, entries=_entries),
    ),
    example=JOBSET.example,
)
