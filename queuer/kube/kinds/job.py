"""The Job of Kubernetes itself (KEP-2232, KEP-5440)."""

from __future__ import annotations

from queuer.kube.kinds.row import JobKind, Role, ending
from queuer.kube.objects import JOBS, Job, holds

MAIN = "main"
"""The one pod set of a kind that has a single template."""


def _roles(job: Job) -> tuple[Role, ...]:
    return (
        Role(
            name=MAIN,
            declared=job.spec.parallelism,
            most=left_of(job),
            template=job.spec.template,
            count_path=("spec", "parallelism"),
            template_path=("spec", "template"),
        ),
    )


def left_of(job: Job) -> int | None:
    """Pods that it still owes, None where it does not count them."""
    if job.spec.completions is None:
        # A work queue: after the first success its controller makes no pod any more, whatever happens to the others.
        return job.status.active if job.status.succeeded else None
    return max(job.spec.completions - job.status.succeeded - _indexes(job.status.failed_indexes), 0)


def _indexes(text: str) -> int:
    """How many indexes `1,3-5` names: with a back-off limit of their own, those that failed are not run again."""
    ranges = (part.partition("-") for part in text.split(",") if part)
    return sum(int(last or first) - int(first) + 1 for first, _, last in ranges)


def _quiet(job: Job) -> bool:
    # The condition under which kube-apiserver lets the template of a suspended job change (1.36.2 and later; before,
    # `loosen_patch` precedes).
    told = holds(job.status.conditions, "Suspended") and job.status.active == 0
    return job.spec.suspend and (job.status.start_time is None or told)


JOB = JobKind(
    name="Job",
    api_version="batch/v1",
    resource=JOBS,
    type=Job,
    operators=("system:kube-controller-manager", "system:serviceaccount:kube-system:job-controller"),
    manager="kubernetes.io/job-controller",
    quiet=_quiet,
    fixed=lambda job: job.status.start_time is not None,
    outcome=lambda job: ending(job.status.conditions, "Complete"),
    left=left_of,
    restarts=lambda job: job.spec.completions is not None or not job.status.succeeded,
    roles=_roles,
    deadline=lambda job: job.spec.active_deadline_seconds,
    pods=lambda uid, name: f"batch.kubernetes.io/controller-uid={uid}",
    pod_labels=(
        "batch.kubernetes.io/controller-uid",
        "batch.kubernetes.io/job-name",
        "controller-uid",
        "job-name",
    ),
    example={"template": {"spec": {"containers": []}}},
)
