"""JobSet (0.12): a set of Jobs by roles, `replicatedJobs`, each so many Jobs from one template.

Its controller makes all Jobs suspended while the set is. When the set is resumed it merges selector, tolerations and
labels of the set's templates into them (resumeJob); what is there already stays. Affinity of a set's template cannot
change at all (its webhook), that of its suspended Jobs can.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from queuer.domain.errors import FieldProblem
from queuer.kube.kinds.job import JOB, left_of
from queuer.kube.kinds.row import JobKind, Made, Role, ending
from queuer.kube.objects import Condition, Job, JobSpec, Meta, Resource, Struct, TemplateMeta, holds
from queuer.kube.operators import USUAL

_PREFIX = "jobset.sigs.k8s.io"
_EXCLUSIVE = f"alpha.{_PREFIX}/exclusive-topology"
_ROLE, _ATTEMPT = f"{_PREFIX}/replicatedjob-name", f"{_PREFIX}/restart-attempt"


class JobTemplate(Struct, frozen=True):
    spec: JobSpec
    metadata: TemplateMeta = TemplateMeta()


class ReplicatedJob(Struct, frozen=True):
    name: str
    template: JobTemplate
    replicas: int = 1
    depends_on: list[dict[str, str]] = msgspec.field(default_factory=list)


class FailureRule(Struct, frozen=True):
    action: str = ""


class FailurePolicy(Struct, frozen=True):
    max_restarts: int = 0
    rules: list[FailureRule] = msgspec.field(default_factory=list)


class JobSetSpec(Struct, frozen=True):
    replicated_jobs: list[ReplicatedJob] = msgspec.field(default_factory=list)
    suspend: bool = False
    managed_by: str | None = None
    failure_policy: FailurePolicy = FailurePolicy()


class RoleStatus(Struct, frozen=True):
    name: str
    active: int = 0


class JobSetStatus(Struct, frozen=True):
    conditions: list[Condition] = msgspec.field(default_factory=list)
    replicated_jobs_status: list[RoleStatus] = msgspec.field(default_factory=list)
    restarts: int = 0
    restarts_count_towards_max: int = 0


class JobSet(Struct, frozen=True):
    """jobset.x-k8s.io/v1alpha2 JobSet. `made`: the Jobs of it that are known, no field of the object."""

    metadata: Meta
    spec: JobSetSpec = JobSetSpec()
    status: JobSetStatus = JobSetStatus()
    made: list[Job] = msgspec.field(default_factory=list)


def _present(jobset: JobSet) -> list[Job]:
    """Its Jobs, without those of an earlier attempt, which are being replaced."""
    attempt = str(jobset.status.restarts)
    return [job for job in jobset.made if job.metadata.labels.get(_ATTEMPT, attempt) == attempt]


def _by_role(jobset: JobSet) -> Iterator[tuple[int, ReplicatedJob, list[Job], int]]:
    """Each role by its place in the list, with its Jobs, and how many of them are still to be made, or made anew."""
    made: dict[str, list[Job]] = {}
    for job in _present(jobset):
        made.setdefault(job.metadata.labels.get(_ROLE, ""), []).append(job)
    for place, each in enumerate(jobset.spec.replicated_jobs):
        there = made.get(each.name, [])
        yield place, each, there, max(0, each.replicas - len(there))


def _roles(jobset: JobSet) -> tuple[Role, ...]:
    return tuple(_role(*role) for role in _by_role(jobset))


def _role(place: int, each: ReplicatedJob, made: list[Job], unmade: int) -> Role:
    spec = each.template.spec
    at = ("spec", "replicatedJobs", str(place))
    whole = max(0, _at_once(spec, spec.completions))
    return Role(
        name=each.name,
        declared=each.replicas * whole,
        most=sum(map(_runs, made)) + unmade * whole,
        template=spec.template,
        count_path=(*at, "replicas"),
        template_path=(*at, "template", "spec", "template"),
        resizable=False,
    )


def _at_once(spec: JobSpec, left: int | None) -> int:
    parallelism = 1 if spec.parallelism is None else spec.parallelism
    return parallelism if left is None else min(parallelism, left)


def _runs(job: Job) -> int:
    """Pods that one of its Jobs still runs at once."""
    return 0 if JOB.outcome(job) is not None else _at_once(job.spec, left_of(job))


def _left(jobset: JobSet) -> int:
    """Jobs that are not known yet owe all of their pods: they may be made, and run, before they are heard of."""
    return sum(sum(map(_owes, made)) + unmade * _all(each) for _, each, made, unmade in _by_role(jobset))


def _all(each: ReplicatedJob) -> int:
    spec = each.template.spec
    return _at_once(spec, None) if spec.completions is None else spec.completions


def _owes(job: Job) -> int:
    if JOB.outcome(job) is not None:
        return 0
    left = left_of(job)
    return _at_once(job.spec, None) if left is None else left


def _repeats(jobset: JobSet) -> bool:
    """Whether its failure policy has a restart left, which makes all of its Jobs anew."""
    policy = jobset.spec.failure_policy
    uncounted = any(rule.action == "RestartJobSetAndIgnoreMaxRestarts" for rule in policy.rules)
    return uncounted or policy.max_restarts > jobset.status.restarts_count_towards_max


def _expected(jobset: JobSet) -> int:
    return sum(each.replicas for each in jobset.spec.replicated_jobs)


def _quiet(jobset: JobSet) -> bool:
    """Its Jobs are quiet, too: only then may the pins of the last start be taken off them."""
    status = jobset.status
    told = holds(status.conditions, "Suspended") and not any(r.active for r in status.replicated_jobs_status)
    jobs = [job for job in _present(jobset) if JOB.outcome(job) is None]
    return jobset.spec.suspend and told and all(JOB.quiet(job) for job in jobs)


def _instead_of(each: ReplicatedJob) -> str:
    """A start in order waits until the Jobs before are ready, never until they are complete."""
    if any(other.get("status") == "Complete" for other in each.depends_on):
        return "do the first step in an init container, or queue it as a job of its own"
    return "leave it out, or write startupPolicy: {startupPolicyOrder: InOrder}"


def _annotations(jobset: JobSet) -> Iterator[Mapping[str, str]]:
    """Annotations that may reach its pods. Its controller takes none off a Job that it has made."""
    yield jobset.metadata.annotations
    for each in jobset.spec.replicated_jobs:
        yield each.template.metadata.annotations or {}
        yield each.template.spec.template.metadata.annotations or {}
    for job in _present(jobset):
        yield job.metadata.annotations


def _refused(jobset: JobSet) -> Iterator[FieldProblem]:
    for place, each in enumerate(jobset.spec.replicated_jobs):
        if each.depends_on:
            yield FieldProblem(
                field=f"spec.replicatedJobs[{place}].dependsOn",
                message="has its Jobs made after the start, when no place can be kept for them",
                hint=_instead_of(each),
            )
        spec = each.template.spec
        if spec.managed_by not in (None, JOB.manager):
            yield FieldProblem(
                field=f"spec.replicatedJobs[{place}].template.spec.managedBy",
                message="names a controller that would not start its Jobs",
                hint="leave it out",
            )
        if spec.parallelism is not None and spec.completions is None and spec.completion_mode != "NonIndexed":
            yield FieldProblem(
                field=f"spec.replicatedJobs[{place}].template.spec.completions",
                message="is missing: its Jobs are Indexed, and the API server refuses them",
                hint=f"write {spec.parallelism}, or completionMode: NonIndexed",
            )
    if any(_EXCLUSIVE in notes for notes in _annotations(jobset)):
        yield FieldProblem(
            field=f"metadata.annotations[{_EXCLUSIVE}]",
            message="places the Jobs by rules of its own, and stays on those that are made",
            hint="leave it out; queuer.dev/topology-required keeps all its Jobs in one domain",
        )


JOBSET = JobKind(
    name="JobSet",
    api_version="jobset.x-k8s.io/v1alpha2",
    resource=Resource(group="jobset.x-k8s.io", version="v1alpha2", plural="jobsets"),
    type=JobSet,
    operators=USUAL["jobset"],
    manager="jobset.sigs.k8s.io/jobset-controller",
    quiet=_quiet,
    outcome=lambda jobset: ending(jobset.status.conditions, "Completed"),
    left=_left,
    restarts=lambda jobset: all(JOB.restarts(job) for job in _present(jobset)),
    repeats=_repeats,
    roles=_roles,
    deadline_path=(),
    pods=lambda uid, name: f"{_PREFIX}/jobset-uid={uid}",
    pod_labels=tuple(
        f"{_PREFIX}/{label}"
        for label in (
            "jobset-name",
            "jobset-uid",
            "replicatedjob-name",
            "restart-attempt",
            "job-index",
            "job-key",
        )
    ),
    pod_label=_ROLE,
    refused=_refused,
    listed=True,
    made=Made(mark=f"{_PREFIX}/jobset-uid", role=_ROLE, expected=_expected),
    example={
        "replicatedJobs": [
            {"name": name, "template": {"spec": {"template": {"spec": {"containers": []}}}}}
            for name in ("driver", "workers")
        ]
    },
)
