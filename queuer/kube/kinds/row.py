"""A kind of job: one row of facts about its object and its controller.

Everything else about jobs (`workloads.py`, `patches.py`, the policies) is written against these rows. A family of kinds
has a file of its own here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec

from queuer.domain.errors import FieldProblem
from queuer.domain.workload import State
from queuer.kube.objects import Condition, Job, Meta, PodTemplate, Resource, holds


class JobObject(Protocol):
    """A decoded job of any kind."""

    @property
    def metadata(self) -> Meta: ...


def field_of(path: Iterable[str]) -> str:
    """A field as kubectl and the API server write it: a place in a list in brackets, `spec.replicatedJobs[0].name`."""
    return "".join(f"[{part}]" if part.isdecimal() else f".{part}" for part in path).removeprefix(".")


def wrong(field: str, message: str, hint: str, *, legal: str | None = None) -> FieldProblem:
    """The fault of a field of a job, and the fix; see `FieldProblem`."""
    return FieldProblem(field=field, message=message, hint=hint, legal=legal)


def ending(conditions: list[Condition], succeeded: str) -> State | None:
    """How a job has ended by its conditions: by the one of this name, or by `Failed`."""
    if holds(conditions, succeeded):
        return State.SUCCEEDED
    return State.FAILED if holds(conditions, "Failed") else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Role:
    """One pod set as the object has it.

    `declared`: pods that run at once, from the field at `count_path`; None = not said, which means one. `most`: the
    most pods that are left to run, None = no bound. `template_path`: from the object to the pod template; a number is a
    place in a list. `resizable`: whether its controller lets an admission lower `declared`. `late`: its pods are made
    only once all others are ready. `absent`: where the object has no such template, that which its controller would
    make, for an admission to write. `labels`: what an admission writes on its pods, so that they tell their pod set.
    """

    name: str
    declared: int | None
    template: PodTemplate
    count_path: tuple[str, ...]
    template_path: tuple[str, ...]
    most: int | None = None
    resizable: bool = True
    late: bool = False
    absent: Mapping[str, Any] | None = None
    labels: Mapping[str, str] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """Pods that it is declared to run at once."""
        return 1 if self.declared is None else self.declared

    @property
    def count(self) -> int:
        """Pods that will run at once."""
        return self.size if self.most is None else min(self.size, self.most)


@dataclass(frozen=True, slots=True, kw_only=True)
class Carrier:
    """The one object that a kind's controller makes of a job, under its name, and in which the pod templates are.

    The decoded job has it in its field `carrier`, None while it is not known. `kind`: of that object. Its parts
    are written on the job, at `path`. `entries` gives the value from the parts of templates by pod set (none = without
    ours), an id that no earlier start had, and seconds since the epoch.
    """

    kind: JobKind
    path: tuple[str, ...]
    entries: Callable[[Any, Mapping[str, Any], str, float], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """The Jobs that a kind's controller makes: they own the pods, and take the pins that the parent cannot.

    The decoded parent has those that are known in its field `made`. While it is suspended its controller has made all
    that `expected` counts. `mark`: label with the parent's uid, or `by_name` with its name; `role`: label that names
    the pod set. `only`: the one pod set of whose pods this is true, where all others are made by the job itself and
    pinned in its templates. `carrier`: the object between the job and its Jobs, whose uid the mark has then.
    """

    mark: str
    expected: Callable[[Any], int]
    role: str = ""
    by_name: bool = False
    only: str | None = None
    carrier: Carrier | None = None

    @property
    def certain(self) -> bool:
        """Whether the mark, which pods have too, has the uid of the job itself."""
        return not self.by_name and self.carrier is None

    def selector(self, holder: Meta) -> str:
        """Label selector of the Jobs of an object; others may have the label as well."""
        return f"{self.mark}={holder.name if self.by_name else holder.uid}"

    def pod_set(self, job: Meta) -> str:
        """The pod set that the pods of one of the Jobs are."""
        return self.only or job.labels.get(self.role, "")

    def owns(self, pod_set: str) -> bool:
        """Whether Jobs make the pods of a pod set, and take their pins to hosts."""
        return self.only in (None, pod_set)

    def holder(self, job: Any) -> Any:
        """The object that controls the Jobs, None while it is not known."""
        return job if self.carrier is None else job.carrier

    def given(self, job: Any, *, jobs: Iterable[Job], carrier: Any = None) -> Any:
        """The decoded job with what is known of it."""
        if self.carrier is None:
            return msgspec.structs.replace(job, made=list(jobs))
        known = None if carrier is None else msgspec.structs.replace(carrier, made=list(jobs))
        return msgspec.structs.replace(job, carrier=known)


def nothing_refused(job: object) -> Iterable[FieldProblem]:
    """For a kind that has no field of its own to refuse."""
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class JobKind:
    """One row. The functions take the decoded object.

    `operators`: user names under which its controller is installed; `manager`: what `managedBy` calls it; `managed_by`:
    whom a job names there. `quiet`: the
    job's controller confirms that it is suspended without an active pod. One PATCH may then change its template and
    start it. `fixed`: below Kubernetes 1.36.2 it may not, until the status has no startTime. `outcome`: Succeeded,
    Failed or None. `left`: pods that it still owes, where their number falls as they succeed. `restarts`: whether it
    runs on from where it was once it is suspended and started again: a Job without completions is Complete instead,
    once a pod has succeeded. `repeats`: whether a failure would have its controller run all of it again, pods that have
    succeeded included. `lingers`: whether its controller leaves running pods alone after its end, as its owner
    wrote; `clean`: the field and the value that change that. `pods`: label selector by which its controller knows the
    pods of a job, from uid and name. `pod_labels`: all labels by which it does. `pod_label`: the one that tells the pod
    set, None = one set. `refused`: fields of this kind with which it cannot be queued. `made`: of a kind that makes
    Jobs. `listed`: of one that has its templates in a list, which only operations of a JSON Patch reach, or in another
    object. `children`: kinds of other objects that its controller makes, which are never jobs of their own. Their pods
    have the labels that it was given for them. `finalizers`: those that its controller puts on a job and takes off by
    itself. `gates`: of a kind that is held by gates on its pods instead of a suspend path: how many pods still have
    one. `sized`: whether the counts of its roles say what it is to run, not just what is there. `comes_back`: whether
    its pods are made anew once it is evicted. `roles_key`: the field of the spec that holds the roles by name, where
    one does. `refusals`: prefixes of the reasons of its controller's Events about a pod that could not be created, or
    about what is made before it. `example`: the spec of a small job, or of what carries it, for the reference.
    """

    name: str
    api_version: str
    resource: Resource
    type: type[Any]
    operators: tuple[str, ...]
    manager: str
    quiet: Callable[[Any], bool]
    outcome: Callable[[Any], State | None]
    roles: Callable[[Any], tuple[Role, ...]]
    pods: Callable[[str, str], str]
    pod_labels: tuple[str, ...]
    example: dict[str, Any]
    suspend_path: tuple[str, ...] = ("spec", "suspend")
    suspended: Callable[[Any], bool] = lambda job: bool(job.spec.suspend)
    fixed: Callable[[Any], bool] = lambda job: False
    left: Callable[[Any], int | None] = lambda job: None
    restarts: Callable[[Any], bool] = lambda job: True
    lingers: Callable[[Any], bool] = lambda job: False
    deadline: Callable[[Any], int | None] = lambda job: None
    deadline_path: tuple[str, ...] = ("spec", "activeDeadlineSeconds")
    managed_by: Callable[[Any], str | None] = lambda job: job.spec.managed_by
    refused: Callable[[Any], Iterable[FieldProblem]] = nothing_refused
    made: Made | None = None
    listed: bool = False
    children: tuple[str, ...] = ()
    finalizers: tuple[str, ...] = ()
    gates: Callable[[Any], int] | None = None
    sized: Callable[[Any], bool] = lambda job: True
    comes_back: Callable[[Any], bool] = lambda job: True
    repeats: Callable[[Any], bool] = lambda job: False
    roles_key: str | None = None
    pod_label: str | None = None
    refusals: tuple[str, ...] = ("FailedCreate",)
    clean: tuple[tuple[str, ...], str | int] | None = None

    @property
    def shrinks(self) -> bool:
        """Whether an admission can lower the counts of its roles."""
        return not self.listed and self.gates is None

    @property
    def makes_jobs(self) -> bool:
        """Whether Jobs that its controller makes own pods of it: the Job controller makes them anew."""
        return self.made is not None or "Job" in self.children
