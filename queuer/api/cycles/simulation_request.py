"""The body of a simulation: a job's manifest, or a shape with a queue; perhaps a QueueTree document beside it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from queuer.domain.document import TreeDocument, parse
from queuer.domain.errors import InvalidInput
from queuer.domain.fields import Problems, Reader, nearest
from queuer.domain.keys import QUEUE
from queuer.domain.queue import check_path
from queuer.domain.shape_text import parse_shape
from queuer.domain.workload import Workload
from queuer.kube.kinds import BY_NAME
from queuer.kube.workloads import NamespaceFacts, priority_classes, runtime_classes, workload_of
from queuer.solver.whatif import UID

_HIGHEST = 1_000_000_000
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
    priority, preemptible = body.whole("priority", least=-_HIGHEST), body.flag("preemptible")
    if priority is not None and priority > _HIGHEST:
        problems.note("priority", f"is above {_HIGHEST}, the highest that a PriorityClass may have")
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
    problems.settle()
    classes, labels, assumed = frozenset[str](), dict[str, str](), tuple[str, ...]()
    if body.said("job"):
        workload, classes, labels, assumed = _job(body.values["job"], queue=queue, namespace=namespace)
    else:
        shape = parse_shape(str(body.values["shape"]), resources=resources)
        assert queue is not None
        assert namespace is not None
        check_path(queue, field="queue")
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
    kind = BY_NAME.get(str(manifest.get("kind"))) if isinstance(manifest, Mapping) else None
    if kind is None:
        found = str(manifest.get("kind", "")) if isinstance(manifest, Mapping) else ""
        raise InvalidInput.at("job.kind", f"{found[:40]!r} is not managed", nearest(found[:40], BY_NAME))
    try:
        job = msgspec.convert(manifest, kind.type)
    except msgspec.ValidationError as error:
        raise InvalidInput.at("job", str(error)) from error
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
    assumed = tuple(text.format(name[:60]) for name in sorted(runtime_classes(kind, job)))
    return workload_of(kind, job, facts=facts), classes, labels, assumed
