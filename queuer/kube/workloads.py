"""From a job object to the workload that it asks for: pod sets with effective requests, levels, priority, bounds.

Everything that a user can write wrongly is reported at once, as InvalidInput with the label, annotation or field, and
the fix.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

import msgspec

from queuer.domain.errors import FieldProblem, InvalidInput
from queuer.domain.fields import Problems, parse_duration
from queuer.domain.keys import (
    GROUPS,
    HOLD,
    MAX_RUNTIME,
    MIN_COUNT,
    PREEMPTIBLE,
    PREFIX,
    PRIORITY_CLASS,
    QUEUE,
    TOPOLOGY_PREFERRED,
    TOPOLOGY_REQUIRED,
    USER,
    Where,
    annotation_names,
)
from queuer.domain.quantity import NOTHING, Resources
from queuer.domain.queue import SYSTEM_CLASSES, check_path
from queuer.domain.workload import PodSet, Workload, demand_of
from queuer.kube.kinds.row import JobKind, JobObject, Role, field_of, wrong
from queuer.kube.objects import Amounts, LimitRange, Meta, PodSpec
from queuer.kube.patches import Own, own_roles
from queuer.kube.requests import effective_limits, effective_requests, unstated
from queuer.kube.scheduling import keeps_apart, scheduling_terms
from queuer.kube.template_checks import check_amounts, parts, too_many, wrong_parts

_OWNERS = annotation_names(Where.OWNER)
_OTHERS = annotation_names(Where.QUEUER, Where.ADMINISTRATOR)
DEFAULT_SCHEDULERS = frozenset({"default-scheduler"})
DEFAULT_CLASS = "queuer-default"
"""The class that policy writes into templates without one (full/policies/queue.yaml): never their owner's word."""
LONGEST_TEXT = 512
"""Characters of a text of a job. Names and label keys of Kubernetes end at 317; PostgreSQL cannot index 2,704 bytes."""
MOST_POD_SETS = 16
_DIGITS = re.compile(r"[0-9]{1,10}")
_MOST = 2**60
"""Of one resource for a job, in base units: an exbibyte. Sums over gangs must stay within 64 bits."""
_LONGEST_RUN = 10 * 365 * 86400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class NamespaceFacts:
    """The objects beside a job that bear on its meaning.

    `limit_ranges`: of its namespace; `overheads`: by RuntimeClass; `priorities`: by PriorityClass; `default_priority`:
    of the global default class; `schedulers`: those that place pods here.
    """

    limit_ranges: tuple[LimitRange, ...] = ()
    overheads: Mapping[str, Amounts] = field(default_factory=dict)
    priorities: Mapping[str, int] = field(default_factory=dict)
    default_priority: int = 0
    schedulers: frozenset[str] = DEFAULT_SCHEDULERS

    @property
    def values(self) -> dict[str, int]:
        """The value of each PriorityClass; under `""` that of jobs that name none."""
        return {**self.priorities, "": self.default_priority}


def created_at(meta: Meta) -> float:
    """Creation time in seconds since the epoch."""
    return datetime.fromisoformat(meta.creation_timestamp).timestamp() if meta.creation_timestamp else 0.0


def groups_of(meta: Meta) -> tuple[str, ...]:
    """The groups of the user who queued a job, as policy stamped them on it: a line each, as names hold commas."""
    return tuple(filter(None, meta.annotations.get(GROUPS, "").split("\n")))


def bare_workload(kind: JobKind, job: JobObject) -> Workload:
    """The identity of a job that cannot be read: for lists and explanations, never for a decision."""
    meta = job.metadata
    return Workload(
        uid=meta.uid,
        kind=kind.name,
        namespace=meta.namespace,
        name=meta.name,
        queue=meta.labels.get(QUEUE, ""),
        pod_sets=(),
        submitted=created_at(meta),
        user=meta.annotations.get(USER, "")[:LONGEST_TEXT],
        hold=meta.annotations.get(HOLD) == "true",
    )


def workload_of(kind: JobKind, job: JobObject, *, facts: NamespaceFacts) -> Workload:
    """The workload of a job object. Raises InvalidInput with every problem found."""
    workload, problems = read_workload(kind, job, facts=facts)
    if problems:
        raise InvalidInput(*problems)
    return workload


def read_workload(
    kind: JobKind, job: JobObject, *, facts: NamespaceFacts
) -> tuple[Workload, tuple[FieldProblem, ...]]:
    """As much of the workload of a job object as can be read, and every problem found.

    A workload with a problem is never to be decided on. Pods that are too large are read no further.
    """
    meta, problems = job.metadata, Problems()
    notes = {key: text for key, text in meta.annotations.items() if len(text) <= LONGEST_TEXT}
    problems.found += _too_long(meta.annotations)
    if too_large := tuple(_too_large(kind.roles(job))):
        return bare_workload(kind, job), (*problems.found, *too_large)
    roles = own_roles(kind, job)
    problems.attempt(lambda: _check_names(meta, roles))
    problems.found += (refused := (*_foreign_manager(kind, job), *kind.refused(job)))
    if not refused:  # a kind that refuses a name has said so with its field
        problems.attempt(lambda: _check_apart(roles))
    pod_sets = tuple(_pod_set(own, notes, facts=facts, problems=problems) for own in roles)
    if not problems.found:
        problems.attempt(lambda: _check_sums(pod_sets))
    problems.attempt(lambda: check_path(meta.labels.get(QUEUE, ""), field=f"label {QUEUE}"))
    deadline = problems.attempt(lambda: _deadline(kind, job))
    limit = problems.attempt(lambda: _runtime(notes)) or deadline
    workload = replace(
        bare_workload(kind, job),
        pod_sets=tuple(p for p in pod_sets if p.count),
        priority=problems.attempt(lambda: _priority(meta, roles, facts), 0),
        preemptible=problems.attempt(lambda: _flag(notes, PREEMPTIBLE, unsaid=True), True),
        required=problems.attempt(lambda: _level(notes, TOPOLOGY_REQUIRED)),
        preferred=problems.attempt(lambda: _level(notes, TOPOLOGY_PREFERRED)),
        max_runtime=limit,
        hold=problems.attempt(lambda: _flag(notes, HOLD, unsaid=False), False),
    )
    return workload, tuple(problems.found)


def priority_classes(kind: JobKind, job: JobObject) -> frozenset[str]:
    """Names of the PriorityClasses that may order the job; none = the cluster's default does."""
    return _priority_classes(job.metadata, kind.roles(job))


def runtime_classes(kind: JobKind, job: JobObject) -> frozenset[str]:
    """Names of the RuntimeClasses whose overhead its pods have."""
    return frozenset(name for role in kind.roles(job) if (name := role.template.spec.runtime_class_name))


def _pod_set(own: Own, notes: Mapping[str, str], *, facts: NamespaceFacts, problems: Problems) -> PodSet:
    role, where = own.role, field_of(own.role.template_path)
    spec, field = role.template.spec, f"{where}.spec"
    problems.found += wrong_parts(role, schedulers=facts.schedulers, field=field)
    requests, limits = problems.attempt(lambda: _amounts(spec, facts, field), (NOTHING, NOTHING))
    asked = {r: amount * role.count for r, amount in requests.items()}
    problems.attempt(lambda: _check_amounts(asked, role.count, field))
    return PodSet(
        name=role.name,
        count=role.count,
        min_count=problems.attempt(lambda: _min_count(role, notes)),
        requests=requests,
        terms=scheduling_terms(own.scheduling),
        limits=limits,
        unstated=unstated(spec, limit_ranges=facts.limit_ranges),
        exclusive_host=keeps_apart(role.template, own.scheduling.get("affinity", {})),
    )


def _amounts(spec: PodSpec, facts: NamespaceFacts, field: str) -> tuple[Resources, Resources]:
    """Effective requests and limits of a pod that the API server would make."""
    ranges, overheads = facts.limit_ranges, facts.overheads
    check_amounts(spec, limit_ranges=ranges, field=field)
    requests = effective_requests(spec, limit_ranges=ranges, overheads=overheads, field=field)
    return requests, effective_limits(spec, limit_ranges=ranges, overheads=overheads, field=field)


def _foreign_manager(kind: JobKind, job: JobObject) -> Iterator[FieldProblem]:
    """A policy refuses it, but not on a job from before its namespace opted in."""
    if kind.gates is None and (named := kind.managed_by(job)) not in (None, "", kind.manager):
        yield wrong(
            field_of((*kind.suspend_path[:-1], "managedBy")),
            f"{named!r} would not start it here",
            "leave it out",
        )


def _too_long(notes: Mapping[str, str]) -> Iterator[FieldProblem]:
    """Annotations that are read, with more text than is kept."""
    for key, text in notes.items():
        if len(text) > LONGEST_TEXT and (key in _OWNERS or key == USER or key.startswith(MIN_COUNT)):
            yield _text_of(len(text), f"annotation {key}")


def _too_large(roles: Sequence[Role]) -> Iterator[FieldProblem]:
    """Texts of pod specs that are longer than is kept, and more parts than are looked through."""
    if len(roles) > MOST_POD_SETS:
        yield wrong("spec", f"has {len(roles)} kinds of pods", f"write {MOST_POD_SETS} at most")
    for role in roles[:MOST_POD_SETS]:
        at = f"{field_of(role.template_path)[:LONGEST_TEXT]}.spec"
        yield from too_many(role.template.spec, field=at)
        texts = [role.name, *parts(msgspec.to_builtins(role.template.spec))]
        longest = max(len(text) for text in texts if isinstance(text, str))
        if longest > LONGEST_TEXT:
            yield _text_of(longest, at)


def _text_of(length: int, field: str) -> FieldProblem:
    return wrong(field, f"a text of {length} characters is longer than {LONGEST_TEXT}", "shorten it")


def _check_amounts(amounts: Resources, pods: int, field: str) -> None:
    for resource, amount in amounts.items():
        if amount > _MOST:
            problem = f"{pods} pods ask for more than 2^60 {resource} together"
            raise InvalidInput(wrong(field, problem, "ask for less"))


def _check_sums(pod_sets: tuple[PodSet, ...]) -> None:
    """Refuse what asks for nothing, or for too much, in all pod sets together."""
    pods = sum(p.count for p in pod_sets)
    if not pods:
        raise InvalidInput(wrong("spec", "the job asks for no pod", "raise parallelism or replicas above 0"))
    _check_amounts(demand_of(pod_sets, {p.name: p.count for p in pod_sets}), pods, "spec")


def _check_apart(roles: tuple[Own, ...]) -> None:
    """Refuse roles whose names differ in case alone: the label on their pods, in lower case, is the same."""
    known: dict[str, Own] = {}
    for own in roles:
        first = known.setdefault(own.role.name, own)
        if first is not own:
            one, other = (field_of(o.role.count_path[:-1]) for o in (first, own))
            raise InvalidInput(wrong(other, f"is the same pod set as {one}", "keep one of them"))


def _check_names(meta: Meta, roles: tuple[Own, ...]) -> None:
    """Refuse annotations under our prefix that mean nothing: a typo must not silently drop a requirement."""
    plain = (key for key in _OWNERS if key != MIN_COUNT)
    known = [*plain, *(f"{MIN_COUNT}{own.role.name}" for own in roles)]
    wrong = [k for k in meta.annotations if k.startswith(PREFIX) and k not in known and k not in _OTHERS]
    if wrong:
        raise InvalidInput(*(_misnamed(key, meta.annotations, known) for key in wrong))


def _misnamed(key: str, notes: Mapping[str, str], known: Sequence[str]) -> FieldProblem:
    """The fault of a key that there is not. The wish goes to the key that was meant, unless that has a value."""
    near = next(iter(difflib.get_close_matches(key, known, n=1, cutoff=0.8)), None)
    value = notes[key]
    return FieldProblem(
        field=f"annotation {key}",
        message="no such annotation",
        hint=f"did you mean {near}?" if near else f"known: {', '.join(known)}",
        legal="",
        instead=(f"annotation {near}", value)
        if near and near not in notes and 0 < len(value) <= LONGEST_TEXT
        else None,
    )


def _priority(meta: Meta, roles: tuple[Own, ...], facts: NamespaceFacts) -> int:
    named = _priority_classes(meta, (own.role for own in roles))
    where = f"label {PRIORITY_CLASS}" if PRIORITY_CLASS in meta.labels else "priorityClassName"
    values = [_class_value(name, facts, where=where) for name in sorted(named)]
    return max(values, default=facts.default_priority)


def _class_value(named: str, facts: NamespaceFacts, *, where: str) -> int:
    if named.startswith(SYSTEM_CLASSES):
        message, hint = f"{named} is for the cluster's own pods", "name another PriorityClass, or none"
        raise InvalidInput(wrong(where, message, hint, legal=""))
    if named not in facts.priorities:
        near = difflib.get_close_matches(named, facts.priorities, n=1)
        hint = (
            f"did you mean {near[0]}?" if near else f"known: {', '.join(sorted(facts.priorities)) or 'none'}"
        )
        raise InvalidInput(
            wrong(where, f"there is no PriorityClass {named!r}", hint, legal=near[0] if near else "")
        )
    return facts.priorities[named]


def _priority_classes(meta: Meta, roles: Iterable[Role]) -> frozenset[str]:
    """The class that the label names, else all that the owner wrote into templates: the highest orders the job."""
    if PRIORITY_CLASS in meta.labels:
        return frozenset({meta.labels[PRIORITY_CLASS]})
    return frozenset(role.template.spec.priority_class_name for role in roles) - {"", DEFAULT_CLASS}


def _runtime(notes: Mapping[str, str]) -> float | None:
    text = notes.get(MAX_RUNTIME)
    if text is None:
        return None
    field = f"annotation {MAX_RUNTIME}"
    try:
        seconds = float(text) if _number(text) is not None else parse_duration(text, field=field)
    except InvalidInput as error:
        raise InvalidInput(*(replace(problem, legal="") for problem in error.problems)) from None
    if not 0 < seconds <= _LONGEST_RUN:
        what = "not above 0" if seconds <= 0 else "over 10 years"
        raise InvalidInput(wrong(field, f"{text[:40]!r} is {what}", 'write e.g. "90m"', legal=""))
    return seconds


def _deadline(kind: JobKind, job: JobObject) -> float | None:
    """Seconds for which Kubernetes lets the job run, at most the longest run."""
    seconds = kind.deadline(job)
    if seconds is not None and seconds <= 0:
        problem = f"{seconds} ends the job as soon as it starts"
        raise InvalidInput(wrong(field_of(kind.deadline_path), problem, "raise it above 0, or remove it"))
    return None if seconds is None else min(float(seconds), _LONGEST_RUN)


def _flag(notes: Mapping[str, str], key: str, *, unsaid: bool) -> bool:
    text = notes.get(key)
    if text in (None, "true", "false"):
        return unsaid if text is None else text == "true"
    raise InvalidInput(
        wrong(f"annotation {key}", f"{text[:40]!r} is neither true nor false", 'write "true"', legal="true")
    )


def _level(notes: Mapping[str, str], key: str) -> str | None:
    text = notes.get(key)
    if text is not None and not text.strip():
        raise InvalidInput(wrong(f"annotation {key}", "is empty", 'name a level, e.g. "rack"', legal=""))
    return text


def _min_count(role: Role, notes: Mapping[str, str]) -> int | None:
    """It speaks of the declared size: where fewer completions are left, what is left is enough."""
    text = notes.get(f"{MIN_COUNT}{role.name}")
    if text is None:
        return None
    field, declared = f"annotation {MIN_COUNT}{role.name}", max(0, role.size)
    if not role.resizable:
        problem, hint = "its controller runs all of these pods or none", "remove it"
        raise InvalidInput(wrong(field, problem, hint, legal=""))
    if not 1 <= (_number(text) or 0) <= declared:
        problem = f"{text[:40]!r} is not a number of pods the job could shrink to"
        hint = f"write 1 to {declared}" if declared else "remove it: there are none"
        raise InvalidInput(wrong(field, problem, hint, legal=str(declared) if declared else ""))
    return min(int(text), role.count)


def _number(text: str) -> int | None:
    """A whole number in plain digits. An annotation may hold anything, a quarter of a megabyte of it."""
    return int(text) if _DIGITS.fullmatch(text) else None
