"""The body of a simulation: a job's manifest, or a shape with a queue; perhaps a QueueTree document beside it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from queuer.api.http.pointers import pointer
from queuer.domain.document import TreeDocument, parse
from queuer.domain.errors import FieldProblem, InvalidInput, located
from queuer.domain.fields import Problems, Reader, nearest
from queuer.domain.keys import QUEUE
from queuer.domain.queue import HIGHEST_PRIORITY, check_path
from queuer.domain.shape_text import parse_shape
from queuer.domain.workload import Workload
from queuer.kube.kinds import BY_NAME, JobKind, PodGroup, group_like
from queuer.kube.objects import Pod
from queuer.kube.workloads import NamespaceFacts, priority_classes, runtime_classes, workload_of
from queuer.solver.whatif import UID

_INSIDE = {
    "CronJob": "give the Job in its spec.jobTemplate",
    "Deployment": "give a Pod with its spec.template",
    "StatefulSet": "give a Pod with its spec.template",
}
"""The part that is queued of kinds that are not."""
FIELDS = (
    "job", "shape", "queue", "namespace", "user", "groups", "priority", "preemptible", "required", "preferred",
    "maxRuntime", "queueTree",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationRequest:
    """`tree`: rules under which it is asked; None = those in force. `user`, `groups`: whose it is; None = the caller's.
    `priority_classes`: see `SimulateJob`. `labels`: of the job. `assumed`: what is not known here, as sentences.
    """

    workload: Workload
    tree: TreeDocument | None
    user: str | None
    groups: tuple[str, ...]
    priority_classes: frozenset[str] | None
    labels: Mapping[str, str]
    assumed: tuple[str, ...] = ()


def asked_of(document: Any, *, resources: Collection[str]) -> SimulationRequest:
    """The question of a body. `resources`: those of the cluster. Raises InvalidInput with the fields.

    LimitRanges and the overhead of RuntimeClasses are not known here.
    """
    problems = Problems()
    body = Reader(document, at="", known=FIELDS, problems=problems)
    if body.readable and body.said("job") == body.said("shape"):
        hint = "send the manifest of a job, or shape: 8xgpu:8 with queue and namespace"
        problems.note("job", "either a job or a shape is needed", hint)
    priority, preemptible = body.whole("priority", least=-HIGHEST_PRIORITY), body.flag("preemptible")
    if priority is not None and priority > HIGHEST_PRIORITY:
        problems.note("priority", f"is above {HIGHEST_PRIORITY}, the highest that a PriorityClass may have")
    queue, namespace = body.text("queue"), body.text("namespace")
    user, groups = body.text("user"), body.texts("groups")
    if groups and user is None:
        problems.note("groups", "whose they are is not said", "give user, too")
    levels = {key: body.text(key) for key in ("required", "preferred")}
    runtime = body.duration("maxRuntime")
    tree = problems.attempt(lambda: _tree(body.values["queueTree"])) if body.said("queueTree") else None
    if body.said("shape"):
        body.need("queue")
        body.need("namespace")
    if queue is not None:
        problems.attempt(lambda: check_path(queue, field="queue"))
    problems.settle()
    classes, labels, assumed = frozenset[str](), dict[str, str](), tuple[str, ...]()
    if body.said("job"):
        workload, classes, labels, assumed = _job(body.values["job"], queue=queue, namespace=namespace)
    else:
        shape = parse_shape(str(body.values["shape"]), resources=resources)
        assert queue is not None
        assert namespace is not None
        workload = Workload(
            uid=UID, kind="Job", namespace=namespace, name=UID, queue=queue, pod_sets=(shape,), submitted=0.0,
        )  # fmt: skip
    told: dict[str, Any] = {key: level for key, level in levels.items() if level is not None}
    told |= {} if preemptible is None else {"preemptible": preemptible}
    told |= {} if priority is None else {"priority": priority}
    told |= {} if runtime is None else {"max_runtime": runtime}
    if workload.hold:
        assumed = (*assumed, "it is held: this is what it finds when it is released")
    workload = replace(workload, **told, uid=UID, hold=False)
    return SimulationRequest(
        workload=replace(workload, estimate=workload.max_runtime),
        tree=tree,
        user=user,
        groups=groups,
        priority_classes=classes if priority is None else None,
        labels=labels,
        assumed=assumed,
    )


def _tree(document: Any) -> TreeDocument:
    """The rules under which it is asked; problems are told by their place in the whole body."""
    try:
        return parse(document)
    except InvalidInput as error:
        raise InvalidInput(*(replace(p, field=f"queueTree.{p.field}") for p in error.problems)) from error


def _job(
    manifest: Any, *, queue: str | None, namespace: str | None
) -> tuple[Workload, frozenset[str], dict[str, str], tuple[str, ...]]:
    """The workload, the PriorityClasses that may order it, its labels, and what is assumed."""
    kind, job = _decoded(manifest)
    meta = job.metadata
    labels = meta.labels if queue is None else {**meta.labels, QUEUE: queue}
    if QUEUE not in labels:
        hint = "give queue beside the job, or the job this label"
        raise InvalidInput.at("queue", f"the job has no label {QUEUE}", hint)
    job = msgspec.structs.replace(
        job,
        metadata=msgspec.structs.replace(
            meta, labels=labels, namespace=namespace or meta.namespace or "default"
        ),
    )
    classes = priority_classes(kind, job)
    facts = NamespaceFacts(priorities=dict.fromkeys(classes, 0))  # values are found where the cycle is known
    text = "RuntimeClass {} is taken to have no overhead"
    assumed = [text.format(name[:60]) for name in sorted(runtime_classes(kind, job))]
    if isinstance(job, PodGroup) and len(job.pods) > 1:
        assumed.append(f"all {len(job.pods)} pods of the group are taken to be like this one")
    with in_job():
        workload = workload_of(kind, job, facts=facts)
    return workload, classes, labels, tuple(assumed)


def _decoded(manifest: Any) -> tuple[JobKind, Any]:
    """The kind of a manifest, and its object. Raises InvalidInput where the manifest alone says nothing of its pods."""
    name = str(manifest.get("kind", ""))[:40] if isinstance(manifest, Mapping) else ""
    kind = BY_NAME.get(name)
    if kind is None:
        hint = _INSIDE.get(name) or nearest(name, BY_NAME)
        raise InvalidInput.at("job.kind", f"{name!r} is not managed", hint)
    if kind.made is not None and kind.made.carrier is not None:
        hint = "ask for a shape: queuer sim shape 8xgpu:8 -q QUEUE -n NAMESPACE"
        raise InvalidInput.at(
            "job.kind", f"the pods of a {name} are in its runtime, not in its manifest", hint
        )
    try:
        found = msgspec.convert(manifest, kind.type if kind.gates is None else Pod)
    except msgspec.ValidationError as error:
        at, message = located(error)
        raise InvalidInput.at(f"job{at}", message) from error
    return kind, group_like(found) if isinstance(found, Pod) else found


@contextmanager
def in_job() -> Iterator[None]:
    """Faults of a job, which name its parts as its owner knows them, are told by their place in the whole body."""
    try:
        yield
    except InvalidInput as error:
        raise InvalidInput(*map(_in_body, error.problems)) from error


def _in_body(problem: FieldProblem) -> FieldProblem:
    what, _, key = problem.field.partition(" ")
    if what in ("label", "annotation"):
        steps = ["job", "metadata", f"{what}s", key]
        return replace(problem, field=".".join(steps), pointer=pointer(steps))
    _, spec, rest = f".{problem.field}".partition(".spec")  # that of a pod has its name before
    return replace(problem, field=f"job{spec}{rest}")
