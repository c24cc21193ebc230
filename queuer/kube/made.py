"""Pins of a kind whose controller makes Jobs: where a merge patch does not reach, and what the Jobs take.

Its pod templates lie in a list, so they change by the operations of a JSON Patch. Hosts cannot be pinned there at all:
each Job takes them before its parent is started. A crash in between leaves a suspended gang, and the same again is no
change.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from queuer.domain.keys import WORKLOAD
from queuer.kube.kinds import JOB, JobObject, Made, Role
from queuer.kube.objects import Job
from queuer.kube.template import Spec, merge_diff, scheduling_of

OPERATIONS, PINS = "operations", "jobs"
"""Keys of a patch of such a kind, beside `metadata`: operations on the parent, and by pod set the scheduling part that
its Jobs are to have."""
Operation = Mapping[str, Any]


def operation(path: Sequence[str], value: Any, *, op: str = "add") -> Operation:
    """One operation of a JSON Patch (RFC 6902); the parent of what it adds must be there."""
    pointer = "".join(f"/{key.replace('~', '~0').replace('/', '~1')}" for key in path)
    return {"op": op, "path": pointer} if op == "remove" else {"op": op, "path": pointer, "value": value}


def on_template(role: Role, wanted: Spec, *, label: str | None) -> Iterator[Operation]:
    """Operations that give a template the scheduling part `wanted`, and its pods their labels, with that of who pays.

    A template that is not there is written whole.
    """
    if role.absent is not None:
        if label is not None:
            metadata = {"labels": {**role.labels, WORKLOAD: label}}
            yield operation(
                role.template_path, {"metadata": metadata, "spec": {**role.absent["spec"], **wanted}}
            )
        return
    current, meta = scheduling_of(role.template.spec), role.template.metadata
    for key in {**current, **wanted}:
        if key not in wanted:
            yield operation((*role.template_path, "spec", key), None, op="remove")
        elif current.get(key) != wanted[key]:
            yield operation((*role.template_path, "spec", key), wanted[key])
    labels = {**(meta.labels or {}), **role.labels, WORKLOAD: label}
    if label is not None and labels != meta.labels:
        if meta.labels is None and meta.annotations is None:
            yield operation((*role.template_path, "metadata"), {"labels": labels})
        else:
            yield operation((*role.template_path, "metadata", "labels"), labels)


def on_entry(
    made: Made,
    job: JobObject,
    wanted: Mapping[str, tuple[Spec, Spec]],
    *,
    label: str | None,
    id: str,
    at: float,
) -> Iterator[Operation]:
    """The operation that gives templates in another object their scheduling parts: by pod set the owner's own and the
    `wanted` one. Only what differs is written.
    """
    assert made.carrier is not None
    parts: dict[str, Any] = {}
    for name, (own, pinned) in wanted.items():
        selector = own.get("nodeSelector", {})
        differing = {k: v for k, v in pinned.get("nodeSelector", {}).items() if selector.get(k) != v}
        spec: Spec = {"nodeSelector": differing} if differing else {}
        if pinned.get("tolerations") != own.get("tolerations"):
            spec["tolerations"] = pinned["tolerations"]  # a list replaces that of the runtime
        part = {"metadata": {"labels": {WORKLOAD: label}}} if label is not None else {}
        if part or spec:
            parts[name] = {**part, "spec": spec} if spec else part
    yield operation(made.carrier.path, made.carrier.entries(job, parts, id, at))


def as_json_patch(patch: Mapping[str, Any], job: JobObject) -> list[Operation]:
    """The JSON Patch of a patch with `OPERATIONS`. The resourceVersion in it makes it a compare-and-set."""
    meta = patch["metadata"]
    found = [operation(("metadata", key), meta[key]) for key in ("uid", "resourceVersion") if key in meta]
    if not job.metadata.annotations:
        found.append(operation(("metadata", "annotations"), {}))
    for key, value in meta["annotations"].items():
        path = ("metadata", "annotations", key)
        found.append(operation(path, value or ""))
        if value is None:  # only what is there can be removed, and `job` may be older than the patch
            found.append(operation(path, None, op="remove"))
    return [*found, *patch[OPERATIONS]]


def job_patch(job: Job, wanted: Spec) -> dict[str, Any] | None:
    """The merge patch that a Job needs before its parent is started; None where the parent's own merge is enough."""
    current = scheduling_of(job.spec.template.spec)
    if JOB.outcome(job) is not None or _merged(current, wanted) == wanted:
        return None
    meta = {"uid": job.metadata.uid, "resourceVersion": job.metadata.resource_version}
    return {"metadata": meta, "spec": {"template": {"spec": merge_diff(current, wanted)}}}


def _merged(current: Spec, wanted: Spec) -> Spec:
    """The scheduling part that a Job gets when its parent, pinned as `wanted` but for hosts, is resumed."""
    selector = {**current.get("nodeSelector", {}), **wanted.get("nodeSelector", {})}
    have = current.get("tolerations", [])
    tolerations = [*have, *(each for each in wanted.get("tolerations", []) if each not in have)]
    found = {"nodeSelector": selector, "tolerations": tolerations, "affinity": current.get("affinity")}
    return {key: value for key, value in found.items() if value}
